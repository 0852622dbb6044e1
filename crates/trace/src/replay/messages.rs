//! Between the second and the third step: messages to a task that is awake.
//!
//! A wakeup shows a message only when the receiver sleeps. A server that waits for the CPU for 3 ms
//! gets thirty requests meanwhile and the recording shows one. Replayed like this, the thirty would
//! be one piece of work for ever, and under a scheduler that lets the server run at once its other
//! twenty-nine wakeups would be missing.
//!
//! What is not seen is taken from habit: when a task that was woken by a timer (say) has sent to
//! its peer in nearly every activation in which the peer slept, it also did in those in which the
//! peer was awake. The receiver's activations are cut accordingly, one part for each message. What
//! the activation itself costs beside the messages (falling asleep, being woken, coming back) is
//! fitted: activations with one message against those with several.
//!
//! Only loops that the outside drives are treated so. In closed loops the number of messages is
//! bound by the clients, and `couple` says what is known.

use super::classify::Loop;
use super::timeline::{Activation, Deed, End, Origin, TaskTimeline};
use schedlab_model::{Ns, TaskId};

/// A habit needs this many occasions to show.
const OCCASIONS: usize = 32;
/// … and must hold on this part of them (in per cent).
const HABIT_PERCENT: usize = 90;
/// Fewer activations with several messages do not tell what one costs.
const ENOUGH: usize = 16;

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Messages {
    /// Messages in each activation, by task and activation; an empty list: one each.
    counts: Vec<Vec<u32>>,
    /// CPU time of an activation itself and of each further message.
    fits: Vec<Option<(Ns, Ns)>>,
    /// Messages that no wakeup shows.
    pub(super) unseen: u64,
}

/// Messages of one activation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch {
    count: u32,
    entry: Ns,
}

/// One message's part of an activation.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) activation: Activation,
    /// Not the first one: it waits for a message of its own.
    pub(super) more: bool,
}

impl Messages {
    pub(super) fn batch(&self, task: usize, activation: usize) -> Batch {
        let count =
            self.counts.get(task).and_then(|counts| counts.get(activation)).copied().unwrap_or(1);
        let (entry, _) = self.fits.get(task).copied().flatten().unwrap_or_default();
        Batch { count, entry }
    }

    pub(super) fn entry(&self, task: usize) -> Ns {
        self.batch(task, usize::MAX).entry
    }

    /// The fits, for the report.
    pub(super) fn entries(&self) -> Vec<(TaskId, Ns, Ns)> {
        let fit =
            |(task, fit): (usize, &Option<(Ns, Ns)>)| fit.map(|(a, b)| (TaskId::from(task), a, b));
        self.fits.iter().enumerate().filter_map(fit).collect()
    }
}

impl Batch {
    /// Cuts an activation. `received`: a message began it, so its entry is owed apart from the
    /// program.
    pub(super) fn split(self, whole: &Activation, received: bool) -> Vec<Part> {
        let entry = if received { self.entry.min(whole.demand) } else { Ns::ZERO };
        let mut rest = whole.clone();
        rest.demand -= entry;
        rest.deeds.iter_mut().for_each(|(at, _)| *at = at.saturating_sub(entry));
        let mut parts = Vec::new();
        for left in (0..self.count).rev() {
            let of = rest.demand;
            let length = if left == 0 { of } else { Ns(of.0 / u64::from(left + 1)) };
            let inside = rest.deeds.partition_point(|(at, _)| left == 0 || *at <= length);
            let later = rest.deeds.split_off(inside);
            let part = Activation {
                demand: length,
                deeds: std::mem::replace(&mut rest.deeds, later),
                ..rest
            };
            rest.deeds.iter_mut().for_each(|(at, _)| *at = at.saturating_sub(length));
            rest.demand = of - length;
            parts.push(Part { activation: part, more: !parts.is_empty() });
        }
        parts
    }
}

/// Finds the unseen messages and notes them with their senders.
pub(super) fn find(lines: &mut [TaskTimeline], loops: &[Loop]) -> Messages {
    let mut messages = Messages { fits: vec![None; lines.len()], ..Messages::default() };
    messages.counts.resize(lines.len(), Vec::new());
    for circle in loops.iter().filter(|circle| !circle.closed) {
        for &sender in &circle.tasks {
            for &receiver in circle.tasks.iter().filter(|&&task| task != sender) {
                for (activation, at) in unseen(&lines[sender], &lines[receiver], receiver) {
                    let when = lines[sender].reached(lines[sender].starts[activation] + at);
                    let Some(gets) = lines[receiver].awake_at(when) else { continue };
                    let counts = &mut messages.counts[receiver];
                    counts.resize(lines[receiver].activations.len(), 1);
                    counts[gets] += 1;
                    messages.unseen += 1;
                    let deeds = &mut lines[sender].activations[activation].deeds;
                    deeds.push((at, Deed::Tell(TaskId::from(receiver))));
                    deeds.sort_by_key(|(at, _)| *at);
                }
            }
        }
    }
    for (task, line) in lines.iter().enumerate() {
        messages.fits[task] = fit(line, &messages.counts[task]);
    }
    messages
}

/// Activations of `from` outside's making in which it sent without a trace, with the CPU progress
/// at which it usually does.
fn unseen(from: &TaskTimeline, to: &TaskTimeline, receiver: usize) -> Vec<(usize, Ns)> {
    let (mut sent, mut silent, mut candidates) = (Vec::new(), 0, Vec::new());
    for (number, activation) in from.activations.iter().enumerate() {
        if !matches!(activation.origin, Origin::HardIrq | Origin::SoftIrq)
            || activation.end == End::Cut
        {
            continue;
        }
        let deed = activation
            .deeds
            .iter()
            .find(|(_, deed)| matches!(deed, Deed::Wake(task, _) if task.index() == receiver));
        match deed {
            Some((at, _)) => sent.push(*at),
            // The receiver was awake all along.
            None if to
                .awake_at(activation.woken)
                .is_some_and(|a| to.ends(a) >= from.ends(number)) =>
            {
                candidates.push(number);
            }
            // It slept for at least a part.
            None if to.awake_at(activation.woken).is_none() => silent += 1,
            None => {}
        }
    }
    if sent.len() < OCCASIONS || sent.len() * 100 < (sent.len() + silent) * HABIT_PERCENT {
        return Vec::new();
    }
    sent.sort_unstable();
    let usually = sent[sent.len() / 2];
    candidates
        .into_iter()
        .map(|number| (number, usually.min(from.activations[number].demand)))
        .collect()
}

/// CPU time of an activation itself and of each further message: the median activation with one
/// message, and the median of what the others needed more, by message.
pub(super) fn fit(line: &TaskTimeline, counts: &[u32]) -> Option<(Ns, Ns)> {
    let whole = |(a, _): &(&Activation, &u32)| a.end != End::Cut;
    let all = || line.activations.iter().zip(counts).filter(whole);
    let mut single: Vec<u64> =
        all().filter(|(_, count)| **count == 1).map(|(a, _)| a.demand.0).collect();
    single.sort_unstable();
    let one = *single.get(single.len() / 2)?;
    let more = all().filter(|(_, count)| **count > 2);
    let mut each: Vec<u64> =
        more.map(|(a, count)| a.demand.0.saturating_sub(one) / u64::from(*count - 1)).collect();
    if single.len() < ENOUGH || each.len() < ENOUGH {
        return None;
    }
    each.sort_unstable();
    let each = each[each.len() / 2].min(one);
    Some((Ns(one - each), Ns(each)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn activation(demand: u64, deeds: &[(u64, u32)]) -> Activation {
        let deeds = deeds.iter().map(|&(at, task)| (Ns(at), Deed::Wake(TaskId(task), 1))).collect();
        Activation { deeds, ..Activation::plain(Origin::HardIrq, Ns::ZERO, Ns(demand)) }
    }

    #[test]
    fn a_cut_keeps_demand_and_deeds() {
        let whole = activation(310, &[(5, 1), (120, 2), (310, 3)]);
        let parts = Batch { count: 3, entry: Ns(10) }.split(&whole, true);
        let lengths: Vec<u64> = parts.iter().map(|part| part.activation.demand.0).collect();
        assert_eq!(lengths, [100, 100, 100]);
        let deeds: Vec<Vec<u64>> = parts
            .iter()
            .map(|part| part.activation.deeds.iter().map(|(at, _)| at.0).collect())
            .collect();
        assert_eq!(deeds, [vec![0], vec![10], vec![100]]);
        assert_eq!(parts.iter().map(|part| part.more).collect::<Vec<_>>(), [false, true, true]);
        // What no message began owes its entry as part of the program.
        let parts = Batch { count: 1, entry: Ns(10) }.split(&whole, false);
        assert_eq!((parts.len(), parts[0].activation.demand), (1, Ns(310)));
    }

    #[test]
    fn entry_and_message_are_told_apart() {
        let mut line = TaskTimeline::default();
        let mut counts = Vec::new();
        for i in 0..60 {
            let count = if i % 3 == 0 { 5 } else { 1 };
            line.activations.push(activation(12_000 + 8_000 * u64::from(count), &[]));
            counts.push(count);
        }
        assert_eq!(fit(&line, &counts), Some((Ns(12_000), Ns(8_000))));
        assert_eq!(fit(&line, &vec![1; 60]), None);
    }
}
