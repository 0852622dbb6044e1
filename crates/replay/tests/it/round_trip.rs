//! Made-up workloads are simulated with their facts, and what is made of the recording is simulated
//! again: it completes, the account of each object closes, and three rounds have three times the
//! messages.

use proptest::prelude::*;
use schedlab_model::{
    Act, Arrival, Coroutine, CoroutineStep, CpuId, CpuSet, EventSink, Executor, ExecutorId, Fact,
    FactKind, Holds, Ns, ObjectId, ObjectInfo, ObjectKind, ObjectSpec, Op, Program, SchedEvent,
    Script, ScriptId, Step, TaskId, TaskSpec, Topology, Workload,
};
use schedlab_scheduler::{SchedulerSpec, registry};
use schedlab_sim::{Machine, Outcome, RunOptions, run};
use schedlab_trace::replay::RecorderCost;
use schedlab_trace::siblings::Speed;
use schedlab_trace::{Capability, Recording, TaskInfo};

pub(crate) const US: u64 = 1_000;
pub(crate) const MS: u64 = 1_000_000;
const CPUS: usize = 12;
/// The CPUs that tasks share where they do.
const SHARED: u32 = 3;

/// Keeps events and facts.
#[derive(Default)]
pub(crate) struct Both {
    pub(crate) events: Vec<SchedEvent>,
    facts: Vec<Fact>,
}

impl EventSink for Both {
    fn event(&mut self, event: &SchedEvent) {
        self.events.push(*event);
    }

    fn fact(&mut self, fact: &Fact) {
        self.facts.push(*fact);
    }
}

pub(crate) fn simulate(workload: &Workload, ms: u64) -> (Outcome, Both) {
    simulate_for(workload, Ns(ms * MS))
}

pub(crate) fn simulate_for(workload: &Workload, duration: Ns) -> (Outcome, Both) {
    let mut both = Both::default();
    let scheduler =
        registry::build(&SchedulerSpec::named("linux-6.18"), CPUS).expect("a scheduler");
    let options = RunOptions::for_time(duration);
    let outcome =
        run(&Machine::flat(CPUS), workload, &*scheduler, &options, &mut both).expect("a clean run");
    (outcome, both)
}

/// Returns the recording of a run.
pub(crate) fn recording(workload: &Workload, ms: u64) -> (Outcome, Recording) {
    let (outcome, both) = simulate(workload, ms);
    let mut recording =
        Recording { duration: Ns(ms * MS), events: both.events, ..Recording::default() };
    let header = &mut recording.header;
    header.topology = Topology::flat(CPUS);
    header.capabilities.0.insert(Capability::Messages.name().to_owned());
    for (number, task) in workload.tasks.iter().enumerate() {
        let number = number as u32 + 100;
        let info = TaskInfo::unknown(number, number, task.name.clone());
        header.tasks.push(TaskInfo { affinity: task.affinity, ..info });
    }
    let kind = |object: &ObjectSpec| match object.holds {
        Holds::Lock { .. } => ObjectKind::Futex,
        _ => ObjectKind::Tcp,
    };
    let objects = workload.exchange.objects.iter();
    recording.facts.objects = objects.map(|object| ObjectInfo::of_kind(kind(object))).collect();
    // The two directions of a connection are next to each other.
    for (number, object) in recording.facts.objects.iter_mut().enumerate() {
        object.peer = Some(ObjectId::from(number ^ 1));
    }
    recording.facts.list = both.facts;
    (outcome, recording)
}

/// Returns the recording played again for so long.
pub(crate) fn replayed(recording: &Recording, ms: u64) -> Outcome {
    let replayed = schedlab_replay::replay(recording, RecorderCost::default(), Speed::FULL, &[])
        .expect("it has facts");
    simulate(&replayed.workload, ms).0
}

pub(crate) fn object(holds: Holds) -> ObjectSpec {
    ObjectSpec { name: String::new(), holds, initial: 0, room: None, sync: true, answered_in: None }
}

pub(crate) fn step(before: u64, act: Act) -> Step {
    Step::new(Ns(before), act, Ns::ZERO)
}

pub(crate) fn receive(object: u32, amount: u64) -> Act {
    Act::Receive { object: ObjectId(object), amount, whole: false }
}

pub(crate) fn send(object: u32, amount: u64) -> Act {
    Act::Send { object: ObjectId(object), amount }
}

/// Puts a task that plays these steps again and again on the CPU.
fn add(workload: &mut Workload, cpu: u32, steps: Vec<Step>) {
    let id = ScriptId::from(workload.exchange.scripts.len());
    workload.exchange.scripts.push(Script { steps, repeat_from: Some(0), ..Script::default() });
    task(workload, cpu, Op::Play(id));
}

fn task(workload: &mut Workload, cpu: u32, op: Op) {
    let affinity = CpuSet::single(CpuId(cpu));
    workload.tasks.push(TaskSpec { affinity, ..TaskSpec::new("task", Program::once([op])) });
}

/// A client and a server: what it asks, in how many parts, and what the answer costs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub(crate) asks: u64,
    pub(crate) works: u64,
    pub(crate) bytes: u64,
    pub(crate) parts: u64,
    pub(crate) client: u32,
    pub(crate) server: u32,
}

fn pair() -> impl Strategy<Value = Pair> {
    let parts = (5u64..200, 5u64..300, 1u64..5_000, 1u64..4, 0..SHARED, 0..SHARED);
    parts.prop_map(|(asks, works, bytes, parts, client, server)| Pair {
        asks,
        works,
        bytes,
        parts,
        client,
        server,
    })
}

/// Adds the objects of a pair and its client; returns the number of the first object.
pub(crate) fn client(workload: &mut Workload, pair: Pair) -> u32 {
    let number = workload.exchange.objects.len() as u32;
    workload.exchange.objects.extend([object(Holds::Stream), object(Holds::Stream)]);
    let part = pair.bytes.div_ceil(pair.parts);
    let mut steps: Vec<Step> =
        (0..pair.parts).map(|_| step(pair.asks * US, send(number, part))).collect();
    steps.push(step(0, receive(number + 1, pair.bytes)));
    add(workload, pair.client, steps);
    number
}

/// Clients with a thread each at the server.
fn threads(pairs: &[Pair]) -> Workload {
    let mut workload = Workload::default();
    for &pair in pairs {
        let number = client(&mut workload, pair);
        let asked = pair.bytes.div_ceil(pair.parts) * pair.parts;
        let steps = vec![
            step(0, receive(number, asked)),
            step(pair.works * US, send(number + 1, pair.bytes)),
        ];
        add(&mut workload, pair.server, steps);
    }
    workload
}

/// Clients before one event loop.
fn event_loop(pairs: &[Pair]) -> Workload {
    let mut workload = Workload::default();
    let mut coroutines = vec![Coroutine::default()];
    for &pair in pairs {
        let number = client(&mut workload, Pair { parts: 1, ..pair });
        let turn = |step, later| CoroutineStep {
            step,
            later,
            looked: false,
            after_others: false,
            first: 0,
        };
        let steps = vec![
            turn(step(10 * US, receive(number, pair.bytes)), true),
            turn(step(pair.works * US, send(number + 1, pair.bytes)), false),
        ];
        coroutines.push(Coroutine { steps, ..Coroutine::default() });
    }
    workload.exchange.executors.push(Executor {
        name: "loop".to_owned(),
        coroutines,
        looks_awake: vec![Ns(3 * US)],
        looks_asleep: vec![(Ns(2 * US), Ns(4 * US))],
        ..Executor::default()
    });
    task(&mut workload, 0, Op::Attend(ExecutorId(0)));
    workload
}

/// Threads in a ring: each waits for the one before it, works, and hands on; the first has begun.
/// `sleeps`: it also sleeps.
fn ring(stages: &[(u64, u32, bool)], holds: &Holds) -> Workload {
    let mut workload = Workload::default();
    for (number, &(works, cpu, sleeps)) in stages.iter().enumerate() {
        let initial = u64::from(number == 0);
        workload.exchange.objects.push(ObjectSpec { initial, ..object(holds.clone()) });
        let next = (number + 1) % stages.len();
        let mut steps =
            vec![step(0, receive(number as u32, 1)), step(works * US, send(next as u32, 1))];
        if sleeps {
            steps.insert(1, step(US, Act::Sleep(Ns(works * US))));
        }
        add(&mut workload, cpu, steps);
    }
    workload
}

/// Gives each task a CPU of its own.
fn apart(mut workload: Workload) -> Workload {
    for (number, task) in workload.tasks.iter_mut().enumerate() {
        task.affinity = CpuSet::single(CpuId(number as u32));
    }
    workload
}

/// What was recorded comes out again, task by task and object by object: within `tolerance`, and so
/// much CPU time as a part of all.
pub(crate) fn assert_alike(recorded: &Outcome, again: &Outcome, tolerance: f64) {
    assert!(again.stuck.is_empty(), "{:?}", again.stuck);
    for (before, after) in recorded.metrics.objects.iter().zip(&again.metrics.objects) {
        let (a, b) = (before.receives as f64, after.receives as f64);
        assert!((a - b).abs() <= 3.0 + tolerance * a, "{a} receives became {b}");
        let (a, b) = (before.messages as f64, after.messages as f64);
        assert!((a - b).abs() <= 3.0 + tolerance * a, "{a} messages became {b}");
    }
    for (before, after) in recorded.metrics.tasks.iter().zip(&again.metrics.tasks) {
        let (a, b) = (before.cpu_ns.0 as f64, after.cpu_ns.0 as f64);
        let whole = recorded.metrics.elapsed().0 as f64;
        assert!((a - b).abs() <= 0.01 * whole + tolerance * a, "CPU time {a} became {b}");
    }
}

/// The account of each object closes: what went in, what was in it and what came out differ by no
/// more than what is under way, which is one message of each side.
fn assert_closed(workload: &Workload, outcome: &Outcome) {
    for (spec, object) in workload.exchange.objects.iter().zip(&outcome.metrics.objects) {
        let under_way = object.messages.abs_diff(object.receives);
        let most = 8 + spec.initial;
        let parts =
            object.messages.max(object.receives) / object.messages.min(object.receives).max(1);
        assert!(
            parts > 1 || under_way <= most,
            "{} messages and {} receives",
            object.messages,
            object.receives
        );
    }
}

/// Where no task waits for a CPU, one round has the messages of the recording, and three have three
/// times as many.
fn three_rounds(workload: &Workload) {
    let workload = &apart(workload.clone());
    let (recorded, recording) = recording(workload, 60);
    let again = schedlab_replay::replay(&recording, RecorderCost::default(), Speed::FULL, &[])
        .expect("it has facts")
        .workload;
    let once = simulate(&again, 60).0;
    assert_closed(&again, &once);
    assert_alike(&recorded, &once, 0.01);
    let long = simulate(workload, 180).0;
    let thrice = simulate(&again, 180).0;
    if workload.exchange.executors.is_empty() {
        assert_alike(&long, &thrice, 0.02);
        return;
    }
    // Which connection is served first when several are ready depends on where in their turns the
    // rounds meet, and settles anew: the loop does as much, for now one and now another.
    let all = |outcome: &Outcome| {
        outcome.metrics.objects.iter().map(|object| object.receives).sum::<u64>() as f64
    };
    let (a, b) = (all(&long), all(&thrice));
    assert!((a - b).abs() <= 10.0 + 0.1 * a, "{a} receives became {b}");
    assert_alike(&long, &thrice, 0.3);
}

/// Where tasks wait for CPUs, which of them is a turn ahead at the end differs; none is left
/// behind, and none waits for ever.
fn goes_on(workload: &Workload) {
    let (recorded, recording) = recording(workload, 60);
    let once = replayed(&recording, 60);
    assert!(once.stuck.is_empty(), "{:?}", once.stuck);
    for (before, after) in recorded.metrics.objects.iter().zip(&once.metrics.objects) {
        let (a, b) = (before.receives as f64, after.receives as f64);
        assert!(b + 10.0 >= 0.5 * a && b <= 2.0 * a + 10.0, "{a} receives became {b}");
    }
    let long = replayed(&recording, 180);
    for (before, after) in once.metrics.objects.iter().zip(&long.metrics.objects) {
        let (a, b) = (before.receives as f64, after.receives as f64);
        assert!(b + 20.0 >= 2.0 * a, "{a} receives in one round, {b} in three");
    }
}

fn stages() -> impl Strategy<Value = Vec<(u64, u32, bool)>> {
    prop::collection::vec((5u64..200, 0u32..3, any::<bool>()), 2..7)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn threads_that_serve_one_connection_each(pairs in prop::collection::vec(pair(), 1..6)) {
        three_rounds(&threads(&pairs));
        goes_on(&threads(&pairs));
    }

    #[test]
    fn an_event_loop_and_its_clients(pairs in prop::collection::vec(pair(), 1..6)) {
        three_rounds(&event_loop(&pairs));
        goes_on(&event_loop(&pairs));
    }

    #[test]
    fn a_ring_of_threads(stages in stages(), tokens in any::<bool>()) {
        let holds = if tokens { Holds::Tokens } else { Holds::Stream };
        three_rounds(&ring(&stages, &holds));
        goes_on(&ring(&stages, &holds));
    }

    /// With facts lost at random the replay is made and played all the same, and says how many were
    /// lost.
    #[test]
    fn lost_facts_do_no_harm(pairs in prop::collection::vec(pair(), 1..4), lost in 1usize..40, seed in 0usize..40) {
        let (_, mut recording) = recording(&threads(&pairs), 60);
        let (mut number, mut count) = (seed, 0);
        recording.facts.list.retain(|_| {
            number += 1;
            let kept = number % 40 >= lost.min(30);
            count += u64::from(!kept);
            kept
        });
        let at = recording.facts.list.last().map_or(Ns::ZERO, |fact| fact.at);
        recording.facts.list.push(Fact { at, cpu: CpuId(0), task: None, kind: FactKind::Lost { count } });
        let replayed = schedlab_replay::replay(&recording, RecorderCost::default(), Speed::FULL, &[]).expect("it \
            has facts");
        let said = format!("the recorder lost {count} facts");
        prop_assert!(replayed.report.missing.starts_with(&said), "{}", replayed.report.missing);
        simulate(&replayed.workload, 60);
    }
}

/// What never waits goes on without end beside a loop, and is found to be so.
#[test]
fn a_hog_beside_a_loop_stays_a_hog() {
    let pairs = [Pair { asks: 50, works: 100, bytes: 100, parts: 1, client: 1, server: 0 }];
    let mut workload = threads(&pairs);
    task(&mut workload, 0, Op::Run(schedlab_model::Amount::Fixed(Ns::from_s(10))));
    let (recorded, recording) = recording(&workload, 100);
    let report = schedlab_replay::replay(&recording, RecorderCost::default(), Speed::FULL, &[])
        .expect("it has facts")
        .report;
    assert_eq!(report.endless, [TaskId(2)]);
    assert_alike(&recorded, &replayed(&recording, 100), 0.03);
    assert!(recording.facts.list.iter().any(|fact| matches!(fact.kind, FactKind::Send(_))));
}

/// Bytes from outside come at their times, and what comes late does not come again.
#[test]
fn what_no_recorded_task_sent_comes_at_its_times() {
    let mut workload = Workload::default();
    workload.exchange.objects.extend([object(Holds::Stream), object(Holds::Stream)]);
    let arrival = |n| Arrival { at: Ns(n * MS), object: ObjectId(0), amount: 10 };
    workload.exchange.arrivals = (1..50).map(arrival).collect();
    add(&mut workload, 0, vec![step(0, receive(0, 10)), step(300 * US, send(1, 10))]);
    let (recorded, recording) = recording(&workload, 60);
    let replayed = schedlab_replay::replay(&recording, RecorderCost::default(), Speed::FULL, &[])
        .expect("it has facts");
    assert_eq!(replayed.report.arrivals, 49);
    let again = simulate(&replayed.workload, 60).0;
    assert_eq!(again.metrics.objects[1].messages, recorded.metrics.objects[1].messages);
    assert_eq!(again.metrics.tasks[0].cpu_ns, recorded.metrics.tasks[0].cpu_ns);
}
