//! Time that passed in waits which a timeout ended, although a message should have. A thread that
//! wakes others when a message comes, and now and then when its look timed out, repairs what a
//! missed wakeup left behind. How often that happens depends on the order in which tasks ran, which
//! is what a change of the scheduler changes, and no fact tells why it did.

use schedlab_model::{Fact, FactKind, Ns, ObjectId, Outcome, TaskId};
use std::collections::BTreeMap;

/// Waits of one thread that its timeout ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stall {
    /// The thread.
    pub task: TaskId,
    /// How often.
    pub times: u64,
    /// How long they were together.
    pub length: Ns,
}

/// What is known of a thread.
#[derive(Default)]
struct Looking {
    /// When its last fact ended.
    since: Ns,
    /// So long was its last look, which timed out, and nothing was read since.
    timed_out: Option<Ns>,
    /// By object: how often it sent there after a message, and after a timeout, with the length.
    sent: BTreeMap<ObjectId, (u64, u64, Ns)>,
}

/// Returns the stalls of each thread that has some: times in which it sent behind a timeout to
/// where it mostly sends behind what it has read.
pub fn stalls(facts: &[Fact]) -> Vec<Stall> {
    let mut threads: BTreeMap<TaskId, Looking> = BTreeMap::new();
    for fact in facts {
        let Some(task) = fact.task else { continue };
        let looking = threads.entry(task).or_default();
        let lasted = fact.at.saturating_sub(looking.since);
        looking.since = fact.at;
        let to = match fact.kind {
            FactKind::Select { outcome, .. } => {
                looking.timed_out = (outcome == Outcome::TimedOut).then_some(lasted);
                continue;
            }
            FactKind::Receive(got) if got.outcome == Outcome::Done => {
                looking.timed_out = None;
                continue;
            }
            FactKind::FutexWake { futex, woken, .. } if woken > 0 => futex,
            FactKind::Send(sent) if sent.outcome == Outcome::Done => sent.object,
            _ => continue,
        };
        let (after_message, after_timeout, length) = looking.sent.entry(to).or_default();
        match looking.timed_out.take() {
            Some(look) => {
                *after_timeout += 1;
                *length += look;
            }
            None => *after_message += 1,
        }
    }
    let of = |(task, looking): (TaskId, Looking)| {
        let sent = looking.sent.values().filter(|(message, timeout, _)| timeout < message);
        let (times, length) = sent.fold((0, Ns::ZERO), |(times, all), (_, timeout, length)| {
            (times + timeout, all + *length)
        });
        (times > 0).then_some(Stall { task, times, length })
    };
    threads.into_iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::{CpuId, Limit, Transfer};

    /// A thread that wakes another at a futex when a message comes, and once when its look timed
    /// out; beside it one that sends whenever its time is over, as pacing threads do.
    #[test]
    fn a_wake_behind_a_timeout_is_a_stall_where_messages_bring_the_others() {
        let look = |outcome| {
            let (selector, ready, until) = (None, 0, Limit::For(Ns::from_ms(100)));
            FactKind::Select { selector, ready, until, outcome }
        };
        let got = FactKind::Receive(Transfer::done(ObjectId(0), 9));
        let futex = ObjectId(1);
        let wake = FactKind::FutexWake { futex, asked: 1, woken: 1, requeue: None };
        let sent = FactKind::Send(Transfer::done(ObjectId(2), 9));
        let (found, over) = (look(Outcome::Done), look(Outcome::TimedOut));
        let one = [found, got, wake, found, got, wake, over, wake, over, found, got];
        let other = [over, sent, over, sent, found, got, sent];
        let mut facts = Vec::new();
        for (task, kinds) in [(0, &one[..]), (1, &other[..])] {
            for (number, &kind) in kinds.iter().enumerate() {
                let at = Ns::from_ms(10 * (number as u64 + 1));
                facts.push(Fact { at, cpu: CpuId(0), task: Some(TaskId::from(task)), kind });
            }
        }
        let stall = Stall { task: TaskId::from(0), times: 1, length: Ns::from_ms(10) };
        assert_eq!(stalls(&facts), [stall]);
    }
}
