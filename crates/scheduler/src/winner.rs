//! Which of many keys is the smallest, kept up to date as they change: a tournament.

/// A winner tree (Floyd 1962): `nodes[1]` is the root, the keys are the leaves, each node holds the smaller of its
/// children. A change climbs all the way without asking whether anything is still different: the levels are few,
/// and a branch that cannot be predicted costs more than they do.
#[derive(Clone, Debug)]
pub struct Winner<K> {
    nodes: Vec<K>,
    leaves: usize,
    top: K,
}

impl<K: Copy + Ord> Winner<K> {
    /// `keys` keys, all `never`, which must be the largest there is.
    pub fn new(keys: usize, never: K) -> Winner<K> {
        let leaves = keys.next_power_of_two().max(2);
        Winner { nodes: vec![never; 2 * leaves], leaves, top: never }
    }

    /// The smallest key.
    #[inline]
    pub fn top(&self) -> K {
        self.top
    }

    /// Key number `index`.
    #[inline]
    pub fn get(&self, index: usize) -> K {
        self.nodes[self.leaves + index]
    }

    /// Every key, in the order of their numbers; behind them some that were never set.
    pub fn keys(&self) -> &[K] {
        &self.nodes[self.leaves..]
    }

    /// The smallest of all keys but number `index`.
    #[inline]
    pub fn top_without(&self, index: usize, never: K) -> K {
        let nodes = &self.nodes[..];
        let Some(mask) = nodes.len().checked_sub(1) else { return never };
        let (mut node, mut least) = (self.leaves + index, never);
        while node > 1 {
            least = least.min(nodes[(node ^ 1) & mask]);
            node >>= 1;
        }
        least
    }

    /// Key number `index` is now `key`.
    #[inline]
    pub fn set(&mut self, index: usize, key: K) {
        let nodes = &mut self.nodes[..];
        // The number of nodes is a power of two: masking changes nothing but saves checks.
        let Some(mask) = nodes.len().checked_sub(1) else { return };
        let (mut node, mut least) = (self.leaves + index, key);
        nodes[node & mask] = key;
        while node > 1 {
            least = least.min(nodes[(node ^ 1) & mask]);
            node >>= 1;
            nodes[node & mask] = least;
        }
        self.top = least;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_smallest_wins(
            keys in 1usize..700,
            changes in prop::collection::vec((0usize..700, prop::option::of(0u64..1_000)), 1..300),
        ) {
            let mut winner = Winner::new(keys, u64::MAX);
            let mut plain = vec![u64::MAX; keys];
            for (index, key) in changes {
                let (index, key) = (index % keys, key.unwrap_or(u64::MAX));
                winner.set(index, key);
                plain[index] = key;
                prop_assert_eq!(Some(&winner.top()), plain.iter().min());
                prop_assert_eq!(winner.get(index), key);
                plain[index] = u64::MAX;
                prop_assert_eq!(Some(&winner.top_without(index, u64::MAX)), plain.iter().min());
                plain[index] = key;
            }
        }
    }
}
