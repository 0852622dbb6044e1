//! kill -9 and a full disk at any moment of every command that writes: what was there before is there afterwards, or the whole new
//! file. Rounds and seed are fixed: `cargo xtask torture-writes --rounds 500` does five hundred.
#![allow(clippy::print_stderr)]

use schedlab_trace::{Recording, TraceError};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What is at the output before each round: no file of any kind that a command writes.
const BEFORE: &[u8] = b"what was here before\n";

/// A command that writes. `OUT` in its arguments is the output.
struct Writer {
    arguments: &'static [&'static str],
    /// The files in the output, when it is a folder.
    files: &'static [&'static str],
    /// Records this machine: no two runs are alike.
    records: bool,
}

const fn writer(arguments: &'static [&'static str]) -> Writer {
    Writer { arguments, files: &[], records: false }
}

const fn recorder(arguments: &'static [&'static str]) -> Writer {
    Writer { arguments, files: &[], records: true }
}

const WRITERS: &[Writer] = &[
    writer(&["compare", "two-hogs", "--for", "1500ms", "-o", "OUT"]),
    writer(&["compare", "two-hogs", "--for", "1500ms", "--json", "-o", "OUT"]),
    writer(&["compare", "two-hogs", "--for", "1500ms", "--report", "OUT"]),
    writer(&["show", "recordings/two-yes.slt", "--report", "OUT"]),
    writer(&["diff", "recordings/two-yes.slt", "recordings/two-yes.slt", "-o", "OUT"]),
    writer(&["export", "recordings/two-yes.slt", "--ftrace", "OUT"]),
    writer(&["export", "recordings/two-yes.slt", "--perf-script", "OUT"]),
    writer(&["export", "recordings/two-yes.slt", "--perfetto", "OUT"]),
    Writer {
        arguments: &["export", "recordings/two-yes.slt", "--csv", "OUT"],
        files: &["events.csv", "tasks.csv", "waits.csv"],
        records: false,
    },
    writer(&["import", "TEXT", "-o", "OUT"]),
    writer(&["generate", "--seed", "7", "-o", "OUT"]),
    recorder(&["record", "--backend", "own", "--no-calibration", "-o", "OUT", "--", "sh", "-c", LOAD]),
    recorder(&[
        "record",
        "--backend",
        "own",
        "--no-calibration",
        "--ring",
        "10s",
        "-o",
        "OUT",
        "--",
        "sh",
        "-c",
        LOAD,
    ]),
];

const LOAD: &str = "i=0; while [ $i -lt 40 ]; do sleep 0.01; i=$((i+1)); done";

/// How a round is disturbed.
#[derive(Clone, Copy, Debug)]
enum Disturbance {
    /// SIGKILL after this part of the time of a whole run, in thousandths.
    Kill(u64),
    /// No file may grow beyond so many blocks of 512 bytes: writing fails.
    Limit(u64),
    /// A file system with this many KiB in all.
    Full(u64),
}

/// A small generator of moments.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

struct Ground {
    folder: PathBuf,
    text: PathBuf,
    /// Whether an unprivileged tmpfs can be had.
    namespaces: bool,
}

impl Ground {
    fn new() -> Ground {
        let folder = std::env::temp_dir().join(format!("schedlab-writes-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let text = folder.join("in.txt");
        let mut made =
            schedlab(&["export", "recordings/two-yes.slt", "--perf-script", &text.display().to_string()]);
        assert!(made.status().unwrap().success());
        let probe = "mount -t tmpfs -o size=64k tmpfs /mnt";
        let namespaces = Command::new("unshare")
            .args(["-rm", "sh", "-c", probe])
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
        Ground { folder, text, namespaces }
    }

    fn arguments(&self, writer: &Writer, out: &Path) -> Vec<String> {
        let place = |word: &&str| match *word {
            "OUT" => out.display().to_string(),
            "TEXT" => self.text.display().to_string(),
            other => other.to_owned(),
        };
        writer.arguments.iter().map(place).collect()
    }

    /// Puts what was there before at `out`.
    fn prepare(&self, writer: &Writer, out: &Path) {
        let _ = std::fs::remove_dir_all(out.parent().unwrap());
        std::fs::create_dir_all(out.parent().unwrap()).unwrap();
        for file in writer.places(out) {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, BEFORE).unwrap();
        }
    }

    /// Runs `writer` undisturbed. Returns the time it took and its files; `None` when it cannot work here.
    fn whole(&self, writer: &Writer) -> Option<(Duration, Vec<Vec<u8>>)> {
        let out = self.folder.join("whole").join("out");
        self.prepare(writer, &out);
        let begin = Instant::now();
        let status = schedlab(&self.arguments(writer, &out)).status().unwrap();
        let files = writer.places(&out).iter().map(|file| std::fs::read(file).unwrap()).collect();
        // 1: an expectation of a scenario that is cut short.
        status.code().is_some_and(|code| code < 2).then(|| (begin.elapsed(), files))
    }

    fn disturbed(&self, writer: &Writer, took: Duration, how: Disturbance) -> PathBuf {
        let out = self.folder.join("round").join("out");
        self.prepare(writer, &out);
        let arguments = self.arguments(writer, &out);
        match how {
            Disturbance::Kill(permille) => {
                let mut child = Ended(schedlab(&arguments).process_group_of_its_own().spawn().unwrap());
                std::thread::sleep(took * permille as u32 / 1000);
                let _ = child.0.kill();
                child.0.wait().unwrap();
            }
            Disturbance::Limit(blocks) => {
                let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$@\"");
                let mut command = quiet("sh");
                command.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_schedlab")]).args(&arguments);
                command.status().unwrap();
            }
            Disturbance::Full(size) => {
                // The round's files are copied into the full file system, and what is left is copied out of it.
                let script = "mkdir -p \"$1.copy\" && cp -r \"$1/.\" \"$1.copy\" && mount -t tmpfs -o size=$2k tmpfs \"$1\" && \
                              cp -r \"$1.copy/.\" \"$1\"; d=$1; shift 2; \"$@\"; rm -rf \"$d.copy\"; cp -r \"$d\" \"$d.copy\"";
                let round = out.parent().unwrap();
                let mut command = quiet("unshare");
                command.args(["-rm", "sh", "-c", script, "sh"]).arg(round).arg(size.to_string());
                command.arg(env!("CARGO_BIN_EXE_schedlab")).args(&arguments);
                command.status().unwrap();
                let copy = round.with_extension("copy");
                std::fs::remove_dir_all(round).unwrap();
                std::fs::rename(&copy, round).unwrap();
            }
        }
        out
    }
}

trait OwnGroup {
    fn process_group_of_its_own(&mut self) -> &mut Command;
}

impl OwnGroup for Command {
    fn process_group_of_its_own(&mut self) -> &mut Command {
        std::os::unix::process::CommandExt::process_group(self, 0)
    }
}

impl Writer {
    fn places(&self, out: &Path) -> Vec<PathBuf> {
        match self.files {
            [] => vec![out.to_owned()],
            names => names.iter().map(|name| out.join(name)).collect(),
        }
    }

    /// Whether `file` is whole: for a recording that it opens and has its end, for all else that it is what an undisturbed run gives.
    fn is_whole(&self, file: &Path, got: &[u8], whole: &[u8]) -> bool {
        match self.records {
            true => Recording::open(file).is_ok_and(|recording| !recording.repairs.cut_off),
            // A page says when and how it was made.
            false => {
                got == whole || got.starts_with(b"<!doctype") && got.trim_ascii_end().ends_with(b"</html>")
            }
        }
    }
}

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn quiet(program: &str) -> Command {
    let mut command = Command::new(program);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    command.current_dir(root).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn schedlab<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> Command {
    let mut command = quiet(env!("CARGO_BIN_EXE_schedlab"));
    command.args(arguments);
    command
}

#[test]
fn what_was_there_stays_or_the_whole_new_file_is_there() {
    let rounds = std::env::var("SCHEDLAB_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(26);
    let ground = Ground::new();
    let whole: Vec<_> = WRITERS.iter().map(|writer| ground.whole(writer)).collect();
    let mut seed = 20_261_125;
    let (mut kept, mut replaced, mut skipped) = (0, 0, 0);
    for round in 0..rounds {
        let index = round % WRITERS.len();
        let (writer, Some((took, whole))) = (&WRITERS[index], &whole[index]) else {
            assert!(WRITERS[index].records, "{:?} fails undisturbed", WRITERS[index].arguments);
            skipped += 1;
            continue;
        };
        let size = whole.iter().map(Vec::len).max().unwrap_or(0) as u64;
        let how = match next(&mut seed) % 4 {
            0 => Disturbance::Limit(next(&mut seed) % (size / 512 + 2)),
            1 if ground.namespaces => Disturbance::Full(16 + next(&mut seed) % (size * 2 / 1024 + 16)),
            _ => Disturbance::Kill(next(&mut seed) % 1100),
        };
        let out = ground.disturbed(writer, *took, how);
        for (file, whole) in writer.places(&out).iter().zip(whole) {
            let got = std::fs::read(file).unwrap_or_else(|error| panic!("round {round}, {how:?}: {error}"));
            let before = got == BEFORE;
            assert!(
                before || writer.is_whole(file, &got, whole),
                "round {round}, {:?}, {how:?}: {} bytes that are neither the old nor the new file",
                writer.arguments,
                got.len()
            );
            *(if before { &mut kept } else { &mut replaced }) += 1;
        }
    }
    std::fs::remove_dir_all(&ground.folder).unwrap();
    eprintln!(
        "{rounds} rounds: {kept} old files untouched, {replaced} replaced by whole ones, {skipped} skipped"
    );
    assert!(kept > 0);
}

/// `record -o FILE -- nosuchcommand` destroyed the recording that was there.
#[test]
fn a_command_that_does_not_exist_costs_no_recording() {
    let folder = std::env::temp_dir().join(format!("schedlab-nosuch-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("x.slt");
    let record = |file: &Path| {
        let mut command = schedlab(&["record", "--backend", "own", "--no-calibration", "-o"]);
        command.arg(file).args(["--", "no-such-command-anywhere"]);
        command.status().unwrap().code()
    };
    std::fs::write(&path, BEFORE).unwrap();
    assert_eq!(record(&path), Some(2));
    assert_eq!(std::fs::read(&path).unwrap(), BEFORE);
    assert_eq!(record(&folder.join("new.slt")), Some(2));
    let left: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["x.slt"], "nothing else is left");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A recorder that is killed while it replaces a recording: the old one is there, and what was recorded is beside it.
#[test]
fn what_a_killed_recorder_had_is_beside_the_old_recording() {
    let folder = std::env::temp_dir().join(format!("schedlab-beside-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("x.slt");
    std::fs::write(&path, BEFORE).unwrap();
    // Nothing else ends it when its recorder is killed.
    let script = "i=0; while [ $i -lt 600 ]; do sleep 0.01; i=$((i+1)); done";
    let mut command = schedlab(&["record", "--backend", "own", "--no-calibration", "-o"]);
    let mut child = Ended(command.arg(&path).args(["--", "sh", "-c", script]).spawn().unwrap());
    let part = folder.join(format!("x.slt.{}.part", child.0.id()));
    let begin = Instant::now();
    let opened = loop {
        if child.0.try_wait().unwrap().is_some() {
            assert!(std::env::var("CI").map_or(true, |ci| ci != "true"), "it must record here");
            eprintln!(
                "SKIPPED what_a_killed_recorder_had_is_beside_the_old_recording: nothing can be recorded here"
            );
            break false;
        }
        match Recording::open(&part) {
            Ok(recording) if !recording.events.is_empty() => break true,
            Ok(_) | Err(TraceError::File { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "no events");
        std::thread::sleep(Duration::from_millis(10));
    };
    if opened {
        child.0.kill().unwrap();
        child.0.wait().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), BEFORE);
        let recording = Recording::open(&part).unwrap();
        assert!(recording.repairs.cut_off && !recording.events.is_empty());
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
