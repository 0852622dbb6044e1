//! Workloads that people posted, with the right values as they were worked out by hand. Each file
//! of `tests/field` is one case.

use schedlab_model::Ns;
use schedlab_study::compare::{Options, compare_scenario};
use schedlab_study::result::Study;
use schedlab_study::rtapp;
use schedlab_study::scenario::{self, Scenario};

fn text(file: &str) -> String {
    std::fs::read_to_string(format!("{}/tests/field/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// The median of a metric of a subject in the first row.
fn value(scenario: &Scenario, subject: &str, metric: &str) -> f64 {
    let study = compare_scenario(scenario, &Options::default(), &|_, _| ()).unwrap();
    let row = &study.rows[0];
    let subject = row.subjects.iter().find(|found| found.name == subject).unwrap();
    let cell = subject.cells.iter().find(|cell| cell.metric.to_string() == metric).unwrap();
    cell.value.median
}

/// scheduler-tools/rt-app#89: 125 times 8 ms of 16 ms, and no duration.
#[test]
fn a_workload_without_a_duration_ends_with_its_tasks() {
    let scenario =
        rtapp::parse("share", "f", &text("rtapp-finite-share.json"), 2).unwrap().scenario;
    let study = compare_scenario(&scenario, &Options::default(), &|_, _| ()).unwrap();
    assert_eq!(Ns(study.duration_ns), Ns::from_s(2));
    assert!((value(&scenario, "pelt1", "share") - 0.5).abs() < 1e-9);
    assert!((value(&scenario, "pelt1", "throughput") - 62.5).abs() < 1e-9);
}

/// scheduler-tools/rt-app#137: a low task holds the lock that a high one wants, and a task between
/// them runs.
#[test]
fn waiting_for_a_lock_belongs_to_the_response() {
    let inherits = text("rtapp-lock-response.json");
    let plain = inherits.replace("\"pi_enabled\": true", "\"pi_enabled\": false");
    for (text, worst_ns) in [(&plain, 24e6), (&inherits, 5e6)] {
        let scenario = rtapp::parse("lock", "f", text, 1).unwrap().scenario;
        for metric in ["response p50", "response max"] {
            assert_eq!(value(&scenario, "high", metric), worst_ns, "{metric}");
        }
    }
}

/// Found while checking alsa-project/alsa-lib#285: the throttled task may not run on the CPU that
/// idles.
#[test]
fn a_limit_is_not_charged_with_the_idle_time_of_forbidden_cpus() {
    let scenario =
        scenario::parse("pinned", "idle-capped-pinned.toml", &text("idle-capped-pinned.toml"))
            .unwrap();
    assert_eq!(value(&scenario, "machine", "idle-capped"), 0.0);
}

#[test]
fn a_lock_with_inheritance_raises_its_owner_along_a_chain() {
    let text = r#"
schedulers = ["linux-6.18"]
duration = "1s"
locks = [{ name = "a", protocol = "inherit" }, { name = "b", protocol = "inherit" }]
[machine]
cpus = 1
[[task]]
name = "holder"
policy = "fifo:1"
program = ["lock a", "run 10ms", "unlock a", "exit"]
[[task]]
name = "middle"
policy = "fifo:2"
start = "1ms"
program = ["lock b", "lock a", "run 1ms", "unlock a", "unlock b", "exit"]
[[task]]
name = "disturber"
policy = "fifo:3"
start = "2ms"
program = ["run 50ms", "exit"]
[[task]]
name = "high"
policy = "fifo:4"
start = "3ms"
program = ["lock b", "run 1ms", "unlock b", "exit"]
"#;
    let scenario = scenario::parse("chain", "chain.toml", text).unwrap();
    // At 3 ms `holder` has 8 ms left (it lost 1 ms to `disturber`), then `middle` and `high` run 1
    // ms each.
    assert_eq!(value(&scenario, "high", "response max"), 10e6);
    let plain = text.replace("inherit", "none");
    let scenario = scenario::parse("chain", "chain.toml", &plain).unwrap();
    assert_eq!(value(&scenario, "high", "response max"), 59e6);
}

#[test]
fn a_run_that_ends_with_its_tasks_needs_tasks_that_end() {
    let file = |task: &str| {
        format!(
            "schedulers = [\"linux-6.18\"]\nduration = \"1s\"\nend = \"tasks\"\n[machine]\n\
             cpus = 1\n[[task]]\nname = \"a\"\n{task}\n"
        )
    };
    let parsed = |task: &str| scenario::parse("end", "end.toml", &file(task));
    let error = parsed("program = \"hog\"").unwrap_err().to_string();
    assert!(error.contains("never end"), "{error}");
    let ends = parsed("program = [\"run 10ms\", \"exit\"]").unwrap();
    let study = compare_scenario(&ends, &Options::default(), &|_, _| ()).unwrap();
    assert_eq!(Ns(study.duration_ns), Ns::from_ms(10));
}

/// A policy that the real system does not have is not treated as another one without a word.
#[test]
fn a_policy_that_came_later_is_said_to_stand_in() {
    let text = "title = \"later\"\nduration = \"100ms\"\n\
                schedulers = [\"linux-2.4\", \"linux-2.4-mq\", \"linux-2.6.22\", \"linux-6.18\"]\n\
                [machine]\ncpus = 1\n[[task]]\nname = \"hog\"\npolicy = \"idle\"\n\
                program = \"hog\"\n\
                [[task]]\nname = \"batch\"\npolicy = \"batch\"\nprogram = \"hog\"\n";
    let scenario = schedlab_study::scenario::parse("later", "later.toml", text).unwrap();
    let study = compare_scenario(&scenario, &Options::default(), &|_, _| ()).unwrap();
    let notes: Vec<Vec<&str>> = study
        .rows
        .iter()
        .map(|row| {
            row.notes
                .iter()
                .filter(|note| note.contains("it has no SCHED_"))
                .map(String::as_str)
                .collect()
        })
        .collect();
    assert_eq!(
        notes[0],
        [
            "linux-2.4: policy=batch: it has no SCHED_BATCH (Linux 2.6.16): these tasks run as \
             SCHED_OTHER",
            "linux-2.4: policy=idle: it has no SCHED_IDLE (Linux 2.6.23): these tasks run as \
             SCHED_OTHER"
        ]
    );
    assert_eq!(notes.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 1, 0], "{notes:?}");
    assert!(notes[2][0].ends_with("these tasks run as SCHED_BATCH"), "{notes:?}");
}

/// The rows of a scenario's first variant, by scheduler.
fn first_rows(file: &str, schedulers: &[&str], duration: Ns) -> Study {
    let scenario = scenario::parse(file, file, &text(file)).unwrap();
    let options = Options {
        schedulers: schedulers.iter().map(|name| name.parse().unwrap()).collect(),
        duration: Some(duration),
        repetitions: Some(1),
        ..Options::default()
    };
    compare_scenario(&scenario, &options, &|_, _| ()).unwrap()
}

/// uber-go/automaxprocs: with 24 threads and a limit of 2 CPUs Go served half of what it served
/// with 2. No spinning is simulated; before, nothing said so.
#[test]
fn a_short_limit_says_that_spinning_is_not_simulated() {
    let study = first_rows("go-gomaxprocs-24.toml", &["linux-6.12"], Ns::from_ms(600));
    let notes: Vec<&String> =
        study.notes.iter().filter(|note| note.contains("a runtime that spins")).collect();
    // 24 threads and 8, but not 2 threads on 2 CPUs.
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(notes[0].starts_with("/lb has 24 threads") && notes[0].contains("a limit of 2 CPUs"));
    assert!(notes[1].starts_with("/lb has 8 threads"), "{}", notes[1]);
    // A limit over tasks that only run takes nothing from their spinning.
    let capped = text("idle-capped-pinned.toml");
    let capped = scenario::parse("capped", "capped.toml", &capped).unwrap();
    let study = compare_scenario(&capped, &Options::default(), &|_, _| ()).unwrap();
    assert!(study.notes.iter().all(|note| !note.contains("spins")), "{:?}", study.notes);
}

/// LKML 2026-02-03 (commit fd54d81c2c0e, in 7.1): children of a build under SCHED_IDLE share CPUs
/// with their siblings although 48 of 64 idle. Before, linux-7.2 had the same 3.8 % as linux-6.18.
#[test]
fn sched_idle_children_do_not_share_a_cpu_since_7_1() {
    let study = first_rows("sched-idle-64.toml", &["linux-6.18", "linux-7.2"], Ns::from_ms(1_500));
    let waiting = |scheduler: &str, variant: &str| {
        let row =
            study.rows.iter().find(|row| row.scheduler == scheduler && row.variant == variant);
        let machine = row.unwrap().subjects.iter().find(|subject| subject.name == "machine");
        let cells = &machine.unwrap().cells;
        let cell = cells.iter().find(|cell| cell.metric.to_string() == "idle-waiting").unwrap();
        cell.value.median
    };
    let [before, since] =
        ["linux-6.18", "linux-7.2"].map(|scheduler| waiting(scheduler, "as it is"));
    assert!(before > 0.02 && since < before / 3.0, "{before} {since}");
}
