//! One next-event slot per entity under a winner tree: moving or cancelling an event is one store and a
//! climb; nothing is queued, nothing is left behind, memory never grows.

/// "Never".
pub(crate) const NEVER: u64 = u64::MAX;

/// Slots of one CPU; they share a leaf of the tree.
pub(crate) const PER_CPU: usize = 4;

/// All slots: `PER_CPU` of each CPU, then the others one by one. The key is the time; inside an instant the
/// arming sequence decides.
#[derive(Debug)]
pub(crate) struct Slots {
    /// `tree[1]` is the root, the leaves start at `leaves`; each node holds the smaller of its children: the
    /// time, and below it in `bits` bits the number of the leaf. A leaf is brought up to date when the minimum is asked for, once for all that happened to it.
    tree: Vec<u64>,
    leaves: usize,
    bits: u32,
    /// The largest time that fits beside the number of a leaf.
    latest: u64,
    cpus: usize,
    at: Vec<u64>,
    seq: Vec<u64>,
    next_seq: u64,
    /// Leaves to bring up to date.
    stale: Vec<u32>,
    is_stale: Vec<bool>,
    /// The instant that is being served, and whether something was armed for it meanwhile.
    now: u64,
    more: bool,
}

/// Sequence numbers below this belong to tick slots (the CPU's number), which go before everything else.
const FIRST_SEQ: u64 = 1 << 16;

impl Slots {
    /// Slots of `cpus` CPUs and `others` besides.
    pub(crate) fn new(cpus: usize, others: usize) -> Slots {
        let leaves = (cpus + others).next_power_of_two().max(2);
        let slots = PER_CPU * cpus + others;
        Slots {
            tree: vec![NEVER; 2 * leaves],
            leaves,
            bits: leaves.ilog2(),
            latest: (NEVER >> leaves.ilog2()) - 1,
            cpus,
            at: vec![NEVER; slots],
            seq: vec![0; slots],
            next_seq: FIRST_SEQ,
            stale: Vec::with_capacity(leaves),
            is_stale: vec![false; leaves],
            now: 0,
            more: true,
        }
    }

    /// The earliest time in any slot.
    #[inline]
    pub(crate) fn min(&mut self) -> u64 {
        while let Some(leaf) = self.stale.pop() {
            self.climb(leaf as usize);
        }
        self.tree[1] >> self.bits
    }

    /// Something was armed for the instant being served.
    #[inline]
    pub(crate) fn more(&self) -> bool {
        self.more
    }

    /// The end of time: later times count as never. 2.4 years with 200 slots.
    pub(crate) fn latest(&self) -> u64 {
        self.latest
    }

    /// When `slot` fires.
    #[inline]
    pub(crate) fn at(&self, slot: usize) -> u64 {
        self.at[slot]
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
        if self.at[slot] != NEVER {
            self.store(slot, NEVER);
        }
    }

    #[inline]
    fn store(&mut self, slot: usize, at: u64) {
        self.at[slot] = at;
        self.more |= at == self.now;
        let leaf = if slot < PER_CPU * self.cpus { slot / PER_CPU } else { slot - (PER_CPU - 1) * self.cpus };
        self.touch(leaf);
    }

    #[inline]
    fn touch(&mut self, leaf: usize) {
        if !self.is_stale[leaf] {
            self.is_stale[leaf] = true;
            self.stale.push(leaf as u32);
        }
    }

    /// The earliest time of a leaf.
    #[inline]
    fn earliest(&self, leaf: usize) -> u64 {
        if leaf >= self.cpus {
            return self.at[leaf + (PER_CPU - 1) * self.cpus];
        }
        match self.at[leaf * PER_CPU..] {
            [a, b, c, d, ..] => a.min(b).min(c.min(d)),
            _ => NEVER,
        }
    }

    /// Every node above holds the smaller of its children before and after; from the first one that does not
    /// change, nothing above does.
    #[inline]
    fn climb(&mut self, leaf: usize) {
        self.is_stale[leaf] = false;
        let at = self.earliest(leaf);
        let mut least = if at > self.latest { NEVER } else { at << self.bits | leaf as u64 };
        let mut node = self.leaves + leaf;
        let tree = &mut self.tree[..];
        let Some(mask) = tree.len().checked_sub(1) else { return };
        tree[node & mask] = least;
        while node > 1 {
            least = least.min(tree[(node ^ 1) & mask]);
            node >>= 1;
            let parent = &mut tree[node & mask];
            if *parent == least {
                break;
            }
            *parent = least;
        }
    }

    /// Takes out every slot that fires at `at` (which is the minimum), in the order of the instant.
    #[inline]
    pub(crate) fn collect(&mut self, at: u64, into: &mut Vec<(u64, u32)>) {
        self.now = at;
        self.more = false;
        let mut first = self.min();
        while first == at {
            let leaf = (self.tree[1] & ((1 << self.bits) - 1)) as usize;
            // The runner-up is on the way from the winner's leaf to the root.
            let mut node = self.leaves + leaf;
            let mut second = NEVER;
            let tree = &self.tree[..];
            let mask = tree.len().saturating_sub(1);
            while node > 1 {
                second = second.min(tree[(node ^ 1) & mask]);
                node >>= 1;
            }
            self.take(leaf, at, into);
            if second >> self.bits != at {
                break;
            }
            first = self.min();
        }
        if into.len() > 1 {
            into.sort_unstable();
        }
    }

    #[inline]
    fn take(&mut self, leaf: usize, at: u64, into: &mut Vec<(u64, u32)>) {
        self.touch(leaf);
        if leaf >= self.cpus {
            let slot = leaf + (PER_CPU - 1) * self.cpus;
            self.at[slot] = NEVER;
            into.push((self.seq[slot], slot as u32));
            return;
        }
        let first = leaf * PER_CPU;
        let times = &mut self.at[first..first + PER_CPU];
        let seqs = &self.seq[first..first + PER_CPU];
        for (i, (time, seq)) in times.iter_mut().zip(seqs).enumerate() {
            if *time == at {
                *time = NEVER;
                into.push((*seq, (first + i) as u32));
            }
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
        fn same_order_as_a_search(cpus in 0usize..4, more in 1usize..40, ops in prop::collection::vec((0usize..40, 0u64..50, 0u8..8), 1..200)) {
            let count = PER_CPU * cpus + more;
            let mut slots = Slots::new(cpus, count - PER_CPU * cpus);
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
            while slots.min() <= slots.latest() {
                batch.clear();
                let at = slots.min();
                slots.collect(at, &mut batch);
                got.extend(batch.iter().map(|b| b.1 as usize));
            }
            prop_assert_eq!(got, expected.iter().map(|e| e.2).collect::<Vec<_>>());
        }
    }
}
