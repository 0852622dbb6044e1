//! Whether rounds meet the goals.

use super::distance::first_look;
use super::error::ColocateError;
use super::plan::Goal;
use super::round::Round;
use schedlab_stats::Estimate;
use schedlab_study::gate::{Against, Evidence, GateOutcome};

/// Pairs of rounds that must say that a goal is missed before a setting is given up. In a round of
/// a second a p99 of some thousand requests differs by a tenth from the next one (measured).
const LOOKS: usize = 3;
/// A setting under which the server is worse than alone by this factor is given up after one pair
/// (chosen).
const FAR: f64 = 2.0;

/// Returns the worse of two outcomes: missed, then unknown, then met.
pub(super) fn worse(one: GateOutcome, other: GateOutcome) -> GateOutcome {
    match (one, other) {
        (GateOutcome::Not, _) | (_, GateOutcome::Not) => GateOutcome::Not,
        (GateOutcome::CannotSay, _) | (_, GateOutcome::CannotSay) => GateOutcome::CannotSay,
        _ => GateOutcome::Met,
    }
}

/// Returns whether the medians of the goals' values over these rounds meet all goals. Goals against
/// the server alone count only where `alone` has rounds.
pub(super) fn judge(
    goals: &[Goal],
    rounds: &[Round],
    before: &[Round],
    alone: &[Round],
) -> GateOutcome {
    let mut all = GateOutcome::Met;
    for (index, goal) in goals.iter().enumerate() {
        let median = |rounds: &[Round]| {
            let values =
                rounds.iter().filter_map(|round| round.goals.get(index).copied().flatten());
            Estimate::from_values(values.collect()).map(|estimate| estimate.median)
        };
        let lacks = rounds.iter().find_map(|round| round.lacks_of_goal(index));
        let than = match goal.0.against {
            Against::Before => before,
            Against::Alone if alone.is_empty() && lacks.is_none() => continue,
            Against::Alone => alone,
        };
        let evidence =
            Evidence { before: median(than), after: median(rounds), told_apart: true, lacks };
        all = worse(all, goal.0.judge(&evidence));
    }
    all
}

/// Returns the outcome of one round, with the last round alone as its pair.
fn judge_pair(goals: &[Goal], round: &Round, before: &[Round], alone: &[Round]) -> GateOutcome {
    let mut all = judge(goals, std::slice::from_ref(round), before, &[]);
    for (index, goal) in goals.iter().enumerate().filter(|(_, goal)| goal.is_against_alone()) {
        all = worse(all, first_look(goal, index, round, alone));
    }
    all
}

/// Returns the last round that was measured, and the outcome of a setting's first rounds. The first
/// of them is `round`, with the last round alone as its pair. A setting whose pair misses the
/// goals, but not by far, gets more of them from `pair`; it is given up when [`LOOKS`] pairs agree,
/// and cannot be judged yet where they do not.
pub(super) fn judge_first_pairs(
    goals: &[Goal],
    mut round: Round,
    before: &[Round],
    alone: &mut Vec<Round>,
    pair: &mut dyn FnMut() -> Result<(Round, Round), ColocateError>,
) -> Result<(Round, GateOutcome), ColocateError> {
    let outcome = judge_pair(goals, &round, before, alone);
    for _ in 1..LOOKS {
        if outcome != GateOutcome::Not || !is_near(goals, &round, before, alone) {
            return Ok((round, outcome));
        }
        let (next, beside) = pair()?;
        alone.push(beside);
        round = next;
        if judge_pair(goals, &round, before, alone) != GateOutcome::Not {
            return Ok((round, GateOutcome::CannotSay));
        }
    }
    Ok((round, outcome))
}

/// Returns whether only goals against the server alone are missed, and all of them by less than
/// [`FAR`].
fn is_near(goals: &[Goal], round: &Round, before: &[Round], alone: &[Round]) -> bool {
    let value = |round: &Round, index: usize| round.goals.get(index).copied().flatten();
    let far = |index: usize| {
        let (Some(now), Some(last)) =
            (value(round, index), alone.last().and_then(|one| value(one, index)))
        else {
            return true;
        };
        now > last * FAR || last > now * FAR
    };
    let against = (0..goals.len()).filter(|index| goals[*index].is_against_alone());
    let mut missed = against
        .filter(|index| first_look(&goals[*index], *index, round, alone) == GateOutcome::Not);
    judge(goals, std::slice::from_ref(round), before, &[]) == GateOutcome::Met && !missed.any(far)
}

#[cfg(test)]
mod tests {
    use super::super::pretended::{goal, rounds};
    use super::*;

    #[test]
    fn a_goal_is_met_when_its_condition_is_true() {
        let goals = goal("p99 < 1ms");
        assert_eq!(judge(&goals, &rounds(&[2e5, 3e5, 9e6]), &[], &[]), GateOutcome::Met);
        assert_eq!(judge(&goals, &rounds(&[2e5, 3e6, 9e6]), &[], &[]), GateOutcome::Not);
        let half = goal("p99 < -50%");
        assert_eq!(judge(&half, &rounds(&[4e5]), &rounds(&[1e6]), &[]), GateOutcome::Met);
        assert_eq!(judge(&half, &rounds(&[6e5]), &rounds(&[1e6]), &[]), GateOutcome::Not);
        assert_eq!(judge(&half, &rounds(&[6e5]), &[], &[]), GateOutcome::CannotSay);
    }

    #[test]
    fn too_few_values_cannot_say() {
        let few = Round {
            goals: vec![Some(1.0)],
            lacks: vec![Some("few".to_owned())],
            ..Round::default()
        };
        assert_eq!(judge(&goal("p99 < 1ms"), &[few], &[], &[]), GateOutcome::CannotSay);
    }

    /// Returns how many of the further pairs were asked for, and the outcome.
    fn looked(goals: &[Goal], first: f64, pairs: &[(f64, f64)]) -> (usize, GateOutcome) {
        let mut alone = rounds(&[99.0, 100.0]);
        let mut left = pairs.iter();
        let mut pair = || -> Result<(Round, Round), ColocateError> {
            let (now, beside) = left.next().expect("no more pairs are asked for");
            Ok((rounds(&[*now]).remove(0), rounds(&[*beside]).remove(0)))
        };
        let first = rounds(&[first]).remove(0);
        let (_, outcome) = judge_first_pairs(goals, first, &[], &mut alone, &mut pair).unwrap();
        assert_eq!(alone.len(), 2 + pairs.len() - left.len());
        (pairs.len() - left.len(), outcome)
    }

    #[test]
    fn one_bad_pair_does_not_give_up_a_setting_that_is_near() {
        let goals = goal("p99 < alone + 10%");
        assert_eq!(looked(&goals, 125.0, &[(104.0, 100.0)]), (1, GateOutcome::CannotSay));
        assert_eq!(
            looked(&goals, 125.0, &[(120.0, 100.0), (104.0, 100.0)]),
            (2, GateOutcome::CannotSay)
        );
        assert_eq!(looked(&goals, 125.0, &[(120.0, 100.0), (130.0, 100.0)]), (2, GateOutcome::Not));
        // Missed by far, or met at once: one pair is enough.
        assert_eq!(looked(&goals, 205.0, &[]), (0, GateOutcome::Not));
        assert_eq!(looked(&goals, 105.0, &[]), (0, GateOutcome::Met));
        // Another goal, which no further pair changes, is missed.
        let both = [goals, goal("p99 < 50ns")].concat();
        let mut alone = rounds(&[99.0, 100.0]);
        let round =
            Round { goals: vec![Some(125.0); 2], lacks: vec![None, None], ..Round::default() };
        let mut never =
            || -> Result<(Round, Round), ColocateError> { panic!("nothing more is asked for") };
        assert_eq!(
            judge_first_pairs(&both, round, &[], &mut alone, &mut never).unwrap().1,
            GateOutcome::Not
        );
    }
}
