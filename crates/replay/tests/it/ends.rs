//! Clients that end in the recording, exchanges that are over before it ends, and what a thread
//! does before it waits for many objects.

use crate::round_trip::{MS, US, object, receive, recording, replayed, send, simulate, step};
use schedlab_model::{
    Act, Coroutine, CoroutineStep, CpuId, CpuSet, EventKind, Executor, ExecutorId, Holds, Ns,
    ObjectKind, Op, PrevState, Program, Room, Script, ScriptId, Start, Step, TaskId, TaskSpec,
    Workload,
};
use schedlab_trace::replay::RecorderCost;
use schedlab_trace::siblings::Speed;

/// What is recorded, in milliseconds; a client lives for the first two thirds of it.
const RECORDED: u64 = 60;
const LIFE: u64 = 40;

fn task(workload: &mut Workload, cpu: u32, program: Program) -> TaskId {
    let affinity = CpuSet::single(CpuId(cpu));
    workload.tasks.push(TaskSpec { affinity, ..TaskSpec::new("task", program) });
    TaskId::from(workload.tasks.len() - 1)
}

fn script(workload: &mut Workload, steps: Vec<Step>, repeats: bool) -> Op {
    let id = ScriptId::from(workload.exchange.scripts.len());
    let repeat_from = repeats.then_some(0);
    workload.exchange.scripts.push(Script { steps, repeat_from, ..Script::default() });
    Op::Play(id)
}

fn turn(step: Step, later: bool) -> CoroutineStep {
    CoroutineStep { step, later, looked: false, after_others: false, first: 0 }
}

/// An event loop that asks over object 0 and reads the answers from object 1.
fn asking_loop(life: Option<Ns>) -> Executor {
    let steps =
        vec![turn(step(20 * US, receive(1, 10)), true), turn(step(30 * US, send(0, 10)), false)];
    Executor {
        coroutines: vec![Coroutine::default(), Coroutine { steps, ..Coroutine::default() }],
        looks_awake: vec![Ns(3 * US)],
        looks_asleep: vec![(Ns(2 * US), Ns(4 * US))],
        life,
        ..Executor::default()
    }
}

/// A server, a client that asks it for 40 of the recording's 60 ms and ends, and a task beside them
/// that never sleeps: all on one CPU.
fn with_client(is_loop: bool) -> Workload {
    let mut workload = Workload::default();
    workload.exchange.objects.extend([object(Holds::Stream), object(Holds::Stream)]);
    // The loop waits for an answer first.
    workload.exchange.objects[1].initial = if is_loop { 10 } else { 0 };
    let answers = vec![step(0, receive(0, 10)), step(100 * US, send(1, 10))];
    let serves = script(&mut workload, answers, true);
    task(&mut workload, 0, Program::once([serves]));
    let asks = if is_loop {
        workload.exchange.executors.push(asking_loop(Some(Ns(LIFE * MS))));
        Op::Attend(ExecutorId(0))
    } else {
        let id = ScriptId::from(workload.exchange.scripts.len());
        let steps = vec![step(50 * US, send(0, 10)), step(0, receive(1, 10))];
        let life = Some(Ns(LIFE * MS));
        let script = Script { steps, repeat_from: Some(0), life, ..Script::default() };
        workload.exchange.scripts.push(script);
        Op::Play(id)
    };
    task(&mut workload, 0, Program::once([asks]));
    let hog = Op::Run(schedlab_model::Amount::Fixed(Ns::from_s(10)));
    task(&mut workload, 0, Program::once([hog]));
    workload
}

/// A client that lived for more than half of the recording asks for as long as it lived, as often
/// as it is answered: neither no more than it did when it was recorded, nor longer.
#[test]
fn a_client_that_ended_asks_for_as_long_as_it_lived() {
    for is_loop in [false, true] {
        let workload = with_client(is_loop);
        let (recorded, recording) = recording(&workload, RECORDED);
        let asked = recorded.metrics.objects[0].messages;
        let again = replayed(&recording, RECORDED).metrics.objects[0].messages;
        assert!(again.abs_diff(asked) * 20 <= asked, "{asked} messages became {again}");
        let replay = schedlab_replay::replay(&recording, RecorderCost::default(), Speed::FULL, &[])
            .expect("facts");
        let mut alone = replay.workload;
        alone.tasks[2].affinity = CpuSet::single(CpuId(1));
        let mut truly = workload.clone();
        truly.tasks[2].affinity = CpuSet::single(CpuId(1));
        let of = |workload| simulate(workload, RECORDED).0.metrics.objects[0].messages;
        let (predicted, came) = (of(&alone), of(&truly));
        assert!(came > asked * 3 / 2, "the other task took half of the CPU: {asked}, {came}");
        assert!(predicted.abs_diff(came) * 10 <= came, "{came} messages, {predicted} predicted");
    }
}

/// Two tasks exchange a message each and wait for the next ones, which do not come: in a replay of
/// the same length they do so once, not over and over.
#[test]
fn an_exchange_that_is_over_is_not_begun_anew() {
    let mut workload = Workload::default();
    workload.exchange.objects.extend([object(Holds::Stream), object(Holds::Stream)]);
    let begins = script(&mut workload, vec![step(US, send(0, 1)), step(0, receive(1, 1))], false);
    let never = script(&mut workload, vec![step(0, receive(1, 100))], false);
    task(&mut workload, 0, Program::once([begins, never]));
    let answers = script(&mut workload, vec![step(0, receive(0, 1)), step(US, send(1, 1))], true);
    task(&mut workload, 1, Program::once([answers]));
    let (_, recording) = recording(&workload, RECORDED);
    for rounds in [1, 3] {
        let messages = replayed(&recording, rounds * RECORDED).metrics.objects[0].messages;
        assert_eq!(messages, rounds, "in {rounds} rounds");
    }
}

/// A thread creates a task and waits for what that sends, then attends to many objects: it does so
/// in this order.
#[test]
fn what_comes_before_the_first_look_comes_first() {
    let mut workload = Workload::default();
    workload.exchange.objects.extend((0..4).map(|_| object(Holds::Stream)));
    workload.exchange.objects[1].initial = 10;
    let child = TaskId(1);
    let begins = vec![step(US, Act::Spawn(child)), step(0, receive(2, 4))];
    let begins = script(&mut workload, begins, false);
    workload.exchange.executors.push(asking_loop(None));
    task(&mut workload, 0, Program::once([begins, Op::Attend(ExecutorId(0))]));
    // The child lives on, and works.
    let sends = script(&mut workload, vec![step(50 * US, send(2, 4))], false);
    let works = script(&mut workload, vec![step(MS, Act::Sleep(Ns(MS)))], true);
    let child = task(&mut workload, 1, Program::once([sends, works]));
    workload.tasks[child.index()].start = Start::Spawned;
    let answers = vec![step(0, receive(0, 10)), step(100 * US, send(1, 10))];
    let answers = script(&mut workload, answers, true);
    task(&mut workload, 2, Program::once([answers]));
    let (recorded, recording) = recording(&workload, RECORDED);
    let again = replayed(&recording, RECORDED);
    let (was, is) = (recorded.metrics.tasks[1].cpu_ns, again.metrics.tasks[1].cpu_ns);
    assert!(was > Ns(20 * MS) && is > was / 2, "the child had {was}, and has {is}");
    let (was, is) = (recorded.metrics.objects[0].messages, again.metrics.objects[0].messages);
    assert!(is * 10 > was * 9, "{was} messages became {is}");
}

/// A thread that is born in the recording works and then waits for what does not come; another one
/// is stopped after its work. Nothing shows that they do that again.
#[test]
fn what_was_done_once_is_not_repeated() {
    let mut workload = Workload::default();
    workload.exchange.objects.push(object(Holds::Stream));
    let begins = || vec![step(5 * MS, send(1, 1)), step(5 * MS, receive(0, 100))];
    workload.exchange.objects.push(object(Holds::Stream));
    let born = script(&mut workload, begins(), false);
    let born = task(&mut workload, 0, Program::once([born]));
    workload.tasks[born.index()].start = Start::At(Ns(10 * MS));
    let periodic = vec![step(2 * MS, Act::Sleep(Ns(MS)))];
    let periodic = script(&mut workload, periodic, true);
    let stopped = task(&mut workload, 1, Program::once([periodic]));
    let (recorded, mut recording) = recording(&workload, RECORDED);
    let leaves = |kind: &EventKind| match *kind {
        EventKind::Switch { prev, .. } => prev == Some(stopped),
        _ => false,
    };
    let last = recording.events.iter_mut().rfind(|event| leaves(&event.kind)).unwrap();
    if let EventKind::Switch { prev_state, .. } = &mut last.kind {
        *prev_state = PrevState::Stopped;
    }
    let end = last.at;
    recording.events.retain(|event| event.at <= end);
    recording.facts.list.retain(|fact| fact.at <= end);
    let thrice = replayed(&recording, 3 * RECORDED);
    for task in [born, stopped] {
        let of = |outcome: &schedlab_sim::Outcome| outcome.metrics.tasks[task.index()].cpu_ns.0;
        let (was, is) = (of(&recorded), of(&thrice));
        assert!(is <= was + MS && is + 4 * MS >= was, "{task:?}: {was} became {is}");
    }
}

/// A pipe has room for a page at least. Who slept in a write to one in which 300 bytes were waited
/// for something else, and the pipe was taken to be full with them.
#[test]
fn a_pipe_with_little_in_it_is_not_full() {
    let room = |bytes: u64| {
        let mut workload = Workload::default();
        let mut pipe = object(Holds::Stream);
        pipe.room = Some(Room { capacity: bytes, resume_at: bytes / 2 });
        workload.exchange.objects.push(pipe);
        let writes = vec![step(100 * US, send(0, bytes))];
        let writes = script(&mut workload, writes, true);
        task(&mut workload, 0, Program::once([writes]));
        let reads = vec![step(MS, receive(0, bytes)), step(MS, Act::Nothing)];
        let reads = script(&mut workload, reads, true);
        task(&mut workload, 1, Program::once([reads]));
        let (_, mut recording) = recording(&workload, RECORDED);
        recording.facts.objects[0].kind = ObjectKind::Pipe;
        let again = schedlab_replay::replay(&recording, RecorderCost::default(), Speed::FULL, &[])
            .expect("facts");
        again.workload.exchange.objects[0].room
    };
    assert_eq!(room(300), None);
    assert_eq!(room(65_536).map(|room| room.capacity >= 65_536), Some(true));
}
