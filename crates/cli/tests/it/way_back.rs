//! `status`, `detach` and `restore` on a journal of a dead owner.

use crate::{Folder, Ran, ran, root};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};

/// A child of the test in a policy that it did not begin with, and a journal that says so.
struct Left {
    folder: Folder,
    target: Child,
}

fn chrt(arguments: &[&str]) -> String {
    let output = Command::new("chrt").args(arguments).output().expect("chrt(1) of util-linux");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

fn started(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let after = stat.rsplit_once(')').expect("a name").1;
    after.split_whitespace().nth(19).expect("fields").parse().expect("a number")
}

fn nice_of(pid: u32) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let after = stat.rsplit_once(')').expect("a name").1;
    after.split_whitespace().nth(16).expect("fields").parse().expect("a number")
}

impl Left {
    fn new(name: &str) -> Left {
        let target = Command::new("sleep").arg("600").spawn().expect("sleep(1)");
        let pid = target.id();
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("Linux");
        let thread = |tid: u32, started: u64, comm: &str| {
            format!(
                r#"{{"tid":{tid},"process":{tid},"parent":1,"started":{started},"kernel":false,"comm":"{comm}"}}"#
            )
        };
        // That of the tests, which may have been started by nice(1).
        let nice = nice_of(pid);
        let scheduling = |policy: &str| {
            format!(r#"{{"policy":"{policy}","nice":{nice},"slice":null,"reset_on_fork":false}}"#)
        };
        // The owner started before this process could be born, so it is dead.
        let head = format!(
            r#"{{"version":1,"boot":"{}","owner":{},"purpose":"a test"}}"#,
            boot.trim(),
            thread(pid, 1, "x")
        );
        let entry = format!(
            r#"{{"what":"scheduling","thread":{},"before":{},"set":{{"To":{}}}}}"#,
            thread(pid, started(pid), "sleep"),
            scheduling("other"),
            scheduling("idle"),
        );
        let folder = Folder::new(name);
        folder.write("1-1-0.journal", format!("{head}\n{entry}\n"));
        chrt(&["--idle", "-p", "0", &pid.to_string()]);
        Left { folder, target }
    }

    fn schedlab(&self, arguments: &[&str]) -> Ran {
        let mut command = Command::new(env!("CARGO_BIN_EXE_schedlab"));
        ran(command
            .args(arguments)
            .current_dir(root())
            .stdin(Stdio::null())
            .env("SCHEDLAB_RUN_DIR", &self.folder.0))
    }

    fn policy(&self) -> String {
        let text = chrt(&["-p", &self.target.id().to_string()]);
        text.lines().next().and_then(|line| line.rsplit(' ').next()).expect("a line").to_owned()
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        let _ = self.target.kill();
        let _ = self.target.wait();
    }
}

#[test]
fn restore_gives_back_what_a_dead_owner_left() {
    let left = Left::new("restore");
    let seen = left.schedlab(&["status"]);
    assert!(
        seen.code == 0 && seen.stdout.contains("is dead") && seen.stdout.contains("other -> idle"),
        "{seen:?}"
    );
    assert_eq!(left.policy(), "SCHED_IDLE");
    let given = left.schedlab(&["restore"]);
    assert!(given.code == 0 && given.stdout.contains("as before again"), "{given:?}");
    assert_eq!((left.policy(), left.folder.names().len()), ("SCHED_OTHER".to_owned(), 0));
    assert_eq!(left.schedlab(&["restore"]).stdout, "nothing has to be given back\n");
    assert_eq!(left.schedlab(&["status"]).stdout, "nothing is managed\n");
}

#[test]
fn detach_says_in_json_what_it_did() {
    let left = Left::new("detach");
    let given = left.schedlab(&["detach", "--json"]);
    let value: serde_json::Value = serde_json::from_str(&given.stdout).expect("JSON");
    assert_eq!(
        (&value["schema"], &value["given_back"][0]["items"][0]["outcome"]),
        (&"schedlab-restore/1".into(), &"restored".into())
    );
    assert_eq!(left.policy(), "SCHED_OTHER");
}

#[test]
fn a_journal_that_makes_no_sense_is_named() {
    let left = Left::new("nonsense");
    left.folder.write("2-2-0.journal", "{\"version\":99}\n");
    let given = left.schedlab(&["restore"]);
    assert!(given.code == 2 && given.stderr.contains("2-2-0.journal, line 1"), "{given:?}");
    // The other one was served all the same.
    assert_eq!(left.policy(), "SCHED_OTHER");
}

#[test]
fn a_folder_that_others_can_write_is_refused() {
    let left = Left::new("open");
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(&left.folder.0, open).expect("a file of this test");
    let given = left.schedlab(&["restore"]);
    assert!(given.code == 2 && given.stderr.contains("can be written by others"), "{given:?}");
}
