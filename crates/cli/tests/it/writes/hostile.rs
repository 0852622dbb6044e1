//! A file system that another user prepared, under every command that writes as root. What belongs
//! to root stays as it was, nothing that root writes gets another user's mode, and nothing waits
//! for ever. Only root can play this; elsewhere the test is skipped by name.

use super::{BEFORE, Ground, WRITERS, Writer, next};
use schedlab_files::TempDir;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The other user: the number that Debian gives to a user who owns no file (base-passwd;
/// overflowuid of the kernel).
const NOBODY: u32 = 65534;
const PRECIOUS: &[u8] = b"root's own";

/// What the other user prepared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Trap {
    /// In a folder like /tmp: a link to a file (or folder) of root at the output.
    Sticky,
    /// In the user's own folder: the same.
    Link,
    /// In the user's own folder: a link to a folder of root on the way.
    Above,
    /// A pipe at the output: who opens it waits for a reader.
    Pipe,
    /// A program-to-be: a file of mode 4777 at the output.
    Setuid,
    /// A file and a link take turns at the output, as fast as the user can.
    Turns,
}

const TRAPS: [Trap; 6] =
    [Trap::Sticky, Trap::Link, Trap::Above, Trap::Pipe, Trap::Setuid, Trap::Turns];

/// A round's files.
struct Set {
    /// What belongs to root.
    victim: PathBuf,
    /// An empty folder of root.
    inner: PathBuf,
    /// The other user's folder.
    theirs: PathBuf,
    out: PathBuf,
}

fn owned(path: &Path, owner: u32, mode: u32) {
    chown(path, Some(owner), Some(owner)).unwrap();
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn link(to: &Path, at: &Path) {
    symlink(to, at).unwrap();
    lchown(at, Some(NOBODY), Some(NOBODY)).unwrap();
}

impl Set {
    fn new(root: &Path, trap: Trap, writer: &Writer) -> Set {
        let (victim, inner, theirs) =
            (root.join("victim"), root.join("inner"), root.join("theirs"));
        fs::write(&victim, PRECIOUS).unwrap();
        owned(&victim, 0, 0o644);
        fs::create_dir(&inner).unwrap();
        fs::create_dir(&theirs).unwrap();
        let (owner, mode) = if trap == Trap::Sticky { (0, 0o1777) } else { (NOBODY, 0o755) };
        owned(&theirs, owner, mode);
        let out = theirs.join(if trap == Trap::Above { "link/out" } else { "out" });
        let target = if writer.files.is_empty() { &victim } else { &inner };
        match trap {
            Trap::Sticky | Trap::Link => link(target, &out),
            Trap::Above => link(&inner, &theirs.join("link")),
            Trap::Pipe | Trap::Setuid => {
                for file in writer.places(&out) {
                    if file != out && !out.exists() {
                        fs::create_dir(&out).unwrap();
                        owned(&out, NOBODY, 0o755);
                    }
                    if trap == Trap::Pipe {
                        assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
                    } else {
                        fs::write(&file, BEFORE).unwrap();
                    }
                    owned(&file, NOBODY, if trap == Trap::Pipe { 0o666 } else { 0o4777 });
                }
            }
            Trap::Turns => {}
        }
        Set { victim, inner, theirs, out }
    }

    /// Lets a file and a link take turns at the output while `run` runs.
    fn turns(&self, run: impl FnOnce()) {
        let script = "while :; do ln -sfn \"$0\" \"$1\"; rm -rf \"$1\"; echo x > \"$1\"; done";
        let mut attacker = Command::new("sh");
        attacker.args(["-c", script]).arg(&self.victim).arg(&self.out).stderr(Stdio::null());
        let mut attacker = super::Ended(attacker.uid(NOBODY).gid(NOBODY).spawn().unwrap());
        run();
        let _ = attacker.0.kill();
    }

    /// What belongs to root is as it was.
    fn judge(&self, what: &str) {
        let data = fs::metadata(&self.victim).unwrap();
        assert_eq!(fs::read(&self.victim).unwrap(), PRECIOUS, "{what}");
        assert_eq!((data.uid(), data.mode() & 0o7777), (0, 0o644), "{what}");
        assert_eq!(
            fs::read_dir(&self.inner).unwrap().count(),
            0,
            "{what}: written into root's folder"
        );
        let mut folders = vec![self.theirs.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().flatten() {
                // In the round of turns an entry may be gone.
                let Ok(data) = entry.metadata() else { continue };
                if data.is_dir() {
                    folders.push(entry.path());
                } else if data.uid() == 0 {
                    assert_eq!(
                        data.mode() & 0o7000,
                        0,
                        "{what}: {:?} has {:o}",
                        entry.path(),
                        data.mode()
                    );
                }
                assert!(
                    !entry.path().to_string_lossy().ends_with(".part"),
                    "{what}: {:?} is left",
                    entry.path()
                );
            }
        }
    }
}

fn run(ground: &Ground, writer: &Writer, set: &Set) -> (Option<i32>, String) {
    let mut command = super::quiet("timeout");
    command.args(["--kill-after=5", "120", env!("CARGO_BIN_EXE_schedlab")]);
    let output =
        command.args(ground.arguments(writer, &set.out)).stderr(Stdio::piped()).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn round(ground: &Ground, writer: &Writer, trap: Trap) {
    let root = TempDir::with_prefix("schedlab-hostile-").unwrap();
    fs::set_permissions(root.path(), Permissions::from_mode(0o755)).unwrap();
    let set = Set::new(root.path(), trap, writer);
    let what = format!("{:?}, {trap:?}", writer.arguments);
    let (mut code, mut said) = (None, String::new());
    let mut once = || (code, said) = run(ground, writer, &set);
    if trap == Trap::Turns {
        set.turns(once)
    } else {
        once()
    }
    set.judge(&what);
    match trap {
        // Whatever was at the output when the command looked.
        Trap::Turns => assert!(code.is_some_and(|code| code <= 3), "{what}: {code:?}, {said}"),
        Trap::Setuid => {
            // 1: an expectation of a scenario that is cut short; 3: a measurement on a machine that
            // is busy.
            assert!(matches!(code, Some(0 | 1 | 3)), "{what}: {code:?}, {said}");
            for file in writer.places(&set.out) {
                let data = fs::metadata(&file).unwrap();
                assert_eq!((data.uid(), data.mode() & 0o7777), (0, 0o600), "{what}: {file:?}");
            }
        }
        _ => {
            assert_eq!(code, Some(2), "{what}: {said}");
            assert!(said.contains("of user 65534"), "{what}: the message does not say why: {said}");
        }
    }
}

#[test]
fn a_hostile_file_system_gets_nothing_of_root() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        eprintln!(
            "SKIPPED a_hostile_file_system_gets_nothing_of_root: only root can play two users"
        );
        return;
    }
    let rounds = std::env::var("SCHEDLAB_ROUNDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(WRITERS.len());
    let ground = Ground::new();
    let mut seed = 20_261_128;
    let mut done = [0; TRAPS.len()];
    for number in 0..rounds {
        let writer = &WRITERS[number % WRITERS.len()];
        // Each writer meets another trap in each turn through the list.
        let trap = (number + number / WRITERS.len() + next(&mut seed) as usize) % TRAPS.len();
        let measured =
            !writer.arguments.contains(&"LATENCY") || ground.folder.join("latency.json").exists();
        if measured {
            round(&ground, writer, TRAPS[trap]);
            done[trap] += 1;
        }
    }
    fs::remove_dir_all(&ground.folder).unwrap();
    eprintln!("{rounds} rounds: {TRAPS:?} {done:?}");
    assert!(done.iter().sum::<usize>() > rounds / 2);
}
