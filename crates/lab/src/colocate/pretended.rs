//! For tests: goals, and rounds with the values that a test wants.

use super::plan::Goal;
use super::round::Round;
use schedlab_study::gate::Gate;

pub(super) fn goal(text: &str) -> Vec<Goal> {
    vec![Goal(Gate::parse_with(text, Some("latency")).unwrap())]
}

pub(super) fn rounds(values: &[f64]) -> Vec<Round> {
    let round =
        |value: &f64| Round { goals: vec![Some(*value)], lacks: vec![None], ..Round::default() };
    values.iter().map(round).collect()
}
