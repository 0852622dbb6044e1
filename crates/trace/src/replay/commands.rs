//! Between the second and the third step: a task that runs commands, one after the other or several at once: a shell's
//! loop, `make`.
//!
//! What such a batch wants is not what the recording holds of it. Commands end, and where a what-if gives them more time
//! than they had, all that were recorded have ended before the time is over; the rest of the run would belong to whoever is
//! beside them. (A server beside a compile was predicted 50 % too fast.) Whoever starts the commands has more of them, so
//! when all of a round have ended they begin again. In the replay of the recording itself they do not: its work lasts
//! as long as it does.
//!
//! A round must be complete in itself, or it would never end a second time. So a sleep of a command that none of its own
//! family ended keeps its length instead of its date, and a command that the end of the recording cut off ends there.
//!
//! Daemons start tasks too. They are left alone: most of what they start stays, or what wakes them is not the end
//! of a command.

use super::timeline::{Activation, Deed, End, Line, Origin};

/// Fewer commands show no habit of starting them.
const COMMANDS: usize = 2;
/// At least this part of what wakes the commander is its commands' doing (in per cent). Chosen, not fitted: the shell and
/// the `make` of the recorded compiles show 97 to 100.
const HABIT_PERCENT: usize = 90;

/// One task that runs commands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Commander {
    pub(super) task: usize,
    /// The activation in which it started the first one: a round begins there.
    pub(super) first: usize,
    /// Those that it started, those that these started, and so on; ascending.
    pub(super) members: Vec<usize>,
    /// How many it started itself.
    pub(super) commands: usize,
}

/// All of a recording.
#[derive(Debug, Default)]
pub(super) struct Commanders {
    pub(super) all: Vec<Commander>,
    /// By task: whose commander or member it is.
    family: Vec<Option<usize>>,
}

/// Finds them. `apart(task)`: what the task waits for is known otherwise.
pub(super) fn find(lines: &[Line], apart: impl Fn(usize) -> bool) -> Commanders {
    let children: Vec<Vec<usize>> = lines.iter().map(started).collect();
    let mut out = Commanders { all: Vec::new(), family: vec![None; lines.len()] };
    for task in 0..lines.len() {
        let Some(found) = commander(lines, &children, task) else { continue };
        if apart(task) || found.members.iter().any(|&member| apart(member)) {
            continue;
        }
        for member in found.members.iter().chain([&task]) {
            out.family[*member] = Some(out.all.len());
        }
        out.all.push(found);
    }
    out
}

/// Whom a task started, in order.
fn started(line: &Line) -> Vec<usize> {
    let deeds = line.activations.iter().flat_map(|a| &a.deeds);
    deeds.filter_map(|(_, deed)| spawned(*deed)).collect()
}

fn spawned(deed: Deed) -> Option<usize> {
    if let Deed::Spawn(task) = deed { Some(task.index()) } else { None }
}

/// The task and all that came of it.
fn offspring(children: &[Vec<usize>], task: usize) -> Vec<usize> {
    let mut all = vec![task];
    let mut next = 0;
    while let Some(&task) = all.get(next) {
        all.extend(&children[task]);
        next += 1;
    }
    all.sort_unstable();
    all
}

fn commander(lines: &[Line], children: &[Vec<usize>], task: usize) -> Option<Commander> {
    let (line, commands) = (&lines[task], &children[task]);
    let last = line.activations.last()?;
    let created = matches!(line.activations[0].origin, Origin::Forked(_));
    if created || last.end == End::Exited || commands.len() < COMMANDS {
        return None;
    }
    let gone = |task: &usize| lines[*task].activations.last().is_some_and(|a| a.end == End::Exited);
    let ended = commands.iter().filter(|&&command| offspring(children, command).iter().all(gone)).count();
    if ended * 2 <= commands.len() {
        return None;
    }
    let mut members: Vec<usize> = commands.iter().flat_map(|&command| offspring(children, command)).collect();
    members.sort_unstable();
    let starts = |a: &Activation| a.deeds.iter().any(|(_, deed)| spawned(*deed).is_some());
    let first = line.activations.iter().position(starts)?;
    let (mut theirs, mut others) = (0, 0);
    for activation in &line.activations[first + 1..] {
        match activation.origin {
            Origin::Task(by) if members.binary_search(&by.index()).is_ok() => theirs += 1,
            _ => others += 1,
        }
    }
    let habit = theirs > 0 && theirs * 100 >= (theirs + others) * HABIT_PERCENT;
    habit.then_some(Commander { task, first, members, commands: commands.len() })
}

impl Commanders {
    /// The number of the family of this activation: of a command, or of a commander from its first round on.
    pub(super) fn of(&self, task: usize, activation: usize) -> Option<usize> {
        let family = self.family.get(task).copied().flatten()?;
        let commander = &self.all[family];
        (commander.task != task || activation > commander.first).then_some(family)
    }

    /// The number of the family of a command.
    pub(super) fn member(&self, task: usize) -> Option<usize> {
        let family = self.family.get(task).copied().flatten()?;
        (self.all[family].task != task).then_some(family)
    }

    /// The number of the family that this task commands.
    pub(super) fn commands(&self, task: usize) -> Option<usize> {
        let family = self.family.get(task).copied().flatten()?;
        (self.all[family].task == task).then_some(family)
    }

    /// Whether a task belongs to a family.
    pub(super) fn has(&self, family: usize, task: usize) -> bool {
        self.family.get(task) == Some(&Some(family))
    }

    /// Whether a wakeup of this activation is left out, because the sleep that it ended keeps its length instead.
    pub(super) fn leaves_out(&self, waker: usize, wakee: usize, activation: usize) -> bool {
        self.of(wakee, activation).is_some_and(|family| !self.has(family, waker))
    }
}
