//! Sockets of datagrams that one thread reads and to which the same tasks send are one mailbox. To
//! which of them an answer goes follows from the message that it answers. That is not told, and a
//! server that takes its messages in another order would answer to the wrong ones.

use schedlab_model::{FactKind, ObjectId, ObjectKind, TaskId};
use schedlab_trace::Facts;
use std::collections::{BTreeMap, BTreeSet};

/// Readers and writers of an object.
type Ends = (BTreeSet<TaskId>, BTreeSet<TaskId>);

/// Returns by object the first one of its mailbox: itself, if it is no part of any.
pub(crate) fn mailboxes(facts: &Facts) -> Vec<ObjectId> {
    let mut ends: Vec<Ends> = vec![Ends::default(); facts.objects.len()];
    for fact in &facts.list {
        let Some(task) = fact.task else { continue };
        match fact.kind {
            FactKind::Send(sent) => ends[sent.object.index()].1.insert(task),
            FactKind::Receive(got) if got.bytes > 0 => ends[got.object.index()].0.insert(task),
            _ => continue,
        };
    }
    let mut first: BTreeMap<Ends, ObjectId> = BTreeMap::new();
    let of = |(number, ends): (usize, Ends)| {
        let id = ObjectId::from(number);
        let kind = facts.objects[number].kind;
        let datagrams = matches!(kind, ObjectKind::Udp | ObjectKind::UnixDatagram);
        if !datagrams || ends.0.len() != 1 || ends.1.is_empty() {
            return id;
        }
        *first.entry(ends).or_insert(id)
    };
    ends.into_iter().enumerate().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::{CpuId, Fact, Ns, ObjectInfo, Transfer};

    /// Two sockets of one client to which the same server answers are one; the server's own is
    /// another, and so is one over which another task sends.
    #[test]
    fn sockets_of_one_thread_are_one_mailbox() {
        let sent =
            |task: usize, object| (task, FactKind::Send(Transfer::done(ObjectId(object), 9)));
        let got =
            |task: usize, object| (task, FactKind::Receive(Transfer::done(ObjectId(object), 9)));
        let all = [
            [sent(0, 0), got(1, 0), sent(1, 1), got(0, 1)],
            [sent(0, 0), got(1, 0), sent(1, 2), got(0, 2)],
            [sent(2, 3), sent(1, 3), got(0, 3), got(0, 3)],
            [sent(1, 4), got(0, 4), sent(1, 5), got(0, 5)],
        ];
        let fact = |(task, kind): (usize, FactKind)| Fact {
            at: Ns::ZERO,
            cpu: CpuId(0),
            task: Some(TaskId::from(task)),
            kind,
        };
        use ObjectKind::{Tcp, Udp};
        let objects = [Udp, Udp, Udp, Udp, Tcp, Tcp].map(ObjectInfo::of_kind).to_vec();
        let list = all.concat().into_iter().map(fact).collect();
        let facts = Facts { objects, list };
        assert_eq!(mailboxes(&facts), [0, 1, 1, 3, 4, 5].map(ObjectId));
    }
}
