//! A tournament tree: the smallest of many keys, kept up to date as keys change.

/// Children of a node: with keys of eight bytes a node fills one cache line.
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

/// A tournament tree (R. W. Floyd, Algorithm 113: Treesort, CACM 5(8), 1962) with eight children
/// per node: `nodes[0]` is the root, the leaves hold the keys, and each entry of an inner node is
/// the smallest key below it. A change is carried up until a node's smallest key stays the same.
/// That is mostly the first node: seven of its eight keys are not the smallest.
#[derive(Clone, Debug)]
pub struct TournamentTree<K> {
    nodes: Vec<Node<K>>,
    /// Number of the first node that holds keys.
    first_leaf: usize,
    keys: usize,
    top: K,
}

impl<K: Copy + Ord> TournamentTree<K> {
    /// Returns a tree of `keys` keys, all `never`, which must be the largest key that is ever used.
    pub fn new(keys: usize, never: K) -> TournamentTree<K> {
        let (mut first_leaf, mut leaves) = (0, 1);
        while leaves * WIDE < keys {
            first_leaf += leaves;
            leaves *= WIDE;
        }
        let nodes = first_leaf + keys.div_ceil(WIDE).max(1);
        TournamentTree { nodes: vec![Node([never; WIDE]); nodes], first_leaf, keys, top: never }
    }

    /// Returns the smallest key.
    #[inline]
    pub fn top(&self) -> K {
        self.top
    }

    /// Returns key number `index`.
    #[inline]
    pub fn get(&self, index: usize) -> K {
        self.nodes[self.first_leaf + index / WIDE].0[index % WIDE]
    }

    /// Returns every key, in the order of their numbers.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.nodes[self.first_leaf..].iter().flat_map(|node| &node.0).take(self.keys)
    }

    /// Sets key number `index`, which is the smallest, to the larger `key`. The result is that of
    /// [`set`](Self::set); it saves the comparisons on the way up.
    #[inline(always)]
    pub fn replace_top(&mut self, index: usize, key: K) {
        let (mut number, mut entry, mut least) =
            (self.first_leaf + index / WIDE, index % WIDE, key);
        while let Some(node) = self.nodes.get_mut(number) {
            node.0[entry] = least;
            least = node.least();
            let Some(before) = number.checked_sub(1) else { break };
            (number, entry) = (before / WIDE, before % WIDE);
        }
        self.top = least;
    }

    /// Sets key number `index` to `key`. In the common case neither the old nor the new key is the
    /// smallest of its node, and no other key is read.
    #[inline]
    pub fn set(&mut self, index: usize, key: K) {
        let (mut number, mut entry, mut new) = (self.first_leaf + index / WIDE, index % WIDE, key);
        loop {
            let old = std::mem::replace(&mut self.nodes[number].0[entry], new);
            // The smallest key of the node before this change is in the entry one level up.
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
            let mut tree = TournamentTree::new(keys, u64::MAX);
            let mut plain = vec![u64::MAX; keys];
            for (index, key) in changes {
                let (index, key) = (index % keys, key.unwrap_or(u64::MAX));
                tree.set(index, key);
                plain[index] = key;
                prop_assert_eq!(Some(&tree.top()), plain.iter().min());
                prop_assert_eq!(tree.get(index), key);
                if key == tree.top() && key < u64::MAX {
                    let larger = if key % 2 == 0 { u64::MAX } else { key + 1 };
                    tree.replace_top(index, larger);
                    plain[index] = larger;
                    prop_assert_eq!(Some(&tree.top()), plain.iter().min());
                }
                prop_assert!(tree.keys().eq(&plain));
            }
        }
    }
}
