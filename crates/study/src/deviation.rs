//! How far the simulated figure is from a published one: as far as that is a number.
//!
//! A scenario gives a published figure as people write it (`0.37 to 0.39 ms`, `9,602us`, `0.18 %`,
//! `about 2 M/s`). What reads as a number or a range of the expectation's metric is compared; words
//! (`no gain`) are printed and left to the reader.

use crate::metric::{Metric, Unit};
use schedlab_model::Ns;
use schedlab_model::text::scaled;
use schedlab_stats::Estimate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A figure counts as near when it is off by no more than this part of the published one …
pub const NEAR: f64 = 0.1;
/// … and a share when it is off by no more than this part of a CPU: half a point.
pub const NEAR_SHARE: f64 = 0.005;

/// The simulated figure against a published number or range. Times in nanoseconds, shares as parts
/// of one CPU.
#[derive(Clone, Copy, PartialEq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Deviation {
    /// The published value, or the two ends of a range.
    pub published: [f64; 2],
    /// The simulated figure: the median over the seeds.
    pub here: f64,
    /// Smallest and largest of the seeds: what a single run may give.
    pub seeds: [f64; 2],
    /// The simulated figure less the next published value; 0 inside of a range.
    pub difference: f64,
    /// The same as a part of that value; none when that is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relative: Option<f64>,
    /// Whether shares are compared by points.
    pub points: bool,
    /// Whether it is near ([`NEAR`], shares [`NEAR_SHARE`]).
    pub near: bool,
}

impl Deviation {
    /// `text`: what was published; `ratio`: the figure is a quotient of two values of the metric.
    /// `None`: it is no number.
    pub fn from_text(
        text: &str,
        metric: Metric,
        ratio: bool,
        ours: &Estimate,
    ) -> Option<Deviation> {
        let (low, high) = figure(text, metric, ratio)?;
        let here = ours.median;
        let nearest = here.clamp(low, high);
        let difference = here - nearest;
        let relative = (nearest != 0.0).then(|| difference / nearest);
        let points = metric.unit() == Unit::Share && !ratio;
        let near = match relative {
            _ if points => difference.abs() <= NEAR_SHARE,
            // The bounds that scenarios state hold at their ends, which a quotient of floats may
            // miss by a hair.
            Some(relative) => relative.abs() <= NEAR + 1e-9,
            None => difference == 0.0,
        };
        let seeds = [ours.low, ours.high];
        Some(Deviation { published: [low, high], here, seeds, difference, relative, points, near })
    }

    /// The difference as people write it: `+13.0 %`, `-0.02 points`.
    pub fn show(&self) -> String {
        match self.relative {
            _ if self.points => format!("{:+.2} points", self.difference * 100.0),
            Some(relative) => format!("{:+.1} %", relative * 100.0),
            None if self.difference == 0.0 => "0 %".to_owned(),
            None => "more than 0".to_owned(),
        }
    }

    /// Whether single simulated runs lie on both sides of what was published, which often was a
    /// single run.
    pub fn between_seeds(&self) -> bool {
        self.seeds[0] <= self.published[1] && self.published[0] <= self.seeds[1]
    }
}

/// Both ends of what was published, in the metric's unit.
fn figure(text: &str, metric: Metric, ratio: bool) -> Option<(f64, f64)> {
    let plain = text.trim().trim_start_matches("about ").replace([',', ' '], "");
    if let Some(most) = plain.strip_prefix("atmost") {
        return Some((0.0, number(most.trim_start_matches("about"), metric, ratio)?));
    }
    let (low, high) = plain.split_once("to").unwrap_or((&plain, &plain));
    // A range has its unit behind the second number.
    let unit = high.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let low = if low.ends_with(unit) { low.to_owned() } else { format!("{low}{unit}") };
    let (low, high) = (number(&low, metric, ratio)?, number(high, metric, ratio)?);
    (low <= high).then_some((low, high))
}

fn number(text: &str, metric: Metric, ratio: bool) -> Option<f64> {
    let decimal =
        |digits: &str, scale: f64| scaled(digits, 9).map(|value| value as f64 / 1e9 * scale);
    match metric.unit() {
        _ if ratio => decimal(text, 1.0),
        Unit::Time => text.parse::<Ns>().ok().map(|time| time.0 as f64),
        Unit::Share => decimal(text.strip_suffix('%')?, 0.01),
        Unit::PerSecond => {
            let count = text.strip_suffix("/s")?;
            match (count.strip_suffix('M'), count.strip_suffix('k')) {
                (Some(count), _) => decimal(count, 1e6),
                (_, Some(count)) => decimal(count, 1e3),
                _ => decimal(count, 1.0),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_text(text: &str, metric: &str, ratio: bool, here: f64) -> Option<Deviation> {
        let ours = Estimate { median: here, low: here * 0.5, high: here * 1.5 };
        Deviation::from_text(text, metric.parse().unwrap(), ratio, &ours)
    }

    #[test]
    fn published_figures_are_read_as_they_stand_in_scenarios() {
        let read = |text, metric: &str, ratio| figure(text, metric.parse().unwrap(), ratio);
        assert_eq!(read("123us", "latency mean", false), Some((123e3, 123e3)));
        assert_eq!(read("0.37 to 0.39 ms", "latency mean", false), Some((370e3, 390e3)));
        assert_eq!(read("101,095us", "latency max", false), Some((101_095e3, 101_095e3)));
        assert_eq!(read("about 600ns", "latency p50", false), Some((600.0, 600.0)));
        assert_eq!(read("390/s", "switches", false), Some((390.0, 390.0)));
        assert_eq!(read("about 2 M/s", "transactions", false), Some((2e6, 2e6)));
        assert_eq!(read("0.18 %", "idle-waiting", false), Some((0.0018, 0.0018)));
        assert_eq!(read("0.5 to 0.6", "response p99", true), Some((0.5, 0.6)));
        assert_eq!(read("at most 2 ms", "latency max", false), Some((0.0, 2e6)));
        for words in [
            "no gain",
            "linear to about 20",
            "max 1.4 ms",
            "1.4",
            "0.5 to 0.6 (lower)",
            "2 to 1 ms",
            "",
        ] {
            assert_eq!(read(words, "latency p99", false), None, "{words}");
        }
    }

    #[test]
    fn near_is_a_tenth_or_half_a_point() {
        let near = |text, metric, ratio, here| from_text(text, metric, ratio, here).unwrap().near;
        assert!(
            near("100us", "latency mean", false, 110e3)
                && !near("100us", "latency mean", false, 110.2e3)
        );
        assert!(
            near("100us", "latency mean", false, 90e3)
                && !near("100us", "latency mean", false, 89e3)
        );
        assert!(near("50.05 %", "share", false, 0.505) && !near("50.05 %", "share", false, 0.5056));
        // A quotient of shares is a plain number.
        assert!(near("2", "share", true, 2.1) && !near("2", "share", true, 2.3));
        assert!(near("0ns", "latency p99", false, 0.0) && !near("0ns", "latency p99", false, 1.0));
    }

    #[test]
    fn a_range_has_no_difference_inside_and_counts_from_its_end() {
        let inside = from_text("20 to 72 us", "latency mean", false, 50e3).unwrap();
        assert_eq!((inside.difference, inside.show().as_str()), (0.0, "+0.0 %"));
        let above = from_text("20 to 72 us", "latency mean", false, 90e3).unwrap();
        assert_eq!((above.difference, above.show().as_str()), (18e3, "+25.0 %"));
        let below = from_text("20 to 72 us", "latency mean", false, 15e3).unwrap();
        assert_eq!((below.difference, below.show().as_str()), (-5e3, "-25.0 %"));
        assert!(
            below.between_seeds()
                && !from_text("20 us", "latency mean", false, 90e3).unwrap().between_seeds()
        );
        assert_eq!(from_text("13.40 %", "share", false, 0.1338).unwrap().show(), "-0.02 points");
        assert_eq!(from_text("0ns", "latency p99", false, 5.0).unwrap().show(), "more than 0");
    }
}
