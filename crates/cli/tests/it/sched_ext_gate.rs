//! The script of docs/guide/sched-ext.md, with real recordings and a scheduler that only says that
//! it is loaded: this machine's kernel need not have sched_ext.

use super::{Folder, Ran, root};
use std::path::Path;
use std::process::{Command, Stdio};

/// Says `enabled` until it is told to end.
const SCHEDULER: &str = "#!/bin/sh
trap 'echo disabled >class/state; exit 0' TERM
mkdir -p class/root; echo fake >class/root/ops; echo enabled >class/state
while :; do sleep 0.05; done
";
const LOAD: &str = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";

fn gate(folder: &Folder, scheduler: &str, gate: &str) -> Ran {
    let program = Path::new(env!("CARGO_BIN_EXE_schedlab")).parent().expect("in a folder");
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("sh");
    command
        .arg(root().join("docs/guide/sched-ext-gate.sh"))
        .args([scheduler, LOAD, gate, "3", "out"]);
    command.current_dir(&folder.0).stdin(Stdio::null());
    command.env("PATH", format!("{}:{path}", program.display())).env("SCHED_EXT", "class");
    super::ran(&mut command)
}

#[test]
fn the_gate_of_the_guide_tells_by_its_exit_code() {
    let folder = Folder::new("sched-ext-gate");
    let none = gate(&folder, "sh scheduler.sh", "sh share > 1%");
    assert_eq!(none.code, 2, "{none:?}");
    assert!(none.stderr.contains("this kernel has no sched_ext"), "{none:?}");

    folder.write("scheduler.sh", SCHEDULER);
    std::fs::create_dir(folder.0.join("class")).unwrap();
    folder.write("class/state", "enabled\n");
    let other = gate(&folder, "sh scheduler.sh", "sh share > 1%");
    assert_eq!(other.code, 2, "{other:?}");
    assert!(other.stderr.contains("a scheduler is loaded"), "{other:?}");

    folder.write("class/state", "disabled\n");
    let dead = gate(&folder, "false", "sh share > 1%");
    if dead.stderr.contains("the recording without it failed") {
        return super::skip("the_gate_of_the_guide_tells_by_its_exit_code", &dead.stderr);
    }
    assert_eq!(dead.code, 2, "{dead:?}");
    assert!(
        dead.stderr.contains("round 1: the scheduler did not come up: state disabled"),
        "{dead:?}"
    );

    let bad = gate(&folder, "sh scheduler.sh", "sh share > 1%");
    assert_eq!(bad.code, 1, "{bad:?}");
    assert!(bad.stdout.contains("FAILED  --fail-if 'sh share > 1%'"), "{bad:?}");
    let of = |side: &str| std::fs::read_dir(folder.0.join("out").join(side)).unwrap().count();
    assert_eq!((of("before"), of("after")), (3, 3));
    // It leaves nothing loaded.
    assert_eq!(std::fs::read_to_string(folder.0.join("class/state")).unwrap(), "disabled\n");

    let good = gate(&folder, "sh scheduler.sh", "sh share > 900%");
    assert_eq!(good.code, 0, "{good:?}");
}
