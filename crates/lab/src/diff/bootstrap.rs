//! The block bootstrap: numbers of whole recordings made of windows drawn with replacement; of several recordings, made of
//! whole recordings drawn with replacement.

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

/// What is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Drawn {
    /// So many windows of one recording.
    Windows(usize),
    /// So many whole recordings.
    Recordings(usize),
}

impl Drawn {
    pub(super) fn count(self) -> usize {
        match self {
            Drawn::Windows(count) | Drawn::Recordings(count) => count,
        }
    }
}

/// How often each window or recording is drawn, for every drawing.
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
    pub(super) alone: Option<Alone>,
}

/// A change by itself, for those who asked for this number before they saw it: nothing is taken off for all the others that
/// might have changed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Alone {
    /// How many standard errors it is.
    errors: f64,
    /// Degrees of freedom of the standard error.
    freedom: f64,
}

impl Alone {
    /// Whether it is larger than chance, of `numbers` that were asked for.
    pub(crate) fn is_told(&self, numbers: usize) -> bool {
        self.errors > critical(numbers, self.freedom)
    }
}

/// Judges the change from `before` to `after`, of which `values` are those of all drawings of what is `drawn`. `numbers` is
/// how many numbers the report judges, `least` the part of the larger one below which a change is none.
pub(super) fn change(
    metric: Metric,
    (before, after): (f64, f64),
    values: [&[f64]; 2],
    drawn: [Drawn; 2],
    (numbers, least): (usize, f64),
) -> Change {
    // Shares and rates may be 0: their difference; times: their ratio, because tails are skewed.
    let log = metric.unit() == Unit::Time && before > 0.0 && after > 0.0;
    let scale = |value: f64| if log { value.max(1.0).ln() } else { value };
    let variances = [0, 1].map(|side: usize| {
        let variance = variance(values[side].iter().map(|&v| scale(v)));
        match drawn[side] {
            Drawn::Windows(_) => variance,
            // Of few recordings their mean is never far: what is drawn varies less than they do.
            Drawn::Recordings(count) => variance * count as f64 / (count as f64 - 1.0),
        }
    });
    let variance = variances[0] + variances[1];
    let freedom = freedom(variances, drawn);
    // Histograms are exact to one in a thousand.
    let floor = if log { 0.001 } else { 0.0 };
    let spread = variance.sqrt().max(floor);
    let error = critical(numbers, freedom) * spread;
    let middle = scale(after) - scale(before);
    let back = |change: f64| if log { before * (change.exp() - 1.0) } else { change };
    let interval = [back(middle - error), back(middle + error)];
    let difference = after - before;
    let small = difference.abs() < least * before.abs().max(after.abs())
        || metric.unit() == Unit::Time && difference.abs() < TIME_LEAST
        || metric.unit() == Unit::Share && difference.abs() < SHARE_LEAST
        || metric.unit() == Unit::PerSecond && difference.abs() < 1.0;
    let several = drawn.iter().all(|drawn| matches!(drawn, Drawn::Recordings(_)));
    let alone = (several && !small && spread > 0.0).then(|| Alone { errors: middle.abs() / spread, freedom });
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
    Change { interval, judgement, alone }
}

/// Degrees of freedom of the difference: of windows one less than there are, of recordings as Welch has them.
fn freedom(variances: [f64; 2], drawn: [Drawn; 2]) -> f64 {
    let [a, b] = drawn.map(|drawn| drawn.count() as f64 - 1.0);
    let [va, vb] = variances;
    match drawn {
        [Drawn::Recordings(_), Drawn::Recordings(_)] if va + vb > 0.0 => {
            (va + vb).powi(2) / (va * va / a + vb * vb / b)
        }
        _ => a.min(b).max(1.0),
    }
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

/// The two-sided critical value of Student's t at the error that is left for each of `numbers`, with `freedom` degrees of
/// freedom. With 4 of them and 1 in 10,000 it is 3 % too small, with 8 or more it is exact to 1 %.
fn critical(numbers: usize, freedom: f64) -> f64 {
    let tail = ERROR / numbers.max(1) as f64 / 2.0;
    let (mut low, mut high) = (0.0f64, 10.0f64);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        let beyond = libm::erfc(middle / std::f64::consts::SQRT_2) / 2.0;
        if beyond > tail { low = middle } else { high = middle }
    }
    let (z, v) = (low, freedom.max(1.0));
    // The terms of the expansion of t around the normal distribution (Abramowitz and Stegun 26.7.5).
    let of = |terms: &[f64]| terms.iter().rev().fold(0.0, |sum, term| sum * z * z + term) * z;
    z + of(&[1.0, 1.0]) / (4.0 * v)
        + of(&[3.0, 16.0, 5.0]) / (96.0 * v.powi(2))
        + of(&[-15.0, 17.0, 19.0, 3.0]) / (384.0 * v.powi(3))
        + of(&[-945.0, -1920.0, 1482.0, 776.0, 79.0]) / (92160.0 * v.powi(4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn critical_values_are_those_of_the_tables() {
        // Two-sided 5 %, and 0.1 % for 50 numbers.
        for (numbers, freedom, table) in [
            (1, 39.0, 2.0227),
            (50, 39.0, 3.558),
            (1, 8.0, 2.306),
            (50, 8.0, 5.041),
            (1, 4.0, 2.776),
            (50, 4.0, 8.610),
        ] {
            let found = critical(numbers, freedom);
            assert!((found / table - 1.0).abs() < 0.02, "{numbers}, {freedom}: {found}, not {table}");
        }
    }

    #[test]
    fn freedom_is_welchs() {
        let six = [Drawn::Recordings(6); 2];
        assert_eq!(freedom([2.0, 2.0], six), 10.0);
        assert_eq!(freedom([2.0, 0.0], six), 5.0);
        assert_eq!(freedom([2.0, 2.0], [Drawn::Windows(40); 2]), 39.0);
    }

    #[test]
    fn of_several_recordings_their_differences_count() {
        // Each recording by itself is sure of its mean, but the recordings differ by more than the two sides do.
        let [one, two] = [[1.0, 2.0, 3.0, 4.0], [1.5, 2.5, 3.5, 4.5]];
        let times = drawings(4, 1);
        let mean = |of: &[f64; 4]| -> Vec<f64> {
            let sum =
                |times: &Vec<u32>| of.iter().zip(times).map(|(v, &n)| v * f64::from(n)).sum::<f64>() / 4.0;
            times.iter().map(sum).collect()
        };
        let values = [mean(&one), mean(&two)];
        let judge = |shift: f64| {
            let after: Vec<f64> = values[1].iter().map(|v| v + shift).collect();
            let pair = [&values[0][..], &after[..]];
            change(Metric::Share, (2.5, 3.0 + shift), pair, [Drawn::Recordings(4); 2], (1, 0.0))
        };
        let near = judge(0.0);
        assert_eq!(near.judgement, Judgement::CannotTell);
        // The standard error of a mean of 4 with deviation 1.29 is 0.645; of the difference 0.913; t(6) = 2.447.
        assert!(
            (near.interval[1] - near.interval[0] - 2.0 * 2.447 * 0.913).abs() < 0.3,
            "{:?}",
            near.interval
        );
        let far = judge(5.0);
        assert_eq!(far.judgement, Judgement::Different);
        assert!(far.alone.unwrap().is_told(1) && !near.alone.unwrap().is_told(1));
    }

    #[test]
    fn too_few_samples_are_named() {
        assert!(lacks(Stat::Percentile(99_000), [999, 5_000]).unwrap().contains("1000"));
        assert_eq!(lacks(Stat::Percentile(99_000), [1_000, 5_000]), None);
        assert!(lacks(Stat::Max, [9, 9]).is_some());
    }
}
