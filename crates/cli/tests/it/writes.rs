//! kill -9 and a full disk at any moment of every command that writes: what was there before is
//! there afterwards, or the whole new file. Rounds and seed are fixed:
//! `cargo xtask torture-writes --rounds 500` does five hundred.
#![allow(clippy::print_stderr)]

mod hostile;
mod inputs;

use schedlab_study::preset::Preset;
use schedlab_trace::{Recording, TraceError};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What is at the output before each round: no file of any kind that a command writes.
const BEFORE: &[u8] = b"what was here before\n";

/// A command that writes. In its arguments `OUT` is the output, `TEXT` a trace, `LATENCY` a
/// measurement.
struct Writer {
    arguments: &'static [&'static str],
    /// The files in the output, when it is a folder.
    files: &'static [&'static str],
    gives: Gives,
}

/// What an undisturbed run leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Gives {
    /// The same bytes each time; a page says when it was made.
    Same,
    /// A recording of this machine.
    Recording,
    /// A measurement of this machine, as JSON.
    Json,
    /// A calibration of this machine.
    Costs,
}

const fn gives(gives: Gives, arguments: &'static [&'static str]) -> Writer {
    Writer { arguments, files: &[], gives }
}

const fn writer(arguments: &'static [&'static str]) -> Writer {
    gives(Gives::Same, arguments)
}

const fn recorder(arguments: &'static [&'static str]) -> Writer {
    gives(Gives::Recording, arguments)
}

const YES: &str = "recordings/two-yes.slt";

const WRITERS: &[Writer] = &[
    writer(&["compare", "two-hogs", "--for", "1500ms", "-o", "OUT"]),
    writer(&["compare", "two-hogs", "--for", "1500ms", "--json", "-o", "OUT"]),
    writer(&["compare", "two-hogs", "--for", "1500ms", "--format", "csv", "-o", "OUT"]),
    writer(&["compare", "two-hogs", "--for", "1500ms", "--report", "OUT"]),
    writer(&["published", "two-hogs", "--report", "OUT"]),
    writer(&[
        "tune",
        YES,
        "--goal",
        "yes share",
        "--space",
        "yes policy=other,batch",
        "--seeds",
        "1",
        "-o",
        "OUT",
    ]),
    writer(&["show", YES, "--report", "OUT"]),
    writer(&["diff", YES, YES, "-o", "OUT"]),
    writer(&["export", YES, "--ftrace", "OUT"]),
    writer(&["export", YES, "--perf-script", "OUT"]),
    writer(&["export", YES, "--perfetto", "OUT"]),
    writer(&["export", YES, "--trace-cmd", "OUT"]),
    writer(&["export", YES, "--systrace", "OUT"]),
    writer(&["export", YES, "--lttng", "OUT"]),
    writer(&["export", YES, "--rt-app", "OUT"]),
    writer(&["export", YES, "--key", YES, "--anonymous", "OUT"]),
    Writer {
        files: &["events.csv", "tasks.csv", "waits.csv"],
        ..writer(&["export", YES, "--csv", "OUT"])
    },
    Writer {
        files: &[
            "activations.parquet",
            "blame.parquet",
            "events.parquet",
            "latencies.parquet",
            "migrations.parquet",
            "slices.parquet",
            "tasks.parquet",
        ],
        ..writer(&["export", YES, "--parquet", "OUT"])
    },
    writer(&["import", "TEXT", "-o", "OUT"]),
    writer(&["import", "crates/study/tests/field/rtapp-finite-share.json", "-o", "OUT"]),
    writer(&["generate", "--seed", "7", "-o", "OUT"]),
    Writer {
        files: &["schedlab.1", "schedlab-compare.1", "schedlab-watch.1"],
        ..writer(&["man", "--all", "OUT"])
    },
    gives(Gives::Json, &["latency", "--for", "50ms", "--json", "-o", "OUT"]),
    gives(Gives::Json, &["latency", "merge", "LATENCY", "--json", "-o", "OUT"]),
    writer(&["latency", "merge", "LATENCY", "--report", "OUT"]),
    gives(Gives::Costs, &["calibrate", "--for", "500ms", "--rounds", "3", "-o", "OUT"]),
    recorder(&[
        "record",
        "--backend",
        "own",
        "--no-calibration",
        "-o",
        "OUT",
        "--",
        "sh",
        "-c",
        LOAD,
    ]),
    recorder(&["record", "--no-calibration", "-o", "OUT", "--", "sh", "-c", LOAD]),
    recorder(RING),
];

/// A ring that is written when its command has ended.
#[rustfmt::skip]
const RING: &[&str] =
    &["record", "--backend", "own", "--no-calibration", "--ring", "10s", "-o", "OUT", "--", "sh", "-c", LOAD];

/// Options that write and that no round disturbs, with the reason.
const NOT_DISTURBED: &[(&str, &str)] = &[
    ("run --log", "its threads are real-time: the way back from a kill has tests of its own"),
    ("attach --log", "as run"),
    ("experiment --output", "takes minutes; written as `compare -o`"),
    ("experiment --report", "takes minutes; written as `compare --report`"),
    ("latency --report", "of a matrix, which takes long; written as `latency merge --report`"),
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
    /// Whether an unprivileged tmpfs can be had.
    namespaces: bool,
}

impl Ground {
    fn new() -> Ground {
        let folder =
            schedlab_testing::temp_dir().join(format!("schedlab-writes-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let place = |name: &str| folder.join(name).display().to_string();
        let mut made = schedlab(&["export", YES, "--perf-script", &place("in.txt")]);
        assert!(made.status().unwrap().success());
        // Where nothing can be measured, what reads it fails undisturbed and is skipped.
        let _ = schedlab(&["latency", "--for", "50ms", "--json", "-o", &place("latency.json")])
            .status();
        let probe = "mount -t tmpfs -o size=64k tmpfs /mnt";
        let namespaces = Command::new("unshare")
            .args(["-rm", "sh", "-c", probe])
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
        Ground { folder, namespaces }
    }

    fn arguments(&self, writer: &Writer, out: &Path) -> Vec<String> {
        let place = |word: &&str| match *word {
            "OUT" => out.display().to_string(),
            "TEXT" => self.folder.join("in.txt").display().to_string(),
            "LATENCY" => self.folder.join("latency.json").display().to_string(),
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

    /// Runs `writer` undisturbed. Returns the time it took and its files; `None` when it cannot
    /// work here.
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
                let mut child =
                    Ended(schedlab(&arguments).process_group_of_its_own().spawn().unwrap());
                std::thread::sleep(took * permille as u32 / 1000);
                let _ = child.0.kill();
                child.0.wait().unwrap();
            }
            Disturbance::Limit(blocks) => {
                let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$@\"");
                let mut command = quiet("sh");
                command
                    .args(["-c", &script, "sh", env!("CARGO_BIN_EXE_schedlab")])
                    .args(&arguments);
                command.status().unwrap();
            }
            Disturbance::Full(size) => {
                // The round's files are copied into the full file system, and what is left is
                // copied out of it.
                let script = "mkdir -p \"$1.copy\" && cp -r \"$1/.\" \"$1.copy\" && mount -t \
                              tmpfs -o size=$2k tmpfs \"$1\" && \
                              cp -r \"$1.copy/.\" \"$1\"; d=$1; shift 2; \"$@\"; rm -rf \
                              \"$d.copy\"; cp -r \"$d\" \"$d.copy\"";
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

    /// Whether `file` is whole: as an undisturbed run leaves it.
    fn is_whole(&self, file: &Path, got: &[u8], whole: &[u8]) -> bool {
        match self.gives {
            Gives::Recording => {
                Recording::open(file).is_ok_and(|recording| !recording.repairs.cut_off)
            }
            Gives::Json => serde_json::from_slice::<serde_json::Value>(got).is_ok(),
            Gives::Costs => asked(got).is_some_and(|asked_for| Some(asked_for) == asked(whole)),
            // A page says when and how it was made.
            Gives::Same => {
                got == whole
                    || got.starts_with(b"<!doctype") && got.trim_ascii_end().ends_with(b"</html>")
            }
        }
    }

    /// Whether it works on every machine.
    fn works_anywhere(&self) -> bool {
        self.gives == Gives::Same && !self.arguments.contains(&"LATENCY")
    }
}

/// Returns what a calibration measured or says it could not, if the file is whole: each cost that
/// has a spread undisturbed has its spread, which is behind all costs. Which of them could be
/// measured differs between runs.
fn asked(file: &[u8]) -> Option<BTreeSet<String>> {
    const COUNTS: &str = "hot_lines";
    let preset: Preset =
        toml::from_str(std::str::from_utf8(file).ok()?.strip_suffix('\n')?).ok()?;
    let sure = preset.costs.keys().all(|cost| cost == COUNTS || preset.spread.contains_key(cost));
    sure.then(|| preset.costs.into_keys().chain(preset.lacks.into_keys()).collect())
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
    let rounds = std::env::var("SCHEDLAB_ROUNDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(2 * WRITERS.len());
    let ground = Ground::new();
    let whole: Vec<_> = WRITERS.iter().map(|writer| ground.whole(writer)).collect();
    let mut seed = 20_261_125;
    let (mut kept, mut replaced, mut skipped) = (0, 0, 0);
    for round in 0..rounds {
        let index = round % WRITERS.len();
        let (writer, Some((took, whole))) = (&WRITERS[index], &whole[index]) else {
            assert!(
                !WRITERS[index].works_anywhere(),
                "{:?} fails undisturbed",
                WRITERS[index].arguments
            );
            skipped += 1;
            continue;
        };
        let size = whole.iter().map(Vec::len).max().unwrap_or(0) as u64;
        let how = match next(&mut seed) % 4 {
            0 => Disturbance::Limit(next(&mut seed) % (size / 512 + 2)),
            1 if ground.namespaces => {
                Disturbance::Full(16 + next(&mut seed) % (size * 2 / 1024 + 16))
            }
            _ => Disturbance::Kill(next(&mut seed) % 1100),
        };
        let out = ground.disturbed(writer, *took, how);
        for (file, whole) in writer.places(&out).iter().zip(whole) {
            let got = std::fs::read(file)
                .unwrap_or_else(|error| panic!("round {round}, {how:?}: {error}"));
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
        "{rounds} rounds: {kept} old files untouched, {replaced} replaced by whole ones, \
         {skipped} skipped"
    );
    assert!(kept > 0);
}

/// Returns the options of a command that write a file or a folder, as its help has them.
fn options_that_write(command: &[&str]) -> Vec<String> {
    let mut asked = Command::new(env!("CARGO_BIN_EXE_schedlab"));
    let output = asked.args(command).arg("--help").env("COLUMNS", "100").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let mut found = Vec::new();
    for (line, next) in help.lines().zip(help.lines().skip(1).chain([""])) {
        let Some((_, rest)) = line.split_once("--").filter(|_| line.starts_with("  ")) else {
            continue;
        };
        let option = rest.split([' ', '=']).next().unwrap_or_default();
        let about = rest.split_once("  ").map_or(next, |(_, about)| about).trim();
        if about.starts_with("Write ") && rest.contains('<') {
            found.push(format!("{} --{option}", command.join(" ")));
        }
    }
    found
}

/// A new option that writes is disturbed too, or says why it is not.
#[test]
fn every_option_that_writes_is_disturbed() {
    let listed = |option: &str| {
        let (command, name) = option.split_once(" --").unwrap();
        let short = if name == "output" { "-o" } else { "--?" };
        let disturbed = WRITERS.iter().any(|writer| {
            let words: Vec<&str> = command.split(' ').collect();
            let has = |word: &str| writer.arguments.contains(&word);
            writer.arguments.starts_with(&words) && (has(&format!("--{name}")) || has(short))
        });
        disturbed || NOT_DISTURBED.iter().any(|(known, _)| *known == option)
    };
    let commands: &[&[&str]] = &[
        &["record"],
        &["show"],
        &["watch"],
        &["diff"],
        &["generate"],
        &["import"],
        &["export"],
        &["compare"],
        &["published"],
        &["tune"],
        &["list"],
        &["bench", "model"],
        &["bench", "runqueue"],
        &["latency"],
        &["latency", "merge"],
        &["stress"],
        &["calibrate"],
        &["experiment"],
        &["explain"],
        &["completions"],
        &["man"],
        &["doctor"],
        &["colocate"],
        &["run"],
        &["attach"],
        &["verify"],
        &["confirm"],
        &["top"],
        &["status"],
        &["detach"],
        &["restore"],
    ];
    let found: Vec<String> =
        commands.iter().flat_map(|command| options_that_write(command)).collect();
    assert!(found.len() > 20, "{found:?}");
    let missing: Vec<&String> = found.iter().filter(|option| !listed(option)).collect();
    assert!(missing.is_empty(), "not in WRITERS: {missing:?}");
}

/// `record -o FILE -- nosuchcommand` destroyed the recording that was there.
#[test]
fn a_command_that_does_not_exist_costs_no_recording() {
    let folder =
        schedlab_testing::temp_dir().join(format!("schedlab-nosuch-{}", std::process::id()));
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
    let left: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["x.slt"], "nothing else is left");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A recorder that is killed while it replaces a recording: the old one is there, and what was
/// recorded is beside it.
#[test]
fn what_a_killed_recorder_had_is_beside_the_old_recording() {
    let folder =
        schedlab_testing::temp_dir().join(format!("schedlab-beside-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("x.slt");
    std::fs::write(&path, BEFORE).unwrap();
    // Nothing else ends it when its recorder is killed.
    let script = "i=0; while [ $i -lt 600 ]; do sleep 0.01; i=$((i+1)); done";
    let mut command = schedlab(&["record", "--backend", "own", "--no-calibration", "-o"]);
    let mut child = Ended(command.arg(&path).args(["--", "sh", "-c", script]).spawn().unwrap());
    let part = || {
        let beside = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        beside
            .into_iter()
            .find(|entry| schedlab_files::is_part_of(entry, &path))
            .unwrap_or(folder.join("none"))
    };
    let begin = Instant::now();
    let opened = loop {
        if child.0.try_wait().unwrap().is_some() {
            assert!(std::env::var("CI").map_or(true, |ci| ci != "true"), "it must record here");
            eprintln!(
                "SKIPPED what_a_killed_recorder_had_is_beside_the_old_recording: nothing can be \
                 recorded here"
            );
            break false;
        }
        match Recording::open(part()) {
            Ok(recording) if !recording.events.is_empty() => break true,
            // It is not there yet, or has no header yet.
            Ok(_) | Err(TraceError::File { .. } | TraceError::Empty) => {}
            Err(error) => panic!("{error}"),
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "no events");
        std::thread::sleep(Duration::from_millis(10));
    };
    if opened {
        child.0.kill().unwrap();
        child.0.wait().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), BEFORE);
        let recording = Recording::open(part()).unwrap();
        assert!(recording.repairs.cut_off && !recording.events.is_empty());
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
