//! The recorder's own thread: what it does follows from what the others do.

use crate::round_trip::{MS, US, object, receive, recording, send, simulate, step};
use schedlab_model::{
    Act, Amount, CpuId, CpuSet, Holds, Ns, Op, Program, Script, ScriptId, Step, TaskSpec, Workload,
};
use schedlab_trace::replay::RecorderCost;
use schedlab_trace::siblings::Speed;

const RECORDED: u64 = 400;
const RECORDER: usize = 3;

fn task(workload: &mut Workload, name: &str, cpu: u32, steps: Vec<Step>) {
    let id = ScriptId::from(workload.exchange.scripts.len());
    workload.exchange.scripts.push(Script { steps, repeat_from: Some(0), ..Script::default() });
    let affinity = CpuSet::single(CpuId(cpu));
    let task = TaskSpec::new(name, Program::once([Op::Play(id)]));
    workload.tasks.push(TaskSpec { affinity, ..task });
}

/// A client, a server and a hog on one CPU; on another one a thread that works each 10 ms.
fn beside_a_hog(name: &str) -> Workload {
    let mut workload = Workload::default();
    workload.exchange.objects.extend([object(Holds::Stream), object(Holds::Stream)]);
    task(&mut workload, "client", 0, vec![step(30 * US, send(0, 10)), step(0, receive(1, 10))]);
    task(&mut workload, "server", 0, vec![step(0, receive(0, 10)), step(70 * US, send(1, 10))]);
    let hog = Op::Run(Amount::Fixed(Ns::from_s(10)));
    let affinity = CpuSet::single(CpuId(0));
    workload.tasks.push(TaskSpec { affinity, ..TaskSpec::new("hog", Program::once([hog])) });
    task(&mut workload, name, 1, vec![step(2 * MS, Act::Sleep(Ns(10 * MS)))]);
    workload
}

/// Returns what the thread has of the recording, and what it has in the replay without the hog; and
/// the requests of both.
fn of_thread(name: &str) -> [(u64, u64); 2] {
    let workload = beside_a_hog(name);
    let (recorded, recording) = recording(&workload, RECORDED);
    let mut again = schedlab_replay::replay(&recording, RecorderCost::default(), Speed::FULL, &[])
        .unwrap()
        .workload;
    let has = |outcome: &schedlab_sim::Outcome| {
        (outcome.metrics.tasks[RECORDER].cpu_ns.0, outcome.metrics.objects[0].messages)
    };
    let once = has(&simulate(&again, RECORDED).0);
    let was = has(&recorded);
    assert!(once.0.abs_diff(was.0) * 20 <= was.0, "as recorded: {was:?} became {once:?}");
    again.tasks[2].program = Program::once([Op::Exit]).into();
    [was, has(&simulate(&again, RECORDED).0)]
}

#[test]
fn it_works_more_where_more_is_recorded() {
    let [was, is] = of_thread("schedlab");
    let [requests, work] = [(was.1, is.1), (was.0, is.0)].map(|(was, is)| is as f64 / was as f64);
    assert!(requests > 1.7, "{was:?} became {is:?}");
    assert!((work / requests - 1.0).abs() < 0.1, "{requests} of the requests, {work} of the work");
}

/// Another thread that works by a timer does what it did.
#[test]
fn others_do_not() {
    let [was, is] = of_thread("periodic");
    assert!(is.1 > was.1 * 17 / 10 && is.0.abs_diff(was.0) * 50 <= was.0, "{was:?}, {is:?}");
}
