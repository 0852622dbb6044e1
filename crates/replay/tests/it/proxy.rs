//! A loop that asks others for those that ask it: which message it acts on with what it sends.

use crate::round_trip::{MS, Pair, US, client, object, receive, recording, send, simulate, step};
use schedlab_model::{
    Coroutine, CoroutineStep, CpuId, CpuSet, Executor, ExecutorId, Fact, FactKind, Holds, Limit,
    Ns, ObjectId, Op, Outcome, Program, Script, ScriptId, Step, TaskId, TaskSpec, Transfer,
    Workload,
};
use schedlab_trace::Recording;
use schedlab_trace::replay::RecorderCost;
use schedlab_trace::siblings::Speed;

const RECORDED: u64 = 100;
const CLIENTS: u32 = 3;
/// The objects of the clients are before those of the servers behind the loop.
const BEHIND: u32 = 2 * CLIENTS;

fn turn(step: Step, later: bool, after_others: bool) -> CoroutineStep {
    CoroutineStep { step, later, looked: false, after_others, first: 0 }
}

/// Three clients ask a loop, which asks a server for each of them: all on one CPU. The loop reads
/// all that is there before it sends.
fn proxy() -> Workload {
    let mut workload = Workload::default();
    for asks in [20, 35, 50] {
        let pair = Pair { asks, works: 0, bytes: 100, parts: 1, client: 0, server: 0 };
        client(&mut workload, pair);
    }
    let mut coroutines = vec![Coroutine::default()];
    let objects = (0..CLIENTS).map(|n| (2 * n, BEHIND + 2 * n));
    for (front, behind) in objects.clone() {
        workload.exchange.objects.extend([object(Holds::Stream), object(Holds::Stream)]);
        for (from, to) in [(front, behind), (behind + 1, front + 1)] {
            let steps = vec![
                turn(step(10 * US, receive(from, 100)), true, false),
                turn(step(25 * US, send(to, 100)), false, true),
            ];
            coroutines.push(Coroutine { steps, ..Coroutine::default() });
        }
    }
    let looks_asleep = vec![(Ns(2 * US), Ns(4 * US))];
    let executor =
        Executor { coroutines, looks_awake: vec![Ns(3 * US)], looks_asleep, ..Executor::default() };
    workload.exchange.executors.push(executor);
    let mut add = |op: Op| {
        let affinity = CpuSet::single(CpuId(0));
        workload.tasks.push(TaskSpec { affinity, ..TaskSpec::new("task", Program::once([op])) });
    };
    add(Op::Attend(ExecutorId(0)));
    let mut scripts = Vec::new();
    for (number, (_, behind)) in objects.enumerate() {
        let steps = vec![step(0, receive(behind, 100)), step(60 * US, send(behind + 1, 100))];
        scripts.push(Script { steps, repeat_from: Some(0), ..Script::default() });
        add(Op::Play(ScriptId::from(CLIENTS as usize + number)));
    }
    workload.exchange.scripts.extend(scripts);
    workload
}

/// The same recording, as if the loop had opened the connections to its servers for the first
/// requests: when it sends it has just found them open, and has read nothing from them.
fn opens(mut recording: Recording) -> Recording {
    let (cpu, task) = (CpuId(0), Some(TaskId(CLIENTS)));
    let fact = |at, kind| Fact { at, cpu, task, kind };
    for behind in (0..CLIENTS).map(|n| BEHIND + 2 * n) {
        let object = ObjectId(behind);
        let is_first =
            |fact: &Fact| matches!(fact.kind, FactKind::Send(sent) if sent.object == object);
        let place = recording.facts.list.iter().position(is_first).unwrap();
        let at = recording.facts.list[place].at;
        let look = FactKind::Select {
            selector: None,
            ready: 1,
            until: Limit::None,
            outcome: Outcome::Done,
        };
        let nothing =
            Transfer { outcome: Outcome::WouldBlock, ..Transfer::done(ObjectId(behind + 1), 0) };
        let found = [look, FactKind::Receive(nothing)].map(|kind| fact(at, kind));
        recording.facts.list.splice(place..place, found);
    }
    let accepts = (0..CLIENTS).map(|n| {
        fact(Ns::ZERO, FactKind::Accept { listener: ObjectId(0), object: ObjectId(2 * n) })
    });
    recording.facts.list.splice(0..0, accepts);
    recording
}

/// What one client asks has its answer whatever the others do: without them it goes on as fast as
/// it does in truth, and there are no more requests behind the loop than before it.
#[test]
fn each_request_is_followed_through_the_loop() {
    let workload = proxy();
    let (_, recorded) = recording(&workload, RECORDED);
    let alone = |mut workload: Workload| {
        for other in [1, 2] {
            workload.tasks[other].program = Program::once([Op::Exit]).into();
        }
        let outcome = simulate(&workload, RECORDED).0;
        [0, BEHIND as usize].map(|object| outcome.metrics.objects[object].messages)
    };
    let truly = alone(workload.clone());
    assert!(truly[0] > RECORDED * MS / (200 * US), "{truly:?}");
    for recording in [recorded.clone(), opens(recorded)] {
        let replayed =
            schedlab_replay::replay(&recording, RecorderCost::default(), Speed::FULL, &[]).unwrap();
        let all = simulate(&replayed.workload, RECORDED).0;
        for n in 0..CLIENTS as usize {
            let [before, behind] =
                [2 * n, BEHIND as usize + 2 * n].map(|object| all.metrics.objects[object].messages);
            assert!(before.abs_diff(behind) <= 2, "client {n}: {before} asked, {behind} handed on");
        }
        let again = alone(replayed.workload);
        assert!(again[0].abs_diff(truly[0]) * 10 <= truly[0], "{truly:?} became {again:?}");
        assert!(again[0].abs_diff(again[1]) <= 2, "{again:?}");
    }
}
