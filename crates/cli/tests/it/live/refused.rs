//! What cannot run is refused by name: without rights, and for every user.

use super::*;

/// As an ordinary user: what works works, the rest is refused by name.
#[test]
fn an_ordinary_user_is_told_what_is_missing() {
    let Some(_turn) = turn("an_ordinary_user_is_told_what_is_missing") else { return };
    // Where a user without rights can reach both.
    let folder = Folder::new("live-user");
    let program = folder.0.join("schedlab");
    std::fs::copy(env!("CARGO_BIN_EXE_schedlab"), &program)
        .expect("the temporary folder is writable");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&folder.0, open).expect("a file of this test");
    let rooms = folder.0.join("rooms");
    std::fs::create_dir(&rooms).expect("a file of this test");
    std::os::unix::fs::chown(&rooms, Some(65_534), Some(65_534)).expect("root");
    let as_other_user = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args([
            "--reuid",
            "65534",
            "--regid",
            "65534",
            "--clear-groups",
            "--inh-caps=-all",
            "--",
        ]);
        command.arg(&program).args(arguments).current_dir("/").stdin(Stdio::null());
        ran(command.env("SCHEDLAB_RUN_DIR", rooms.join("run")).env("HOME", "/"))
    };
    let target = Children::start("while :; do :; done");
    let pid = target.pid().to_string();
    let before = state(target.pid());
    for arguments in [
        &["run", "--scheduler", "rr", "--", "true"][..],
        &["attach", "--scheduler", "rr", "--pid", &pid],
        &["confirm", "--scheduler", "rr", "--rounds", "1", "--", "sleep", "5"],
    ] {
        let refused = as_other_user(arguments);
        let said = refused.stderr.contains("root") || refused.stderr.contains("permission");
        assert!(refused.code == 2 && said, "{arguments:?}: {refused:?}");
    }
    let matrix = as_other_user(&["list", "schedulers", "--live"]);
    assert!(
        matrix.code == 0 && matrix.stdout.contains("no: to know when tasks wake"),
        "{matrix:?}"
    );
    for (arguments, word) in [
        (&["status"][..], "nothing is managed"),
        (&["restore"], "nothing has to be given back"),
        (&["compare", "two-hogs"], "linux"),
        (&["doctor"], "setcap"),
    ] {
        let works = as_other_user(arguments);
        assert!(works.code == 0 && works.stdout.contains(word), "{arguments:?}: {works:?}");
    }
    assert_eq!(state(target.pid()), before);
    let top = as_other_user(&["top", "--once"]);
    assert!(top.code == 2 && top.stderr.contains("nothing is managed"), "{top:?}");
}

/// Checks that each command is refused, with these words. Without root only `verify` gets as far as
/// that.
fn are_refused(folder: &Folder, all: &[(Vec<&str>, &str)]) {
    for (arguments, word) in all {
        if arguments[0] != "verify" && !rustix::process::geteuid().is_root() {
            continue;
        }
        let refused = schedlab(folder, arguments);
        assert!(refused.code == 2 && refused.stderr.contains(word), "{arguments:?}: {refused:?}");
    }
}

#[test]
fn what_cannot_be_run_is_refused_by_name() {
    let folder = Folder::new("live-refused");
    let all = schedlab_host::machine().online.to_string();
    let (cannot, own) =
        (format!("CPUs {all} cannot all be managed"), std::process::id().to_string());
    are_refused(
        &folder,
        &[
            (vec!["run", "--scheduler", "lottery", "--", "true"], "unknown scheduler `lottery`"),
            (
                vec!["run", "--scheduler", "rr", "--cpus", &all, "--", "true"],
                "one CPU must stay unmanaged",
            ),
            (vec!["run", "--scheduler", "rr", "--cpus", &all, "--", "true"], cannot.as_str()),
            (
                vec!["attach", "--scheduler", "rr", "--cpus", &all, "--pid", &own],
                "cannot all be managed",
            ),
            (
                vec!["run", "--scheduler", "rr", "--cpus", "400", "--", "true"],
                "CPU 400 cannot be managed",
            ),
            (vec!["run", "--scheduler", "rr", "--task", "x", "--", "true"], "NAME=POLICY"),
            (vec!["attach", "--scheduler", "rr", "--pid", "8388609"], "no thread 8388609"),
            // Built without it, or on a kernel without it: either is said by name, and the command
            // does not start.
            (
                vec!["run", "--driver", "sched-ext", "--scheduler", "rr", "--", "true"],
                "--driver sched-ext",
            ),
            (vec!["verify", "README.md"], "line 1"),
            (
                vec!["run", "--scheduler", "rr", "--", "/no/such"],
                "cannot start `/no/such`: No such file",
            ),
        ],
    );
}

#[test]
fn what_cannot_be_confirmed_is_refused_by_name() {
    let folder = Folder::new("live-refused-confirm");
    let recording = root().join("recordings/hackbench.slt").display().to_string();
    are_refused(
        &folder,
        &[
            (
                vec![
                    "confirm",
                    "--driver",
                    "both",
                    "--scheduler",
                    "rr",
                    "--scheduler",
                    "layers",
                    "--",
                    "yes",
                ],
                "--driver sched-ext",
            ),
            (
                vec!["confirm", "--scheduler", "rr", "--", "/etc/passwd"],
                "cannot start `/etc/passwd`: Permission",
            ),
            (
                vec!["confirm", "--driver", "both", "--scheduler", "rr,layers", "--", "true"],
                "--driver sched-ext",
            ),
            (
                vec!["confirm", "--driver", "sched-ext", "--scheduler", "rr", "--", "true"],
                "--driver sched-ext",
            ),
            (
                vec!["confirm", "--scheduler", "rr,,layers", "--", "true"],
                "a comma has no scheduler beside it",
            ),
            (
                vec!["confirm", "--scheduler", "rr,lottery", "--", "sleep", "5"],
                "unknown scheduler `lottery`",
            ),
            (vec!["confirm", "--scheduler", "rr"], "say what to run, after `--`"),
            (
                vec!["confirm", "--replay", "letters", "--scheduler", "rr", "--", "true"],
                "replay `letters`: there are auto, messages and wakeups",
            ),
            (
                vec![
                    "confirm",
                    recording.as_str(),
                    "--replay",
                    "messages",
                    "--variant",
                    "nice: hackbench nice=1",
                    "--",
                    "true",
                ],
                "record with `schedlab record --messages on`",
            ),
            (vec!["confirm", recording.as_str(), "--scheduler", "rr"], "was made with: hackbench"),
        ],
    );
}

#[test]
fn a_thread_of_the_kernel_is_refused() {
    let folder = Folder::new("live-refused-kernel");
    // Number 2 is kthreadd, where process numbers begin with the machine's.
    if state(2).is_some()
        && std::fs::read_to_string("/proc/2/comm").is_ok_and(|comm| comm.trim() == "kthreadd")
    {
        let refused = schedlab(&folder, &["attach", "--scheduler", "rr", "--pid", "2"]);
        assert!(
            refused.code == 2 && refused.stderr.contains("belongs to the kernel"),
            "{refused:?}"
        );
    }
}
