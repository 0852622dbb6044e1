//! Every analysis on a few events whose answer can be worked out by hand.

use crate::common::{header, switch, wake};
use schedlab_model::{
    Bandwidth, CpuId, CpuSet, EventKind, EventSink, GroupId, GroupSpec, Ns, Policy, PrevState,
    SchedEvent, TaskId, Waker,
};
use schedlab_trace::analysis::blame::{Blame, Culprit};
use schedlab_trace::analysis::conservation::{Conservation, allowed};
use schedlab_trace::analysis::follow::{Followed, Occupant, ThreadState};
use schedlab_trace::analysis::latency::{Latency, Longest};
use schedlab_trace::analysis::migrations::Migrations;
use schedlab_trace::analysis::runqueue::RunQueue;
use schedlab_trace::analysis::slices::Slices;
use schedlab_trace::analysis::states::States;
use schedlab_trace::analysis::stream::{Stream, StreamEntry, What};
use schedlab_trace::analysis::syscalls::{self, Syscalls};
use schedlab_trace::analysis::throttle::{Limit, Throttling};
use schedlab_trace::analysis::timehist::{Row, Timehist};
use schedlab_trace::analysis::wakes::{From, Wakes};
use schedlab_trace::analysis::worst::Worst;
use schedlab_trace::analysis::{By, Scope};
use schedlab_trace::{Capability, GroupInfo, Header, Recording};

const R: PrevState = PrevState::Runnable;
const S: PrevState = PrevState::Sleeping;
const D: PrevState = PrevState::DiskSleep;
const MS: u64 = 1_000_000;

fn event(at: u64, cpu: u32, kind: EventKind) -> SchedEvent {
    SchedEvent { at: Ns(at), cpu: CpuId(cpu), kind }
}

fn recording(header: Header, events: &[SchedEvent], end: u64) -> Recording {
    let recording = Recording::from_parts(header, events.to_vec(), Ns(end)).unwrap();
    assert!(recording.repairs.is_clean(), "{}", recording.repairs);
    recording
}

/// A hog (task 0) and a sleeper (task 1) on one CPU. The sleeper waits 30 after a wakeup, 10 after
/// a preemption, and nothing after its second wakeup; the hog waits 20 + 30 after preemptions, and
/// for ever from 400 on.
fn hog_and_sleeper() -> Recording {
    let events = [
        wake(100, 0, 1, Waker::HardIrq),
        switch(130, 0, Some(0), R, Some(1)),
        switch(150, 0, Some(1), R, Some(0)),
        switch(160, 0, Some(0), R, Some(1)),
        switch(190, 0, Some(1), S, Some(0)),
        wake(400, 0, 1, Waker::Task(TaskId(0))),
        switch(400, 0, Some(0), R, Some(1)),
        switch(405, 0, Some(1), S, None),
    ];
    recording(header(1, 2), &events, 1_000)
}

fn all() -> Scope {
    Scope::default()
}

#[test]
fn latency_keeps_wakeups_and_preemptions_apart() {
    let file = hog_and_sleeper();
    let found = Followed::over(&file, &all(), Latency::new(&file.header, &all(), By::Thread));
    let (hog, sleeper) = (&found.lines[0], &found.lines[1]);
    assert_eq!((sleeper.wake.lengths.count(), sleeper.wake.lengths.sum()), (2, Ns(30)));
    assert_eq!(sleeper.wake.longest, Some(Longest { length: Ns(30), from: Ns(100), to: Ns(130) }));
    assert_eq!((sleeper.preempt.lengths.count(), sleeper.preempt.lengths.max()), (1, Ns(10)));
    assert_eq!((hog.preempt.lengths.count(), hog.preempt.lengths.sum()), (2, Ns(50)));
    assert_eq!(hog.preempt.longest, Some(Longest { length: Ns(30), from: Ns(160), to: Ns(190) }));
    assert_eq!((hog.run, sleeper.run), (Ns(350), Ns(55)));
    // The window decides by the end of a wait, and clips the CPU time.
    let scope = Scope { from: Ns(140), to: Ns(170), ..all() };
    let found = Followed::over(&file, &scope, Latency::new(&file.header, &scope, By::Thread));
    assert_eq!(found.lines[0].preempt.lengths.sum(), Ns(20));
    assert_eq!((found.lines[0].run, found.lines[1].run), (Ns(10), Ns(20)));
}

#[test]
fn states_add_up_to_lifetimes() {
    let file = hog_and_sleeper();
    let found = Followed::over(&file, &all(), States::new(&file.header, &all(), By::Thread));
    let times = |line| ThreadState::ALL.map(|state| found.time(line, state).0);
    //                     run wake preempt thr sleep D T B X unknown
    assert_eq!(times(0), [350, 0, 650, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(times(1), [55, 30, 10, 0, 805, 0, 0, 0, 0, 100]);
    assert_eq!((found.lifetime(0), found.lifetime(1)), (Ns(1_000), Ns(1_000)));
}

/// Of a stream whose kernel does not show every switch (a virtual machine that hides its own agent
/// does that) the CPU time that is known is counted, and no task runs for ever.
#[test]
fn a_task_that_left_its_cpu_unseen_does_not_run_on() {
    let header = header(1, 3);
    let states = States::new(&header, &all(), By::Thread);
    let mut followed = Followed::new(3, 1, states);
    for event in [
        switch(100, 0, Some(1), R, Some(0)),
        // Task 0 went without a word.
        switch(300, 0, Some(2), S, Some(1)),
        switch(400, 0, Some(1), R, Some(0)),
        switch(450, 0, Some(0), S, Some(1)),
    ] {
        followed.event(&event);
    }
    let found = followed.finish(Ns(500));
    let run = |line| found.time(line, ThreadState::Running);
    assert_eq!((run(0), run(1)), (Ns(50), Ns(250)));
}

#[test]
fn slices_say_how_they_ended() {
    let file = hog_and_sleeper();
    let found = Followed::over(&file, &all(), Slices::new(&file.header, &all(), By::Thread));
    let sleeper = &found.lines[1];
    assert_eq!((sleeper.preempted.count(), sleeper.preempted.sum()), (1, Ns(20)));
    assert_eq!((sleeper.given_up.count(), sleeper.given_up.sum()), (2, Ns(35)));
    // The first slice began before the recording: its length is not known.
    assert_eq!(
        (found.lines[0].preempted.count(), found.lines[0].preempted.sum()),
        (2, Ns(10 + 210))
    );
}

#[test]
fn timehist_is_that_of_perf() {
    let mut rows = Vec::new();
    let file = hog_and_sleeper();
    all().feed(&file, &mut Timehist::new(|row: &Row| rows.push(*row)));
    let short: Vec<_> =
        rows.iter().map(|r| (r.at.0, r.who.map(|t| t.0), r.wait.0, r.delay.0, r.run.0)).collect();
    let expected = [
        (130, Some(0), 0, 0, 0),
        (150, Some(1), 0, 30, 20),
        (160, Some(0), 20, 0, 10),
        (190, Some(1), 10, 0, 30),
        (400, Some(0), 30, 0, 210),
        (405, Some(1), 210, 0, 5),
    ];
    assert_eq!(short, expected);
}

#[test]
fn blame_adds_up_to_the_waiting() {
    let file = hog_and_sleeper();
    let found = Followed::over(&file, &all(), Blame::new(&file.header, &all(), By::Thread));
    let row = |line: usize| {
        found.rows[line].iter().map(|(who, share)| (*who, share.time.0)).collect::<Vec<_>>()
    };
    assert_eq!(row(1), [(Culprit::Line(0), 40)]);
    assert_eq!(row(0), [(Culprit::Line(1), 55), (Culprit::Idle, 595)]);
    let one = Blame::new(&file.header, &all(), By::Thread).of_line(1);
    let one = Followed::over(&file, &all(), one);
    assert_eq!((&one.rows[1], one.rows[0].len()), (&found.rows[1], 0));
}

/// Task 2 (FIFO) runs for 15 ms on CPU 0 while task 1 waits there; CPU 1, where it may run, idles
/// for 4 ms of it. After a migration it waits 1 ms more on CPU 1 behind task 3.
#[test]
fn the_worst_wait_names_who_ran_and_what_could_have_been() {
    let mut header = header(2, 4);
    header.tasks[2].policy = Policy::Fifo(50);
    header.tasks.iter_mut().for_each(|task| task.known = true);
    let migrate = EventKind::Migrate { task: TaskId(1), from: CpuId(0), to: CpuId(1) };
    let events = [
        switch(0, 0, None, R, Some(2)),
        switch(0, 1, None, R, Some(3)),
        wake(MS, 0, 1, Waker::HardIrq),
        switch(2 * MS, 1, Some(3), S, None),
        wake(6 * MS, 1, 3, Waker::HardIrq),
        switch(6 * MS, 1, None, R, Some(3)),
        event(16 * MS, 0, migrate),
        switch(17 * MS, 1, Some(3), R, Some(1)),
        switch(18 * MS, 1, Some(1), S, Some(3)),
    ];
    let file = recording(header, &events, 20 * MS);
    let worst = Followed::over(&file, &all(), Worst::new(&file.header, &all(), 1));
    let case = &worst.cases[0];
    assert_eq!(
        (case.task, case.from, case.to, case.cpu),
        (TaskId(1), Ns(MS), Ns(17 * MS), CpuId(1))
    );
    let ran = |task| Occupant::Task(TaskId(task));
    assert_eq!(case.meanwhile, [(ran(2), Ns(15 * MS)), (ran(3), Ns(MS))]);
    assert_eq!(case.queues, [CpuId(0), CpuId(1)]);
    // It did wait on CPU 1 at the end, so that CPU is not called an alternative.
    assert_eq!((case.idled, case.held), (None, None));
    assert_eq!(case.meanwhile.iter().map(|(_, time)| *time).sum::<Ns>(), case.length());

    let (allowed, unknown) = allowed(&file);
    assert_eq!(unknown, 0);
    let found = Followed::over(&file, &all(), Conservation::new(&file.header, &all(), allowed, 5));
    assert_eq!((found.lengths.count(), found.lengths.sum()), (1, Ns(4 * MS)));
    let longest = found.longest[0];
    assert_eq!((longest.from, longest.to, longest.idle), (Ns(2 * MS), Ns(6 * MS), CpuId(1)));
    assert_eq!((longest.task, longest.behind), (TaskId(1), TaskId(2)));
    assert_eq!((found.tasks[1], found.cpus[1]), (Ns(4 * MS), Ns(4 * MS)));

    let found = Followed::over(&file, &all(), Migrations::new(&file.header, &all(), By::Thread));
    assert_eq!((found.lines[1].woken, found.lines[1].all()), (1, 1));
    assert_eq!(found.between[&(CpuId(0), CpuId(1))], 1);
}

#[test]
fn an_idle_cpu_is_an_alternative_only_where_the_task_may_run() {
    let idled = |affinity: CpuSet, known: bool| {
        let mut header = header(2, 2);
        (header.tasks[1].affinity, header.tasks[1].known) = (affinity, known);
        let events = [
            switch(0, 0, None, R, Some(0)),
            switch(0, 1, None, R, None),
            wake(MS, 0, 1, Waker::HardIrq),
            switch(3 * MS, 0, Some(0), R, Some(1)),
        ];
        let file = Recording::from_parts(header, events.to_vec(), Ns(4 * MS)).unwrap();
        let worst = Followed::over(&file, &all(), Worst::new(&file.header, &all(), 3));
        let (allowed, _) = allowed(&file);
        let found =
            Followed::over(&file, &all(), Conservation::new(&file.header, &all(), allowed, 5));
        (worst.cases[0].idled, found.lengths.count())
    };
    assert_eq!(idled(CpuSet::first(2), true), (Some((CpuId(1), Ns(2 * MS))), 1));
    assert_eq!(idled(CpuSet::single(CpuId(0)), true), (None, 0));
    assert_eq!(idled(CpuSet::ALL, false), (None, 0), "where it may run is not known");
}

fn limited(header: &mut Header) {
    let root = GroupSpec { name: "/".to_owned(), ..GroupSpec::default() };
    let bandwidth = Bandwidth { quota: Ns::from_ms(10), period: Ns::from_ms(100), burst: Ns::ZERO };
    let batch = GroupSpec {
        name: "/batch".to_owned(),
        parent: Some(GroupId::ROOT),
        bandwidth: Some(bandwidth),
        ..GroupSpec::default()
    };
    header.groups = [root, batch].map(GroupInfo::from).to_vec();
    header.tasks[1].group = GroupId(1);
}

/// Runs 10 ms, then is taken off the CPU, which idles for 90 ms.
#[test]
fn cpu_max_is_inferred_where_nothing_else_explains_an_idle_cpu() {
    let events = [
        switch(0, 0, None, R, Some(1)),
        switch(10 * MS, 0, Some(1), R, None),
        switch(100 * MS, 0, None, R, Some(1)),
        switch(105 * MS, 0, Some(1), S, None),
    ];
    let held = |limit: bool, recorded: bool| {
        let mut header = header(1, 2);
        if recorded {
            header.capabilities.0.insert(Capability::Throttling.name().to_owned());
        }
        if limit {
            limited(&mut header);
        }
        let file = recording(header, &events, 105 * MS);
        let found =
            Followed::over(&file, &all(), Throttling::new(&file.header, &all(), By::Thread));
        found.lines[1]
            .iter()
            .map(|(limit, line)| (*limit, line.held.count(), line.longest))
            .collect::<Vec<_>>()
    };
    let longest = Some((Ns(90 * MS), Ns(10 * MS), Ns(100 * MS)));
    assert_eq!(held(true, false), [(Limit::CpuMax(GroupId(1)), 1, longest)]);
    assert_eq!(held(false, false), [], "a task without a limit is not throttled");
    assert_eq!(held(true, true), [], "the recorder would have said so");
}

#[test]
fn reported_throttling_is_a_state_of_its_own() {
    let mut header = header(1, 2);
    limited(&mut header);
    let events = [
        switch(0, 0, None, R, Some(1)),
        event(10, 0, EventKind::Throttle { task: TaskId(1) }),
        switch(11, 0, Some(1), R, Some(0)),
        event(80, 0, EventKind::Unthrottle { task: TaskId(1) }),
        switch(90, 0, Some(0), S, Some(1)),
    ];
    let file = recording(header, &events, 100);
    let found = Followed::over(&file, &all(), Throttling::new(&file.header, &all(), By::Thread));
    let (limit, line) = &found.lines[1][0];
    assert_eq!((*limit, line.held.sum()), (Limit::Reported(Some(GroupId(1))), Ns(69)));
    let found = Followed::over(&file, &all(), Blame::new(&file.header, &all(), By::Thread));
    let row: Vec<_> = found.rows[1].iter().map(|(who, share)| (*who, share.time.0)).collect();
    assert_eq!(row, [(Culprit::Line(0), 10), (Culprit::Throttled, 69)]);
    let worst = Followed::over(&file, &all(), Worst::new(&file.header, &all(), 3));
    assert_eq!((worst.cases[0].length(), worst.cases[0].throttled), (Ns(79), Ns(69)));
    let found = Followed::over(&file, &all(), Latency::new(&file.header, &all(), By::Thread));
    assert_eq!(
        found.lines[1].preempt.lengths.sum(),
        Ns(10),
        "throttled time is no wait after a preemption"
    );
}

#[test]
fn a_reported_limit_of_a_real_time_task_is_not_cpu_max() {
    let mut header = header(1, 2);
    limited(&mut header);
    header.tasks[1].policy = Policy::Fifo(1);
    let events = [
        switch(0, 0, None, R, Some(1)),
        event(10, 0, EventKind::Throttle { task: TaskId(1) }),
        switch(10, 0, Some(1), R, Some(0)),
        event(60, 0, EventKind::Unthrottle { task: TaskId(1) }),
        switch(60, 0, Some(0), R, Some(1)),
    ];
    let file = recording(header, &events, 100);
    let found = Followed::over(&file, &all(), Throttling::new(&file.header, &all(), By::Thread));
    assert_eq!(
        (found.lines[1][0].0, found.lines[1][0].1.held.sum()),
        (Limit::ReportedRealTime, Ns(50))
    );
}

#[test]
fn a_real_time_task_displaced_by_a_fair_one_was_throttled() {
    let mut header = header(1, 2);
    header.tasks[1].policy = Policy::Fifo(1);
    let events = [
        switch(0, 0, None, R, Some(1)),
        switch(950 * MS, 0, Some(1), R, Some(0)),
        switch(1_000 * MS, 0, Some(0), R, Some(1)),
        switch(1_001 * MS, 0, Some(1), S, Some(0)),
    ];
    let file = recording(header, &events, 1_001 * MS);
    let found = Followed::over(&file, &all(), Throttling::new(&file.header, &all(), By::Thread));
    let (limit, line) = &found.lines[1][0];
    assert_eq!((*limit, line.held.sum()), (Limit::RealTime, Ns(50 * MS)));
    assert!(found.lines[0].is_empty(), "the fair one just waited");
}

#[test]
fn run_queue_length_is_a_mean_over_time() {
    let file = hog_and_sleeper();
    let scope = Scope { to: Ns(1_000), ..all() };
    let found = Followed::over(&file, &scope, RunQueue::new(&file.header, &scope, 10));
    let queue = &found.cpus[0];
    // 30 + 10 for the sleeper, 20 + 30 for the hog, and the hog from 400 to the end.
    assert_eq!(queue.most, (1, Ns(100)));
    assert_eq!(queue.times, [Ns(310), Ns(30 + 20 + 10 + 30 + 600)]);
    assert_eq!(queue.steps[1], 90);
}

#[test]
fn wakes_are_counted_by_who_caused_them() {
    let file = hog_and_sleeper();
    let found = Followed::over(&file, &all(), Wakes::new(&file.header, &all(), By::Thread));
    let arrows: Vec<_> = found
        .arrows
        .iter()
        .map(|(&key, arrow)| (key, arrow.waits.sum().0, arrow.same_cpu))
        .collect();
    assert_eq!(arrows, [((From::Line(0), 1), 0, 1), ((From::HardIrq, 1), 30, 1)]);
}

#[test]
fn the_stream_and_the_list_know_the_system_call() {
    let enter = |at, number| event(at, 0, EventKind::SyscallEnter { task: TaskId(0), number });
    let exit = |at| event(at, 0, EventKind::SyscallExit { task: TaskId(0) });
    let events = [
        switch(0, 0, None, R, Some(0)),
        enter(5, 0),
        exit(7),
        enter(10, 202),
        switch(20, 0, Some(0), S, None),
        wake(50, 0, 0, Waker::HardIrq),
        switch(60, 0, None, R, Some(0)),
        exit(70),
        switch(80, 0, Some(0), S, None),
    ];
    let file = recording(header(1, 1), &events, 80);
    let found = Followed::over(&file, &all(), Syscalls::new(&file.header, &all(), By::Thread));
    let blocked: Vec<_> = found.blocked.iter().map(|(key, times)| (*key, times.sum().0)).collect();
    assert_eq!(blocked, [((0, Some(202), ThreadState::Sleeping), 30)]);
    assert_eq!(
        (syscalls::name(202), syscalls::name(99_999)),
        ("futex".into(), "syscall 99999".into())
    );
    let mut lines = Vec::new();
    Followed::over(
        &file,
        &all(),
        Stream::new(&file.header, |line: &StreamEntry| lines.push((line.at.0, line.what))),
    );
    // A recorder that knows calls of blocking tasks only: they end unseen, latest when the task
    // runs.
    let mut header = header(1, 1);
    header.capabilities.0.insert(Capability::BlockingSyscalls.name().to_owned());
    let events = [
        switch(0, 0, None, R, Some(0)),
        enter(20, 202),
        switch(20, 0, Some(0), S, None),
        wake(50, 0, 0, Waker::HardIrq),
        switch(60, 0, None, R, Some(0)),
        switch(80, 0, Some(0), D, None),
        wake(90, 0, 0, Waker::HardIrq),
    ];
    let page_fault = recording(header, &events, 90);
    let found =
        Followed::over(&page_fault, &all(), Syscalls::new(&page_fault.header, &all(), By::Thread));
    let blocked: Vec<_> = found.blocked.iter().map(|(key, times)| (*key, times.sum().0)).collect();
    let expected =
        [((0, None, ThreadState::DiskSleep), 10), ((0, Some(202), ThreadState::Sleeping), 30)];
    assert_eq!(blocked, expected);
    let down =
        |ran, call| What::Descheduled { ran: Some(Ns(ran)), state: ThreadState::Sleeping, call };
    let expected = [
        (0, What::Scheduled(None)),
        (20, down(20, Some(202))),
        (60, What::Scheduled(Some((Ns(10), false)))),
        (80, down(20, None)),
    ];
    assert_eq!(lines, expected);
}
