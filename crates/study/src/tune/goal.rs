//! What a search is for: `redis-server latency p99 < 1ms`, a number with or without a bound.

use crate::compare::open;
use crate::error_parts::{ErrorBar, ErrorParts, Possible};
use crate::gate::{Bound, Gate, Op};
use crate::headline::{Figure, Wanted};
use crate::metric::Stat;
use crate::metric::{Better, Metric};
use crate::result::{Cell, Row};
use crate::view::few_for;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A number that is to become better, or is not to become worse.
#[derive(Clone, PartialEq, Debug)]
pub struct Aim {
    pub(super) wanted: Wanted,
    bound: Option<(Op, Bound)>,
    better: Better,
    text: String,
}

/// Whether a number is within its bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Meets {
    /// With its whole error.
    Yes,
    /// With no part of its error.
    No,
    /// The bound lies within the error.
    Open,
}

impl Aim {
    /// Reads `SUBJECT METRIC [OP VALUE]`.
    ///
    /// # Errors
    /// What is wrong, and what is allowed.
    pub fn parse(text: &str) -> Result<Aim, String> {
        let (wanted, bound) = if text.contains(['<', '>']) {
            let gate = Gate::parse(text).map_err(|error| error.to_string())?;
            let subject = gate.subject.unwrap_or_default();
            (Wanted { subject, metric: gate.metric }, Some((gate.op, gate.bound)))
        } else {
            (Wanted::parse(text, None)?, None)
        };
        let metric = wanted.metric;
        let by_bound = bound.map(|(op, _)| match op {
            Op::Below | Op::AtMost => Better::Smaller,
            Op::Above | Op::AtLeast => Better::Larger,
        });
        let own = metric.def().better;
        let better = match (by_bound, own) {
            (Some(by_bound), Some(own)) if by_bound != own => {
                return Err(format!("'{text}': {metric} is better when it is {}", direction(own)));
            }
            (Some(better), _) | (None, Some(better)) => better,
            (None, None) => {
                return Err(format!(
                    "'{text}': more {metric} is neither better nor worse in itself: say a bound, \
                     such as '{text} < 300/s'"
                ));
            }
        };
        Ok(Aim { wanted, bound, better, text: text.trim().to_owned() })
    }

    /// Returns it as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The metric.
    pub fn metric(&self) -> Metric {
        self.wanted.metric
    }

    /// Whether it has a bound.
    pub fn is_bound(&self) -> bool {
        self.bound.is_some()
    }

    /// The bound as a value, with that of the first row.
    fn limit(&self, base: f64) -> Option<(Op, f64)> {
        let (op, bound) = self.bound?;
        Some(match bound {
            Bound::Value(value) => (op, value),
            Bound::Change(change) => (op, base + change),
            Bound::Ratio(ratio) => (op, base * (1.0 + ratio)),
        })
    }

    /// How far from what is wanted a value is: the smaller, the better. Within a bound all values
    /// are equal.
    pub(super) fn loss(&self, value: Option<f64>, base: f64) -> f64 {
        let Some(value) = value else { return f64::INFINITY };
        let signed = |value: f64| match self.better {
            Better::Smaller => value,
            Better::Larger => -value,
        };
        match self.limit(base) {
            None => signed(value),
            Some((_, limit)) => (signed(value) - signed(limit)).max(0.0),
        }
    }

    /// Whether the number is within the bound; `None`: there is no bound. `base`: the number of the
    /// first row.
    pub(super) fn meets(&self, cell: Option<&Cell>, base: f64, merges: bool) -> Option<Meets> {
        let (op, limit) = self.limit(base)?;
        let Some(cell) = cell.filter(|_| !merges) else { return Some(Meets::Open) };
        let value = cell.value.median;
        let seeds = || ErrorParts::of_seeds((cell.value.high - cell.value.low) / 2.0);
        let bar =
            cell.error_bar.unwrap_or_else(|| ErrorBar::new(value, seeds(), Possible::default()));
        Some(match open(cell.metric, limit, &bar, cell.interval.as_ref()) {
            Some(_) => Meets::Open,
            None if op.holds(value, limit) => Meets::Yes,
            None => Meets::No,
        })
    }

    /// What of it is measured in a row.
    pub(super) fn figure(&self, row: &Row) -> Option<Figure> {
        self.wanted.figures(row).into_iter().next()
    }
}

/// Whether a percentile is the story of one or two values, over `seeds` runs.
pub(super) fn is_thin(cell: &Cell, seeds: usize) -> bool {
    let Some(Stat::Percentile(rank)) = cell.metric.stat() else { return false };
    let values = |samples: u64| samples as f64 / seeds.max(1) as f64;
    cell.interval.is_some_and(|interval| few_for(rank, values(interval.samples)))
}

fn direction(better: Better) -> &'static str {
    match better {
        Better::Smaller => "smaller: write <",
        Better::Larger => "larger: write >",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_makes_all_within_it_equal() {
        let aim = Aim::parse("redis-server latency p99 < 1ms").unwrap();
        assert_eq!(
            (aim.loss(Some(2e6), 0.0), aim.loss(Some(9e5), 0.0), aim.loss(Some(1.0), 0.0)),
            (1e6, 0.0, 0.0)
        );
        assert_eq!(aim.loss(None, 0.0), f64::INFINITY);
        let share = Aim::parse("sysbench share > -10%").unwrap();
        assert!(
            (share.loss(Some(0.4), 0.5) - 0.05).abs() < 1e-12 && share.loss(Some(0.46), 0.5) == 0.0
        );
        assert!(Aim::parse("sysbench share").unwrap().loss(Some(0.4), 0.5) < 0.0);
    }

    #[test]
    fn refusals_teach() {
        for (text, part) in [
            ("redis-server", "is not SUBJECT METRIC"),
            ("redis-server latncy p99", "did you mean `latency`"),
            ("redis-server latency", "which number of the distribution"),
            ("redis-server latency p99 > 1ms", "better when it is smaller"),
            ("redis-server switches", "say a bound"),
            ("latency p99 < 1ms", "names no task"),
            ("redis-server latency p99 < alone", "colocate"),
        ] {
            let error = Aim::parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
