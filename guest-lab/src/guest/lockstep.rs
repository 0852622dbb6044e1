//! QEMU whose CPUs run beside each other under the virtual clock: Debian's source with a patch
//! (`guest-lab/qemu`), built once and kept.
//!
//! Debian's QEMU gives its CPUs turns on one clock, so that each of N busy CPUs has 1/N of its
//! speed: work costs more CPU time where more CPUs are busy, and a CPU that is woken waits for its
//! turn. No machine is like that.

use super::apt::Apt;
use super::store::Store;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is built, beside the source: another text is another build.
const PATCH: &str = include_str!("../../qemu/lockstep.patch");
const SCRIPT: &str = include_str!("../../qemu/build.sh");

/// What the script needs, and the packages that bring it.
const NEEDED: [(&str, &str); 5] = [
    ("cc", "gcc"),
    ("ninja", "ninja-build"),
    ("pkg-config", "pkg-config"),
    ("patch", "patch"),
    ("python3", "python3-venv"),
];
/// Libraries whose headers it needs.
const LIBRARIES: [(&str, &str); 2] = [("glib-2.0", "libglib2.0-dev"), ("zlib", "zlib1g-dev")];

/// Returns the program, built when it is not there yet. `version`: Debian's version of the package
/// whose source is taken.
pub(super) fn get(store: &Store, suite: &str, version: &str) -> Result<PathBuf> {
    let folder = store.folder("lockstep")?;
    let (program, made) = (folder.join("qemu-system-x86_64"), folder.join("made-from"));
    let from = format!("{version}\n{SCRIPT}{PATCH}");
    if program.exists() && std::fs::read_to_string(&made).is_ok_and(|text| text == from) {
        return Ok(program);
    }
    let missing: Vec<&str> = missing().collect();
    ensure!(
        missing.is_empty(),
        "--lockstep builds QEMU, for which packages are missing: apt-get install {}",
        missing.join(" ")
    );
    let apt = Apt::with_sources(&store.folder("apt-lockstep")?, suite)?;
    let source = store.fetching("QEMU's source", || apt.download_source("qemu", version))?;
    println!("building QEMU for CPUs in lockstep (some minutes, once; {})", folder.display());
    build(&source, &folder)?;
    std::fs::remove_file(&source)?;
    std::fs::write(made, from)?;
    Ok(program)
}

/// The packages that are not here.
fn missing() -> impl Iterator<Item = &'static str> {
    let programs = NEEDED.iter().filter(|(program, _)| !super::is_installed(program));
    let libraries = LIBRARIES.iter().filter(|(library, _)| {
        let mut asked = Command::new("pkg-config");
        !asked.args(["--exists", library]).status().is_ok_and(|status| status.success())
    });
    programs.chain(libraries).map(|&(_, package)| package)
}

fn build(source: &Path, folder: &Path) -> Result<()> {
    let script = crate::root().join("guest-lab/qemu/build.sh");
    let log = folder.join("build.log");
    let said = std::fs::File::create(&log).with_context(|| log.display().to_string())?;
    let status = Command::new("sh")
        .arg(script)
        .args([source, folder])
        .stdout(said.try_clone()?)
        .stderr(said)
        .status()
        .context("sh")?;
    ensure!(status.success(), "QEMU does not build: {}", log.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_patch_touches_only_files_with_a_permissive_licence() {
        let files: Vec<&str> =
            PATCH.lines().filter_map(|line| line.strip_prefix("+++ b/")).collect();
        assert_eq!(
            files,
            ["accel/tcg/tcg-accel-ops-icount.c", "accel/tcg/tcg-accel-ops-rr.c"],
            "the licence of another file must be looked at first"
        );
        assert!(SCRIPT.contains("lockstep.patch"));
    }
}
