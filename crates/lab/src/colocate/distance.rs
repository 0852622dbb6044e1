//! How far the server under a setting is from the server alone.
//!
//! A machine does not stay the same for long: a round alone is measured beside each round of a
//! setting, and what is judged is the median of their distances, pair by pair, with its interval
//! ([`median_interval`]).

use super::plan::Goal;
use super::round::Round;
use schedlab_stats::{OrderInterval, median_interval};
use schedlab_study::gate::{Bound, GateOutcome};
use schemars::JsonSchema;
use serde::Serialize;

/// The distance of the rounds of a setting from those of the server alone, for one goal.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct Distance {
    /// The goal as it was given.
    pub goal: String,
    /// Median over the pairs, with its interval: as a part of the value alone (0.1 is 10 % more),
    /// or in the metric's unit.
    pub of: OrderInterval,
    /// Whether it is a part of the value alone.
    pub relative: bool,
    /// Number of pairs.
    pub pairs: usize,
    /// Whether the goal is met; `cannot-say` where the interval holds both.
    pub outcome: GateOutcome,
}

/// Returns the distances of the goals that have one. `rounds` and `alone` are pairs, in their
/// order. `looked` are the distances of an earlier look at fewer of these pairs that did not tell:
/// the error of both looks together is at most the sum of their errors (union bound), which the
/// confidence pays.
pub(super) fn distances(
    goals: &[Goal],
    rounds: &[Round],
    alone: &[Round],
    looked: &[Distance],
) -> Vec<Distance> {
    let of = |(index, goal): (usize, &Goal)| {
        let value = |round: &Round| round.goals.get(index).copied().flatten();
        let pairs = rounds.iter().zip(alone).filter_map(|(a, b)| Some((value(a)?, value(b)?)));
        let found: Vec<(f64, f64)> = pairs.filter_map(|(a, b)| goal.0.distance(a, b)).collect();
        let bound = found.first()?.1;
        let mut of = median_interval(found.iter().map(|pair| pair.0).collect())?;
        let text = goal.0.to_string();
        let earlier = looked.iter().find(|one| one.goal == text);
        of.confidence -= earlier.map_or(0.0, |one| 1.0 - one.of.confidence);
        of.confidence = of.confidence.max(0.0);
        let outcome = match [of.low, of.high].map(|end| goal.0.op.holds(end, bound)) {
            [true, true] => GateOutcome::Met,
            [false, false] => GateOutcome::Not,
            _ => GateOutcome::CannotSay,
        };
        let relative = matches!(goal.0.bound, Bound::Ratio(_));
        Some(Distance { goal: text, of, relative, pairs: found.len(), outcome })
    };
    let against = goals.iter().enumerate().filter(|(_, goal)| goal.is_against_alone());
    against.filter_map(of).collect()
}

/// Returns the outcome of goal `index` for one round, with the last round alone as its pair:
/// `cannot-say` when the distance is as near to the bound as the rounds alone are to each other.
pub(super) fn first_look(goal: &Goal, index: usize, round: &Round, alone: &[Round]) -> GateOutcome {
    let gate = &goal.0;
    let value = |round: &Round| round.goals.get(index).copied().flatten();
    let all: Vec<f64> = alone.iter().filter_map(value).collect();
    let (Some(now), Some(last)) = (value(round), all.last().copied()) else {
        return GateOutcome::CannotSay;
    };
    let Some((found, bound)) = gate.distance(now, last) else { return GateOutcome::CannotSay };
    let noise = all.iter().filter_map(|one| gate.distance(*one, last)).map(|(off, _)| off.abs());
    let noise = noise.fold(0.0, f64::max);
    match [found, found - noise, found + noise].map(|value| gate.op.holds(value, bound)) {
        [_, true, true] => GateOutcome::Met,
        [_, false, false] => GateOutcome::Not,
        _ => GateOutcome::CannotSay,
    }
}

#[cfg(test)]
mod tests {
    use super::super::pretended::{goal, rounds};
    use super::*;

    #[test]
    fn pairs_are_judged_by_their_interval() {
        let goals = goal("p99 < alone + 10%");
        // The machine became twice as slow meanwhile, for both rounds of a pair.
        let alone = rounds(&[100.0, 110.0, 200.0, 210.0, 190.0]);
        let judged = |factors: [f64; 5]| {
            let values: Vec<f64> = alone
                .iter()
                .zip(factors)
                .map(|(round, factor)| round.goals[0].unwrap() * factor)
                .collect();
            distances(&goals, &rounds(&values), &alone, &[]).remove(0)
        };
        let near = judged([1.05, 1.02, 1.07, 0.99, 1.03]);
        assert_eq!((near.outcome, near.pairs), (GateOutcome::Met, 5));
        assert!(
            (near.of.median - 0.03).abs() < 1e-9 && (near.of.high - 0.07).abs() < 1e-9,
            "{near:?}"
        );
        assert!((near.of.confidence - 0.9375).abs() < 1e-9, "all of five: 1 - 2/2^5");
        assert_eq!(judged([1.05, 1.02, 1.17, 0.99, 1.03]).outcome, GateOutcome::CannotSay);
        assert_eq!(judged([1.5, 1.2, 1.7, 1.3, 1.2]).outcome, GateOutcome::Not);
        // Goals of other kinds have no distance, and values that were not seen make no pair.
        assert!(distances(&goal("p99 < 1ms"), &alone, &alone, &[]).is_empty());
        let unseen = Round { goals: vec![None], ..Round::default() };
        assert!(distances(&goals, std::slice::from_ref(&unseen), &alone, &[]).is_empty());
        assert!(distances(&goals, &alone[..1], &[unseen], &[]).is_empty());
    }

    #[test]
    fn a_second_look_costs_confidence() {
        let goals = goal("p99 < alone + 10%");
        let alone = rounds(&[100.0; 10]);
        let values = [105.0, 102.0, 117.0, 99.0, 103.0, 101.0, 104.0, 100.0, 98.0, 102.0];
        let first = distances(&goals, &rounds(&values[..5]), &alone[..5], &[]);
        let second = distances(&goals, &rounds(&values), &alone, &first).remove(0);
        let once = distances(&goals, &rounds(&values), &alone, &[]).remove(0);
        assert_eq!((first[0].outcome, second.outcome), (GateOutcome::CannotSay, GateOutcome::Met));
        // All of five; all of ten but one at each end: 2/2^5 and 2 (1 + 10)/2^10.
        assert!((once.of.confidence - (1.0 - 22.0 / 1024.0)).abs() < 1e-9);
        assert!(
            (second.of.confidence - (once.of.confidence - 2.0 / 32.0)).abs() < 1e-9,
            "{second:?}"
        );
        assert_eq!((second.of.low, second.of.high), (once.of.low, once.of.high));
    }

    #[test]
    fn a_first_look_knows_the_noise() {
        let goals = goal("p99 < alone + 10%");
        let look = |value: f64, alone: &[f64]| {
            first_look(&goals[0], 0, &rounds(&[value])[0], &rounds(alone))
        };
        assert_eq!(look(105.0, &[99.0, 100.0]), GateOutcome::Met);
        assert_eq!(
            look(105.0, &[80.0, 100.0]),
            GateOutcome::CannotSay,
            "rounds alone differ by 20 %"
        );
        assert_eq!(look(115.0, &[80.0, 100.0]), GateOutcome::CannotSay);
        assert_eq!(look(140.0, &[80.0, 100.0]), GateOutcome::Not);
        assert_eq!(look(140.0, &[]), GateOutcome::CannotSay);
        let more = goal("throughput > alone - 5%");
        let look =
            |value: f64| first_look(&more[0], 0, &rounds(&[value])[0], &rounds(&[99.0, 100.0]));
        assert_eq!(
            [look(100.0), look(80.0), look(95.5)],
            [GateOutcome::Met, GateOutcome::Not, GateOutcome::CannotSay]
        );
    }
}
