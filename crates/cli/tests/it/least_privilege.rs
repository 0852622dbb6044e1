//! What `record` and `watch` hold while they record: the capabilities of each of their threads,
//! from /proc.

use super::{Folder, schedlab, skip};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use std::fs;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// CAP_DAC_OVERRIDE and CAP_KILL (include/uapi/linux/capability.h, Linux 6.12).
const DAC_OVERRIDE: u64 = 1 << 1;
const KILL: u64 = 1 << 5;

/// A recorder that runs, ended at the end of a failing test too.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn start(arguments: &[&str]) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_schedlab"));
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running(command.spawn().expect("the program starts"))
    }

    /// Waits until every thread has given up what it does not need; returns the capabilities that
    /// each has.
    fn settled(&mut self) -> Vec<u64> {
        let begun = Instant::now();
        loop {
            let threads = fs::read_dir(format!("/proc/{}/task", self.0.id())).expect("it runs");
            let status = threads
                .filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("status")).ok());
            let held: Vec<(bool, u64)> = status.filter_map(|status| read(&status)).collect();
            if !held.is_empty() && held.iter().all(|(settled, _)| *settled) {
                return held.into_iter().map(|(_, held)| held).collect();
            }
            assert!(self.0.try_wait().unwrap().is_none(), "it ended early");
            assert!(begun.elapsed() < Duration::from_secs(60), "{held:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Interrupts it; returns the exit code, and what it printed.
    fn end(mut self) -> (Option<i32>, String) {
        kill_process(Pid::from_child(&self.0), Signal::INT).expect("it runs");
        let mut said = String::new();
        self.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        self.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (self.0.wait().unwrap().code(), said)
    }
}

/// Returns whether a thread has `no_new_privs`, and its permitted capabilities.
fn read(status: &str) -> Option<(bool, u64)> {
    let value = |name: &str| {
        Some(status.lines().find_map(|line| line.strip_prefix(name))?.trim().to_owned())
    };
    Some((value("NoNewPrivs:")? == "1", u64::from_str_radix(&value("CapPrm:")?, 16).ok()?))
}

/// Whether nothing can be recorded here, which is said.
fn cannot_record(folder: &Folder) -> bool {
    let out = folder.0.join("probe.slt").display().to_string();
    let ran = schedlab(&["record", "--all", "--for", "20ms", "--no-calibration", "-o", &out]);
    if ran.code == 2 {
        skip("least_privilege", &ran.stderr);
    }
    ran.code == 2
}

#[test]
fn a_recorder_gives_up_what_it_does_not_need() {
    let folder = Folder::new("least");
    if cannot_record(&folder) {
        return;
    }
    let base = ["record", "--all", "--for", "100s", "--no-calibration", "-o"];
    let out = folder.0.join("own.slt").display().to_string();
    let mut own = Running::start(&[&base[..], &[&out]].concat());
    assert!(own.settled().iter().all(|held| *held == 0), "its own folder needs no capability");
    let (code, said) = own.end();
    assert!(matches!(code, Some(0 | 3)) && fs::metadata(&out).unwrap().len() > 0, "{said}");
    if !geteuid().is_root() {
        return skip(
            "a_recorder_gives_up_what_it_does_not_need",
            "only root has a capability to keep",
        );
    }
    // A folder of another user, and a command.
    let other = folder.0.join("other");
    fs::create_dir(&other).unwrap();
    std::os::unix::fs::chown(&other, Some(65_534), Some(65_534)).unwrap();
    let out = other.join("x.slt").display().to_string();
    let mut foreign = Running::start(&[&base[..], &[&out, "--", "sleep", "100"]].concat());
    assert!(
        foreign.settled().iter().all(|held| *held == DAC_OVERRIDE | KILL),
        "{:?}",
        foreign.settled()
    );
    let (code, said) = foreign.end();
    assert!(
        matches!(code, Some(0 | 3)) && fs::metadata(&out).unwrap().len() > 0,
        "{code:?} {said}"
    );
    // The command has what its user has.
    let out = folder.0.join("command.slt").display().to_string();
    let ran = schedlab(&[
        "record",
        "--no-calibration",
        "-o",
        &out,
        "--",
        "grep",
        "CapPrm",
        "/proc/self/status",
    ]);
    let mine = fs::read_to_string("/proc/self/status").unwrap();
    let mine = mine.lines().find(|line| line.starts_with("CapPrm")).unwrap();
    assert!(ran.stdout.contains(mine), "{ran:?}");
}

#[test]
fn watch_gives_up_everything() {
    let folder = Folder::new("least-watch");
    if cannot_record(&folder) {
        return;
    }
    // What reads requests of other programs has nothing either.
    let socket = format!("unix:{}", folder.0.join("metrics").display());
    let mut watch = Running::start(&["watch", "--json", "--for", "100s", "--openmetrics", &socket]);
    let held = watch.settled();
    assert!(held.len() >= 4 && held.iter().all(|held| *held == 0), "{held:?}");
    let (code, said) = watch.end();
    assert!(matches!(code, Some(0 | 3)) && said.contains("schedlab-watch/"), "{code:?} {said}");
}
