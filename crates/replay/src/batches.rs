//! Datagrams that a thread took at once, as recvmmsg and loops over recvfrom do, and answered one
//! after the other behind that. How many there were is no property of the thread: it follows from
//! how long it waited for a CPU. So each answer is put behind its message here, and the next
//! message is taken then, if it is there. Like a loop with many connections, the thread acts on
//! messages in the order in which it read them.

use crate::executors::Deed;
use crate::facts::Kind;
use schedlab_model::ObjectId;

/// Returns the operations of one thread with the answer to each datagram directly behind it, where
/// it answered as many as it had taken.
pub(crate) fn answered_one_by_one(
    deeds: Vec<Deed>,
    datagrams: &dyn Fn(ObjectId) -> bool,
) -> Vec<Deed> {
    let mut all = Vec::with_capacity(deeds.len());
    let mut rest = &deeds[..];
    while let Some((first, behind)) = rest.split_first() {
        let taken = match first.operation.kind {
            Kind::Receive(object, _) if datagrams(object) => batch(rest, object, datagrams),
            _ => None,
        };
        match taken {
            Some(batch) => {
                rest = &rest[batch.length..];
                for (received, sent) in batch.received.iter().zip(&batch.sent) {
                    all.extend([*received, *sent]);
                }
                all.extend(batch.others);
            }
            // Nor are the others that it took with the first one.
            None => {
                let kind = first.operation.kind;
                let with = |deed: &&Deed| match (kind, deed.operation.kind) {
                    (Kind::Receive(one, _), Kind::Receive(other, _)) => one == other,
                    _ => false,
                };
                let taken = behind.iter().take_while(with).count();
                all.push(*first);
                all.extend_from_slice(&behind[..taken]);
                rest = &behind[taken..];
            }
        }
    }
    all
}

/// What a thread took at once, and how it answered.
#[derive(Default)]
struct Batch {
    received: Vec<Deed>,
    sent: Vec<Deed>,
    /// What it did between: looks that found nothing more, and what others do not see.
    others: Vec<Deed>,
    /// So many operations in all.
    length: usize,
}

/// Returns the batch with which the operations begin; `None`: not as many answers as messages.
fn batch(deeds: &[Deed], object: ObjectId, datagrams: &dyn Fn(ObjectId) -> bool) -> Option<Batch> {
    let mut batch = Batch::default();
    for deed in deeds {
        match deed.operation.kind {
            // Later ones are taken in the next look.
            Kind::Receive(from, _) if from == object && batch.sent.is_empty() => {
                if deed.operation.slept.is_some() && !batch.received.is_empty() {
                    break;
                }
                batch.received.push(*deed);
            }
            Kind::Send(to, _) if datagrams(to) && batch.sent.len() < batch.received.len() => {
                batch.sent.push(*deed);
            }
            // A wakeup without a fact is one of a thread of the kernel.
            Kind::Nothing(_) | Kind::Silent | Kind::Wake(_)
                if batch.sent.len() < batch.received.len() =>
            {
                batch.others.push(*deed);
            }
            _ => break,
        }
        batch.length += 1;
    }
    (batch.sent.len() == batch.received.len()).then_some(batch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Operation;
    use schedlab_model::{Ns, TaskId};

    const IN: ObjectId = ObjectId(0);
    const OUT: ObjectId = ObjectId(1);
    const LOOK: Kind = Kind::Select { ready: 1, timed_out: false };

    fn of(kinds: &[Kind]) -> Vec<Deed> {
        let deed = |&kind: &Kind| Deed {
            thread: TaskId::from(0),
            operation: Operation {
                at: Ns::ZERO,
                began: Ns::ZERO,
                before: Ns::ZERO,
                after: Ns::ZERO,
                slept: None,
                woke: None,
                kind,
            },
        };
        kinds.iter().map(deed).collect()
    }

    fn kinds(deeds: &[Deed]) -> Vec<Kind> {
        deeds.iter().map(|deed| deed.operation.kind).collect()
    }

    /// Three datagrams at once, with a look that finds no fourth, and their answers: each answer
    /// comes behind its message, and the look behind all of them.
    #[test]
    fn answers_stand_behind_their_datagrams() {
        use Kind::{Nothing, Receive, Send, Silent};
        let took = [Receive(IN, 31), Receive(IN, 32), Receive(IN, 33), Nothing(IN), Silent];
        let wakes = Kind::Wake(TaskId::from(1));
        let answered = [Send(OUT, 81), wakes, Send(OUT, 82), Send(OUT, 83), LOOK, Receive(IN, 34)];
        let all = of(&[&[LOOK][..], &took, &answered, &[Send(OUT, 84)]].concat());
        let apart = [
            LOOK,
            Receive(IN, 31),
            Send(OUT, 81),
            Receive(IN, 32),
            Send(OUT, 82),
            Receive(IN, 33),
            Send(OUT, 83),
            Nothing(IN),
            Silent,
            wakes,
            LOOK,
            Receive(IN, 34),
            Send(OUT, 84),
        ];
        assert_eq!(kinds(&answered_one_by_one(all.clone(), &|_| true)), apart);
        let streams = answered_one_by_one(all.clone(), &|_| false);
        assert_eq!(kinds(&streams), kinds(&all), "bytes of a stream may be one message");
    }

    /// What has another number of answers is left as it was, and nothing is lost of it.
    #[test]
    fn what_is_not_answered_one_by_one_keeps_its_order() {
        use Kind::{Nothing, Receive, Send};
        let two = of(&[Receive(IN, 31), Receive(IN, 32), Nothing(IN), Send(OUT, 81), LOOK]);
        assert_eq!(kinds(&answered_one_by_one(two.clone(), &|_| true)), kinds(&two));
        let none = of(&[Receive(IN, 31), Nothing(IN)]);
        assert_eq!(kinds(&answered_one_by_one(none.clone(), &|_| true)), kinds(&none));
    }
}
