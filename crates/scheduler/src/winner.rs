//! Which of many keys is the smallest, kept up to date as they change: a tournament.

/// Children of a node: what of them fills a cache line when keys have eight bytes.
const WIDE: usize = 8;

/// The keys of eight leaves, or the smallest key below each of eight nodes.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Node<K>([K; WIDE]);

impl<K: Copy + Ord> Node<K> {
    #[inline(always)]
    fn least(&self) -> K {
        let [a, b, c, d, e, f, g, h] = self.0;
        a.min(b).min(c.min(d)).min(e.min(f).min(g.min(h)))
    }
}

/// A winner tree (Floyd 1962), eight wide: `nodes[0]` is the root, the keys are the leaves, each entry of a node is the
/// smallest below. A change climbs until nothing is different, which mostly is at once: seven of eight keys are not the
/// smallest of their node.
#[derive(Clone, Debug)]
pub struct Winner<K> {
    nodes: Vec<Node<K>>,
    /// Number of the first node that holds keys.
    first_leaf: usize,
    keys: usize,
    top: K,
}

impl<K: Copy + Ord> Winner<K> {
    /// `keys` keys, all `never`, which must be the largest there is.
    pub fn new(keys: usize, never: K) -> Winner<K> {
        let (mut first_leaf, mut leaves) = (0, 1);
        while leaves * WIDE < keys {
            first_leaf += leaves;
            leaves *= WIDE;
        }
        let nodes = first_leaf + keys.div_ceil(WIDE).max(1);
        Winner { nodes: vec![Node([never; WIDE]); nodes], first_leaf, keys, top: never }
    }

    /// The smallest key.
    #[inline]
    pub fn top(&self) -> K {
        self.top
    }

    /// Key number `index`.
    #[inline]
    pub fn get(&self, index: usize) -> K {
        self.nodes[self.first_leaf + index / WIDE].0[index % WIDE]
    }

    /// Every key, in the order of their numbers.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.nodes[self.first_leaf..].iter().flat_map(|node| &node.0).take(self.keys)
    }

    /// Key number `index`, which is the smallest, is now `key`, which is larger. What [`set`](Self::set) does, without asking
    /// on the way whether anything is different.
    #[inline(always)]
    pub fn replace_top(&mut self, index: usize, key: K) {
        let (mut number, mut entry, mut least) = (self.first_leaf + index / WIDE, index % WIDE, key);
        while let Some(node) = self.nodes.get_mut(number) {
            node.0[entry] = least;
            least = node.least();
            let Some(before) = number.checked_sub(1) else { break };
            (number, entry) = (before / WIDE, before % WIDE);
        }
        self.top = least;
    }

    /// Key number `index` is now `key`. Mostly it is neither the smallest of its node nor was the one before: then no other
    /// key is looked at.
    #[inline]
    pub fn set(&mut self, index: usize, key: K) {
        let (mut number, mut entry, mut new) = (self.first_leaf + index / WIDE, index % WIDE, key);
        loop {
            let old = std::mem::replace(&mut self.nodes[number].0[entry], new);
            // What the node came to until now stands one level up.
            let above = number.checked_sub(1).map(|before| (before / WIDE, before % WIDE));
            let least = above.map_or(self.top, |(number, entry)| self.nodes[number].0[entry]);
            if new >= least {
                if old != least {
                    return;
                }
                new = self.nodes[number].least();
                if new == least {
                    return;
                }
            }
            let Some(above) = above else { break };
            (number, entry) = above;
        }
        self.top = new;
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
                if key == winner.top() && key < u64::MAX {
                    let larger = if key % 2 == 0 { u64::MAX } else { key + 1 };
                    winner.replace_top(index, larger);
                    plain[index] = larger;
                    prop_assert_eq!(Some(&winner.top()), plain.iter().min());
                }
                prop_assert!(winner.keys().eq(&plain));
            }
        }
    }
}
