//! The rounds of a search: how many settings each has, and what it gave.

use super::{FINALISTS, HALVING, TOGETHER, Tuned};
use crate::compare::Point;
use crate::result::Study;

/// A round of the search before the last one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stage {
    pub(super) settings: usize,
    pub(super) seeds: u32,
    /// A part of the time only.
    pub(super) short: bool,
}

/// The rounds that leave [`FINALISTS`] of `count` settings; the first has `with` seeds.
pub(super) fn rounds(count: usize, mut with: u32, seeds: u32, may_be_shorter: bool) -> Vec<Stage> {
    let mut left = count;
    let mut rounds = Vec::new();
    while left > FINALISTS {
        rounds.push(Stage {
            settings: left,
            seeds: with.min(seeds),
            short: may_be_shorter && with == 1,
        });
        left = left.div_ceil(HALVING).max(FINALISTS);
        with *= HALVING as u32;
    }
    rounds
}

/// What is left of the points after the rounds.
pub(super) struct Halved {
    /// `None`: the search was ended.
    pub(super) left: Option<Vec<Point>>,
    /// What was left out for another reason than its numbers.
    pub(super) dropped: Vec<String>,
    pub(super) last: Option<Last>,
}

/// What a round gave.
#[derive(Default)]
pub(super) struct Ran {
    /// `None`: it was ended before anything was finished.
    pub(super) study: Option<Study>,
    /// Of the settings that are kept.
    pub(super) losses: Vec<Vec<f64>>,
    pub(super) kept: Vec<Point>,
    pub(super) dropped: Vec<String>,
}

impl Ran {
    pub(super) fn unfinished(&mut self, settings: usize) {
        if let Some(study) = &mut self.study {
            study.unfinished += settings;
        }
    }

    /// Adds the rows of a comparison, whose unchanged row is that of the others.
    pub(super) fn join(&mut self, study: Study) {
        let Some(whole) = &mut self.study else {
            self.study = Some(study);
            return;
        };
        whole.unfinished += study.unfinished;
        whole.rows.extend(study.rows.into_iter().skip(1));
        whole.notes.extend(study.notes);
    }
}

/// The recommended setting and the one with the largest gain.
pub(super) fn chosen(tuned: &Tuned, points: &[Point]) -> Vec<Point> {
    let mut wanted: Vec<usize> = tuned.recommended.into_iter().chain(tuned.largest_gain).collect();
    wanted.dedup();
    let name = |place: &usize| tuned.settings[*place].setting.as_str();
    let point = |name: &str| points.iter().find(|point| point.variant.name == name).cloned();
    wanted.iter().filter_map(|place| point(name(place))).collect()
}

/// How many runs a round has, with those of the first row.
pub(super) fn runs(settings: usize, seeds: u32) -> usize {
    (settings + settings.div_ceil(TOGETHER)) * seeds as usize
}

/// A round that is over, or as much of it as is.
pub(super) struct Last {
    pub(super) study: Study,
    pub(super) points: Vec<Point>,
    /// How many rounds were before it.
    pub(super) before: usize,
    /// Whether the settings were not chosen by runs with these seeds.
    pub(super) is_fresh: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_leaves_a_third() {
        let of = |count, seeds| {
            rounds(count, 1, seeds, true)
                .iter()
                .map(|r| (r.settings, r.seeds, r.short))
                .collect::<Vec<_>>()
        };
        assert_eq!(of(12, 5), []);
        assert_eq!(of(40, 5), [(40, 1, true), (14, 3, false)]);
        assert_eq!(of(200, 5), [(200, 1, true), (67, 3, false), (23, 5, false)]);
    }
}
