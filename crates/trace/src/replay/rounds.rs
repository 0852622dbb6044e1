//! After the third step: closed loops that go on when their recorded work is done.
//!
//! A closed loop that a scheduler lets run faster does all that was recorded before the time is
//! over, and begins again. In its first round it had help: the client's first thread opened the
//! connections and began the first activations, or a thread sent some requests before it came to
//! its event loop. None of that comes a second time. A server that waits once for each of these
//! wakeups would wait for ever in its second round, and the prediction would be that a faster loop
//! does no more than was recorded.
//!
//! So the tokens of a round are counted: what the tasks of the loop take from a channel, and what
//! all that repeat put into it. What is missing the consumer gives itself at the end of its round.
//! Every wait of a round is then met by a token of the same round that came before it in the
//! recording, or by one of these, which are there at its beginning: the recorded order remains
//! possible.
//!
//! That is for what a loop needs to begin. Where more is missing, or tasks that do not repeat did
//! more than that, they were part of the work, and the loop ends with them.

use super::classify::{Loop, RARE_PERCENT};
use super::makers::Makers;
use schedlab_model::{Branch, ChannelId, Op, Program, TaskSpec};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Makes the rounds of every closed loop complete. `activations`: of each task, as
/// recorded.
pub(super) fn complete(tasks: &mut [TaskSpec], loops: &[Loop], activations: &[usize]) {
    let closed: Vec<&Loop> = loops.iter().filter(|circle| circle.closed).collect();
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
        let ends =
            circle.tasks.iter().filter(|&&task| repeated(&tasks[task].program).next().is_none());
        let ended: usize = ends.map(|&task| activations[task]).sum();
        let begun: usize = circle.tasks.iter().map(|&task| activations[task]).sum();
        let rare = |count: u64| {
            count.saturating_mul(100) <= (begun as u64).saturating_mul(RARE_PERCENT as u64)
        };
        if rare(all) && rare(ended as u64) {
            for (task, lacks) in missing {
                let program = Arc::make_mut(&mut tasks[task].program);
                if never_waits(program, &lacks) {
                    continue;
                }
                for (branch, (channel, count)) in givers(program, &lacks).into_iter().zip(lacks) {
                    give(program, branch, channel, count);
                }
            }
        }
    }
}

/// Makes the rounds of makers complete: what they and their commands take in a round and none of
/// them gives. A maker waited for commands that were there before the recording began; a command
/// was ended by a signal.
pub(super) fn complete_makers(tasks: &mut [TaskSpec], makers: &Makers) {
    for &maker in &makers.tasks {
        let mut family = makers.commands_of(maker);
        family.push(maker);
        let mut sent: BTreeMap<ChannelId, u64> = BTreeMap::new();
        for (channel, count) in
            family.iter().flat_map(|&task| &tasks[task].program.ops).filter_map(puts)
        {
            *sent.entry(channel).or_default() += count;
        }
        for task in family.into_iter().filter(|&task| makers.nearest(task) == Some(maker)) {
            let program = Arc::make_mut(&mut tasks[task].program);
            if task != maker && !ends(program) {
                continue;
            }
            // All of a command comes again, when it is created again.
            let whole = Program { repeat_from: Some(0), ..program.clone() };
            for (channel, count) in missing(&whole, &sent) {
                if task == maker {
                    give(program, 0, channel, count);
                } else {
                    program.ops.insert(0, tokens(channel, count));
                }
            }
        }
    }
}

/// Whether a command ends by itself, and so is created again: a server that a script started stays
/// as it is. Given what it waits for in each of its rounds it would never wait.
fn ends(program: &Program) -> bool {
    program.repeat_from.is_none() && program.branches.is_empty()
}

fn sum(tokens: &[(ChannelId, u64)]) -> u64 {
    tokens.iter().map(|(_, count)| count).sum()
}

/// The operations that come again in each round.
fn repeated(program: &Program) -> impl Iterator<Item = &Op> {
    let from = program.repeat_from.map_or(program.ops.len(), |from| from as usize);
    let branches = program
        .branches
        .iter()
        .flat_map(|branch| &program.ops[branch.from as usize..branch.to as usize]);
    program.ops[from..].iter().chain(branches)
}

/// The tokens that an operation puts into a channel.
pub(super) fn puts(op: &Op) -> Option<(ChannelId, u64)> {
    match op {
        Op::Send { channel, count } | Op::Device { channel, count, .. } => {
            Some((*channel, u64::from(*count)))
        }
        _ => None,
    }
}

/// The tokens that an operation takes from a channel.
pub(super) fn takes(op: &Op) -> Option<(ChannelId, u64)> {
    match op {
        Op::Receive(channel) => Some((*channel, 1)),
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
        *taken.entry(branch.channel).or_default() += parts(program, branch);
    }
    let lacks = |(channel, taken): (ChannelId, u64)| {
        let lack = taken.saturating_sub(sent.get(&channel).copied().unwrap_or_default());
        (lack > 0).then_some((channel, lack))
    };
    taken.into_iter().filter_map(lacks).collect()
}

/// Whether a round would have nothing to wait for if the task gave itself all that it `lacks`: a
/// kernel thread that moved a server once. Its rounds would follow each other without end; it has
/// no second one.
fn never_waits(program: &Program, lacks: &[(ChannelId, u64)]) -> bool {
    if !program.branches.is_empty() {
        // What a part needs of others on its way is no lack.
        let inside = |op: &Op| {
            takes(op).is_some_and(|(channel, _)| lacks.iter().all(|(lack, _)| *lack != channel))
        };
        return program.branches.iter().all(|branch| is_fed_by_itself(program, branch, lacks))
            && !repeated(program).any(inside);
    }
    let rests = |op: &Op| matches!(op, Op::Sleep(_) | Op::Device { .. });
    let taken: u64 = repeated(program).filter_map(takes).map(|(_, count)| count).sum();
    taken <= sum(lacks) && !repeated(program).any(rests)
}

/// Whether no other task gives this branch a token in a round.
fn is_fed_by_itself(program: &Program, branch: &Branch, lacks: &[(ChannelId, u64)]) -> bool {
    let lack = lacks.iter().find(|(channel, _)| *channel == branch.channel);
    lack.is_some_and(|(_, count)| parts(program, branch) <= *count)
}

/// How many tokens a branch takes in a round.
fn parts(program: &Program, branch: &Branch) -> u64 {
    let ops = &program.ops[branch.from as usize..branch.to as usize];
    ops.iter().filter(|op| **op == Op::Select).count() as u64
}

/// The branches at whose end the tokens that are missing on each of these channels are given: that
/// of the channel, or, where all of its tokens are missing, the first one that others feed. A
/// branch that gives itself all that it takes would never wait.
fn givers(program: &Program, lacks: &[(ChannelId, u64)]) -> Vec<usize> {
    let fed = |branch: &Branch| !is_fed_by_itself(program, branch, lacks);
    let first = program.branches.iter().position(fed).unwrap_or_default();
    let giver = |(channel, _): &(ChannelId, u64)| {
        program
            .branches
            .iter()
            .position(|branch| branch.channel == *channel && fed(branch))
            .unwrap_or(first)
    };
    lacks.iter().map(giver).collect()
}

fn tokens(channel: ChannelId, count: u64) -> Op {
    Op::Send { channel, count: u32::try_from(count).unwrap_or(u32::MAX) }
}

/// Adds tokens at the end of a round: before the sleep across the seam, or in the last part of this
/// branch.
fn give(program: &mut Program, branch: usize, channel: ChannelId, count: u64) {
    let send = tokens(channel, count);
    if program.branches.is_empty() {
        let end = program.ops.len();
        let at = if matches!(program.ops.last(), Some(Op::Sleep(_))) { end - 1 } else { end };
        program.ops.insert(at, send);
        return;
    }
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
    use schedlab_model::{Amount, Ns};

    const SERVER: ChannelId = ChannelId(0);
    const CLIENT: ChannelId = ChannelId(1);

    fn run() -> Op {
        Op::Run(Amount::Fixed(Ns::from_us(10)))
    }

    fn program_of(task: &mut TaskSpec) -> &mut Program {
        Arc::make_mut(&mut task.program)
    }

    fn send(channel: ChannelId) -> Op {
        Op::Send { channel, count: 1 }
    }

    /// A server that is woken 40 times, twice of them by the client's first thread, which does not
    /// repeat.
    fn loop_of_two() -> Vec<TaskSpec> {
        let server: Vec<Op> =
            (0..40).flat_map(|_| [Op::Receive(SERVER), run(), send(CLIENT)]).collect();
        let mut server = Program { ops: server, repeat_from: Some(0), ..Program::default() };
        server.ops.push(Op::Sleep(Amount::Fixed(Ns::from_ms(1))));
        let mut client = Program::default();
        client.ops = (0..40)
            .flat_map(|i| [send(SERVER), Op::Select].into_iter().skip(usize::from(i < 2)))
            .collect();
        client.branches = vec![Branch { channel: CLIENT, from: 0, to: client.ops.len() as u32 }];
        vec![
            TaskSpec::new("server", server),
            TaskSpec::new("client", client),
            TaskSpec::new("main", Program::once([send(SERVER), send(SERVER)])),
        ]
    }

    fn complete_all(tasks: &mut [TaskSpec], circle: &[usize], activations: &[usize]) {
        let circle = Loop { tasks: circle.to_vec(), closed: true };
        complete(tasks, &[circle], activations);
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
        let client = program_of(&mut tasks[1]);
        client.ops.retain(|op| *op != send(SERVER));
        client.branches[0].to = client.ops.len() as u32;
        let before: Vec<Arc<Program>> = tasks.iter().map(|task| task.program.clone()).collect();
        complete_all(&mut tasks, &[0, 1, 2], &[40, 40, 1]);
        assert!(tasks.iter().map(|task| &task.program).eq(&before));
    }

    /// The kernel's migration thread moved the server once: given what it waited for, its rounds
    /// would never wait.
    #[test]
    fn a_task_that_would_wait_for_nothing_has_one_round() {
        let mut tasks = loop_of_two();
        let ops = vec![Op::Receive(ChannelId(3)), run(), send(SERVER)];
        tasks.push(TaskSpec::new(
            "migration",
            Program { ops, repeat_from: Some(0), ..Program::default() },
        ));
        let before = tasks[3].program.clone();
        complete_all(&mut tasks, &[0, 1, 2, 3], &[40, 40, 1, 1]);
        assert_eq!(tasks[3].program, before);
        let given = Op::Send { channel: SERVER, count: 1 };
        let ops = &tasks[0].program.ops;
        assert_eq!(ops[ops.len() - 2], given, "the others go on");
    }

    /// A server that hardly ever sleeps needs its client's progress behind each answer; what woke
    /// it were the client's first messages.
    #[test]
    fn an_event_loop_that_needs_something_on_its_way_is_given_what_began_it() {
        let mut tasks = loop_of_two();
        let on_its_way = ChannelId(3);
        let ops = vec![Op::Select, run(), Op::Receive(on_its_way), Op::Select];
        let branches = vec![Branch { channel: ChannelId(2), from: 0, to: 4 }];
        tasks.push(TaskSpec::new("server", Program { ops, branches, ..Program::default() }));
        program_of(&mut tasks[0]).ops.insert(0, send(on_its_way));
        let waiting = Program::clone(&tasks[3].program);
        complete_all(&mut tasks, &[0, 1, 3], &[40, 40, 1, 2]);
        let given = Op::Send { channel: ChannelId(2), count: 2 };
        assert_eq!(tasks[3].program.ops[3..], [given, Op::Select]);
        // Without that it would wait for nothing.
        let ops = vec![Op::Select, run(), Op::Select];
        tasks[3].program = Program { ops, ..waiting }.into();
        program_of(&mut tasks[3]).branches[0].to = 3;
        let before = tasks[3].program.clone();
        complete_all(&mut tasks, &[0, 1, 3], &[40, 40, 1, 2]);
        assert_eq!(tasks[3].program, before);
    }

    #[test]
    fn a_loop_of_tasks_that_end_is_left_alone() {
        let mut tasks = loop_of_two();
        complete_all(&mut tasks, &[0, 1, 2], &[40, 40, 10]);
        assert_eq!(
            tasks[0].program,
            loop_of_two()[0].program,
            "a ninth of the work is not done again"
        );
    }

    /// A script that starts a server: in the rounds of the server nothing is given, and its
    /// branches stay where they are.
    #[test]
    fn a_command_that_does_not_end_is_given_nothing() {
        let by = |task: u32, of: u32| (task as usize, of as usize);
        let makers = Makers::of(&[0], &[by(1, 0), by(2, 0), by(3, 0)]);
        let select = vec![Op::Select, run(), Op::Select];
        let branch = Branch { channel: ChannelId(7), from: 1, to: 3 };
        let again = |ops| Program { ops, repeat_from: Some(0), ..Program::default() };
        let mut tasks = vec![
            TaskSpec::new("sh", again(vec![Op::Spawn(schedlab_model::TaskId(1))])),
            TaskSpec::new("server", Program { branches: vec![branch], ..again(select) }),
            TaskSpec::new("daemon", again(vec![Op::Receive(SERVER), run()])),
            TaskSpec::new("cc", Program::once([Op::Receive(SERVER), run()])),
        ];
        let before = tasks.clone();
        complete_makers(&mut tasks, &makers);
        assert_eq!(tasks[..3], before[..3]);
        assert_eq!(tasks[3].program.ops[0], Op::Send { channel: SERVER, count: 1 });
    }

    /// The first branch lacks one token of 39, the second one its only one, which a thread with a
    /// date gave.
    #[test]
    fn an_event_loop_gives_itself_what_is_missing_where_others_feed_it() {
        let mut tasks = loop_of_two();
        let branch = Branch { channel: ChannelId(2), from: 78, to: 80 };
        program_of(&mut tasks[1]).ops.extend([run(), Op::Select]);
        program_of(&mut tasks[1]).branches.push(branch);
        // The server answers one request less.
        let at = tasks[0].program.ops.iter().position(|op| *op == send(CLIENT)).unwrap();
        program_of(&mut tasks[0]).ops.remove(at);
        complete_all(&mut tasks, &[0, 1], &[40, 400]);
        let client = &tasks[1].program;
        let ends: Vec<(u32, u32)> =
            client.branches.iter().map(|branch| (branch.from, branch.to)).collect();
        assert_eq!(ends, [(0, 80), (80, 82)]);
        let given = |channel: ChannelId| Op::Send { channel, count: 1 };
        assert_eq!(client.ops[77..80], [given(CLIENT), given(ChannelId(2)), Op::Select]);
        // One that nobody feeds would turn without end.
        let mut tasks = loop_of_two();
        let ops = vec![Op::Select, send(SERVER), Op::Select];
        let branches = vec![
            Branch { channel: CLIENT, from: 0, to: 1 },
            Branch { channel: ChannelId(2), from: 1, to: 3 },
        ];
        tasks[1].program = Program { ops, branches, ..Program::default() }.into();
        program_of(&mut tasks[0]).ops.retain(|op| *op != send(CLIENT));
        let before = tasks[1].program.clone();
        complete_all(&mut tasks, &[0, 1], &[4000, 4000]);
        assert_eq!(tasks[1].program, before);
    }
}
