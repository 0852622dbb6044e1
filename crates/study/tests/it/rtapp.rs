//! rt-app workloads: what they become, that it runs as rt-app means it, and errors that teach.
//! Inputs: `fuzz/corpus/rtapp`, whole and damaged.

use schedlab_model::{Nice, Op, Policy, Start};
use schedlab_scheduler::registry;
use schedlab_study::compare::{Options, compare_scenario};
use schedlab_study::generate::{Verdict, trial};
use schedlab_study::rtapp::{Imported, RtAppError, parse};
use std::path::Path;

fn corpus() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/rtapp");
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let read = |path: &std::path::PathBuf| {
        (
            path.file_stem().unwrap().to_string_lossy().into_owned(),
            std::fs::read_to_string(path).unwrap(),
        )
    };
    paths.iter().map(read).collect()
}

fn import(name: &str) -> Result<Imported, RtAppError> {
    let (_, text) =
        corpus().into_iter().find(|(known, _)| known == name).expect("it is in the corpus");
    parse(name, &format!("{name}.json"), &text, 2)
}

#[test]
fn a_pipeline_is_taken_over() {
    let imported = import("good-pipeline").unwrap();
    let scenario = &imported.scenario;
    let names: Vec<&str> = scenario.workload.tasks.iter().map(|task| task.name.as_str()).collect();
    assert_eq!(names, ["producer", "consumer-1", "consumer-2", "idler", "once"]);
    let task = |name: &str| scenario.workload.tasks.iter().find(|task| task.name == name).unwrap();
    assert_eq!(task("producer").policy, Policy::Fifo(20));
    assert_eq!(task("producer").start, Start::At("500us".parse().unwrap()));
    assert_eq!(task("consumer-1").nice, Nice::new(-5).unwrap());
    assert_eq!(scenario.workload.groups[task("consumer-2").group.index()].name, "/apps/sink");
    assert_eq!(task("idler").policy, Policy::Idle);
    assert_eq!(scenario.machine.topology.cpus(), 3);
    assert!(matches!(task("once").program.ops.last(), Some(Op::Exit)));
    // `run` comes twice in one object, and both count.
    let runs = task("consumer-1").program.ops.iter().filter(|op| matches!(op, Op::Run(_))).count();
    assert_eq!(runs, 2);
    for note in ["mem is left out", "no waiting task is kept", "number of loops"] {
        assert!(
            imported.notes.iter().any(|other| other.contains(note)),
            "{note}: {:?}",
            imported.notes
        );
        assert!(imported.toml.contains(note), "{note}");
    }
}

/// What it asks for is what it gets: 3 * 1 ms and 4 ms in 40 ms, on a FIFO task.
#[test]
fn a_pipeline_runs_as_it_says() {
    let scenario = import("good-pipeline").unwrap().scenario;
    let study = compare_scenario(&scenario, &Options::default(), &|_, _| ()).unwrap();
    let row = &study.rows[0];
    let value = |name: &str, metric: &str| {
        let subject = row.subjects.iter().find(|subject| subject.name == name).unwrap();
        let cell = subject.cells.iter().find(|cell| cell.metric.to_string() == metric).unwrap();
        cell.value.median
    };
    assert!((value("producer", "share") - 0.175).abs() < 0.006, "{}", value("producer", "share"));
    // Three signals in 40 ms wake one consumer each, for half a millisecond.
    assert!((value("consumer", "share") - 0.0375).abs() < 0.003, "{}", value("consumer", "share"));
    assert!((value("idler", "share") - 0.0175).abs() < 0.002, "{}", value("idler", "share"));
}

/// Four threads meet: the slowest needs 3 ms, and every task waits for it.
#[test]
fn a_barrier_holds_everybody() {
    let imported = import("good-barrier").unwrap();
    let scenario = &imported.scenario;
    let study = compare_scenario(scenario, &Options::default(), &|_, _| ()).unwrap();
    let share = |name: &str| {
        let subject = study.rows[0].subjects.iter().find(|subject| subject.name == name).unwrap();
        subject.cells.iter().find(|cell| cell.metric.to_string() == "share").unwrap().value.median
    };
    // One CPU: 1 ms of a and 9 ms of b in every round.
    assert!((share("b") / share("a") - 9.0).abs() < 0.3, "{} and {}", share("a"), share("b"));
    assert_eq!(
        scenario.workload.tasks.iter().find(|task| task.name == "child").unwrap().start,
        Start::Spawned
    );
    assert_eq!(
        trial(&imported.toml, &registry::build).clone(),
        trial(&imported.toml, &registry::build)
    );
    assert!(matches!(trial(&imported.toml, &registry::build), Verdict::Ran(_)));
}

#[test]
fn errors_teach() {
    for (name, place, part) in [
        ("bad-event", "tasks.t.slep", "did you mean `sleep`"),
        ("bad-fraction", "tasks.t.run", "whole number"),
        ("bad-periods", "tasks.t.timer1.period", "one timer period"),
        ("bad-syntax", "", "line 2"),
        ("bad-nobody", "", "no task ever sends"),
    ] {
        let error = import(name).expect_err(name);
        assert!(error.place == place && error.to_string().contains(part), "{name}: {error}");
    }
    for (text, part) in [
        ("{}", "there is no task"),
        ("[]", "must be an object"),
        ("{\"tasks\": {\"t\": {\"policy\": \"SCHED_LOTTERY\", \"run\": 1}}}", "there is no policy"),
        (
            "{\"tasks\": {\"t\": {\"policy\": \"SCHED_FIFO\", \"priority\": 0, \"run\": 1}}}",
            "1 to 99",
        ),
        ("{\"tasks\": {\"t\": {\"run\": -1}}}", "microseconds"),
        ("{\"task\": {}}", "not `task`"),
    ] {
        let error = parse("t", "t.json", text, 2).expect_err(text);
        assert!(
            error.to_string().starts_with("t.json") && error.to_string().contains(part),
            "{text}: {error}"
        );
    }
}

#[test]
fn damaged_workloads_never_panic() {
    for (name, text) in corpus() {
        assert_eq!(parse(&name, "f", &text, 2).is_ok(), name.starts_with("good"), "{name}");
        for at in (0..text.len()).filter(|at| text.is_char_boundary(*at)) {
            let _ = parse("cut", "f", &text[..at], 2);
            for bad in ["\"", "{", "}", "-", "9999999999999999999999", "/*", "\u{0}", "é"] {
                let mut text = text.clone();
                text.replace_range(at..at + 1, bad);
                let _ = parse("damaged", "f", &text, 2);
            }
        }
    }
}

fn throughput(imported: &Imported, name: &str) -> f64 {
    let study = compare_scenario(&imported.scenario, &Options::default(), &|_, _| ()).unwrap();
    let subject = study.rows[0].subjects.iter().find(|subject| subject.name == name).unwrap();
    subject.cells.iter().find(|cell| cell.metric.to_string() == "throughput").unwrap().value.median
}

/// `sync` wakes a task that suspended itself by the same name, as in rt-app's example
/// video-short.json: both use one condition, and `sync` leaves its mutex to others while it waits.
/// A round takes 2.5 ms and some, of both.
#[test]
fn suspend_and_sync_share_a_condition() {
    let text = r#"{ "tasks": {
        "first": { "run": 100, "lock": "m", "sync": { "ref": "Driver", "mutex": "m" }, "unlock": "m", "run": 50, "suspend": "Driver" },
        "second": { "suspend": "Driver", "run": 110, "lock": "m", "resume": "Driver", "unlock": "m", "sleep": 2500, "resume": "Driver" }
    }, "global": { "duration": 1 } }"#;
    let imported = parse("video", "video.json", text, 2).unwrap();
    for name in ["first", "second"] {
        let rounds = throughput(&imported, name);
        assert!((300.0..800.0).contains(&rounds), "{name}: {rounds}");
    }
}

/// A `resume` is for each thread that waits, not for each place in a program at which it waits.
#[test]
fn a_thread_that_waits_at_two_places_is_woken_once() {
    let text = r#"{ "tasks": {
        "clock": { "resume": "tick", "timer": { "ref": "t", "period": 10000 } },
        "two": { "phases": { "p1": { "suspend": "tick", "run": 100 }, "p2": { "suspend": "tick", "run": 100 } } }
    }, "global": { "duration": 1 } }"#;
    let imported = parse("two", "two.json", text, 2).unwrap();
    assert!(!imported.toml.contains(" x2"), "{}", imported.toml);
    let rounds = throughput(&imported, "two");
    assert!((95.0..=102.0).contains(&rounds), "one a tick: {rounds}");
}

#[test]
fn the_grammar_before_1_0_is_named() {
    let text = r#"{ "tasks": { "thread1": { "exec": 1000, "period": 10000, "deadline": 8000, "lock_order": ["m0"],
        "resources": { "m0": { "duration": 500 } } } } }"#;
    let why = parse("old", "old.json", text, 2).unwrap_err().to_string();
    for part in
        ["tasks.thread1.exec", "before 1.0", "\"run\": 1000", "\"period\": 10000", "\"lock\""]
    {
        assert!(why.contains(part), "{part}: {why}");
    }
    let part = r#"{ "global": { "duration": 5 } }"#;
    let why = parse("part", "part.json", part, 2).unwrap_err().to_string();
    assert!(why.contains("part of a workload"), "{why}");
}
