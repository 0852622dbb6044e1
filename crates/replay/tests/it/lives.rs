//! Tasks that are born, and end, while they are recorded: no round of theirs begins before their
//! birth, and what their creator does again they do again.

use crate::round_trip::{
    MS, US, assert_alike, object, receive, recording, replayed, send, simulate, simulate_for, step,
};
use proptest::prelude::*;
use schedlab_model::{
    Act, CpuId, CpuSet, EventKind, Holds, Ns, Op, Program, SchedEvent, Script, ScriptId, Start,
    Step, TaskId, TaskSpec, Workload,
};
use schedlab_trace::Recording;
use schedlab_trace::replay::RecorderCost;
use schedlab_trace::siblings::Speed;

/// What is recorded, and how long a round of the creator is: one falls into a recording.
const RECORDED: u64 = 60;
const ROUND: u64 = 61;
/// The CPU of the creator and of what starts its rounds.
const CREATOR: u32 = 0;
/// The CPU of its children, who may wait for each other there.
const CHILDREN: u32 = 1;

/// A task that its creator starts: what the creator does before, what it works itself, whether it
/// sleeps until a time first, and whether the creator waits for its message.
#[derive(Clone, Copy, Debug)]
struct Child {
    after: u64,
    works: u64,
    sleeps: Option<u64>,
    waited_for: bool,
}

fn child() -> impl Strategy<Value = Child> {
    let parts = (10u64..400, 10u64..900, prop::option::of(100u64..2_000), any::<bool>());
    parts.prop_map(|(after, works, sleeps, waited_for)| Child { after, works, sleeps, waited_for })
}

/// Adds a task that plays these steps.
fn player(workload: &mut Workload, cpu: u32, start: Start, script: Script) -> TaskId {
    let id = ScriptId::from(workload.exchange.scripts.len());
    workload.exchange.scripts.push(script);
    let task = TaskSpec::new("task", Program::once([Op::Play(id)]));
    let affinity = CpuSet::single(CpuId(cpu));
    workload.tasks.push(TaskSpec { affinity, start, ..task });
    TaskId::from(workload.tasks.len() - 1)
}

fn again(steps: Vec<Step>, round: u64) -> Script {
    Script { steps, repeat_from: Some(0), round: Ns(round), ..Script::default() }
}

fn once(steps: Vec<Step>) -> Script {
    Script { steps, ..Script::default() }
}

/// Every round a clock lets a creator start its children, one after the other; each works, sends 10
/// bytes and ends. The first object is the clock's; each child has one.
fn children(children: &[Child]) -> Workload {
    let mut workload = Workload::default();
    workload.exchange.objects.push(object(Holds::Stream));
    let clock = vec![step(US, send(0, 1)), step(0, Act::SleepUntil(Ns(ROUND * MS)))];
    player(&mut workload, CREATOR, Start::At(Ns::ZERO), again(clock, ROUND * MS));
    let mut creates = vec![step(0, receive(0, 1))];
    for (number, one) in children.iter().enumerate() {
        workload.exchange.objects.push(object(Holds::Stream));
        let own = number as u32 + 1;
        // Behind the clock and the creator.
        let id = TaskId(number as u32 + 2);
        creates.push(step(one.after * US, Act::Spawn(id)));
        if one.waited_for {
            creates.push(step(0, receive(own, 10)));
        }
    }
    player(&mut workload, CREATOR, Start::At(Ns::ZERO), again(creates, ROUND * MS));
    for (number, one) in children.iter().enumerate() {
        let sleep = one.sleeps.map(|length| step(US, Act::SleepUntil(Ns(length * US))));
        let sends = step(one.works * US, send(number as u32 + 1, 10));
        let script = once(sleep.into_iter().chain([sends]).collect());
        player(&mut workload, CHILDREN, Start::Spawned, script);
    }
    workload
}

/// Returns when each task is created first.
fn births(events: &[SchedEvent], tasks: usize) -> Vec<Option<Ns>> {
    let mut births = vec![None; tasks];
    for event in events {
        if let EventKind::New { task, .. } = event.kind {
            births[task.index()].get_or_insert(event.at);
        }
    }
    births
}

/// Returns the recording from a time on, as if it had begun there.
fn from(recording: &Recording, from: Ns) -> Recording {
    let mut part = recording.clone();
    part.events.retain(|event| event.at >= from);
    for event in &mut part.events {
        event.at = event.at.saturating_sub(from);
    }
    part.facts = recording.facts.part(from, recording.duration);
    part.duration = recording.duration.saturating_sub(from);
    part
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// One round is what was recorded; three rounds have each child three times, as often as its
    /// creator creates it, with all its work.
    #[test]
    fn children_live_again_with_their_creator(list in prop::collection::vec(child(), 1..7)) {
        let workload = children(&list);
        let (recorded, recording) = recording(&workload, RECORDED);
        assert_alike(&recorded, &replayed(&recording, RECORDED), 0.02);
        let (long, thrice) = (simulate(&workload, 3 * RECORDED).0, replayed(&recording, 3 * RECORDED));
        assert_alike(&long, &thrice, 0.02);
        for number in 1..=list.len() {
            prop_assert_eq!(thrice.metrics.objects[number].messages, 3);
        }
    }

    /// No task is there before it was born in the recording, whatever else it repeats.
    #[test]
    fn none_is_there_before_its_birth(list in prop::collection::vec(child(), 1..7)) {
        let workload = children(&list);
        let (_, recording) = recording(&workload, RECORDED);
        let again = schedlab_replay::replay(&recording, RecorderCost::default(), Speed::FULL, &[]).expect("facts");
        let (_, both) = simulate(&again.workload, 3 * RECORDED);
        let (was, is) = (
            births(&recording.events, workload.tasks.len()),
            births(&both.events, workload.tasks.len()),
        );
        for (number, (was, is)) in was.into_iter().zip(is).enumerate().skip(2) {
            let (Some(was), Some(is)) = (was, is) else {
                panic!("task {number}: recorded {was:?}, simulated {is:?}");
            };
            prop_assert!(is + Ns(100 * US) >= was, "task {number}: {is}, recorded {was}");
        }
    }

    /// A task that is born late and never ends goes on at its pace: its rounds have no room for the
    /// time before its birth.
    #[test]
    fn a_late_task_goes_on_at_its_pace(born in 1u64..50, period in 500u64..3_000, works in 10u64..400) {
        let mut workload = Workload::default();
        let steps = vec![
            step(works * US, Act::Nothing),
            step(0, Act::SleepUntil(Ns(period * US))),
        ];
        player(&mut workload, CHILDREN, Start::At(Ns(born * MS)), again(steps, period * US));
        // A hog elsewhere keeps the recording going.
        let hog = Op::Run(schedlab_model::Amount::Fixed(Ns::from_s(10)));
        let affinity = CpuSet::single(CpuId(CREATOR));
        workload.tasks.push(TaskSpec { affinity, ..TaskSpec::new("hog", Program::once([hog])) });
        let (_, recording) = recording(&workload, RECORDED);
        let (long, thrice) = (simulate(&workload, 3 * RECORDED).0, replayed(&recording, 3 * RECORDED));
        let (a, b) = (long.metrics.tasks[0].cpu_ns.0, thrice.metrics.tasks[0].cpu_ns.0);
        // A life ends within a period, of which the next has the whole work.
        let (a, b, part) = (a as f64, b as f64, period as f64 / (1_000.0 * (RECORDED - born) as f64));
        prop_assert!((a - b).abs() <= (0.02 + part) * a + works as f64 * US as f64, "{a} became {b}");
    }

    /// Where the recording begins in the middle, some children were there before it and end in it.
    /// No task creates those again: their creator goes on all the same, round after round.
    #[test]
    fn a_creator_is_not_left_waiting_for_those_that_live_once(
        list in prop::collection::vec(child(), 2..7),
        begin in 0u64..3_000,
    ) {
        let workload = children(&list);
        let (_, whole) = recording(&workload, RECORDED);
        let part = from(&whole, Ns(begin * US));
        let length = RECORDED * MS - begin * US;
        let again = schedlab_replay::replay(&part, RecorderCost::default(), Speed::FULL, &[]).expect("facts").workload;
        let run = |times: u64| simulate_for(&again, Ns(times * length)).0;
        let (once, thrice) = (run(1), run(3));
        for (number, one) in list.iter().enumerate().filter(|(_, one)| one.waited_for) {
            let (a, b) = (once.metrics.objects[number + 1].receives, thrice.metrics.objects[number + 1].receives);
            // The recording may begin behind a receive of the creator's round: each of the two
            // rounds that follow has that one too.
            prop_assert!((3 * a..=3 * a + 2).contains(&b), "{one:?}: {a} receives in a round, {b} in three");
        }
    }
}

/// A child that is to begin again while it still lives does so when its life is over.
#[test]
fn no_life_of_a_child_is_left_out() {
    let mut workload = Workload::default();
    workload.exchange.objects.extend([object(Holds::Stream), object(Holds::Stream)]);
    let creates = vec![
        step(US, Act::Spawn(TaskId(1))),
        step(US, receive(0, 10)),
        step(US, Act::Sleep(Ns(US))),
    ];
    player(&mut workload, CREATOR, Start::At(Ns::ZERO), again(creates, MS));
    // It goes on after its message, longer than the creator takes for a round.
    let steps = vec![step(10 * US, send(0, 10)), step(100 * US, send(1, 1))];
    player(&mut workload, CHILDREN, Start::Spawned, once(steps));
    let outcome = simulate(&workload, 12).0;
    let lives = outcome.metrics.objects[1].messages;
    assert!((100..=110).contains(&lives), "{lives} lives of 110 us in 12 ms");
}
