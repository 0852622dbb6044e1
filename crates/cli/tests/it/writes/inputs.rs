//! An output that is an input is refused before anything is written, by whatever name; and what an
//! earlier run caught stays.

use super::{Ended, YES, quiet, schedlab};
use schedlab_files::TempDir;
use schedlab_trace::Recording;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs a command in which `IN` is the input, `OUT` one of its names. Returns its exit code and
/// what it said.
fn run(arguments: &[&str], input: &Path, output: &Path, piped: bool) -> (Option<i32>, String) {
    let place = |word: &&str| match *word {
        "IN" => input.display().to_string(),
        "OUT" => output.display().to_string(),
        other => other.replace("=IN", &format!("={}", input.display())),
    };
    let mut command = schedlab(&arguments.iter().map(place).collect::<Vec<_>>());
    if piped {
        command.stdin(fs::File::open(input).unwrap());
    }
    let output = command.stderr(Stdio::piped()).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Commands that would overwrite what they read: the input, the arguments for [`run`], and whether
/// the input is piped in.
fn overwriting() -> Vec<(&'static str, Vec<&'static str>, bool)> {
    let brief: &[&str] = &["--for", "300ms", "--seeds", "1"];
    vec![
        ("in.slt", [&["compare", "IN", "-o", "OUT"], brief].concat(), false),
        ("in.slt", [&["compare", "IN", "--report", "OUT"], brief].concat(), false),
        (
            "in.slt",
            [
                &["compare", YES, "--variant", "v: yes nice=5", "--check", "v=IN", "-o", "OUT"],
                brief,
            ]
            .concat(),
            false,
        ),
        ("in.toml", [&["compare", "IN", "-o", "OUT"], brief].concat(), false),
        ("in.slt", [&["compare", "-", "-o", "OUT"], brief].concat(), true),
        (
            "in.slt",
            vec![
                "tune",
                "IN",
                "--goal",
                "yes share",
                "--space",
                "yes nice=0,5",
                "--seeds",
                "1",
                "-o",
                "OUT",
            ],
            false,
        ),
        ("in.slt", vec!["show", "IN", "--report", "OUT"], false),
        ("in.slt", vec!["diff", "IN", YES, "-o", "OUT"], false),
        ("in.json", vec!["diff", "IN", "IN", "-o", "OUT"], false),
        ("in.slt", vec!["export", "IN", "--ftrace", "OUT"], false),
        ("in.slt", vec!["export", "IN", "--perfetto", "OUT"], false),
        ("in.slt", vec!["export", "IN", "--rt-app", "OUT"], false),
        ("in.txt", vec!["import", "IN", "-o", "OUT"], false),
        ("in.txt", vec!["import", "-", "-o", "OUT"], true),
    ]
}

#[test]
fn an_output_that_is_an_input_is_refused() {
    let folder = TempDir::with_prefix("schedlab-inputs-").unwrap();
    let place = |name: &str| folder.path().join(name);
    let made =
        schedlab(&["export", YES, "--perf-script", place("in.txt").to_str().unwrap()]).status();
    assert!(made.unwrap().success());
    let made = schedlab(&[
        "compare",
        "two-hogs",
        "--for",
        "1500ms",
        "--json",
        "-o",
        place("in.json").to_str().unwrap(),
    ]);
    assert!({ made }.status().unwrap().code().is_some_and(|code| code < 2));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::copy(root.join(YES), place("in.slt")).unwrap();
    fs::copy(root.join("scenarios/two-hogs.toml"), place("in.toml")).unwrap();
    for (input, arguments, piped) in &overwriting() {
        let (input, hard, soft) = (place(input), place("hard"), place("soft"));
        fs::hard_link(&input, &hard).unwrap();
        symlink(&input, &soft).unwrap();
        let before = fs::read(&input).unwrap();
        for output in [&input, &hard, &soft] {
            let (code, said) = run(arguments, &input, output, *piped);
            assert_eq!(code, Some(2), "{arguments:?}: {said}");
            assert!(said.contains("give the output a name of its own"), "{arguments:?}: {said}");
            assert_eq!(fs::read(&input).unwrap(), before, "{arguments:?}");
        }
        fs::remove_file(hard).unwrap();
        fs::remove_file(soft).unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 4, "{arguments:?} left something");
    }
    // Appended to by the shell.
    let before = fs::read(place("in.slt")).unwrap();
    let mut command = schedlab(&["show", place("in.slt").to_str().unwrap()]);
    command.stdout(fs::OpenOptions::new().append(true).open(place("in.slt")).unwrap());
    assert_eq!(command.status().unwrap().code(), Some(2));
    assert_eq!(fs::read(place("in.slt")).unwrap(), before);
}

#[test]
fn an_import_that_fails_leaves_the_old_file() {
    let folder = TempDir::with_prefix("schedlab-inputs-").unwrap();
    let output = folder.path().join("x.slt");
    fs::write(&output, super::BEFORE).unwrap();
    let bad = folder.path().join("bad.txt");
    fs::write(&bad, "no trace of any kind\n").unwrap();
    let (code, said) = run(&["import", "IN", "-o", "OUT"], &bad, &output, false);
    assert_eq!(code, Some(2), "{said}");
    assert_eq!(fs::read(&output).unwrap(), super::BEFORE);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "a part is left");
}

/// Whether recordings of the whole machine can be made here.
fn records(arguments: &[&str], folder: &Path) -> Option<(Option<i32>, String)> {
    let mut command = schedlab(arguments);
    let output = command.current_dir(folder).stderr(Stdio::piped()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.code() == Some(2) && !said.contains("recording by") {
        assert!(std::env::var("CI").map_or(true, |ci| ci != "true"), "it must record here: {said}");
        return None;
    }
    Some((output.status.code(), said))
}

#[test]
fn incidents_of_an_earlier_run_stay() {
    let folder = TempDir::with_prefix("schedlab-keep-").unwrap();
    let names = || {
        let mut names: Vec<_> = fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    let earlier = ["incident-1.slt", "incident-7.slt", "incident-x.slt"];
    for name in earlier {
        fs::write(folder.path().join(name), name).unwrap();
    }
    let record = |until: &str, time: &str| {
        let ring = [
            "record",
            "--no-calibration",
            "--ring",
            "1s",
            "--until",
            until,
            "--keep",
            "1",
            "--for",
            time,
        ];
        records(&[&ring[..], &["-o", "incident.slt"]].concat(), folder.path())
    };
    let Some((code, said)) = record("nosuch wait > 10s", "500ms") else {
        eprintln!("SKIPPED incidents_of_an_earlier_run_stay: this machine cannot be recorded");
        return;
    };
    assert_eq!(code, Some(1), "{said}");
    assert_eq!(names(), earlier, "no event came, so no file came");
    // Something that blocks again and again, for each event that is waited for.
    let script = "while :; do sleep 0.02; done";
    let _load = Ended(Command::new("sh").args(["-c", script]).spawn().unwrap());
    record("sleep block > 5ms", "3s").unwrap();
    let after = names();
    for name in earlier {
        assert_eq!(fs::read(folder.path().join(name)).unwrap(), name.as_bytes());
    }
    let new: Vec<&String> = after.iter().filter(|name| !earlier.contains(&name.as_str())).collect();
    let [new] = new[..] else { panic!("of this run the newest is kept: {after:?}") };
    let number: u64 =
        new.strip_prefix("incident-").unwrap().strip_suffix(".slt").unwrap().parse().unwrap();
    assert!(number >= 8, "{new}");
    Recording::open(folder.path().join(new)).unwrap();
}

/// The disk of the output is full when the event has come: the ring is written elsewhere.
#[test]
fn a_ring_that_does_not_fit_is_written_elsewhere() {
    let folder = TempDir::with_prefix("schedlab-full-").unwrap();
    let (full, spare) = (folder.path().join("full"), folder.path().join("spare"));
    fs::create_dir(&full).unwrap();
    fs::create_dir(&spare).unwrap();
    let script = "mount -t tmpfs -o size=4k tmpfs \"$1\" && head -c 4096 /dev/zero > \"$1/zero\" \
                  && cd \"$1\" && shift && \
                  exec \"$@\"";
    let mut command = quiet("unshare");
    command.args(["-rm", "sh", "-c", script, "sh"]).arg(&full).arg(env!("CARGO_BIN_EXE_schedlab"));
    let [record, options @ ..] = super::RING else { panic!("a command") };
    let options = options.iter().map(|word| if *word == "OUT" { "x.slt" } else { word });
    command.args([record, "--json"]).args(options).env("TMPDIR", &spare);
    let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if !said.contains("recording by") {
        assert!(std::env::var("CI").map_or(true, |ci| ci != "true"), "it must work here: {said}");
        eprintln!(
            "SKIPPED a_ring_that_does_not_fit_is_written_elsewhere: no file system of one's own, \
             or no recording"
        );
        return;
    }
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("No space left") && said.contains("the recording is in"), "{said}");
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let file = Path::new(value["file"].as_str().unwrap());
    assert!(file.starts_with(&spare) && value["not_at_place"].is_string(), "{value}");
    assert!(!Recording::open(file).unwrap().events.is_empty());
}
