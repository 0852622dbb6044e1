//! After the third step: what a task of a closed loop did before the loop began, which no later
//! round repeats.
//!
//! A server that waited for its client's start had nothing to do but its timers, and a client loads
//! libraries and opens connections before it asks for anything. A round begins where such a task
//! first exchanges something with another of its loop.
//!
//! Threads may exchange something while they start: each of sysbench's compiles its script for 19
//! ms and waits for the lock of their address space meanwhile, which another has. So up to its
//! first sleep in state `S` a task that was created in the recording gives and takes in later
//! rounds what it gave and took in the first, and leaves out what took long beside all that
//! follows.

use super::classify::Loop;
use super::rounds::{puts, takes};
use schedlab_model::{Amount, ChannelId, Ns, Op, Program, TaskSpec};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A task that takes less than this in a round may spend a good part of it on what comes before.
/// Chosen: a round is a thirtieth shorter at most.
const TAKEN: usize = 30;
/// What runs for more than so many times the median of at least so many later activations is done
/// once. Chosen, not measured: for sysbench's script it is 280 times.
const LONG_TIMES: u64 = 20;
const LONG_BESIDE: usize = 30;

/// The start of a task that was created in the recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct StartUp {
    /// So many operations.
    ops: usize,
    /// What runs longer is done once.
    longest: Ns,
}

impl StartUp {
    /// A start of so many operations before activations with this `work`; `None`: they are too few
    /// to tell.
    pub(super) fn new(ops: usize, mut work: Vec<Ns>) -> Option<StartUp> {
        if work.len() < LONG_BESIDE {
            return None;
        }
        let middle = work.len() / 2;
        Some(StartUp { ops, longest: *work.select_nth_unstable(middle).1 * LONG_TIMES })
    }

    fn is_done_once(&self, op: &Op) -> bool {
        matches!(op, Op::Sleep(_)) || run(op).is_some_and(|length| length > self.longest)
    }

    /// Lets later rounds leave out what is done once.
    fn shorten(&self, program: &mut Program) {
        let Some(from) =
            program.repeat_from.map(|from| from as usize).filter(|from| *from < self.ops)
        else {
            return;
        };
        let start = &program.ops[from..self.ops];
        // As it is where nothing takes long.
        if !start.iter().any(|op| run(op).is_some() && self.is_done_once(op)) {
            return;
        }
        let again: Vec<Op> = start.iter().filter(|op| !self.is_done_once(op)).cloned().collect();
        program.ops.extend(again);
        program.repeat_from = Some(self.ops as u32);
    }
}

/// How long an operation runs.
pub(super) fn run(op: &Op) -> Option<Ns> {
    if let Op::Run(Amount::Fixed(length)) = op { Some(*length) } else { None }
}

/// Lets later rounds leave out what is done once. After the rounds are complete: what a task gives
/// itself is there when its start needs it.
pub(super) fn shorten(tasks: &mut [TaskSpec], starts: &BTreeMap<usize, StartUp>) {
    starts.iter().for_each(|(&task, start)| start.shorten(Arc::make_mut(&mut tasks[task].program)));
}

/// Lets the rounds of closed loops begin where a task first exchanges something with another, if it
/// was created in the recording or slept alone before. What another did before is the rest of what
/// it was at when the recording began.
pub(super) fn begin_at_exchange(
    tasks: &mut [TaskSpec],
    loops: &[Loop],
    was_created: impl Fn(usize) -> bool,
) {
    for circle in loops.iter().filter(|circle| circle.closed) {
        let between = between(tasks, circle);
        let of_loop = |token: Option<(ChannelId, u64)>| {
            token.is_some_and(|(channel, _)| between.contains(&channel))
        };
        for &task in &circle.tasks {
            let program = Arc::make_mut(&mut tasks[task].program);
            let Some(from) = program.repeat_from.filter(|_| program.branches.is_empty()) else {
                continue;
            };
            let round = &program.ops[from as usize..];
            let exchanges = |op: &Op| of_loop(puts(op)) || of_loop(takes(op));
            let Some(first) = round.iter().position(exchanges) else { continue };
            let before = |is: fn(&Op) -> bool| round[..first].iter().any(is);
            let alone = was_created(task) || before(|op| matches!(op, Op::Sleep(_)));
            let taken = round.iter().filter(|op| of_loop(takes(op))).count();
            if alone && !before(|op| matches!(op, Op::Spawn(_))) && taken >= TAKEN {
                program.repeat_from = Some(from + first as u32);
            }
        }
    }
}

/// The channels into which one task of a loop puts tokens and from which one takes them.
fn between(tasks: &[TaskSpec], circle: &Loop) -> BTreeSet<ChannelId> {
    let programs = || circle.tasks.iter().map(|&task| &tasks[task].program);
    let ops = || programs().flat_map(|program| &program.ops);
    let put: BTreeSet<ChannelId> = ops().filter_map(puts).map(|(channel, _)| channel).collect();
    let taken = ops().filter_map(takes).map(|(channel, _)| channel);
    let selected = programs().flat_map(|program| &program.branches).map(|branch| branch.channel);
    taken.chain(selected).filter(|channel| put.contains(channel)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: ChannelId = ChannelId(0);
    const CLIENT: ChannelId = ChannelId(1);
    const KERNEL: ChannelId = ChannelId(2);

    fn us(length: u64) -> Op {
        Op::Run(Amount::Fixed(Ns::from_us(length)))
    }

    fn send(channel: ChannelId) -> Op {
        Op::Send { channel, count: 1 }
    }

    fn sleep() -> Op {
        Op::Sleep(Amount::Fixed(Ns::from_ms(100)))
    }

    fn again(ops: Vec<Op>) -> Program {
        Program { ops, repeat_from: Some(0), ..Program::default() }
    }

    /// A server that sleeps by its timer until its client is there, and a client that loads its
    /// libraries, wakes a kernel thread and then asks so many times.
    fn loop_of_two(requests: usize) -> Vec<TaskSpec> {
        let mut server = vec![us(40), sleep(), us(40)];
        server.extend((0..requests).flat_map(|_| [Op::Receive(SERVER), us(50), send(CLIENT)]));
        let mut client = vec![us(5_000), send(KERNEL), us(9_000)];
        client.extend((0..requests).flat_map(|_| [send(SERVER), Op::Receive(CLIENT), us(20)]));
        vec![TaskSpec::new("server", again(server)), TaskSpec::new("client", again(client))]
    }

    /// The client is created in the recording.
    fn begin(tasks: &mut [TaskSpec], closed: bool) -> Vec<Option<u32>> {
        begin_at_exchange(tasks, &[Loop { tasks: vec![0, 1], closed }], |task| task == 1);
        tasks.iter().map(|task| task.program.repeat_from).collect()
    }

    #[test]
    fn a_round_begins_where_the_loop_does() {
        let mut tasks = loop_of_two(40);
        let ops = tasks[0].program.ops.clone();
        assert_eq!(begin(&mut tasks, true), [Some(3), Some(3)]);
        assert_eq!(tasks[0].program.ops, ops, "the first round is as recorded");
        assert_eq!(
            begin(&mut loop_of_two(40), false),
            [Some(0), Some(0)],
            "an open loop has no rounds"
        );
        assert_eq!(
            begin(&mut loop_of_two(10), true),
            [Some(0), Some(0)],
            "a third of the work may be missing"
        );
    }

    #[test]
    fn who_creates_others_first_creates_them_again() {
        let mut tasks = loop_of_two(40);
        let program = Arc::make_mut(&mut tasks[1].program);
        program.ops.insert(1, Op::Spawn(schedlab_model::TaskId(7)));
        assert_eq!(begin(&mut tasks, true), [Some(3), Some(0)]);
    }

    /// 20 ms of work around a wait for another thread's lock; then requests of 70 us.
    fn starting(first_us: u64) -> (Program, StartUp) {
        let mut ops = vec![us(first_us), Op::Receive(CLIENT), sleep(), us(60), send(SERVER)];
        let start = ops.len();
        ops.extend((0..40).flat_map(|_| [Op::Receive(CLIENT), us(70), send(SERVER)]));
        (again(ops), StartUp::new(start, vec![Ns::from_us(70); 40]).unwrap())
    }

    #[test]
    fn what_takes_long_at_the_start_is_done_once_and_its_tokens_flow_again() {
        let (mut program, start) = starting(20_000);
        let recorded = program.ops.clone();
        start.shorten(&mut program);
        assert_eq!(program.repeat_from, Some(5), "behind the start");
        let (first, more) = program.ops.split_at(recorded.len());
        assert_eq!(first, recorded);
        assert_eq!(more, [Op::Receive(CLIENT), us(60), send(SERVER)]);
    }

    #[test]
    fn a_start_like_what_follows_is_repeated() {
        let (mut program, start) = starting(1_000);
        let before = program.clone();
        start.shorten(&mut program);
        assert_eq!(program, before);
        assert_eq!(StartUp::new(5, vec![Ns::from_us(70); 29]), None, "too little follows");
        // What begins behind its start has none.
        let (mut program, start) = starting(20_000);
        program.repeat_from = Some(9);
        let before = program.clone();
        start.shorten(&mut program);
        assert_eq!(program, before);
    }
}
