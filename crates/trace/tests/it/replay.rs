//! Recording → workload: what must become a dependency, what must stay in time, what must vanish.

use crate::common::{header, ping_pong, switch, wake};
use schedlab_model::{
    Amount, ChannelId, CpuId, EventKind, Fact, FactKind, Limit, Ns, Op, Outcome, PrevState,
    SchedEvent, SourceKind, Start, TaskId, Waker,
};
use schedlab_trace::replay::{Replay, ReplayOptions, replay};
use schedlab_trace::{Capabilities, Recording, TraceError};

const R: PrevState = PrevState::Runnable;
const S: PrevState = PrevState::Sleeping;
const D: PrevState = PrevState::DiskSleep;

fn convert(
    cpus: usize,
    tasks: usize,
    events: Vec<SchedEvent>,
    end: u64,
    options: &ReplayOptions,
) -> Replay {
    let recording = Recording::from_parts(header(cpus, tasks), events, Ns(end)).unwrap();
    let replay = replay(&recording, options).unwrap();
    replay.workload.check(cpus).unwrap();
    replay
}

fn plain(cpus: usize, tasks: usize, events: Vec<SchedEvent>, end: u64) -> Replay {
    convert(cpus, tasks, events, end, &ReplayOptions::default())
}

fn run(ns: u64) -> Op {
    Op::Run(Amount::Fixed(Ns(ns)))
}

fn receive(task: u32) -> Op {
    Op::Receive(ChannelId(task))
}

fn send(task: u32) -> Op {
    Op::Send { channel: ChannelId(task), count: 1 }
}

#[test]
fn a_closed_loop_stays_a_loop() {
    let replay = plain(1, 2, ping_pong(3), 61_000);
    let ops = |task: usize| &replay.workload.tasks[task].program.ops[..];
    // Task 1's first wakeup is its start; the later ones are dependencies.
    let first = [run(1_000), run(1_000)];
    assert_eq!(ops(0)[..2], first, "{:?}", ops(0));
    assert_eq!(ops(0)[2..6], [receive(0), run(10_000), send(1), run(1_000)]);
    assert_eq!(ops(1)[..4], [run(8_000), send(0), run(1_000), receive(1)]);
    assert_eq!(replay.workload.sources, []);
    assert_eq!(replay.report.closed_loops, [vec![TaskId(0), TaskId(1)]]);
    assert_eq!(replay.workload.tasks[1].start, Start::AsleepUntil(Ns(1_000)));
    assert_eq!(
        replay.workload.tasks[0].program.repeat_from,
        Some(0),
        "a loop must not run out of work"
    );
    assert_eq!((replay.report.wakes_by_tasks, replay.report.outside_permille()), (6, 0));
}

#[test]
fn preemption_and_waiting_vanish() {
    let events = vec![
        switch(0, 0, None, R, Some(0)),
        wake(100, 0, 1, Waker::HardIrq),
        switch(100, 0, Some(0), R, Some(1)),
        switch(200, 0, Some(1), R, Some(0)),
        switch(300, 0, Some(0), R, Some(1)),
        switch(350, 0, Some(1), S, Some(0)),
        wake(900, 0, 1, Waker::HardIrq),
        switch(900, 0, Some(0), R, Some(1)),
        switch(950, 0, Some(1), S, Some(0)),
    ];
    let replay = plain(1, 2, events, 1_000);
    let [hog, timed] = &replay.workload.tasks[..] else { panic!() };
    assert_eq!(hog.program.ops.last(), Some(&run(1_000_000_000)), "a hog has no end of demand");
    assert_eq!(replay.report.hogs, [TaskId(0)]);
    assert_eq!(timed.start, Start::AsleepUntil(Ns(100)));
    assert_eq!(timed.program.ops[..3], [run(150), receive(1), run(50)]);
    // Across the seam it sleeps as long as it slept before and after its activations.
    assert_eq!(timed.program.ops[3..], [Op::Sleep(Amount::Fixed(Ns(100 + 50)))]);
    let [source] = &replay.workload.sources[..] else { panic!() };
    assert_eq!(
        (source.into, &source.kind),
        (ChannelId(1), &SourceKind::Recorded { at: vec![Ns(900)] })
    );
}

/// The recording ends while a command of some milliseconds waits for its turn: it is no hog,
/// whatever part of its work was cut off. (A `pgrep` of 0.3 % of a CPU was replayed as one of 83
/// %.)
#[test]
fn a_late_command_is_no_hog() {
    let created = |at, task| SchedEvent {
        at: Ns(at),
        cpu: CpuId(0),
        kind: EventKind::New { task: TaskId(task), parent: None },
    };
    let events = |at: u64, ran: u64| {
        vec![
            switch(0, 0, None, R, Some(0)),
            created(at, 1),
            switch(at + 10, 0, Some(0), R, Some(1)),
            switch(at + 10 + ran, 0, Some(1), R, Some(0)),
        ]
    };
    let late = plain(1, 2, events(700, 20), 1_000);
    assert_eq!(
        (&late.report.hogs[..], &late.report.unfinished[..]),
        (&[TaskId(0)][..], &[TaskId(1)][..])
    );
    assert_eq!(late.workload.tasks[1].program.ops[0], run(20));
    let early = plain(1, 2, events(300, 100), 1_000);
    assert_eq!(
        early.report.hogs,
        [TaskId(0), TaskId(1)],
        "what wanted the CPU for most of the time and got a tenth is one"
    );
}

/// A task that waits until the end of the recording with little CPU time, and a thread of the
/// kernel with more, wanted we do not know how much: no hogs. One that never blocked from before
/// the recording to its end is one, however little it got.
#[test]
fn what_is_starved_is_no_hog() {
    let events = |ran: u64| {
        vec![
            switch(0, 0, None, R, Some(0)),
            wake(200, 0, 1, Waker::HardIrq),
            switch(210, 0, Some(0), R, Some(1)),
            switch(210 + ran, 0, Some(1), R, Some(0)),
        ]
    };
    let starved = plain(1, 2, events(50), 1_000);
    assert_eq!(
        (&starved.report.hogs[..], &starved.report.starved[..]),
        (&[TaskId(0)][..], &[TaskId(1)][..])
    );
    let [.., Op::Receive(never)] = starved.workload.tasks[1].program.ops[..] else { panic!() };
    let sends = |op: &Op| matches!(op, Op::Send { channel, .. } if *channel == never);
    assert!(!starved.workload.tasks.iter().any(|task| task.program.ops.iter().any(sends)));
    assert_eq!(starved.workload.tasks[1].program.ops[0], run(50));
    assert_eq!(plain(1, 2, events(150), 1_000).report.hogs, [TaskId(0), TaskId(1)]);
    let mut parts = header(1, 2);
    parts.tasks[1].kernel = true;
    let recording = Recording::from_parts(parts, events(150), Ns(1_000)).unwrap();
    let kernel = replay(&recording, &ReplayOptions::default()).unwrap();
    assert_eq!(
        (&kernel.report.hogs[..], &kernel.report.starved[..]),
        (&[TaskId(0)][..], &[TaskId(1)][..])
    );
    let from_the_start = vec![
        switch(0, 0, None, R, Some(0)),
        switch(210, 0, Some(0), R, Some(1)),
        switch(220, 0, Some(1), R, Some(0)),
    ];
    assert_eq!(plain(1, 2, from_the_start, 1_000).report.hogs, [TaskId(0), TaskId(1)]);
}

#[test]
fn a_wakeup_that_released_nobody_is_no_token() {
    let events = vec![
        switch(0, 0, None, R, Some(0)),
        switch(0, 1, None, R, Some(1)),
        // Task 1 is running, then runnable, when it is woken.
        wake(50, 0, 1, Waker::Task(TaskId(0))),
        switch(60, 1, Some(1), R, None),
        wake(70, 0, 1, Waker::Task(TaskId(0))),
        switch(80, 1, None, R, Some(1)),
        switch(90, 1, Some(1), S, None),
        wake(100, 0, 1, Waker::Task(TaskId(0))),
        switch(110, 1, None, R, Some(1)),
    ];
    let replay = plain(2, 2, events, 200);
    let sends = replay.workload.tasks[0]
        .program
        .ops
        .iter()
        .filter(|op| matches!(op, Op::Send { .. }))
        .count();
    let receives = replay.workload.tasks[1]
        .program
        .ops
        .iter()
        .filter(|op| matches!(op, Op::Receive(_)))
        .count();
    assert_eq!((sends, receives, replay.report.absorbed), (1, 1, 2));
}

#[test]
fn a_wakeup_stamped_before_its_block_counts_once() {
    let events = vec![
        switch(0, 0, None, R, Some(0)),
        switch(0, 1, None, R, Some(1)),
        wake(50, 0, 1, Waker::Task(TaskId(0))),
        switch(52, 1, Some(1), S, None),
        switch(60, 1, None, R, Some(1)),
        switch(90, 1, Some(1), S, None),
    ];
    let recording = Recording::from_parts(header(2, 2), events, Ns(100)).unwrap();
    assert_eq!((recording.repairs.early_wakes, recording.repairs.missing_wakes), (1, 0));
    let replay = replay(&recording, &ReplayOptions::default()).unwrap();
    assert_eq!(replay.workload.tasks[1].program.ops[..3], [run(52), receive(1), run(30)]);
    assert_eq!(replay.report.dependencies, 1);
}

#[test]
fn inline_softirqs_are_the_senders_doing_and_ksoftirqd_is_not() {
    let mut header = header(1, 3);
    header.tasks[2].comm = "ksoftirqd/0".to_owned();
    let mut events = vec![switch(0, 0, None, R, Some(0))];
    for round in 1..4 {
        let at = round * 1_000;
        let waker =
            if round == 3 { Waker::Task(TaskId(2)) } else { Waker::InlineSoftirq(TaskId(0)) };
        let runs = if round == 3 { 2 } else { 0 };
        if round == 3 {
            events.push(wake(at - 10, 0, 2, Waker::HardIrq));
            events.push(switch(at - 5, 0, Some(0), R, Some(2)));
        }
        events.push(wake(at, 0, 1, waker));
        events.push(switch(at + 10, 0, Some(runs), S, Some(1)));
        if round < 3 {
            events.push(wake(at + 20, 0, 0, Waker::Task(TaskId(1))));
        }
        events.push(switch(at + 30, 0, Some(1), S, Some(0)));
    }
    let recording = Recording::from_parts(header, events, Ns(4_000)).unwrap();
    let report = replay(&recording, &ReplayOptions::default()).unwrap().report;
    assert_eq!(
        (report.wakes_by_tasks, report.wakes_by_softirq, report.wakes_by_hardirq),
        (4, 1, 1)
    );
}

#[test]
fn stolen_time_is_not_demand() {
    let steal = SchedEvent { at: Ns(50), cpu: CpuId(0), kind: EventKind::Steal { ns: Ns(30) } };
    let events = vec![
        wake(0, 0, 0, Waker::HardIrq),
        switch(0, 0, None, R, Some(0)),
        steal,
        switch(100, 0, Some(0), S, None),
    ];
    assert_eq!(plain(1, 1, events, 100).workload.tasks[0].program.ops[0], run(70));
}

#[test]
fn device_sleeps_move_with_the_work() {
    let mut events = Vec::new();
    let mut at = 0;
    events.push(wake(0, 0, 0, Waker::HardIrq));
    events.push(switch(0, 0, None, R, Some(0)));
    for _ in 0..3 {
        events.push(switch(at + 100, 0, Some(0), D, None));
        events.push(wake(at + 600, 0, 0, Waker::HardIrq));
        events.push(switch(at + 600, 0, None, R, Some(0)));
        at += 600;
    }
    events.push(switch(at + 100, 0, Some(0), S, None));
    let replay = plain(1, 1, events, 2_000);
    // Behind the task's own channel and the one that no task feeds.
    let (length, channel) = (Amount::Fixed(Ns(500)), ChannelId(2));
    let (start, wait) =
        (Op::Device { length, cpu: CpuId(0), channel, count: 1 }, Op::Receive(channel));
    let once = [run(100), start, wait];
    assert_eq!(replay.workload.tasks[0].program.ops[..6], [once, once].concat());
    assert_eq!((replay.report.device_sleeps, replay.workload.sources.len()), (3, 0));
}

/// Work of varying length. `next_wake(start of work, end of work)`.
fn timed(next_wake: impl Fn(u64, u64) -> u64) -> Replay {
    worked(|round| 1_000 + (round * 7_919) % 5_000, next_wake, None)
}

/// `work(round)`: its length. `until`: how the task sleeps, where that was recorded.
fn worked(
    work: impl Fn(u64) -> u64,
    next_wake: impl Fn(u64, u64) -> u64,
    until: Option<Limit>,
) -> Replay {
    let mut events = Vec::new();
    let mut facts = Vec::new();
    let mut at = 0;
    for round in 0..40 {
        let work = work(round);
        facts.extend(until.map(|until| Fact {
            at: Ns(at),
            cpu: CpuId(0),
            task: Some(TaskId(0)),
            kind: FactKind::Sleep { until, outcome: Outcome::Done },
        }));
        events.push(wake(at, 0, 0, Waker::HardIrq));
        events.push(switch(at, 0, None, R, Some(0)));
        events.push(switch(at + work, 0, Some(0), S, None));
        at = next_wake(at, at + work);
    }
    let mut recording = Recording::from_parts(header(1, 1), events, Ns(at)).unwrap();
    recording.facts.list = facts;
    replay(&recording, &ReplayOptions::default()).unwrap()
}

/// Where work always takes the same time, sleeps and periods are equally regular: a date keeps the
/// rate that was recorded. (An audio chain of 2.667 ms ran at 282/s for 334/s.)
#[test]
fn a_perfect_period_is_absolute() {
    let periodic = worked(|_| 1_000, |start, _| start + 20_000, None);
    assert_eq!((periodic.report.absolute_wakes, periodic.report.timer_sleeps), (39, 0));
}

/// What the calls said decides, whatever the lengths look like.
#[test]
fn recorded_sleeps_say_whether_they_are_absolute() {
    let kinds = |replay: Replay| (replay.report.absolute_wakes, replay.report.timer_sleeps);
    let period = |until| worked(|_| 1_000, |start, _| start + 20_000, Some(until));
    assert_eq!(kinds(period(Limit::For(Ns(19_000)))), (0, 39));
    assert_eq!(kinds(period(Limit::At(Ns(1)))), (39, 0));
    let varying = |round: u64| 1_000 + (round * 7_919) % 5_000;
    let sleeps = |until| worked(varying, |_, end| end + 20_000, Some(until));
    assert_eq!(kinds(sleeps(Limit::At(Ns(1)))), (39, 0));
    assert_eq!(kinds(sleeps(Limit::For(Ns(20_000)))), (0, 39));
}

#[test]
fn periodic_timers_are_absolute_and_sleeps_after_work_are_relative() {
    let periodic = timed(|start, _| start + 20_000);
    assert_eq!((periodic.report.absolute_wakes, periodic.report.timer_sleeps), (39, 0));
    let relative = timed(|_, end| end + 20_000);
    assert_eq!((relative.report.absolute_wakes, relative.report.timer_sleeps), (0, 39));
}

#[test]
fn forks_spawn_and_exits_end() {
    let new = EventKind::New { task: TaskId(1), parent: Some(TaskId(0)) };
    let at = |at, kind| SchedEvent { at: Ns(at), cpu: CpuId(0), kind };
    let events = vec![
        switch(0, 0, None, R, Some(0)),
        at(100, new),
        switch(150, 0, Some(0), S, Some(1)),
        at(180, EventKind::Exit { task: TaskId(1) }),
        wake(190, 0, 0, Waker::Task(TaskId(1))),
        switch(200, 0, Some(1), PrevState::Dead, Some(0)),
        switch(250, 0, Some(0), S, None),
    ];
    let replay = plain(1, 2, events, 300);
    let [parent, child] = &replay.workload.tasks[..] else { panic!() };
    assert_eq!(
        parent.program.ops[..5],
        [run(100), Op::Spawn(TaskId(1)), run(50), receive(0), run(50)]
    );
    assert_eq!((child.start, child.program.repeat_from), (Start::Spawned, None));
    assert_eq!(child.program.ops, [run(40), send(0), run(10)]);
    assert_eq!(replay.report.finite, [TaskId(0)]);
}

/// On its way out a task frees its memory: it may lose its CPU there, and wait for a lock. What it
/// still ran counted as activations that the outside began, at dates, and a make of which that was
/// so was no maker.
#[test]
fn an_exit_may_be_interrupted() {
    let at = |at, kind| SchedEvent { at: Ns(at), cpu: CpuId(0), kind };
    let exits = |state: PrevState| {
        let mut events = vec![
            switch(0, 0, None, R, Some(0)),
            at(100, EventKind::New { task: TaskId(1), parent: Some(TaskId(0)) }),
            switch(150, 0, Some(0), S, Some(1)),
            at(180, EventKind::Exit { task: TaskId(1) }),
            switch(200, 0, Some(1), state, None),
        ];
        if state == PrevState::DiskSleep {
            events.push(wake(210, 0, 1, Waker::HardIrq));
        }
        events.push(switch(220, 0, None, R, Some(1)));
        events.push(wake(230, 0, 0, Waker::Task(TaskId(1))));
        events.push(switch(240, 0, Some(1), PrevState::Dead, Some(0)));
        events.push(switch(250, 0, Some(0), S, None));
        plain(1, 2, events, 300)
    };
    for state in [PrevState::RunnableInKernel, R] {
        let replay = exits(state);
        assert_eq!(replay.workload.tasks[1].program.ops, [run(60), send(0), run(10)], "{state:?}");
        assert_eq!((replay.report.wakes_unknown, replay.report.absolute_wakes), (0, 0));
    }
    let waits = exits(PrevState::DiskSleep);
    assert_eq!((waits.report.wakes_unknown, waits.report.device_sleeps), (0, 1));
    assert_eq!(waits.workload.tasks[1].program.repeat_from, None, "it ends");
}

/// A server that starts while it is recorded creates its threads, and then serves: it serves on,
/// and creates none anew.
#[test]
fn what_creates_others_at_its_start_begins_again_behind_that() {
    let mut events = ping_pong(20);
    let kind = EventKind::New { task: TaskId(2), parent: Some(TaskId(0)) };
    events.insert(1, SchedEvent { at: Ns(10), cpu: CpuId(0), kind });
    let replay = plain(1, 3, events, 410_000);
    let program = &replay.workload.tasks[0].program;
    assert_eq!(program.ops[..2], [run(10), Op::Spawn(TaskId(2))]);
    assert_eq!(program.repeat_from, Some(2));
    assert!(replay.report.finite.is_empty());
}

#[test]
fn demand_scales_with_its_deeds() {
    let options =
        ReplayOptions { demand: vec!["t1 x2".parse().unwrap()], ..ReplayOptions::default() };
    let replay = convert(1, 2, ping_pong(3), 61_000, &options);
    assert_eq!(replay.workload.tasks[1].program.ops[..3], [run(16_000), send(0), run(2_000)]);
    assert_eq!(replay.workload.tasks[0].program.ops[..2], [run(1_000), run(1_000)]);
    let wrong =
        ReplayOptions { demand: vec!["nobody x2".parse().unwrap()], ..ReplayOptions::default() };
    let recording = Recording::from_parts(header(1, 2), ping_pong(3), Ns(61_000)).unwrap();
    assert!(replay_error(&recording, &wrong).contains("t0, t1"));
    for text in ["t1", "t1 2", "t1 x", "t1 x0", "t1 x-1", " x2", "t1 x1.2345", "t1 x9999999"] {
        assert!(text.parse::<schedlab_trace::replay::DemandChange>().is_err(), "{text}");
    }
}

fn replay_error(recording: &Recording, options: &ReplayOptions) -> String {
    replay(recording, options).unwrap_err().to_string()
}

#[test]
fn refuses_what_it_cannot_see() {
    let mut recording = Recording::from_parts(header(1, 2), ping_pong(3), Ns(61_000)).unwrap();
    recording.header.capabilities =
        Capabilities::from_list([schedlab_trace::Capability::Preempted]);
    recording.header.backend = "perf-context-switches".to_owned();
    let error = replay(&recording, &ReplayOptions::default()).unwrap_err();
    assert!(matches!(error, TraceError::Lacks { .. }));
    assert!(error.to_string().contains("wake-times, waker"), "{error}");
    let options = ReplayOptions { without_wakes: true, ..ReplayOptions::default() };
    assert!(replay(&recording, &options).is_ok());
}

#[test]
fn tasks_begin_where_they_were_seen_first() {
    let moved = SchedEvent {
        at: Ns(50),
        cpu: CpuId(0),
        kind: EventKind::Migrate { task: TaskId(1), from: CpuId(0), to: CpuId(1) },
    };
    let born = SchedEvent {
        at: Ns(120),
        cpu: CpuId(1),
        kind: EventKind::New { task: TaskId(3), parent: Some(TaskId(1)) },
    };
    let events = vec![
        moved,
        switch(100, 1, Some(0), R, Some(1)),
        born,
        switch(200, 1, Some(1), R, Some(3)),
        switch(300, 0, None, R, Some(2)),
        switch(400, 1, Some(3), R, Some(0)),
    ];
    let replay = plain(2, 4, events, 1_000);
    let began: Vec<Option<CpuId>> =
        replay.workload.tasks.iter().map(|task| task.began_on).collect();
    assert_eq!(began, [Some(CpuId(1)), Some(CpuId(0)), Some(CpuId(0)), None]);
}
