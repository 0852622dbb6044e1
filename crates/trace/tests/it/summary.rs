//! The summary against figures worked out by hand.

use crate::common::{header, switch, wake};
use schedlab_model::{CpuId, EventKind, EventSink, Ns, PrevState, SchedEvent, TaskId, Waker};
use schedlab_trace::analysis::{Summary, TaskSummary};
use schedlab_trace::{Capabilities, Capability, Recording, TraceError};

const R: PrevState = PrevState::Runnable;
const S: PrevState = PrevState::Sleeping;

fn at(at: u64, kind: EventKind) -> SchedEvent {
    SchedEvent { at: Ns(at), cpu: CpuId(0), kind }
}

fn summary(events: &[SchedEvent], end: u64) -> Summary {
    let recording = Recording::from_parts(header(1, 2), events.to_vec(), Ns(end)).unwrap();
    assert!(recording.repairs.is_clean(), "{}", recording.repairs);
    Summary::from_recording(&recording).unwrap()
}

/// A hog (task 0) and a sleeper (task 1) that waits 30, runs 50 in two parts, and sleeps.
#[test]
fn a_hog_and_a_sleeper() {
    let events = [
        wake(100, 0, 1, Waker::HardIrq),
        switch(130, 0, Some(0), R, Some(1)),
        switch(150, 0, Some(1), R, Some(0)),
        switch(160, 0, Some(0), R, Some(1)),
        switch(190, 0, Some(1), S, Some(0)),
        wake(400, 0, 1, Waker::HardIrq),
        switch(400, 0, Some(0), R, Some(1)),
        switch(405, 0, Some(1), S, None),
    ];
    let summary = summary(&events, 1_000);
    let (hog, sleeper) = (&summary.tasks[0], &summary.tasks[1]);
    // The hog ran from the start: 130 + 10 + 210 + nothing after 400 (it waits for ever).
    assert_eq!(hog.run, Ns(130 + 10 + 210));
    assert_eq!((hog.preemptions, hog.activations, hog.switches), (3, 0, 2));
    assert_eq!(hog.preempt_wait.sum(), Ns(20 + 30));
    assert_eq!(sleeper.run, Ns(20 + 30 + 5));
    assert_eq!((sleeper.wakeups, sleeper.activations, sleeper.preemptions), (2, 2, 1));
    assert_eq!((sleeper.wake_latency.count(), sleeper.wake_latency.max()), (2, Ns(30)));
    assert_eq!(sleeper.response.sum(), Ns(90 + 5));
    assert_eq!(sleeper.slept, Ns(210 + 595));
    assert_eq!((summary.cpus[0].busy, summary.cpus[0].idle), (Ns(405), Ns(595)));
    assert_eq!(summary.share_per_million(TaskId(1)), 55_000);
}

#[test]
fn throttled_time_is_a_part_of_a_wakeups_latency_and_no_waiting() {
    let events = [
        wake(0, 0, 1, Waker::HardIrq),
        at(10, EventKind::Throttle { task: TaskId(1) }),
        at(60, EventKind::Unthrottle { task: TaskId(1) }),
        switch(75, 0, None, R, Some(1)),
        switch(80, 0, Some(1), S, None),
    ];
    let task = &summary(&events, 100).tasks[1];
    assert_eq!((task.wake_latency.max(), task.queue_latency().max()), (Ns(75), Ns(25)));
    assert_eq!(task.throttled, Ns(50));
    assert_eq!(task.response.max(), Ns(80));
}

#[test]
fn stolen_time_is_nobodys() {
    let events = [
        switch(0, 0, None, R, Some(0)),
        at(50, EventKind::Steal { ns: Ns(20) }),
        switch(100, 0, Some(0), S, None),
    ];
    let summary = summary(&events, 100);
    assert_eq!((summary.tasks[0].run, summary.cpus[0].stolen), (Ns(80), Ns(20)));
}

/// What is counted where distributions are not asked for is the same.
#[test]
fn sums_are_sums_without_distributions() {
    let events = [
        wake(100, 0, 1, Waker::HardIrq),
        switch(130, 0, Some(0), R, Some(1)),
        switch(150, 0, Some(1), R, Some(0)),
        switch(160, 0, Some(0), R, Some(1)),
        switch(190, 0, Some(1), S, Some(0)),
    ];
    let whole = summary(&events, 1_000);
    let mut sums = Summary::new(2, 1, Ns::ZERO).sums_only();
    events.iter().for_each(|event| sums.event(event));
    sums.finish(Ns(1_000));
    for (whole, sums) in whole.tasks.iter().zip(&sums.tasks) {
        let of = |task: &TaskSummary| {
            let times = (task.run, task.slept, task.throttled, task.stolen);
            let counts = (task.switches, task.preemptions, task.wakeups, task.activations);
            (times, counts)
        };
        assert_eq!(of(whole), of(sums));
        let all = [&sums.wake_latency, &sums.preempt_wait, &sums.response, &sums.run_length];
        assert!(all.iter().all(|distribution| distribution.count() == 0));
    }
    assert_eq!((whole.tasks[1].response.count(), sums.tasks[1].activations), (1, 1));
}

#[test]
fn only_the_window_counts() {
    let mut summary = Summary::new(2, 1, Ns(1_000));
    for round in 0..20 {
        let start = round * 100;
        summary.event(&wake(start, 0, 1, Waker::HardIrq));
        summary.event(&switch(start + 5, 0, None, R, Some(1)));
        summary.event(&switch(start + 25, 0, Some(1), S, None));
    }
    summary.finish(Ns(2_000));
    assert_eq!((summary.tasks[1].run, summary.tasks[1].activations), (Ns(200), 10));
    assert_eq!(summary.activations_per_1000_s(&summary.tasks[1]), 10_000_000 * 1_000);
}

#[test]
fn refuses_by_name_what_it_cannot_see() {
    let mut blind = header(1, 1);
    blind.capabilities = Capabilities::from_list([Capability::WakeTimes]);
    let recording = Recording::from_parts(blind, Vec::new(), Ns(1)).unwrap();
    let Err(error @ TraceError::Lacks { .. }) = Summary::from_recording(&recording) else {
        panic!("must refuse")
    };
    assert!(error.to_string().contains("preempted"), "{error}");
}
