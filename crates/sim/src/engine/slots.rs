//! One next-event slot per entity under a winner tree: moving or cancelling an event is one store and a
//! climb; nothing is queued, nothing is left behind, memory never grows.

/// "Never".
pub(crate) const NEVER: u64 = u64::MAX;

/// All slots. The key is the time; inside an instant the arming sequence decides.
#[derive(Debug)]
pub(crate) struct Slots {
    /// `tree[1]` is the root, the leaves start at `leaves`; each node holds the smaller of its children.
    tree: Vec<u64>,
    seq: Vec<u64>,
    leaves: usize,
    next_seq: u64,
}

/// Sequence numbers below this belong to tick slots (the CPU's number), which go before everything else.
const FIRST_SEQ: u64 = 1 << 16;

impl Slots {
    pub(crate) fn new(count: usize) -> Slots {
        let leaves = count.next_power_of_two().max(2);
        Slots { tree: vec![NEVER; 2 * leaves], seq: vec![0; leaves], leaves, next_seq: FIRST_SEQ }
    }

    /// The earliest time in any slot.
    #[inline]
    pub(crate) fn min(&self) -> u64 {
        self.tree[1]
    }

    /// When `slot` fires.
    #[inline]
    pub(crate) fn at(&self, slot: usize) -> u64 {
        self.tree[self.leaves + slot]
    }

    /// Fires `slot` at `at`, after everything of that instant that was armed before.
    #[inline]
    pub(crate) fn arm(&mut self, slot: usize, at: u64) {
        self.seq[slot] = self.next_seq;
        self.next_seq += 1;
        self.store(slot, at);
    }

    /// Fires the tick slot of CPU number `cpu` at `at`, before everything else of that instant.
    #[inline]
    pub(crate) fn arm_tick(&mut self, slot: usize, cpu: usize, at: u64) {
        self.seq[slot] = cpu as u64;
        self.store(slot, at);
    }

    /// Does not fire `slot`, not even when it was collected already.
    #[inline]
    pub(crate) fn disarm(&mut self, slot: usize) {
        self.seq[slot] = NEVER;
        if self.at(slot) != NEVER {
            self.store(slot, NEVER);
        }
    }

    #[inline]
    fn store(&mut self, slot: usize, at: u64) {
        let mut node = self.leaves + slot;
        self.tree[node] = at;
        while node > 1 {
            let smaller = self.tree[node].min(self.tree[node ^ 1]);
            node >>= 1;
            if self.tree[node] == smaller {
                break;
            }
            self.tree[node] = smaller;
        }
    }

    /// Takes out every slot that fires at `at` (which is the minimum), in the order of the instant.
    #[inline]
    pub(crate) fn collect(&mut self, at: u64, into: &mut Vec<(u64, u32)>) {
        while self.tree[1] == at {
            let mut node = 1;
            while node < self.leaves {
                node *= 2;
                node += usize::from(self.tree[node] != at);
            }
            let slot = node - self.leaves;
            into.push((self.seq[slot], slot as u32));
            self.store(slot, NEVER);
        }
        if into.len() > 1 {
            into.sort_unstable();
        }
    }

    /// Whether a collected slot is still to be served: it was not armed again or disarmed since.
    #[inline]
    pub(crate) fn is_current(&self, seq: u64, slot: usize) -> bool {
        seq < FIRST_SEQ || self.seq[slot] == seq
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The tree gives the same order as a plain search over (time, sequence).
        #[test]
        fn same_order_as_a_search(count in 1usize..40, ops in prop::collection::vec((0usize..40, 0u64..50, 0u8..8), 1..200)) {
            let mut slots = Slots::new(count);
            let mut plain: Vec<Option<(u64, u64)>> = vec![None; count];
            let mut seq = 0;
            for (slot, at, what) in ops {
                let slot = slot % count;
                if what == 0 {
                    slots.disarm(slot);
                    plain[slot] = None;
                } else {
                    slots.arm(slot, at);
                    seq += 1;
                    plain[slot] = Some((at, seq));
                }
            }
            let mut expected: Vec<(u64, u64, usize)> =
                plain.iter().enumerate().filter_map(|(i, p)| p.map(|(at, seq)| (at, seq, i))).collect();
            expected.sort_unstable();
            let mut got = Vec::new();
            let mut batch = Vec::new();
            while slots.min() != NEVER {
                batch.clear();
                slots.collect(slots.min(), &mut batch);
                got.extend(batch.iter().map(|b| b.1 as usize));
            }
            prop_assert_eq!(got, expected.iter().map(|e| e.2).collect::<Vec<_>>());
        }
    }
}
