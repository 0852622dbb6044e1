//! After the third step: closed loops that go on when their recorded work is done.
//!
//! A closed loop that a scheduler lets run faster does all that was recorded before the time is over, and begins again. In its first round
//! it had help: the client's first thread opened the connections and began the first activations, or a thread sent some requests
//! before it came to its event loop. None of that comes a second time. A server that waits once for each of these wakeups would wait for ever in its
//! second round, and the prediction would be that a faster loop does no more than was recorded.
//!
//! So the tokens of a round are counted: what the tasks of the loop take from a channel, and what all that repeat put into it. What is missing the
//! consumer gives itself at the end of its round. Every wait of a round is then met by a token of the same round that came before it in the recording, or by
//! one of these, which are there at its beginning: the recorded order remains possible.
//!
//! That is for what a loop needs to begin. Where more is missing, or tasks that do not repeat did more than that, they were part of the work, and the loop ends
//! with them. Connections of reactors have one message under way and pools count what many give: both are complete by themselves.

use super::classify::{Loop, RARE_PERCENT};
use super::pool::Pool;
use super::reactor::Reactors;
use schedlab_model::{ChannelId, Op, Program, TaskSpec};
use std::collections::BTreeMap;

/// Makes the rounds of every closed loop complete. `activations`: of each task, as recorded.
pub(super) fn complete(
    tasks: &mut [TaskSpec],
    loops: &[Loop],
    pools: &[Pool],
    reactors: &Reactors,
    activations: &[usize],
) {
    let whole = |circle: &&Loop| {
        let counted = |task: usize| reactors.has(task) || pools.iter().any(|pool| pool.consumer == task);
        circle.closed && !circle.tasks.iter().any(|&task| counted(task))
    };
    let closed: Vec<&Loop> = loops.iter().filter(whole).collect();
    if closed.is_empty() {
        return;
    }
    let mut sent: BTreeMap<ChannelId, u64> = BTreeMap::new();
    for program in tasks.iter().map(|task| &task.program) {
        for (channel, count) in repeated(program).filter_map(puts) {
            *sent.entry(channel).or_default() += count;
        }
    }
    for circle in closed {
        let missing: Vec<(usize, Vec<(ChannelId, u64)>)> =
            circle.tasks.iter().map(|&task| (task, missing(&tasks[task].program, &sent))).collect();
        let all: u64 = missing.iter().map(|(_, lacks)| sum(lacks)).sum();
        let ends = circle.tasks.iter().filter(|&&task| repeated(&tasks[task].program).next().is_none());
        let ended: usize = ends.map(|&task| activations[task]).sum();
        let work: usize = circle.tasks.iter().map(|&task| activations[task]).sum();
        let rare = |count: u64| count.saturating_mul(100) <= (work * RARE_PERCENT) as u64;
        if rare(all) && rare(ended as u64) {
            for (task, lacks) in missing {
                let program = &mut tasks[task].program;
                if never_waits(program, sum(&lacks)) {
                    continue;
                }
                for (channel, count) in lacks {
                    give(program, channel, count);
                }
            }
        }
    }
}

fn sum(tokens: &[(ChannelId, u64)]) -> u64 {
    tokens.iter().map(|(_, count)| count).sum()
}

/// The operations that come again in each round.
fn repeated(program: &Program) -> impl Iterator<Item = &Op> {
    let from = program.repeat_from.map_or(program.ops.len(), |from| from as usize);
    let branches =
        program.branches.iter().flat_map(|branch| &program.ops[branch.from as usize..branch.to as usize]);
    program.ops[from..].iter().chain(branches)
}

fn puts(op: &Op) -> Option<(ChannelId, u64)> {
    match op {
        Op::Send { channel, count } | Op::Device { channel, count, .. } => {
            Some((*channel, u64::from(*count)))
        }
        _ => None,
    }
}

fn takes(op: &Op) -> Option<(ChannelId, u64)> {
    match op {
        Op::Receive(channel) => Some((*channel, 1)),
        Op::ReceiveCount { channel, count } => Some((*channel, u64::from(*count))),
        _ => None,
    }
}

/// What a task takes in a round and no repeating task gives.
fn missing(program: &Program, sent: &BTreeMap<ChannelId, u64>) -> Vec<(ChannelId, u64)> {
    let mut taken: BTreeMap<ChannelId, u64> = BTreeMap::new();
    for (channel, count) in repeated(program).filter_map(takes) {
        *taken.entry(channel).or_default() += count;
    }
    for branch in &program.branches {
        let ops = &program.ops[branch.from as usize..branch.to as usize];
        *taken.entry(branch.channel).or_default() +=
            ops.iter().filter(|op| **op == Op::Select).count() as u64;
    }
    let lacks = |(channel, taken): (ChannelId, u64)| {
        let lack = taken.saturating_sub(sent.get(&channel).copied().unwrap_or_default());
        (lack > 0).then_some((channel, lack))
    };
    taken.into_iter().filter_map(lacks).collect()
}

/// Whether a round would have nothing to wait for if the task gave itself all that it `lacks`: a kernel thread that moved a server
/// once. Its rounds would follow each other without end; it has no second one.
fn never_waits(program: &Program, lacks: u64) -> bool {
    let rests = |op: &Op| matches!(op, Op::Sleep(_) | Op::Device { .. });
    let taken: u64 = repeated(program).filter_map(takes).map(|(_, count)| count).sum();
    program.branches.is_empty() && taken <= lacks && !repeated(program).any(rests)
}

/// Adds tokens at the end of a round: before the sleep across the seam, or in the last part of the branch of this channel, else of the first one.
fn give(program: &mut Program, channel: ChannelId, count: u64) {
    let send = Op::Send { channel, count: u32::try_from(count).unwrap_or(u32::MAX) };
    if program.branches.is_empty() {
        let end = program.ops.len();
        let at = if matches!(program.ops.last(), Some(Op::Sleep(_))) { end - 1 } else { end };
        program.ops.insert(at, send);
        return;
    }
    let branch = program.branches.iter().position(|branch| branch.channel == channel).unwrap_or_default();
    let at = program.branches[branch].to - 1;
    program.ops.insert(at as usize, send);
    for branch in &mut program.branches {
        branch.from += u32::from(branch.from > at);
        branch.to += u32::from(branch.to > at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::{Amount, Branch, Ns};

    const SERVER: ChannelId = ChannelId(0);
    const CLIENT: ChannelId = ChannelId(1);

    fn run() -> Op {
        Op::Run(Amount::Fixed(Ns::from_us(10)))
    }

    fn send(channel: ChannelId) -> Op {
        Op::Send { channel, count: 1 }
    }

    /// A server that is woken 40 times, twice of them by the client's first thread, which does not repeat.
    fn loop_of_two() -> Vec<TaskSpec> {
        let server: Vec<Op> = (0..40).flat_map(|_| [Op::Receive(SERVER), run(), send(CLIENT)]).collect();
        let mut server = Program { ops: server, repeat_from: Some(0), ..Program::default() };
        server.ops.push(Op::Sleep(Amount::Fixed(Ns::from_ms(1))));
        let mut client = Program::default();
        client.ops =
            (0..40).flat_map(|i| [send(SERVER), Op::Select].into_iter().skip(usize::from(i < 2))).collect();
        client.branches = vec![Branch { channel: CLIENT, from: 0, to: client.ops.len() as u32 }];
        vec![
            TaskSpec::new("server", server),
            TaskSpec::new("client", client),
            TaskSpec::new("main", Program::once([send(SERVER), send(SERVER)])),
        ]
    }

    fn complete_all(tasks: &mut [TaskSpec], circle: &[usize], activations: &[usize]) {
        let circle = Loop { tasks: circle.to_vec(), closed: true };
        complete(tasks, &[circle], &[], &Reactors::default(), activations);
    }

    #[test]
    fn what_began_the_first_round_is_given_in_the_next() {
        let mut tasks = loop_of_two();
        complete_all(&mut tasks, &[0, 1, 2], &[40, 40, 1]);
        let given = Op::Send { channel: SERVER, count: 2 };
        let ops = &tasks[0].program.ops;
        assert_eq!(ops[ops.len() - 2], given, "before it sleeps");
        assert_eq!(
            tasks[1].program,
            loop_of_two()[1].program,
            "the client has a token for each of its parts"
        );
    }

    #[test]
    fn a_loop_whose_work_does_not_repeat_ends() {
        let mut tasks = loop_of_two();
        // All of the requests come from the first thread.
        tasks[1].program.ops.retain(|op| *op != send(SERVER));
        tasks[1].program.branches[0].to = tasks[1].program.ops.len() as u32;
        let before: Vec<Program> = tasks.iter().map(|task| task.program.clone()).collect();
        complete_all(&mut tasks, &[0, 1, 2], &[40, 40, 1]);
        assert!(tasks.iter().map(|task| &task.program).eq(&before));
    }

    /// The kernel's migration thread moved the server once: given what it waited for, its rounds would never wait.
    #[test]
    fn a_task_that_would_wait_for_nothing_has_one_round() {
        let mut tasks = loop_of_two();
        let ops = vec![Op::Receive(ChannelId(3)), run(), send(SERVER)];
        tasks.push(TaskSpec::new("migration", Program { ops, repeat_from: Some(0), ..Program::default() }));
        let before = tasks[3].program.clone();
        complete_all(&mut tasks, &[0, 1, 2, 3], &[40, 40, 1, 1]);
        assert_eq!(tasks[3].program, before);
        let given = Op::Send { channel: SERVER, count: 1 };
        let ops = &tasks[0].program.ops;
        assert_eq!(ops[ops.len() - 2], given, "the others go on");
    }

    #[test]
    fn a_loop_of_tasks_that_end_is_left_alone() {
        let mut tasks = loop_of_two();
        complete_all(&mut tasks, &[0, 1, 2], &[40, 40, 10]);
        assert_eq!(tasks[0].program, loop_of_two()[0].program, "a ninth of the work is not done again");
    }

    #[test]
    fn an_event_loop_gives_itself_what_is_missing_in_its_last_part() {
        let mut tasks = loop_of_two();
        let branch = Branch { channel: ChannelId(2), from: 78, to: 80 };
        tasks[1].program.ops.extend([run(), Op::Select]);
        tasks[1].program.branches.push(branch);
        // The server answers one request less.
        let at = tasks[0].program.ops.iter().position(|op| *op == send(CLIENT)).unwrap();
        tasks[0].program.ops.remove(at);
        complete_all(&mut tasks, &[0, 1], &[40, 400]);
        let client = &tasks[1].program;
        let ends: Vec<(u32, u32)> = client.branches.iter().map(|branch| (branch.from, branch.to)).collect();
        assert_eq!(
            ends,
            [(0, 79), (79, 82)],
            "the second branch lacks a token of a channel that nobody feeds, too"
        );
        assert_eq!(client.ops[77..79], [Op::Send { channel: CLIENT, count: 1 }, Op::Select]);
    }
}
