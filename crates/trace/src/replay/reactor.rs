//! Between the second and the third step: one task that answers many, each over a connection of its
//! own.
//!
//! A load generator with one thread and four connections (`pgbench -c 4 -j 1`), or a server that
//! multiplexes, is a reactor: it sleeps until any of its peers has written, answers each that has,
//! and sleeps again. What it does next depends on who wrote, and in a replay others write first
//! than in the recording. Were its work kept in the recorded order, it would wait for the one whose
//! turn it was then, while three others have written meanwhile; of a closed loop of four that
//! leaves about one.
//!
//! So its work is cut into pieces, one for each answer that it gave, and each piece belongs to the
//! connection that it answers (a branch of the program, see
//! [`Op::Select`](schedlab_model::Op::Select)). A peer writes once in each of its turns, from one
//! answer to the next; where the reactor was awake at that moment no wakeup shows it, and the peer
//! is taken to write where it usually does. An answer that came before the peer slept is shown by
//! the peer's writing again: the reactor has slept in between, so it had answered.
//!
//! On each connection there is one message under way at any time, now from the peer and now to it.
//! So the recorded order is always possible, and nothing can lock up: the task that waits, waits
//! for a message that a task which can go on will send.
//!
//! Which of several connections is answered first is not known; the first in the order of task ids
//! is.

use super::classify::Loop;
use super::messages;
use super::timeline::{Activation, Deed, End, Origin, TaskTimeline};
use schedlab_model::{Ns, TaskId};

/// Fewer connections make no reactor: with one, the recorded order is the only one.
const PEERS: usize = 2;
/// A peer of a reactor was answered at least so often.
const ANSWERS: usize = 32;
/// Each habit that makes a reactor must hold on this part of its occasions (in per cent). Chosen,
/// not fitted: pgbench and its four backends show 96 to 100.
const HABIT_PERCENT: usize = 90;

/// One task that answers many.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Reactor {
    pub(super) task: usize,
    /// Ascending.
    pub(super) peers: Vec<usize>,
    /// CPU time of an activation beside its answers (fitted, see `messages`).
    pub(super) entry: Ns,
    /// CPU time of each answer after the first (fitted).
    pub(super) each: Ns,
}

/// All of a recording.
#[derive(Debug, Default)]
pub(super) struct Reactors {
    pub(super) all: Vec<Reactor>,
    /// Number of the first connection among links, pools and connections.
    first: u32,
    /// Messages that no wakeup shows.
    pub(super) unseen: u64,
}

/// A part of a reactor's activation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    pub(super) work: Activation,
    pub(super) of: Of,
}

/// Whom a piece of work is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Of {
    /// It answers the message of this peer.
    Answer(usize),
    /// It woke a task that has not written yet, in this recording.
    First,
    /// Nobody in particular.
    Own,
}

/// Finds the reactors of closed loops.
pub(super) fn find(lines: &[TaskTimeline], loops: &[Loop], duration: Ns) -> Reactors {
    let mut all: Vec<Reactor> = Vec::new();
    for circle in loops.iter().filter(|circle| circle.closed) {
        for &task in &circle.tasks {
            let taken =
                |peer: &usize| all.iter().any(|r| r.task == *peer || r.peers.contains(peer));
            let peers: Vec<usize> =
                circle.tasks.iter().copied().filter(|p| *p != task && !taken(p)).collect();
            let peers: Vec<usize> =
                peers.into_iter().filter(|&peer| talks_to(lines, peer, task)).collect();
            if peers.len() >= PEERS && !taken(&task) && answers(&lines[task], &peers, duration) {
                all.push(Reactor { task, peers, entry: Ns::ZERO, each: Ns::ZERO });
            }
        }
    }
    Reactors { all, ..Reactors::default() }
}

/// Whether nearly all that this peer does begins with an answer of `hub`, and it writes when `hub`
/// sleeps.
fn talks_to(lines: &[TaskTimeline], peer: usize, hub: usize) -> bool {
    let line = &lines[peer];
    let woken =
        line.activations.iter().filter(|a| a.origin == Origin::Task(TaskId::from(hub))).count();
    if woken < ANSWERS || woken * 100 < line.activations.len() * HABIT_PERCENT {
        return false;
    }
    let (mut wrote, mut silent) = (0, 0);
    for (number, activation) in line.activations.iter().enumerate() {
        if activation.deeds.iter().any(|(_, deed)| writes(*deed, hub)) {
            wrote += 1;
        } else if activation.end != End::Cut && lines[hub].awake_at(line.ends(number)).is_none() {
            silent += 1;
        }
    }
    wrote >= ANSWERS && wrote * 100 >= (wrote + silent) * HABIT_PERCENT
}

fn writes(deed: Deed, hub: usize) -> bool {
    matches!(deed, Deed::Wake(task, _) if task.index() == hub)
}

/// Whether nearly all that this task does begins with a message of one of them and ends with an
/// answer to the same.
fn answers(line: &TaskTimeline, peers: &[usize], duration: Ns) -> bool {
    let Some(last) = line.activations.last() else { return false };
    if last.end == End::Exited && !line.ended_by_the_clock(duration) {
        return false;
    }
    let (mut by_peers, mut answered) = (0, 0);
    for activation in &line.activations {
        let Origin::Task(by) = activation.origin else { continue };
        if peers.binary_search(&by.index()).is_ok() {
            by_peers += 1;
            answered +=
                usize::from(activation.deeds.iter().any(|(_, deed)| writes(*deed, by.index())));
        }
    }
    by_peers * 100 >= line.activations.len() * HABIT_PERCENT
        && answered * 100 >= by_peers * HABIT_PERCENT
}

/// What one peer's line shows of its conversation.
struct Talk {
    peer: usize,
    /// Deeds of the peer that are to be added: activation, progress in it, deed.
    own: Vec<(usize, Ns, Deed)>,
    /// Activations of the reactor that answered without a trace.
    answered: Vec<usize>,
}

/// Reads one conversation.
fn talk(line: &TaskTimeline, peer: usize, hub: usize, number: u32) -> Talk {
    let mut out = Talk { peer, own: Vec::new(), answered: Vec::new() };
    let seen = |a: &Activation| -> Vec<(Ns, usize)> {
        let of_hub = |(at, deed): &(Ns, Deed)| match deed {
            Deed::Wake(task, activation) if task.index() == hub => {
                Some((*at, *activation as usize))
            }
            _ => None,
        };
        a.deeds.iter().filter_map(of_hub).collect()
    };
    let mut usual: Vec<Ns> =
        line.activations.iter().filter_map(|a| seen(a).first().map(|w| w.0)).collect();
    usual.sort_unstable();
    let usual = usual.get(usual.len() / 2).copied().unwrap_or_default();
    let answer = Origin::Task(TaskId::from(hub));
    let mut wrote: Option<(usize, Ns, usize)> = None;
    for (index, activation) in line.activations.iter().enumerate() {
        if activation.origin == answer {
            wrote = None;
        }
        for (at, woke) in seen(activation) {
            if let Some((before, then, answered)) = wrote.replace((index, at, woke)) {
                // It has heard of the answer by then: half-way, for want of better knowledge.
                let from = if before == index { then } else { Ns::ZERO };
                out.own.push((index, Ns((from.0 + at.0) / 2), Deed::Hear));
                out.answered.push(answered);
            }
        }
        let over = line.activations.get(index + 1).is_none_or(|next| next.origin == answer);
        if over && wrote.is_none() {
            out.own.push((index, usual.min(activation.demand), Deed::Feed(number)));
        }
    }
    out
}

impl Reactors {
    /// Whether a task is part of one: what it waits for is known then.
    pub(super) fn has(&self, task: usize) -> bool {
        self.get(task).is_some() || self.is_peer(task)
    }

    pub(super) fn is_peer(&self, task: usize) -> bool {
        self.all.iter().any(|reactor| reactor.peers.binary_search(&task).is_ok())
    }

    /// The fits, for the report.
    pub(super) fn entries(&self) -> impl Iterator<Item = (TaskId, Ns, Ns)> {
        let fitted = self.all.iter().filter(|reactor| reactor.each > Ns::ZERO);
        fitted.map(|reactor| (TaskId::from(reactor.task), reactor.entry, reactor.each))
    }

    /// The reactor that this task is.
    pub(super) fn get(&self, task: usize) -> Option<&Reactor> {
        self.all.iter().find(|reactor| reactor.task == task)
    }

    /// Peer and reactor of each connection, in the order of their numbers.
    pub(super) fn connections(&self) -> impl Iterator<Item = (usize, usize)> {
        self.all.iter().flat_map(|r| r.peers.iter().map(|&peer| (peer, r.task)))
    }

    /// The number of a peer's connection.
    pub(super) fn connection(&self, peer: usize) -> Option<u32> {
        let at = self.connections().position(|(other, _)| other == peer)?;
        Some(self.first + at as u32)
    }

    /// Turns wakeups into messages and adds those that no wakeup shows; the first connection has
    /// the channel `first`.
    pub(super) fn fill(&mut self, lines: &mut [TaskTimeline], first: usize) {
        self.first = first as u32;
        let numbered: Vec<(usize, usize)> = self.connections().collect();
        for (number, (peer, hub)) in (self.first..).zip(numbered) {
            let talk = talk(&lines[peer], peer, hub, number);
            for activation in &mut lines[peer].activations {
                let message = |deed: &mut Deed| *deed = Deed::Feed(number);
                activation
                    .deeds
                    .iter_mut()
                    .map(|(_, d)| d)
                    .filter(|d| writes(**d, hub))
                    .for_each(message);
            }
            for &(activation, at, deed) in &talk.own {
                self.unseen += u64::from(deed != Deed::Hear);
                lines[peer].activations[activation].deeds.push((at, deed));
            }
            for &activation in &talk.answered {
                self.unseen += 1;
                if let Some(activation) = lines[hub].activations.get_mut(activation) {
                    activation.deeds.push((activation.demand, Deed::Tell(TaskId::from(talk.peer))));
                }
            }
        }
        lines.iter_mut().for_each(TaskTimeline::order_deeds);
        for reactor in &mut self.all {
            let line = &lines[reactor.task];
            let counts: Vec<u32> = line.activations.iter().map(|a| reactor.count(a)).collect();
            (reactor.entry, reactor.each) = messages::fit(line, &counts).unwrap_or_default();
        }
    }
}

impl Reactor {
    /// Whether it answers this task.
    pub(super) fn answers(&self, peer: TaskId) -> bool {
        self.peers.binary_search(&peer.index()).is_ok()
    }

    /// Whom a deed answers.
    fn answered(&self, deed: Deed) -> Option<Of> {
        let (peer, first) = match deed {
            Deed::Wake(task, activation) => (task.index(), activation == 0),
            Deed::Tell(task) => (task.index(), false),
            _ => return None,
        };
        self.peers.binary_search(&peer).ok()?;
        Some(if first { Of::First } else { Of::Answer(peer) })
    }

    fn count(&self, activation: &Activation) -> u32 {
        activation.deeds.iter().filter(|(_, deed)| self.answered(*deed).is_some()).count() as u32
    }

    /// Cuts an activation behind each answer. What comes after the last one belongs to that; an
    /// activation without any is one piece.
    pub(super) fn pieces(&self, whole: &Activation) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut rest = whole.clone();
        let entry = if whole.slept.is_some() { self.entry.min(whole.demand) } else { Ns::ZERO };
        rest.demand -= entry;
        rest.deeds.iter_mut().for_each(|(at, _)| *at = at.saturating_sub(entry));
        let mut left = self.count(&rest);
        while left > 0 {
            let found = rest
                .deeds
                .iter()
                .enumerate()
                .find_map(|(i, (at, d))| Some((i, *at, self.answered(*d)?)));
            let Some((index, at, of)) = found else { break };
            left -= 1;
            let (cut, deeds) =
                if left == 0 { (rest.demand, rest.deeds.len()) } else { (at, index + 1) };
            let cut = cut.min(rest.demand);
            let later = rest.deeds.split_off(deeds);
            let deeds = std::mem::replace(&mut rest.deeds, later);
            pieces.push(Piece { work: Activation { demand: cut, deeds, ..rest.clone() }, of });
            rest.demand -= cut;
            rest.deeds.iter_mut().for_each(|(at, _)| *at = at.saturating_sub(cut));
        }
        if pieces.is_empty() {
            pieces.push(Piece { work: rest, of: Of::Own });
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::super::timeline::Stretch;
    use super::*;
    use schedlab_model::PrevState;

    const HUB: usize = 0;

    fn us(us: u64) -> Ns {
        Ns::from_us(us)
    }

    /// Adds an activation that begins at `at` and runs without a break.
    fn act(
        lines: &mut [TaskTimeline],
        task: usize,
        by: usize,
        at: Ns,
        ran: Ns,
        deeds: &[(Ns, usize)],
    ) {
        let wakes = |&(at, to): &(Ns, usize)| (at, to, lines[to].activations.len() as u32);
        let deeds: Vec<_> = deeds.iter().map(wakes).collect();
        let line = &mut lines[task];
        let slept = (!line.activations.is_empty()).then_some((us(1), PrevState::Sleeping));
        line.starts.push(line.total);
        line.stretches.push(Stretch { from: at, to: at + ran, before: line.total });
        line.total += ran;
        line.activations.push(Activation {
            slept,
            deeds: deeds
                .into_iter()
                .map(|(at, to, n)| (at, Deed::Wake(TaskId::from(to), n)))
                .collect(),
            ..Activation::plain(Origin::Task(TaskId::from(by)), at, ran)
        });
    }

    /// In each round the hub (0) answers peers 1 and 2 in one activation, who work one after the
    /// other; 1 wakes the hub, and 2 writes while it is awake.
    fn rounds() -> Vec<TaskTimeline> {
        let mut lines = vec![TaskTimeline::default(); 3];
        for round in 0..100 {
            let at = us(1_000 * round);
            act(&mut lines, HUB, 1, at, us(200), &[(us(100), 1), (us(190), 2)]);
            act(&mut lines, 1, HUB, at + us(100), us(300), &[]);
            act(&mut lines, 2, HUB, at + us(190), us(5), &[]);
            // Of each ten rounds, nine show who wrote when.
            let hub = lines[HUB].activations.len() as u32;
            lines[1]
                .activations
                .last_mut()
                .unwrap()
                .deeds
                .push((us(250), Deed::Wake(TaskId(0), hub)));
        }
        lines
    }

    fn circle() -> Vec<Loop> {
        vec![Loop { tasks: vec![0, 1, 2], closed: true }]
    }

    /// Peers that write as in [`rounds`], 2 half the time with a trace.
    fn seen_half() -> Vec<TaskTimeline> {
        let mut lines = rounds();
        for round in 0..50 {
            let hub = (2 * round + 1) as u32;
            lines[2].activations[2 * round].deeds.push((us(4), Deed::Wake(TaskId(0), hub)));
        }
        lines
    }

    #[test]
    fn one_that_answers_each_is_a_reactor() {
        let reactors = find(&seen_half(), &circle(), us(100_000));
        let found: Vec<_> = reactors.all.iter().map(|r| (r.task, r.peers.clone())).collect();
        // Peer 2 wrote half the time without a trace, but the hub was awake then.
        assert_eq!(found, [(HUB, vec![1, 2])]);
        let open = [Loop { closed: false, ..circle().remove(0) }];
        assert!(
            find(&seen_half(), &open, us(100_000)).all.is_empty(),
            "an open loop is left alone"
        );
        let mut silent = seen_half();
        // It writes nothing, or to another task, while the hub sleeps.
        for (round, activation) in silent[1].activations.iter_mut().enumerate() {
            if round % 3 == 0 {
                activation.deeds.clear();
            }
        }
        assert!(find(&silent, &circle(), us(100_000)).all.is_empty());
    }

    #[test]
    fn every_turn_has_its_message_and_every_piece_its_answer() {
        let mut lines = seen_half();
        let mut reactors = find(&lines, &circle(), us(100_000));
        reactors.fill(&mut lines, 7);
        assert_eq!((reactors.connection(1), reactors.connection(2)), (Some(7), Some(8)));
        let messages = |task: usize, deed: Deed| {
            let deeds = lines[task].activations.iter().flat_map(|a| &a.deeds);
            deeds.filter(|(_, d)| *d == deed).count()
        };
        assert_eq!((messages(1, Deed::Feed(7)), messages(2, Deed::Feed(8))), (100, 100));
        assert_eq!(reactors.unseen, 50);
        let pieces = reactors.get(HUB).unwrap().pieces(&lines[HUB].activations[5]);
        let found: Vec<_> = pieces.iter().map(|piece| (piece.of, piece.work.demand)).collect();
        assert_eq!(
            found,
            [(Of::Answer(1), us(100)), (Of::Answer(2), us(100))],
            "the rest goes with the last"
        );
        let first = reactors.get(HUB).unwrap().pieces(&lines[HUB].activations[0]);
        assert!(first.iter().all(|piece| piece.of == Of::First), "they begin at their own times");
    }

    /// A peer that writes again had been answered, although it did not sleep in between.
    #[test]
    fn an_answer_to_a_task_awake_is_found() {
        let mut lines = seen_half();
        let hub = lines[HUB].activations.len() as u32;
        let last = lines[1].activations.last_mut().unwrap();
        last.deeds.push((us(290), Deed::Wake(TaskId(0), hub + 1)));
        act(&mut lines, HUB, 1, us(200_000), us(20), &[]);
        let found = talk(&lines[1], 1, HUB, 0);
        assert_eq!(
            (found.own, found.answered),
            (vec![(99, us(270), Deed::Hear)], vec![hub as usize])
        );
    }
}
