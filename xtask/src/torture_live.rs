//! `cargo xtask torture-live`: many rounds of the tests that attack keepers and drivers at random
//! moments: kills, stops, limits, journals that are removed, cut or garbled, numbers that are used
//! again, second instances, full disks.

use crate::built::Built;
use anyhow::Result;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Rounds in all, as docs/live-safety.md has them.
pub(crate) const ROUNDS: u64 = 2_000;
/// So many seconds a control group may stay that another program makes and removes.
const LOOKS: u32 = 20;
/// One round of so many is one of a whole driver, which takes ten times as long.
const DRIVERS: u64 = 8;

pub(crate) fn command(rounds: u64, seed: u64) -> Result<ExitCode> {
    let of_drivers = rounds / DRIVERS;
    let tests = [
        ("schedlab-live", "tortured_keepers_leave_nothing", rounds - of_drivers),
        ("schedlab-cli", "live::torture::tortured_drivers_leave_nothing", of_drivers),
    ];
    let built = Built::all()?;
    // All that the tests start has this folder in its environment, and all that they write is in
    // it.
    let folder = tempfile::Builder::new().prefix("schedlab-torture-").tempdir()?;
    let groups = groups();
    for (package, test, rounds) in tests {
        let mut command = built.test(package, "test", test)?;
        command.env("SCHEDLAB_ROUNDS", rounds.to_string()).env("SCHEDLAB_SEED", seed.to_string());
        if !command.env("TMPDIR", folder.path()).status()?.success() {
            return Ok(ExitCode::from(1));
        }
    }
    let look = || -> BTreeSet<String> {
        left_in(folder.path()).chain(self::groups().difference(&groups).cloned()).collect()
    };
    let mut left = look();
    // What another program made meanwhile goes by itself.
    for _ in 0..LOOKS {
        if left.is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_secs(1));
        left = left.intersection(&look()).cloned().collect();
    }
    let clean = left.is_empty();
    match clean {
        true => println!("left on this machine: no process, no claim, no control group, no file"),
        false => println!("left on this machine: {}", Vec::from_iter(left).join(", ")),
    }
    Ok(ExitCode::from(u8::from(!clean)))
}

/// Returns the processes, claims and files that have to do with the folder of the tests.
fn left_in(folder: &Path) -> impl Iterator<Item = String> {
    let wanted = folder.as_os_str().as_encoded_bytes();
    let named = |text: &[u8]| text.windows(wanted.len()).any(|part| part == wanted);
    let of_it = |pid: &String| {
        let read = |file: &str| std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        named(&read("cmdline")) || named(&read("environ"))
    };
    let processes = names(Path::new("/proc")).filter(of_it).map(|pid| format!("process {pid}"));
    let claims = Path::new("/run/schedlab-claims");
    let is_of_it = |name: &String| {
        std::fs::read_link(claims.join(name))
            .is_ok_and(|text| named(text.as_os_str().as_encoded_bytes()))
    };
    let claims = names(claims).filter(is_of_it).map(|name| format!("claim {name}"));
    // Each test program has one folder there, which the next one removes.
    let files =
        names(folder).flat_map(|one| names(&folder.join(one))).map(|name| format!("file {name}"));
    processes.chain(claims).chain(files).collect::<Vec<_>>().into_iter()
}

/// Returns the control groups that schedlab made, of whatever run.
fn groups() -> BTreeSet<String> {
    let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/cpu"].map(Path::new).into_iter();
    let all =
        roots.flat_map(|root| names(root).map(move |name| format!("{}/{name}", root.display())));
    all.filter(|path| path.contains("/schedlab")).collect()
}

fn names(folder: &Path) -> impl Iterator<Item = String> + use<> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
}
