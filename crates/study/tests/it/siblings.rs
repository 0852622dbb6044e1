//! A recording shows by how much two hardware threads of a core slow each other, and its replay
//! says what a task has beside another neighbour: held against the simulation that made it.

use schedlab_model::{
    Amount, ChannelId, ChannelSpec, CpuId, CpuSet, Draw, EventSink, Fact, Ns, Op, Program,
    SchedEvent, TaskId, TaskSpec, Topology, Workload,
};
use schedlab_scheduler::registry;
use schedlab_sim::{Machine, RunOptions};
use schedlab_trace::analysis::Summary;
use schedlab_trace::replay::{Replay, ReplayOptions, replay};
use schedlab_trace::siblings::{Speed, sibling_speed};
use schedlab_trace::{Capabilities, Recording, TaskInfo};

const DURATION: Ns = Ns::from_s(4);
const SERVER: usize = 0;
const NEIGHBOUR: usize = 2;
const YIELD: u16 = 600;

/// A server on the first thread of the first core, its client on the second core, and a neighbour
/// on the other thread of the server's core that is busy half of the time.
fn workload() -> Workload {
    let send = |channel| Op::Send { channel: ChannelId(channel), count: 1 };
    let receive = |channel| Op::Receive(ChannelId(channel));
    let program = |draw: Draw, ops: Vec<Op>| Program { draws: vec![draw], ..Program::forever(ops) };
    let drawn = || Op::Run(Amount::Draw(0));
    let work = Draw::Uniform { low: Ns::from_us(60), high: Ns::from_us(140) };
    let burst = Draw::Exponential { mean: Ns::from_ms(2) };
    let few = || Op::Run(Amount::Fixed(Ns(500)));
    let mut tasks = vec![
        TaskSpec::new("server", program(work, vec![receive(0), drawn(), send(1), few()])),
        TaskSpec::new(
            "client",
            Program::forever([receive(1), Op::Run(Amount::Fixed(Ns::from_us(20))), send(0), few()]),
        ),
        TaskSpec::new("neighbour", program(burst, vec![drawn(), Op::Sleep(Amount::Draw(0))])),
    ];
    for (task, cpu) in [(SERVER, 0), (1, 2), (NEIGHBOUR, 1)] {
        tasks[task].affinity = CpuSet::single(CpuId(cpu));
    }
    let channel =
        |name: &str, initial| ChannelSpec { name: name.to_owned(), initial, capacity: None };
    Workload {
        tasks,
        channels: vec![channel("requests", 1), channel("replies", 0)],
        ..Workload::default()
    }
}

/// Two cores of two threads.
fn machine(smt_yield: u16) -> Machine {
    Machine { topology: Topology::regular(1, 1, 2, 2), smt_yield, ..Machine::flat(1) }
}

#[derive(Default)]
struct Events(Vec<SchedEvent>, Vec<Fact>);

impl EventSink for Events {
    fn event(&mut self, event: &SchedEvent) {
        self.0.push(*event);
    }

    fn fact(&mut self, fact: &Fact) {
        self.1.push(*fact);
    }
}

fn simulate<S: EventSink>(workload: &Workload, smt_yield: u16, sink: &mut S) {
    let machine = machine(smt_yield);
    let scheduler = registry::build(&"linux-6.18".parse().unwrap(), machine.topology.cpus());
    let options = RunOptions::for_time(DURATION);
    schedlab_sim::run(&machine, workload, &*scheduler.unwrap(), &options, sink).unwrap();
}

fn record(workload: &Workload, smt_yield: u16) -> Recording {
    let mut events = Events::default();
    simulate(workload, smt_yield, &mut events);
    let mut recording = Recording { duration: DURATION, events: events.0, ..Recording::default() };
    recording.facts.list = events.1;
    let header = &mut recording.header;
    header.topology = machine(smt_yield).topology;
    header.capabilities = Capabilities::simulator();
    header.hz = 250;
    let info = |(number, task): (usize, &TaskSpec)| TaskInfo {
        affinity: task.affinity,
        ..TaskInfo::unknown(number as u32 + 1, number as u32 + 1, task.name.clone())
    };
    header.tasks = workload.tasks.iter().enumerate().map(info).collect();
    recording
}

/// How often the server answers in a second.
fn answers(workload: &Workload, smt_yield: u16) -> f64 {
    let mut summary = Summary::new(workload.tasks.len(), 4, Ns::ZERO);
    simulate(workload, smt_yield, &mut summary);
    summary.finish(DURATION);
    summary.tasks[SERVER].activations as f64 / (DURATION.0 as f64 / 1e9)
}

/// The neighbour goes to the idle thread beside the client.
fn moved(mut workload: Workload) -> Workload {
    workload.tasks[NEIGHBOUR].affinity = CpuSet::single(CpuId(3));
    workload
}

fn replayed(recording: &Recording) -> Replay {
    replay(recording, &ReplayOptions::default()).unwrap()
}

fn near(is: f64, was: f64, part: f64) -> bool {
    (is / was - 1.0).abs() < part
}

#[test]
fn the_recording_shows_the_speed_within_its_error() {
    for smt_yield in [500, YIELD, 750, 900] {
        let found = sibling_speed(&record(&workload(), smt_yield)).unwrap();
        let truth = f64::from(smt_yield) / 1000.0;
        assert!((found.speed - truth).abs() <= found.error.max(0.002), "{truth}: {found:?}");
        assert!(found.error < 0.02, "{found:?}");
        assert!(found.activations.iter().all(|count| *count > 1_000), "{found:?}");
    }
    // Nothing is made of what is not there.
    let same = sibling_speed(&record(&workload(), 1_000)).unwrap();
    assert!((same.speed - 1.0).abs() <= same.error.max(0.002), "{same:?}");
    let mut flat = record(&workload(), YIELD);
    flat.header.topology = Topology::flat(4);
    assert_eq!(sibling_speed(&flat), None);
}

#[test]
fn a_neighbour_that_never_changes_shows_nothing() {
    let mut always = workload();
    always.tasks[NEIGHBOUR].program = Program::hog().into();
    assert_eq!(sibling_speed(&record(&always, YIELD)), None);
}

#[test]
fn the_replay_says_what_another_neighbour_is_worth() {
    let recording = record(&workload(), YIELD);
    let replay = replayed(&recording);
    let beside = replay.report.beside().permille();
    let (was, truth) = (answers(&workload(), YIELD), answers(&moved(workload()), YIELD));
    let again = answers(&replay.workload, beside);
    assert!(near(again, was, 0.03), "{again} for {was}");
    let told = answers(&moved(replay.workload), beside);
    assert!(near(told, truth, 0.03), "{told} for {truth}");
    assert!(!near(truth, was, 0.15), "the neighbour matters: {was} and {truth}");
    // What it was without the speed: the same, wherever the neighbour is.
    let mut flat = recording;
    flat.header.topology = Topology::flat(4);
    let flat = replayed(&flat).workload;
    let blind = answers(&moved(flat), 1_000);
    assert!(near(blind, was, 0.03), "{blind} for {was}");
}

/// The same work, whatever was beside it.
#[test]
fn a_fact_has_the_work_that_was_done_before_it() {
    use schedlab_model::{FactKind, Limit, Outcome};
    use schedlab_replay::facts::Facts;
    let work = |beside: Speed| -> u64 {
        let mut recording = record(&workload(), YIELD);
        let ends = recording.events.iter().filter(|event| event.cpu == CpuId(0));
        let kind = FactKind::Sleep { until: Limit::Unknown, outcome: Outcome::Done };
        let (task, cpu) = (Some(TaskId::from(SERVER)), CpuId(0));
        let fact = |event: &SchedEvent| Fact { at: event.at, cpu, task, kind };
        recording.facts.list = ends.map(fact).collect();
        let facts = Facts::from_recording(&recording, Default::default(), beside);
        facts.tasks[SERVER].ran.0
    };
    // 100.5 us for each answer.
    let sent = answers(&workload(), YIELD) * (DURATION.0 as f64 / 1e9) * 100_500.0;
    let (slowed, full) = (work(Speed::of_permille(YIELD)) as f64, work(Speed::FULL) as f64);
    assert!(near(slowed, sent, 0.01), "{slowed} for {sent}");
    assert!(full > 1.2 * sent, "{full} for {sent}");
}
