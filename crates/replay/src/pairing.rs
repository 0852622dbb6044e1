//! Which message an event loop answers with what it sends. A loop that serves others by asking a
//! third (a proxy, a server with a database) reads from one connection and sends over another. It
//! acts on messages in the order in which it read them.

use schedlab_model::ObjectId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The messages of a loop, each named by the object that was read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pairing {
    /// Read and not acted on, oldest first.
    open: VecDeque<ObjectId>,
    /// By connection over which something was sent for another: that one, and in which look.
    causes: BTreeMap<ObjectId, (ObjectId, u64)>,
    /// Read at all.
    seen: BTreeSet<ObjectId>,
}

impl Pairing {
    /// A message was read.
    pub(crate) fn read(&mut self, object: ObjectId) {
        self.seen.insert(object);
        if !self.open.contains(&object) {
            self.open.push_back(object);
        }
        // What is sent for it is no more of the message before.
        self.causes.retain(|_, (cause, _)| *cause != object);
    }

    /// Returns the oldest message that is not acted on, if nothing was read from this connection
    /// yet: what is sent over it first was not caused by what came from it.
    pub(crate) fn before_first(&self, connection: ObjectId) -> Option<ObjectId> {
        self.open.front().copied().filter(|_| !self.seen.contains(&connection))
    }

    /// The loop sends over `connection` what another one caused. Returns which; `None`: it has
    /// acted on all that it read.
    pub(crate) fn cause(&mut self, connection: ObjectId, look: u64) -> Option<ObjectId> {
        // The rest of a message that was sent in parts.
        if let Some((cause, of)) = self.causes.get(&connection)
            && *of == look
        {
            return Some(*cause);
        }
        let oldest = self.open.iter().position(|object| *object != connection)?;
        let cause = self.open.remove(oldest)?;
        if oldest > 0 {
            // What was read from it before that has its answer.
            self.open.pop_front();
        }
        self.causes.insert(connection, (cause, look));
        Some(cause)
    }

    /// The loop sends over the connection: what was read from it is acted on.
    pub(crate) fn answered(&mut self, connection: ObjectId) {
        self.open.retain(|object| *object != connection);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two clients ask, the loop asks two servers; two answers come, and one client asks again.
    #[test]
    fn messages_are_acted_on_in_their_order() {
        let [a, b, x, y] = [0, 1, 2, 3].map(ObjectId);
        let mut pairing = Pairing::default();
        pairing.read(a);
        pairing.read(b);
        assert_eq!([x, y].map(|server| pairing.cause(server, 1)), [Some(a), Some(b)]);
        for object in [x, y, a] {
            pairing.read(object);
        }
        // The answer to the first client is sent in two parts.
        let sent = [a, a, b, x].map(|connection| pairing.cause(connection, 2));
        assert_eq!(sent, [Some(x), Some(x), Some(y), Some(a)]);
        assert_eq!(pairing.cause(y, 3), None, "all that was read is acted on");
    }

    #[test]
    fn the_first_message_over_a_connection_is_not_caused_by_it() {
        let [a, x] = [0, 1].map(ObjectId);
        let mut pairing = Pairing::default();
        assert_eq!(pairing.before_first(x), None);
        pairing.read(a);
        assert_eq!(pairing.before_first(x), Some(a));
        pairing.read(x);
        assert_eq!(pairing.before_first(x), None);
    }

    #[test]
    fn what_is_answered_directly_causes_nothing_else() {
        let [a, b, x] = [0, 1, 2].map(ObjectId);
        let mut pairing = Pairing::default();
        pairing.read(a);
        pairing.read(b);
        pairing.answered(a);
        assert_eq!(pairing.cause(x, 1), Some(b));
    }
}
