//! A search whose points come from outside: that of the Python package, which asks an optimizer. It
//! may have any number of dimensions.

use super::answer::losses;
use super::space::{Dimension, compose};
use super::{
    Begun, HALVING, HeldOut, Running, Stage, TOGETHER, Target, TuneOptions, Tuned, Watch, by_name,
    check_names, rank, read_space, rounds,
};
use crate::StudyError;
use crate::compare::Point;
use schedlab_scheduler::SchedulerSpec;
use std::collections::BTreeSet;

/// A search that is told which points to try.
#[derive(Debug)]
pub struct Explorer<'a> {
    input: Target<'a>,
    options: &'a TuneOptions,
    base: SchedulerSpec,
    space: Vec<Dimension>,
    first: u64,
}

impl<'a> Explorer<'a> {
    /// Reads the goal and the space.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn new(input: Target<'a>, options: &'a TuneOptions) -> Result<Explorer<'a>, StudyError> {
        let base = input.base()?;
        check_names(input, options)?;
        let space = read_space(input, options, &base)?;
        let first = options.seed.unwrap_or_else(|| input.seed());
        Ok(Explorer { input, options, base, space, first })
    }

    /// The points of these values, one for each dimension.
    fn points(&self, values: &[Vec<String>]) -> Result<Vec<Point>, StudyError> {
        let point = |values: &Vec<String>| compose(&self.space, values, &self.base);
        values.iter().map(point).collect::<Result<_, _>>().map_err(StudyError::Option)
    }

    /// Returns the losses of each point with one seed: the goal and what is to be kept, smaller is
    /// better. `None`: it is no setting of this machine, or it was refused. The same for a point
    /// whatever the others are.
    ///
    /// # Errors
    /// A point that cannot be run.
    pub fn losses(&self, values: &[Vec<String>]) -> Result<Vec<Option<Vec<f64>>>, StudyError> {
        let points = self.points(values)?;
        let mut all = Vec::new();
        let mut run = Running::new(self.input, self.options, &self.base, &|_| {});
        for chunk in points.chunks(TOGETHER) {
            // A row has a name of its own.
            let mut seen = BTreeSet::new();
            let unique: Vec<Point> = chunk
                .iter()
                .filter(|point| seen.insert(point.variant.name.as_str()))
                .cloned()
                .collect();
            let study = run.study(self.input, &unique, self.first, 1, self.options.duration)?;
            let rows = by_name(&study);
            let of = |point: &Point| {
                let row = rows.get(point.variant.name.as_str())?;
                let is_setting = row.bound.is_none() && row.load.is_none();
                is_setting.then(|| losses(self.options, &study.rows[0], row))
            };
            all.extend(chunk.iter().map(of));
        }
        Ok(all)
    }

    /// Makes the answer from points whose [`losses`](Explorer::losses) are known.
    ///
    /// # Errors
    /// As [`tune`](super::tune).
    pub fn finish(
        &self,
        values: &[Vec<String>],
        known: &[Option<Vec<f64>>],
        how: &str,
        held_out: &[HeldOut<'_>],
        watch: Watch<'_>,
    ) -> Result<Tuned, StudyError> {
        let mut seen = BTreeSet::new();
        let all = self.points(values)?.into_iter().zip(known);
        let (points, known): (Vec<Point>, Vec<Vec<f64>>) = all
            .filter_map(|(point, losses)| Some((point, losses.clone()?)))
            .filter(|(point, _)| seen.insert(point.variant.name.clone()))
            .unzip();
        let tried = points.len();
        let best = rank::best(&known, tried.div_ceil(HALVING).max(super::FINALISTS));
        let points: Vec<Point> = best.into_iter().map(|place| points[place].clone()).collect();
        let rounds = rounds(points.len(), HALVING as u32, self.options.seeds, false);
        let before = vec![Stage { settings: tried, seeds: 1, short: false }];
        let begun = Begun { space: &self.space, how, tried, before, rounds, first: self.first };
        Running::new(self.input, self.options, &self.base, watch).finish(points, begun, held_out)
    }
}
