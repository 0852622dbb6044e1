//! Every command begins with its answer: the analyses of `show`, `record`, `stress`, `bench`; and
//! percentiles have their intervals.

use super::{Folder, Ran, root, schedlab};
use schedlab_model::Ns;
use schedlab_trace::analysis::show::ALL;
use serde_json::Value;
use std::process::Command;

const RECORDING: &str = "recordings/redis-other-other-closed8.slt";

fn json(arguments: &[&str]) -> Value {
    let ran = schedlab(arguments);
    assert_eq!(ran.code, 0, "{ran:?}");
    serde_json::from_str(&ran.stdout).expect("JSON")
}

/// What is printed before the first empty line, in one line.
fn first(text: &str) -> String {
    let head = text.split("\n\n").next().unwrap_or_default();
    head.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Runs the program on a terminal of this width.
fn wide(columns: &str, arguments: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_schedlab"));
    super::ran(command.args(arguments).current_dir(root()).env("COLUMNS", columns))
}

fn time(value: &Value) -> String {
    Ns(value.as_u64().expect("nanoseconds")).to_string()
}

/// What the answer of an analysis must say, from its own tables.
fn expected(name: &str, tables: &Value) -> Vec<String> {
    let row = |table: &str| &tables[table][0];
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    match name {
        "slices" => {
            let row = row("slices");
            vec![
                text(&row["task"]),
                time(&row["run_ns"]),
                time(&row["mean_ns"]),
                time(&row["max_ns"]),
            ]
        }
        "throttle" => vec!["No limit held a task back.".to_owned()],
        "steal" => vec!["No thread of the recording is known to run a virtual CPU".to_owned()],
        "states" => {
            let row = row("states");
            vec![
                text(&row["task"]),
                format!("{} of {}", time(&row["running_ns"]), time(&row["lifetime_ns"])),
            ]
        }
        "runqueue" => {
            let rows = tables["runqueue"].as_array().unwrap().iter();
            let row = rows
                .max_by(|a, b| a["mean"].as_f64().partial_cmp(&b["mean"].as_f64()).unwrap())
                .unwrap();
            vec![
                format!("CPU {} has the longest", row["cpu"]),
                format!("and {} at most", row["most"]),
            ]
        }
        "conservation" => {
            let (all, longest) = (row("violations"), row("longest"));
            vec![
                time(&all["time_ns"]),
                format!("{} times", all["times"]),
                time(&longest["length_ns"]),
            ]
        }
        "wakes" => {
            let row = row("wakes");
            let (wakee, waker) = (text(&row["wakee"]), text(&row["waker"]));
            vec![format!("{wakee} by {waker}: {} of ", row["times"])]
        }
        "migrations" => {
            let row = row("migrations");
            vec![text(&row["task"]), format!("{} of ", row["migrations"])]
        }
        "syscalls" => {
            let row = row("syscalls");
            vec![text(&row["task"]), text(&row["syscall"]), time(&row["time_ns"])]
        }
        other => panic!("{other} has an answer that this test does not know"),
    }
}

/// Listings (`--timehist`, `--stream`) are the list that was asked for; all others begin with what
/// their tables say. (That of `--messages`, for which this recording is too old, is tested beside
/// it: `crates/trace/tests/it/messages.rs`.)
#[test]
fn every_analysis_begins_with_its_answer() {
    for entry in
        ALL.iter().filter(|entry| !["timehist", "stream", "messages"].contains(&entry.name))
    {
        let option = format!("--{}", entry.name);
        let mut arguments = vec!["show", RECORDING, &option];
        arguments.extend(entry.takes.map(|_| "3"));
        let text = first(&schedlab(&arguments).stdout);
        arguments.push("--json");
        let value = json(&arguments);
        if value["answer"].is_object() {
            let sentences = value["answer"]["sentences"].as_array().unwrap();
            let said: Vec<&str> = sentences.iter().map(|one| one.as_str().unwrap()).collect();
            assert_eq!(text, said.join(" "), "{option}");
            continue;
        }
        let analysis = &value["analyses"][0];
        assert_eq!(text, analysis["answer"].as_str().unwrap(), "{option}");
        for wanted in expected(entry.name, &analysis["tables"]) {
            assert!(text.contains(&wanted), "{option}: {wanted}: {text}");
        }
    }
}

#[test]
fn a_limit_that_held_tasks_back_is_named_first() {
    let capped = ["show", "redis-batch", "--variant", "batch capped", "--throttle"];
    let ran = schedlab(&capped);
    assert_eq!(ran.code, 0, "{ran:?}");
    let value = json(&[&capped[..], &["--json"]].concat());
    let row = &value["analyses"][0]["tables"]["throttled"][0];
    let text = first(&ran.stdout);
    for wanted in
        [row["limit"].as_str().unwrap(), row["task"].as_str().unwrap(), &time(&row["time_ns"])]
    {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
}

/// An interval holds its percentile, has a column where there is room for it, and none on a narrow
/// terminal.
#[test]
fn percentiles_of_show_have_intervals() {
    for (option, table, percentile) in
        [("--tasks", "tasks", "latency_p99"), ("--latency", "tasks", "wake_p99")]
    {
        let value = json(&["show", RECORDING, option, "--json"]);
        let rows = value["analyses"][0]["tables"][table].as_array().unwrap();
        let row = rows.iter().find(|row| row["task"] == "redload").unwrap();
        let (interval, p99) =
            (&row[format!("{percentile}_interval_ns")], &row[format!("{percentile}_ns")]);
        let ends = [0, 1].map(|end| interval[end].as_u64().expect("7192 wakeups are enough"));
        assert!(ends[0] <= p99.as_u64().unwrap() && p99.as_u64().unwrap() <= ends[1], "{row}");
        // 133 wakeups do not tell where p99 ends.
        let few = rows.iter().find(|row| row["task"] == "redis-server").unwrap();
        assert!(few[format!("{percentile}_interval_ns")][1].is_null(), "{few}");
        let shown = format!("{}..{}", Ns(ends[0]), Ns(ends[1]));
        let heading =
            format!("{} interval", if option == "--tasks" { "latency p99" } else { "wakeup p99" });
        let ran = wide("180", &["show", RECORDING, option]);
        assert!(
            ran.stdout.contains(&heading) && ran.stdout.contains(&shown),
            "{shown}: {}",
            ran.stdout
        );
        let narrow = wide("80", &["show", RECORDING, option]).stdout;
        let head = narrow.lines().find(|line| line.starts_with("  task ")).unwrap();
        assert!(head.contains("p99") && !head.contains("interval"), "{narrow}");
    }
}

#[test]
fn the_headline_of_a_comparison_has_its_interval_at_100_columns() {
    let ran = wide("100", &["compare", "redis-batch"]);
    let value = json(&["compare", "redis-batch", "--json"]);
    let head = ran.stdout.lines().find(|line| line.contains("requests/s")).unwrap();
    assert!(head.contains("p99 interval"), "{head}");
    let subject = value["rows"][0]["subjects"].as_array().unwrap().iter();
    let clients = subject.clone().find(|subject| subject["name"] == "clients").unwrap();
    let cells = clients["cells"].as_array().unwrap();
    let cell = cells.iter().find(|cell| cell["metric"] == "response p99").unwrap();
    let end = |name: &str| Ns(cell["interval"][name].as_f64().unwrap().round() as u64).to_string();
    let row = ran
        .stdout
        .lines()
        .find(|line| line.starts_with("  linux-6.1 ") && line.contains(" shared "))
        .unwrap();
    assert!(row.contains(&format!("{}..{}", end("low"), end("high"))), "{row}");
    assert!(ran.stdout.contains("by order statistics"), "{}", ran.stdout);
    // On a narrow terminal the values stay, and the intervals go.
    let narrow = wide("60", &["compare", "redis-batch"]).stdout;
    let head = narrow.lines().find(|line| line.contains("requests/s")).unwrap();
    assert!(head.contains("p99") && !head.contains("interval"), "{head}");
}

/// What was recorded has its interval, and what is simulated for it starts from what was recorded,
/// as the value does.
#[test]
fn intervals_of_a_recording_are_about_the_values_beside_them() {
    let ran = wide("200", &["compare", RECORDING]);
    let value = json(&["compare", RECORDING, "--json"]);
    let found = |subjects: &serde_json::Value, name: &str, metric: &str| {
        let subjects = subjects.as_array().unwrap();
        let subject = subjects.iter().find(|subject| subject["name"] == name).unwrap();
        let cells = subject["cells"].as_array().unwrap();
        cells.iter().find(|cell| cell["metric"] == metric).unwrap().clone()
    };
    let end =
        |interval: &serde_json::Value, name: &str| interval[name].as_f64().expect("enough wakeups");
    let cell = found(&value["self_replay"]["subjects"], "redload", "latency p99");
    for (kind, value) in [("recorded_interval", "recorded"), ("simulated_interval", "simulated")] {
        let (interval, value) = (&cell[kind], cell[value].as_f64().unwrap());
        assert!(end(interval, "low") <= value && value <= end(interval, "high"), "{cell}");
    }
    let ends = |kind: &str| {
        ["low", "high"].map(|name| Ns(end(&cell[kind], name).round() as u64).to_string())
    };
    let ([a, b], [c, d]) = (ends("recorded_interval"), ends("simulated_interval"));
    assert!(ran.stdout.contains("latency p99 interval"), "{}", ran.stdout);
    assert!(
        ran.stdout.contains(&format!("{a}..{b} -> {c}..{d}")),
        "{a} {b} {c} {d}: {}",
        ran.stdout
    );
    // Recorded: 23.2 us; the runs alone say 24 to 30.
    let cell = found(&value["rows"][0]["subjects"], "redis-server", "latency p50");
    let median = cell["value"]["median"].as_f64().unwrap();
    assert!(
        end(&cell["interval"], "low") <= median && median <= end(&cell["interval"], "high"),
        "{cell}"
    );
}

#[test]
fn a_time_of_lost_work_has_its_interval() {
    let value = json(&["show", "recordings/compile.slt", "--conservation", "--json"]);
    let row = &value["analyses"][0]["tables"]["violations"][0];
    let p50 = row["p50_ns"].as_u64().unwrap();
    let [low, high] = [0, 1].map(|end| row["p50_interval_ns"][end].as_u64().unwrap());
    assert!(low <= p50 && p50 <= high, "{row}");
    assert!(row["p99_interval_ns"].is_array(), "{row}");
}

#[test]
fn a_quoted_limit_is_read_as_without_quotes() {
    let row = |limit: &str| {
        let variant = format!("capped: sysbench group=/batch ; /batch cpu.max={limit}");
        let value = json(&[
            "compare",
            RECORDING,
            "--seeds",
            "1",
            "--for",
            "500ms",
            "--variant",
            &variant,
            "--json",
        ]);
        value["rows"].as_array().unwrap().last().unwrap()["event_hashes"].clone()
    };
    let plain = row("25%");
    for quoted in ["'25%'", "\"25%\"", "'25000 100000'", "\"25000 100000\""] {
        assert_eq!(row(quoted), plain, "{quoted}");
    }
    assert_ne!(row("'50%'"), plain);
}

#[test]
fn loads_and_benchmarks_begin_with_their_answer() {
    let ran = schedlab(&["stress", "--groups", "1", "--fds", "2", "--messages", "3", "--thread"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let round = ran.stdout.lines().find_map(|line| line.strip_prefix("Time: ")).unwrap();
    let said = first(&ran.stdout);
    let wanted = format!(
        "A round took {round} s. In a round 4 tasks in 1 group send 12 messages of 100 bytes."
    );
    assert!(said.starts_with(&wanted), "{wanted}: {said}");
    let ran = schedlab(&["stress", "--hogs", "2", "--for", "20ms"]);
    assert!(ran.stdout.starts_with("2 threads had "), "{ran:?}");
    let model = ["bench", "model", "--tasks", "2,64", "--cpus", "2"];
    let value = json(&[&model[..], &["--json"]].concat());
    let cost = |tasks: u64, scheduler: &str| {
        let rows = value["rows"].as_array().unwrap().iter();
        let row = rows
            .clone()
            .find(|row| row["tasks"] == tasks && row["scheduler"] == scheduler)
            .unwrap();
        format!("{:.2} us", row["cost_us"].as_f64().unwrap())
    };
    let said = first(&schedlab(&model).stdout);
    assert!(said.starts_with("With 64 threads on 2 CPUs a decision costs "), "{said}");
    assert!(
        said.contains(&format!("{} under linux-2.4. With 2 threads", cost(64, "linux-2.4"))),
        "{said}"
    );
    assert!(said.contains(&format!("the latter costs {}.", cost(2, "linux-2.4"))), "{said}");
    let real = "bench runqueue --tasks 64 --threads 1 --lock tas --stride 64 --for 5ms --rounds 3 \
                --costs modern";
    let ran = schedlab(&real.split(' ').collect::<Vec<_>>());
    assert_eq!(ran.code, 0, "{ran:?}");
    let said = first(&ran.stdout);
    assert!(said.starts_with("With 64 tasks and 1 deciding thread a decision costs "), "{said}");
    assert!(said.contains("Of the claims about linux-2.4 "), "{said}");
}

/// `record` says whether the event came; `--exec` runs once for each that did, and not where none
/// came.
#[test]
fn a_command_runs_after_each_event_only() {
    let folder = Folder::new("exec");
    let (file, log) =
        (folder.0.join("x.slt").display().to_string(), folder.0.join("log").display().to_string());
    let command = format!("echo \"$SCHEDLAB_FILE\" >> '{log}'; echo from the command");
    let ring = ["record", "--ring", "1s", "--no-calibration", "--exec", &command, "-o", &file];
    // The recorder's own machine always has a task that runs.
    let comes = ["--until", "ran > 1us", "--for", "20s"];
    let ran = schedlab(&[&ring[..], &comes].concat());
    if ran.code == 2 {
        assert!(std::env::var("CI").map_or(true, |ci| ci != "true"), "it must work here: {ran:?}");
        return super::skip("a_command_runs_after_each_event_only", &ran.stderr);
    }
    assert!(matches!(ran.code, 0 | 3), "{ran:?}");
    assert!(ran.stdout.starts_with("The event came, caught: "), "{ran:?}");
    assert!(ran.stdout.contains(&format!("{file} holds the last ")), "{ran:?}");
    let wrapped = first(&ran.stdout);
    assert!(wrapped.contains("events of") && !ran.stdout.contains("from the command"), "{ran:?}");
    assert!(ran.stderr.contains("from the command"), "{ran:?}");
    assert_eq!(std::fs::read_to_string(&log).unwrap(), format!("{file}\n"));
    assert_eq!(schedlab(&["show", &file, "--tasks"]).code, 0);

    // With --keep it runs for each event, after its file is there; the newest two stay.
    std::fs::remove_file(&log).unwrap();
    let command = format!("test -s \"$SCHEDLAB_FILE\" && echo \"$SCHEDLAB_FILE\" >> '{log}'");
    let many = [
        "record",
        "--ring",
        "1s",
        "--no-calibration",
        "--keep",
        "2",
        "--exec",
        &command,
        "-o",
        &file,
    ];
    let ran = schedlab(&[&many[..], &["--until", "ran > 1us", "--for", "2s"]].concat());
    assert!(matches!(ran.code, 0 | 3), "{ran:?}");
    let told = ran.stdout.matches("caught: ").count();
    let written = std::fs::read_to_string(&log).unwrap();
    assert_eq!(written.lines().count(), told, "{written}: {ran:?}");
    let kept: Vec<String> =
        folder.names().into_iter().filter(|name| name.starts_with("x-")).collect();
    let newest: Vec<&str> =
        written.lines().rev().take(2).map(|path| path.rsplit('/').next().unwrap()).collect();
    assert_eq!(kept.len(), told.min(2), "{kept:?}: {ran:?}");
    assert!(newest.iter().all(|name| kept.iter().any(|kept| kept == name)), "{newest:?} {kept:?}");

    // The event does not come: exit 1, the answer first, no command.
    std::fs::remove_file(&log).unwrap();
    let ran =
        schedlab(&[&ring[..], &["--until", "nosuchtask ran > 1s", "--for", "300ms"]].concat());
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stdout.starts_with("The event of --until did not come.\n"), "{ran:?}");
    assert!(!std::path::Path::new(&log).exists(), "the command ran: {ran:?}");
    // A command that fails is an error, and the recording is there.
    let fails = ["record", "--ring", "1s", "--no-calibration", "--exec", "exit 7", "-o", &file];
    let ran = schedlab(&[&fails[..], &comes].concat());
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(
        ran.stderr.contains("--exec 'exit 7': exit status: 7; the recording is in "),
        "{ran:?}"
    );
}
