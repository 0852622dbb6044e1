//! Traces of other tools at the command line: options, standard input, what is told, and perf's own
//! files.

use super::{Folder, Ran, ran, root, schedlab, skip};
use std::fs::File;
use std::process::{Command, Stdio};

fn field(name: &str) -> String {
    root().join("crates/trace/tests/field").join(name).display().to_string()
}

/// Runs `schedlab` with a file as its standard input.
fn with_input(arguments: &[&str], file: &str) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_schedlab"));
    command.args(arguments).env("COLUMNS", "120").stdin(File::open(file).unwrap());
    ran(&mut command)
}

#[test]
fn standard_input_goes_wherever_a_file_goes() {
    let folder = Folder::new("stdin");
    let out = folder.0.join("a.slt").display().to_string();
    for file in ["trace-cmd-cpus-line.txt", "systrace.html", "perfetto-kernel-4.9-states.pftrace"] {
        let piped = with_input(&["import", "-", "-o", &out], &field(file));
        let named = schedlab(&["import", &field(file), "-o", &out]);
        assert_eq!((piped.code, piped.stdout), (0, named.stdout), "{file} {}", piped.stderr);
    }
    let trace = field("trace-cmd-cpus-line.txt");
    let shown = with_input(&["show", "-", "--json", "--tasks"], &trace);
    let named = schedlab(&["show", &trace, "--json", "--tasks"]);
    assert_eq!(shown.code, 0, "{shown:?}");
    assert_eq!(shown.stdout.replace("\"-\"", &format!("{trace:?}")), named.stdout);
    let text = folder.0.join("a.txt").display().to_string();
    assert_eq!(with_input(&["export", "-", "--ftrace", &text], &trace).code, 0);
    let same = with_input(&["diff", "-", &trace], &trace);
    assert_eq!(same.code, 0, "{same:?}");
    // A scenario is known by its content.
    let scenario = root().join("scenarios/two-hogs.toml").display().to_string();
    let compared = with_input(&["compare", "-", "--for", "2s"], &scenario);
    assert!(compared.code <= 1 && compared.stdout.contains("hog"), "{compared:?}");
    let refused = with_input(&["show", "-"], "/dev/null");
    assert!(refused.code == 2 && refused.stderr.contains("standard input"), "{refused:?}");
}

#[test]
fn what_is_odd_or_lost_is_told_and_strict_refuses_it() {
    let folder = Folder::new("odd");
    let out = folder.0.join("a.slt").display().to_string();
    let good = std::fs::read_to_string(field("trace-cmd-cpus-line.txt")).unwrap();
    let odd = folder.write("odd.txt", good.replacen('\n', "\nwhat is this\n", 1));
    let told = schedlab(&["import", &odd, "-o", &out]);
    assert_eq!(told.code, 0, "{told:?}");
    assert!(
        told.stdout.contains("1: lines skipped") && told.stdout.contains("line 2: what is this"),
        "{told:?}"
    );
    let refused = schedlab(&["import", &odd, "-o", &out, "--strict"]);
    assert!(refused.code == 2 && refused.stderr.contains("line 2"), "{refused:?}");
    let lost = schedlab(&["import", &field("trace-cmd-events-dropped.txt"), "-o", &out]);
    assert!(
        lost.stdout.contains("204600 events are missing on CPU 1 between 150us and 400us"),
        "{lost:?}"
    );
    // Every analysis says it, of the file and of the recording.
    for input in [&out, &field("trace-cmd-events-dropped.txt")] {
        let shown = schedlab(&["show", input, "--latency"]);
        assert!(
            shown.stdout.contains("events are missing: 204600 on cpu1 from 150us to 400us"),
            "{shown:?}"
        );
    }
    for (option, value, file) in [
        ("--clock-hz", "1000000000", "ftrace-tsc-clock.txt"),
        ("--kernel", "4.9", "trace-cmd-raw-state.txt"),
        ("--kernel", "6.1", "perfetto-kernel-4.9-states.pftrace"),
    ] {
        let read = schedlab(&["import", &field(file), "-o", &out, option, value]);
        assert_eq!(read.code, 0, "{read:?}");
    }
    let refused =
        schedlab(&["import", &field("trace-cmd-raw-state.txt"), "-o", &out, "--kernel", "new"]);
    assert!(refused.code == 2 && refused.stderr.contains("4.9"), "{refused:?}");
}

#[test]
fn a_text_without_interrupts_names_the_option_that_helps() {
    let ran = schedlab(&["compare", &field("perf-event-modifier.txt")]);
    assert!(ran.code == 2 && ran.stderr.contains("--current-is-waker"), "{ran:?}");
}

#[test]
fn a_process_is_summed() {
    let ran = schedlab(&["show", &field("systrace.html"), "--tasks", "--by", "process"]);
    assert!(ran.code == 0 && ran.stdout.contains("hog (200)"), "{ran:?}");
}

/// The same samples, read by perf and printed, and read directly: the same switches and times.
#[test]
fn perf_data_says_what_perf_script_prints() {
    let folder = Folder::new("perf-data");
    let data = folder.0.join("perf.data").display().to_string();
    let events = ["-e", "sched:sched_switch", "-e", "sched:sched_waking"];
    let record = Command::new("perf")
        .args(["record", "-q", "-a", "-o", &data])
        .args(events)
        .args(["--", "true"])
        .stderr(Stdio::null())
        .status();
    if !record.is_ok_and(|status| status.success()) {
        return skip("perf_data_says_what_perf_script_prints", "no perf, or not allowed");
    }
    let printed = Command::new("perf").args(["script", "--ns", "-i", &data]).output().unwrap();
    let text = folder.write("perf.txt", printed.stdout);
    let tasks = |input: &str| {
        let shown = schedlab(&["show", input, "--tasks", "--by", "thread", "--json"]);
        assert_eq!(shown.code, 0, "{shown:?}");
        let shown: serde_json::Value = serde_json::from_str(&shown.stdout).unwrap();
        let rows = shown["analyses"][0]["tables"]["tasks"].as_array().unwrap().clone();
        let number = |value: &serde_json::Value| value.as_u64().unwrap_or_default();
        let one = |row: &serde_json::Value| {
            (number(&row["task"]["tid"]), number(&row["switches"]), number(&row["run_ns"]))
        };
        let mut rows: Vec<(u64, u64, u64)> = rows.iter().map(one).collect();
        rows.sort_unstable();
        rows
    };
    let (direct, printed) = (tasks(&data), tasks(&text));
    let switches =
        |rows: &[(u64, u64, u64)]| rows.iter().map(|row| (row.0, row.1)).collect::<Vec<_>>();
    assert_eq!(switches(&direct), switches(&printed));
    // Some virtual machines do not tell the switches of process 1. When such a switch was, the
    // wakeups before it prove, and the text does not say which of them interrupts did: each may
    // touch the run time of two tasks.
    let out = folder.0.join("a.slt").display().to_string();
    let imported = schedlab(&["import", &data, "-o", &out, "--json"]);
    let imported: serde_json::Value = serde_json::from_str(&imported.stdout).unwrap();
    let missing = imported["repairs"]["inconsistent_switches"].as_u64().unwrap_or_default();
    let differ = direct.iter().zip(&printed).filter(|(a, b)| a.2 != b.2).count();
    assert!(
        differ as u64 <= 2 * missing,
        "{missing} switches are missing:\n{direct:?}\n{printed:?}"
    );
}

/// A zstd frame that begins with `start` and goes on with the blocks of `again`, so many times: of
/// one byte that is so often there, 4 bytes long, or of the bytes themselves.
fn bomb(start: &[u8], again: &[(usize, &[u8])], times: usize) -> Vec<u8> {
    let header =
        |kind: u32, size: usize| (kind << 1 | (size as u32) << 3).to_le_bytes()[..3].to_vec();
    // RFC 8878: the magic number, a frame without a size, a window of 128 KiB.
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x38];
    frame.extend(header(0, start.len()));
    frame.extend(start);
    let blocks: Vec<u8> = again
        .iter()
        .flat_map(|&(length, bytes)| match bytes {
            [_] => [&header(1, length), bytes].concat(),
            _ => [&header(0, length), bytes].concat(),
        })
        .collect();
    frame.extend(blocks.repeat(times));
    frame
}

/// Some hundred kilobytes that unfold to gibibytes, as a text and as a perf.data: refused with the
/// limit, in bounded memory. The text has long lines: of empty ones 256 million would be read.
#[test]
fn a_decompression_bomb_is_refused_in_little_memory() {
    let folder = Folder::new("bomb");
    let out = folder.0.join("a.slt").display().to_string();
    let text = bomb(b"# tracer: nop\n# ", &[(60_000, b"x"), (3, b"\n# ")], 64 << 10);
    let perf = bomb(b"PERFILE2", &[(128 << 10, b"\n")], 128 << 10);
    for (name, bomb, commands) in
        [("text.zst", text, &["import"][..]), ("perf.data.zst", perf, &["import", "show"])]
    {
        let file = folder.0.join(name).display().to_string();
        std::fs::write(&file, bomb).unwrap();
        for command in commands {
            // 1.5 GiB of address space.
            let mut limited = Command::new("sh");
            limited
                .args([
                    "-c",
                    "ulimit -v 1572864; exec \"$0\" \"$@\"",
                    env!("CARGO_BIN_EXE_schedlab"),
                ])
                .args([*command, file.as_str()]);
            if *command == "import" {
                limited.args(["-o", &out]);
            }
            let refused = ran(&mut limited);
            assert_eq!(refused.code, 2, "{refused:?}");
            assert!(
                refused.stderr.contains("unfold") && refused.stderr.contains("250 times"),
                "{refused:?}"
            );
            assert!(!std::path::Path::new(&out).exists());
        }
    }
}
