//! Which settings go on to the next round: by fronts of those that none of the others is better
//! than in everything, and within a front those that lie apart (Deb et al. 2002, NSGA-II).

use std::cmp::Ordering;

/// Whether `a` is nowhere worse than `b`, and somewhere better. Losses: smaller is better.
fn dominates(a: &[f64], b: &[f64]) -> bool {
    let pairs = || a.iter().zip(b);
    pairs().all(|(a, b)| a <= b) && pairs().any(|(a, b)| a < b)
}

/// Returns the places of those that none of the others dominates, in their order.
pub(super) fn front(losses: &[Vec<f64>]) -> Vec<usize> {
    let free = |&index: &usize| !losses.iter().any(|other| dominates(other, &losses[index]));
    (0..losses.len()).filter(free).collect()
}

/// Returns the places of the `count` best, in their order.
pub(super) fn best(losses: &[Vec<f64>], count: usize) -> Vec<usize> {
    let mut left: Vec<usize> = (0..losses.len()).collect();
    let mut chosen = Vec::new();
    while chosen.len() < count && !left.is_empty() {
        let own: Vec<Vec<f64>> = left.iter().map(|&index| losses[index].clone()).collect();
        let of_front: Vec<usize> = front(&own).into_iter().map(|place| left[place]).collect();
        left.retain(|index| !of_front.contains(index));
        let room = count - chosen.len();
        match of_front.len() <= room {
            true => chosen.extend(of_front),
            false => chosen.extend(apart(losses, of_front, room)),
        }
    }
    chosen.sort_unstable();
    chosen
}

/// The `room` of a front that lie farthest from their neighbours.
fn apart(losses: &[Vec<f64>], front: Vec<usize>, room: usize) -> Vec<usize> {
    let mut distance = vec![0.0_f64; front.len()];
    let axes = losses[front[0]].len();
    (0..axes).for_each(|axis| {
        let values: Vec<f64> = front.iter().map(|&index| losses[index][axis]).collect();
        add_distances(&values, &mut distance);
    });
    let mut order: Vec<usize> = (0..front.len()).collect();
    order.sort_by(|a, b| match distance[*b].total_cmp(&distance[*a]) {
        Ordering::Equal => a.cmp(b),
        other => other,
    });
    order.into_iter().take(room).map(|place| front[place]).collect()
}

/// Adds how far each value is from its neighbours, as a part of the whole; the ends are infinitely
/// far.
fn add_distances(values: &[f64], distance: &mut [f64]) {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]).then(a.cmp(&b)));
    let (Some(&first), Some(&last)) = (order.first(), order.last()) else { return };
    let whole = values[last] - values[first];
    if whole.is_nan() || whole <= 0.0 {
        return;
    }
    distance[first] = f64::INFINITY;
    distance[last] = f64::INFINITY;
    for three in order.windows(3) {
        let part = (values[three[2]] - values[three[0]]) / whole;
        distance[three[1]] += if part.is_nan() { 0.0 } else { part };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_ends_and_what_lies_apart_stay() {
        let losses: Vec<Vec<f64>> =
            [[0.0, 9.0], [1.0, 5.0], [1.1, 4.9], [5.0, 1.0], [9.0, 0.0], [9.0, 9.0]]
                .map(|pair| pair.to_vec())
                .to_vec();
        assert_eq!(front(&losses), [0, 1, 2, 3, 4]);
        assert_eq!(best(&losses, 3), [0, 3, 4]);
        assert_eq!(best(&losses, 6).len(), 6);
    }

    #[test]
    fn equal_ones_do_not_crowd_out_others() {
        let mut losses = vec![vec![1.0, 1.0]; 20];
        losses.push(vec![0.0, 2.0]);
        assert!(best(&losses, 3).contains(&20));
    }

    proptest! {
        /// Nothing that is left out dominates what is taken.
        #[test]
        fn nothing_better_is_left_out(values in proptest::collection::vec((0u8..9, 0u8..9), 1..40), count in 1usize..20) {
            let losses: Vec<Vec<f64>> = values.iter().map(|(a, b)| vec![f64::from(*a), f64::from(*b)]).collect();
            let taken = best(&losses, count);
            prop_assert_eq!(taken.len(), count.min(losses.len()));
            for out in (0..losses.len()).filter(|index| !taken.contains(index)) {
                for one in &taken {
                    prop_assert!(!dominates(&losses[out], &losses[*one]));
                }
            }
        }
    }
}
