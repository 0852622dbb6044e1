//! The block bootstrap: numbers of whole recordings made of windows drawn with replacement.

use crate::metric::{Metric, Stat, Unit};
use crate::stats::Judgement;
use schedlab_measure::stats::{Random, samples_needed};
use schedlab_trace::analysis::Durations;
use std::collections::BTreeMap;

/// Drawings of each recording. The standard error of a standard error over 400 is 3.5 %.
const DRAWINGS: usize = 400;
/// Confidence that all intervals of a report hold together is one less this.
const ERROR: f64 = 0.05;
/// Times that differ by less are equal to every user, in nanoseconds.
const TIME_LEAST: f64 = 1_000.0;
/// Shares that differ by less (half a point) are equal.
const SHARE_LEAST: f64 = 0.005;

/// How often each window is drawn, for every drawing.
pub(super) fn drawings(windows: usize, seed: u64) -> Vec<Vec<u32>> {
    let mut random = Random::new(seed);
    let mut drawing = || {
        let mut times = vec![0; windows];
        for _ in 0..windows {
            times[random.below(windows)] += 1;
        }
        times
    };
    (0..DRAWINGS).map(|_| drawing()).collect()
}

/// A distribution by window: distinct values, and for each window how often each occurs.
#[derive(Clone, Debug, Default)]
pub(super) struct Windowed {
    values: Vec<f64>,
    windows: Vec<Vec<(u32, u64)>>,
}

impl Windowed {
    pub(super) fn of(windows: &[&Durations]) -> Windowed {
        let mut index: BTreeMap<u64, u32> = BTreeMap::new();
        for window in windows {
            index.extend(window.buckets().map(|(value, _)| (value.0, 0)));
        }
        for (i, place) in index.values_mut().enumerate() {
            *place = i as u32;
        }
        let counts =
            |window: &&Durations| window.buckets().map(|(value, count)| (index[&value.0], count)).collect();
        Windowed {
            values: index.keys().map(|&value| value as f64).collect(),
            windows: windows.iter().map(counts).collect(),
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.windows.iter().flatten().map(|(_, count)| count).sum()
    }

    /// The statistic when each window counts so often.
    pub(super) fn value(&self, times: &[u32], stat: Stat) -> Option<f64> {
        let mut counts = vec![0u64; self.values.len()];
        for (window, &times) in self.windows.iter().zip(times) {
            window.iter().for_each(|&(at, count)| counts[at as usize] += count * u64::from(times));
        }
        let all: u64 = counts.iter().sum();
        let part = match stat {
            Stat::Percentile(thousandths) => f64::from(thousandths) / 100_000.0,
            _ => 1.0,
        };
        let wanted = ((part * all as f64).ceil() as u64).max(1);
        let mut seen = 0;
        counts.iter().zip(&self.values).find_map(|(count, value)| {
            seen += count;
            (seen >= wanted).then_some(*value)
        })
    }
}

/// Why a percentile of so many samples says nothing.
pub(crate) fn lacks(stat: Stat, samples: [u64; 2]) -> Option<String> {
    let fewest = samples[0].min(samples[1]);
    match stat {
        Stat::Max => Some("a maximum is one sample: it has no interval".to_owned()),
        Stat::Percentile(thousandths) => {
            let part = f64::from(thousandths) / 100_000.0;
            let needed = samples_needed(part);
            (fewest < needed).then(|| format!("{stat} needs {needed} samples, {fewest} were recorded"))
        }
        _ => None,
    }
}

/// A change with its error.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub(super) interval: [f64; 2],
    pub(super) judgement: Judgement,
}

/// Judges the change from `before` to `after`, of which `drawn` are the values of all drawings. `numbers` is how many
/// numbers the report judges, `windows` how many windows the shorter one has.
pub(super) fn change(
    metric: Metric,
    (before, after): (f64, f64),
    drawn: [&[f64]; 2],
    (numbers, windows): (usize, usize),
    least: f64,
) -> Change {
    // Shares and rates may be 0: their difference; times: their ratio, because tails are skewed.
    let log = metric.unit() == Unit::Time && before > 0.0 && after > 0.0;
    let scale = |value: f64| if log { value.max(1.0).ln() } else { value };
    let variance =
        variance(drawn[0].iter().map(|&v| scale(v))) + variance(drawn[1].iter().map(|&v| scale(v)));
    // Histograms are exact to one in a thousand.
    let floor = if log { 0.001 } else { 0.0 };
    let error = critical(numbers, windows) * (variance.sqrt().max(floor));
    let middle = scale(after) - scale(before);
    let back = |change: f64| if log { before * (change.exp() - 1.0) } else { change };
    let interval = [back(middle - error), back(middle + error)];
    let difference = after - before;
    let small = difference.abs() < least * before.abs().max(after.abs())
        || metric.unit() == Unit::Time && difference.abs() < TIME_LEAST
        || metric.unit() == Unit::Share && difference.abs() < SHARE_LEAST
        || metric.unit() == Unit::PerSecond && difference.abs() < 1.0;
    let judgement = if difference == 0.0 && variance == 0.0 {
        Judgement::Same
    } else if small || middle.abs() <= error {
        Judgement::CannotTell
    } else {
        match metric.smaller_is_better() {
            // More CPU time may be a gain or a cost: a diff does not know which.
            _ if metric.unit() != Unit::Time => Judgement::Different,
            Some(smaller) if smaller == (difference < 0.0) => Judgement::Better,
            Some(_) => Judgement::Worse,
            None => Judgement::Different,
        }
    };
    Change { interval, judgement }
}

fn variance(values: impl Iterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.collect();
    let count = values.len() as f64;
    if count < 2.0 {
        return 0.0;
    }
    let mean = values.iter().sum::<f64>() / count;
    values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0)
}

/// The two-sided critical value of Student's t at the error that is left for each of `numbers`, with one degree
/// of freedom less than there are windows.
fn critical(numbers: usize, windows: usize) -> f64 {
    let tail = ERROR / numbers.max(1) as f64 / 2.0;
    let (mut low, mut high) = (0.0f64, 10.0f64);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        let beyond = libm::erfc(middle / std::f64::consts::SQRT_2) / 2.0;
        if beyond > tail { low = middle } else { high = middle }
    }
    let (z, v) = (low, windows.max(2) as f64 - 1.0);
    // The first two terms of the expansion of t around the normal distribution (Abramowitz and Stegun 26.7.5).
    let (z3, z5) = (z.powi(3), z.powi(5));
    z + (z3 + z) / (4.0 * v) + (5.0 * z5 + 16.0 * z3 + 3.0 * z) / (96.0 * v * v)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn critical_values_are_those_of_the_tables() {
        // Two-sided 5 %: t(39) = 2.0227; 0.1 % for 50 numbers: t(39) = 3.558.
        assert!((critical(1, 40) - 2.0227).abs() < 0.001, "{}", critical(1, 40));
        assert!((critical(50, 40) - 3.558).abs() < 0.01, "{}", critical(50, 40));
    }

    #[test]
    fn too_few_samples_are_named() {
        assert!(lacks(Stat::Percentile(99_000), [999, 5_000]).unwrap().contains("1000"));
        assert_eq!(lacks(Stat::Percentile(99_000), [1_000, 5_000]), None);
        assert!(lacks(Stat::Max, [9, 9]).is_some());
    }
}
