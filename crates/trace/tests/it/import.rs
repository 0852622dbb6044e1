//! Texts of `perf script` and ftrace.

use schedlab_model::{CpuId, EventKind, Ns, PrevState, TaskId, Waker};
use schedlab_trace::import::{ImportOptions, Imported, read};
use schedlab_trace::{Capability, TraceError};

fn import(file: &str) -> Imported {
    let path = format!("{}/../../fuzz/corpus/import/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read(path).unwrap();
    read(&text[..], ImportOptions::default()).unwrap()
}

fn names(imported: &Imported) -> Vec<&str> {
    imported.recording.header.tasks.iter().map(|t| t.comm.as_str()).collect()
}

#[test]
fn reads_what_perf_prints() {
    let imported = import("perf-6.1-default.txt");
    let (recording, count) = (&imported.recording, |f: fn(&EventKind) -> bool| {
        imported.recording.events.iter().filter(|e| f(&e.kind)).count()
    });
    // Counted with grep in the file.
    assert_eq!(count(|k| matches!(k, EventKind::Wake { .. })), 90);
    assert_eq!(count(|k| matches!(k, EventKind::New { .. })), 10);
    assert_eq!(count(|k| matches!(k, EventKind::Exit { .. })), 9);
    assert_eq!(count(|k| matches!(k, EventKind::Exec { .. })), 9);
    assert_eq!(count(|k| matches!(k, EventKind::Migrate { .. })), 8);
    assert_eq!(recording.header.topology.cpus(), 2);
    assert_eq!(recording.repairs.misordered, 0);
    // On this machine nothing is recorded while thread 68 (of another container) runs: five
    // switches away from it are missing on CPU 0, and one from the CPU where it was before.
    assert_eq!(recording.repairs.inconsistent_switches, 6, "{}", recording.repairs);
    assert!(
        !recording.header.capabilities.has(Capability::Waker),
        "the text does not say who woke"
    );
    assert!(names(&imported).contains(&"sched-pipe"));
    assert!(imported.summary.ignored.is_empty(), "{:?}", imported.summary.ignored);
}

#[test]
fn reads_nanoseconds_and_both_ids() {
    let imported = import("perf-6.1-pid-tid-ns.txt");
    let first = &imported.recording.events[0];
    assert_eq!(imported.recording.header.clock_start_ns, 2_788_930_492_988);
    assert_eq!((first.at, first.cpu), (Ns(0), CpuId(0)));
    assert_eq!(imported.recording.events[1].at, Ns(930_499_387 - 930_492_988));
}

#[test]
fn reads_the_short_form_and_names_with_blanks() {
    let imported = import("short-form.txt");
    assert_eq!(names(&imported), ["Web Content [1]", "tokio worker 1"]);
    let kinds: Vec<_> = imported.recording.events.iter().map(|e| e.kind).collect();
    let switch = |prev, prev_state, next| EventKind::Switch { prev, prev_state, next };
    let task = Some(TaskId(1));
    assert_eq!(kinds[0], EventKind::Wake { task: TaskId(1), waker: Waker::Unknown });
    assert_eq!(kinds[1], switch(None, PrevState::Runnable, task));
    assert_eq!(kinds[2], switch(task, PrevState::Sleeping, None));
    assert_eq!(imported.recording.duration, Ns(210_000));
}

#[test]
fn reads_ftrace_with_interrupt_flags_and_losses() {
    let imported = import("ftrace.txt");
    let wakers: Vec<_> = imported
        .recording
        .events
        .iter()
        .filter_map(|e| match e.kind {
            EventKind::Wake { waker, .. } => Some(waker),
            _ => None,
        })
        .collect();
    assert_eq!(wakers, [Waker::HardIrq, Waker::SoftIrq, Waker::Task(TaskId(0))]);
    assert_eq!(imported.recording.repairs.lost, 12);
    assert!(imported.recording.header.capabilities.has(Capability::IrqContext));
    let load = &imported.recording.header.tasks[1];
    assert_eq!((load.comm.as_str(), load.policy.to_string().as_str()), ("load gen", "fifo:1"));
}

#[test]
fn reads_old_wakeups_and_hostile_names() {
    let imported = import("old-wakeup.txt");
    assert_eq!(names(&imported), ["a b", "c", "c ==> d"]);
    let wakes = imported
        .recording
        .events
        .iter()
        .filter(|e| matches!(e.kind, EventKind::Wake { .. }))
        .count();
    assert_eq!(wakes, 1, "sched_wakeup counts where no sched_waking was recorded");
    assert_eq!(imported.summary.ignored["sched_stat_runtime"], 1);
    assert_eq!(imported.recording.header.tasks[1].nice.get(), -10);
}

#[test]
fn errors_name_the_line() {
    let strict = ImportOptions { strict: true, ..ImportOptions::default() };
    let error = |text: &str| read(text.as_bytes(), strict).unwrap_err();
    let good = "a 1 [000] 1.0: sched:sched_waking: comm=b pid=2 prio=120 target_cpu=0\n";
    for (bad, expected) in [
        ("hello world\n", "no time stamp"),
        ("a 1 1.0: sched:sched_switch: x\n", "[CPU]"),
        ("a 1 [000] 1.0: sched:sched_switch: x\n", "prev_comm="),
        ("a 1 [9999] 1.0: sched:sched_switch: x\n", "CPU 9999"),
        ("a 1 [000] 1.0: sched:sched_migrate_task: comm=b pid=2 prio=120 orig_cpu=0\n", "dest_cpu"),
    ] {
        let error = error(&format!("{good}{bad}"));
        assert!(matches!(error, TraceError::Import { line: 2, .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    assert!(error("").to_string().contains("no sched_switch events"));
    assert!(error(good).to_string().contains("no sched_switch events"));
    assert!(error(&"x".repeat(70_000)).to_string().contains("longer than"));
}
