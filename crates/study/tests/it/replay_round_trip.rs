//! Simulate → record → replay. The replay of a simulated recording under the scheduler that made it
//! gives the same figures; under another scheduler it gives what a direct simulation under that one
//! gives; and a closed loop is seen as a loop.

use schedlab_model::{
    ChannelId, ChannelSpec, CpuId, CpuSet, EventSink, Ns, Op, Policy, Program, TaskId, TaskSpec,
    Workload,
};
use schedlab_scheduler::registry;
use schedlab_sim::{Machine, RunOptions};
use schedlab_trace::analysis::Summary;
use schedlab_trace::replay::{Replay, ReplayOptions, replay};
use schedlab_trace::{Capabilities, Header, Recording, TaskInfo, Writer};

const DURATION: Ns = Ns::from_s(2);
const SERVER: usize = 0;
const CLIENT: usize = 1;
const HOG: usize = 2;

/// A server and a hog on CPU 0, the server's only client on CPU 1.
fn loop_and_hog(hog: Policy, work: Ns) -> Workload {
    let run = |ns| Op::Run(schedlab_model::Amount::Fixed(ns));
    let send = |channel| Op::Send { channel: ChannelId(channel), count: 1 };
    let receive = |channel| Op::Receive(ChannelId(channel));
    let mut tasks = vec![
        TaskSpec::new(
            "server",
            Program::forever([receive(0), run(work), send(1), run(Ns::from_us(2))]),
        ),
        TaskSpec::new(
            "client",
            Program::forever([receive(1), run(Ns::from_us(20)), send(0), run(Ns(500))]),
        ),
        TaskSpec::new("hog", Program::hog()),
    ];
    for (task, cpu) in [(SERVER, 0), (CLIENT, 1), (HOG, 0)] {
        tasks[task].affinity = CpuSet::single(CpuId(cpu));
    }
    tasks[HOG].policy = hog;
    let channel =
        |name: &str, initial| ChannelSpec { name: name.to_owned(), initial, capacity: None };
    Workload {
        tasks,
        channels: vec![channel("requests", 1), channel("replies", 0)],
        ..Workload::default()
    }
}

fn simulate<S: EventSink>(workload: &Workload, sink: &mut S) {
    let machine = Machine::flat(2);
    let scheduler = registry::build(&"linux-6.18".parse().unwrap(), 2).unwrap();
    schedlab_sim::run(&machine, workload, &*scheduler, &RunOptions::for_time(DURATION), sink)
        .unwrap();
}

fn summary(workload: &Workload) -> Summary {
    let mut summary = Summary::new(workload.tasks.len(), 2, Ns::ZERO);
    simulate(workload, &mut summary);
    summary.finish(DURATION);
    summary
}

/// Through the file format and back.
fn record(workload: &Workload) -> Recording {
    let info = |(i, task): (usize, &TaskSpec)| TaskInfo {
        policy: task.policy,
        affinity: task.affinity,
        ..TaskInfo::unknown(i as u32 + 1, i as u32 + 1, task.name.clone())
    };
    let header = Header {
        backend: "simulator".to_owned(),
        hz: 250,
        topology: Machine::flat(2).topology,
        capabilities: Capabilities::simulator(),
        tasks: workload.tasks.iter().enumerate().map(info).collect(),
        ..Header::default()
    };
    let mut writer = Writer::new(Vec::new(), &header).unwrap();
    simulate(workload, &mut writer);
    let recording = Recording::read(&writer.finish(DURATION).unwrap()[..]).unwrap();
    assert!(recording.repairs.is_clean(), "{}", recording.repairs);
    recording
}

fn replayed(recording: &Recording, demand: &[&str]) -> Replay {
    let demand = demand.iter().map(|text| text.parse().unwrap()).collect();
    replay(recording, &ReplayOptions { demand, ..ReplayOptions::default() }).unwrap()
}

/// Within `percent` of each other.
fn near(a: u64, b: u64, percent: u64) -> bool {
    a.abs_diff(b) * 100 <= a.max(b) * percent
}

fn same(a: &Summary, b: &Summary, percent: u64) {
    for task in [SERVER, CLIENT, HOG] {
        let id = TaskId::from(task);
        let (left, right) = (a.share_per_million(id), b.share_per_million(id));
        assert!(left.abs_diff(right) <= 20_000, "share of {task}: {left} {right}");
        let (left, right) = (&a.tasks[task], &b.tasks[task]);
        assert!(near(left.activations, right.activations, percent), "{task}: {left:?} {right:?}");
        let (left, right) = (left.run_queue_latency(), right.run_queue_latency());
        for quantile in [500_000, 990_000] {
            let (left, right) = (left.quantile(quantile).0, right.quantile(quantile).0);
            assert!(
                left.abs_diff(right) <= 20_000 || near(left, right, 15),
                "{task}: {left} {right}"
            );
        }
    }
}

#[test]
fn the_replay_of_a_recording_gives_its_own_figures() {
    for hog in [Policy::Other, Policy::Idle] {
        let direct = loop_and_hog(hog, Ns::from_us(100));
        let replay = replayed(&record(&direct), &[]);
        assert_eq!(replay.report.closed_loops, [vec![TaskId(0), TaskId(1)]]);
        assert_eq!(replay.report.hogs, [TaskId(2)]);
        assert!(replay.report.outside_permille() == 0);
        same(&summary(&direct), &summary(&replay.workload), 5);
    }
}

#[test]
fn a_prediction_agrees_with_the_direct_simulation() {
    let other = record(&loop_and_hog(Policy::Other, Ns::from_us(100)));
    for (policy, task) in [(Policy::Idle, HOG), (Policy::Fifo(1), SERVER)] {
        let mut predicted = replayed(&other, &[]).workload;
        predicted.tasks[task].policy = policy;
        let mut direct = loop_and_hog(Policy::Other, Ns::from_us(100));
        direct.tasks[task].policy = policy;
        same(&summary(&direct), &summary(&predicted), 5);
    }
}

#[test]
fn doubling_the_servers_demand_slows_the_loop_in_proportion() {
    let recording = record(&loop_and_hog(Policy::Idle, Ns::from_us(100)));
    let rate =
        |demand: &[&str]| summary(&replayed(&recording, demand).workload).tasks[CLIENT].activations;
    let direct = summary(&loop_and_hog(Policy::Idle, Ns::from_us(200))).tasks[CLIENT].activations;
    let (once, twice) = (rate(&[]), rate(&["server x2"]));
    // 122.5 us a round become 224.5 us.
    assert!(near(twice * 2245, once * 1225, 2), "{once} {twice}");
    assert!(near(twice, direct, 2), "{twice} {direct}");
}

/// An event loop that a timer and a peer wake: the peer's delay must not delay what the timer makes
/// it do.
#[test]
fn an_event_loop_keeps_apart_what_woke_it() {
    use schedlab_model::{Branch, Draw, SourceKind, SourceSpec};
    let run = |us| Op::Run(schedlab_model::Amount::Fixed(Ns::from_us(us)));
    let ops = vec![
        Op::Select,
        run(10),
        Op::Send { channel: ChannelId(1), count: 1 },
        Op::Select,
        run(30),
        Op::Select,
    ];
    let branches = vec![
        Branch { channel: ChannelId(0), from: 1, to: 4 },
        Branch { channel: ChannelId(2), from: 4, to: 6 },
    ];
    let looping = TaskSpec::new("loop", Program { ops, branches, ..Program::default() });
    let slow = TaskSpec::new(
        "slow",
        Program::forever([
            Op::Receive(ChannelId(1)),
            Op::Sleep(schedlab_model::Amount::Fixed(Ns::from_ms(25))),
            Op::Send { channel: ChannelId(2), count: 1 },
        ]),
    );
    let source = SourceSpec {
        name: "timer".to_owned(),
        into: ChannelId(0),
        kind: SourceKind::Recorded { at: (1..=100).map(Ns::from_ms).collect() },
        one_way: Draw::Fixed(Ns::ZERO),
    };
    let workload = Workload {
        tasks: vec![looping, slow],
        channels: vec![ChannelSpec::default(); 3],
        sources: vec![source],
        ..Workload::default()
    };
    workload.check(2).unwrap();
    let task = &summary(&workload).tasks[0];
    // 100 timers of 10 us and the replies, one each 25 ms for 2 s less the first, of 30 us: nothing
    // waits.
    assert_eq!(task.run, Ns::from_us(100 * 10 + 79 * 30));
    assert_eq!(task.activations, 1 + 100 + 79);
    let mut broken = workload.clone();
    std::sync::Arc::make_mut(&mut broken.tasks[0].program).branches[1].to = 5;
    assert!(broken.check(2).is_err());
}
