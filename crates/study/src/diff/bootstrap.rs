//! The block bootstrap: numbers of whole recordings made of windows drawn with replacement; of
//! several recordings, made of whole recordings drawn with replacement.

use crate::change::Judgement;
use crate::metric::{Metric, Stat, Unit};
use schedlab_stats::{Random, samples_needed, t_critical, variance, welch_freedom};
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
    pub(super) fn from_windows(windows: &[&Durations]) -> Windowed {
        let mut index: BTreeMap<u64, u32> = BTreeMap::new();
        for window in windows {
            index.extend(window.buckets().map(|(value, _)| (value.0, 0)));
        }
        for (i, place) in index.values_mut().enumerate() {
            *place = i as u32;
        }
        let counts = |window: &&Durations| {
            window.buckets().map(|(value, count)| (index[&value.0], count)).collect()
        };
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
            (fewest < needed)
                .then(|| format!("{stat} needs {needed} samples, {fewest} were recorded"))
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

/// A change by itself, for a number that was asked for before it was seen: nothing is taken off for
/// all the others that might have changed.
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
        self.errors > t_critical(ERROR, numbers, self.freedom)
    }
}

/// Judges the change from `before` to `after`, of which `values` are those of all drawings of what
/// is `drawn`. `numbers` is how many numbers the report judges, `least` the part of the larger one
/// below which a change is none.
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
    let error = t_critical(ERROR, numbers, freedom) * spread;
    let middle = scale(after) - scale(before);
    let back = |change: f64| if log { before * (change.exp() - 1.0) } else { change };
    let interval = [back(middle - error), back(middle + error)];
    let difference = after - before;
    let small = difference.abs() < least * before.abs().max(after.abs())
        || metric.unit() == Unit::Time && difference.abs() < TIME_LEAST
        || metric.unit() == Unit::Share && difference.abs() < SHARE_LEAST
        || metric.unit() == Unit::PerSecond && difference.abs() < 1.0;
    let several = drawn.iter().all(|drawn| matches!(drawn, Drawn::Recordings(_)));
    let alone = (several && !small && spread > 0.0)
        .then(|| Alone { errors: middle.abs() / spread, freedom });
    let judgement = if difference == 0.0 && variance == 0.0 {
        Judgement::Same
    } else if small || middle.abs() <= error {
        Judgement::CannotTell
    } else {
        match metric.is_better(difference) {
            // More CPU time may be a gain or a cost: a diff does not know which.
            _ if metric.unit() != Unit::Time => Judgement::Different,
            Some(true) => Judgement::Better,
            Some(false) => Judgement::Worse,
            None => Judgement::Different,
        }
    };
    Change { interval, judgement, alone }
}

/// Degrees of freedom of the difference: of windows one less than there are, of recordings as Welch
/// has them.
fn freedom(variances: [f64; 2], drawn: [Drawn; 2]) -> f64 {
    let counts = drawn.map(Drawn::count);
    let welch = match drawn {
        [Drawn::Recordings(_), Drawn::Recordings(_)] => welch_freedom(variances, counts),
        _ => None,
    };
    welch.unwrap_or_else(|| (counts[0].min(counts[1]) as f64 - 1.0).max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freedom_is_welchs() {
        let six = [Drawn::Recordings(6); 2];
        assert_eq!(freedom([2.0, 2.0], six), 10.0);
        assert_eq!(freedom([2.0, 0.0], six), 5.0);
        assert_eq!(freedom([2.0, 2.0], [Drawn::Windows(40); 2]), 39.0);
    }

    #[test]
    fn of_several_recordings_their_differences_count() {
        // Each recording by itself is sure of its mean, but the recordings differ by more than the
        // two sides do.
        let [one, two] = [[1.0, 2.0, 3.0, 4.0], [1.5, 2.5, 3.5, 4.5]];
        let times = drawings(4, 1);
        let mean = |of: &[f64; 4]| -> Vec<f64> {
            let sum = |times: &Vec<u32>| {
                of.iter().zip(times).map(|(v, &n)| v * f64::from(n)).sum::<f64>() / 4.0
            };
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
        // The standard error of a mean of 4 with deviation 1.29 is 0.645; of the difference 0.913;
        // t(6) = 2.447.
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
