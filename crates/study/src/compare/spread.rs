//! How steady a recorded time is in the course of the recording.
//!
//! A percentile moves with how often values beyond it come: where one wakeup of a hundred waits for
//! the turn of another task, p99 is either that turn or nothing. How often they come is counted in
//! windows of the recording; by how much the windows differ says how far the rate may be from where
//! it is, clusters included, which the number of values alone would not.

use super::percentile::quantity;
use crate::measurements::{Kind, Measured, Quantity, SubjectData};
use crate::metric::{Metric, Stat};
use schedlab_model::{EventSink, Ns};
use schedlab_stats::{t_critical, value_of_rank, variance};
use schedlab_trace::Recording;
use schedlab_trace::analysis::messages::RequestTimes;
use schedlab_trace::analysis::{Summary, TaskSummary};

/// Windows of a recording. With more of them one holds too few values, with fewer the spread is
/// not known: at seven degrees of freedom it is 2.4 standard errors, at three 3.2.
const WINDOWS: usize = 8;
/// Tasks with less than this part of the time may move between CPUs.
const STAYS: f64 = 0.01;
/// The chance that a rate, or a mean, lies outside of its interval.
pub(super) const BEYOND: f64 = 0.05;

/// What was measured, window by window.
#[derive(Debug, Default)]
pub(super) struct Spread {
    /// A task that counts moved between CPUs.
    pub(super) moves: bool,
    windows: Vec<Measured>,
}

impl Spread {
    /// Cuts a recording into windows. `whole`: its summary; `requests`: what was recorded of them,
    /// in their order.
    pub(super) fn from_recording(
        recording: &Recording,
        whole: &Summary,
        classes: &[String],
        requests: Option<&RequestTimes>,
    ) -> Spread {
        let header = &recording.header;
        let mut summary = Summary::of_header(header, Ns::ZERO);
        let mut rest = recording.events.as_slice();
        let mut window = |number: usize| {
            let end = u128::from(recording.duration.0) * number as u128 / WINDOWS as u128;
            let end = Ns(end as u64);
            let (now, later) = rest.split_at(match number {
                WINDOWS => rest.len(),
                _ => rest.partition_point(|event| event.at < end),
            });
            now.iter().for_each(|event| summary.event(event));
            rest = later;
            summary.finish(end);
            let mut measured = Measured::of_summary(&summary, classes, &|_| None);
            let part = requests.map(|times| part_of(times, number));
            part.iter().for_each(|times| measured.requests(times, summary.window));
            summary.begin_next();
            measured
        };
        let windows = (1..=WINDOWS).map(&mut window).collect();
        let moved = |task: &TaskSummary| {
            task.migrations > 0 && task.run.0 as f64 >= STAYS * whole.window.0 as f64
        };
        Spread { moves: whole.tasks.iter().any(moved), windows }
    }

    /// Returns the values of one subject, window by window.
    pub(super) fn tails(&self, kind: Kind, name: &str) -> Tails {
        let found: Vec<Option<&SubjectData>> =
            self.windows.iter().map(|window| window.find(kind, name)).collect();
        let of = |quantity: Quantity| {
            let buckets = |found: &Option<&SubjectData>| {
                found.map(|found| found.buckets(quantity)).unwrap_or_default()
            };
            let windows: Vec<Vec<(Ns, u64)>> = found.iter().map(buckets).collect();
            let mut all: Vec<(u64, u64)> =
                windows.iter().flatten().map(|(value, count)| (value.0, *count)).collect();
            all.sort_unstable();
            Values { samples: all.iter().map(|(_, count)| count).sum(), all, windows }
        };
        Tails { values: Quantity::ALL.map(|quantity| (quantity, of(quantity))) }
    }
}

/// The values of one subject, of each distribution.
pub(super) struct Tails {
    values: [(Quantity, Values); 4],
}

struct Values {
    windows: Vec<Vec<(Ns, u64)>>,
    /// Those of all windows, ascending.
    all: Vec<(u64, u64)>,
    samples: u64,
}

impl Tails {
    /// Returns by what factor the rate of values beyond a percentile may be higher or lower than it
    /// was; `None`: the metric is no percentile, or there are no values.
    pub(super) fn rate(&self, metric: Metric) -> Option<f64> {
        let (quantity, Stat::Percentile(rank)) = quantity(metric)? else { return None };
        let (_, values) = self.values.iter().find(|(of, _)| *of == quantity)?;
        let rank = (values.samples as f64 * f64::from(rank) / 100_000.0).ceil().max(1.0) as u64;
        let percentile = value_of_rank(rank, &values.all)?;
        let beyond = |window: &Vec<(Ns, u64)>| {
            // Windows are ascending.
            let first = window.partition_point(|(value, _)| value.0 < percentile);
            window[first..].iter().map(|(_, count)| count).sum::<u64>() as f64
        };
        Some(factor(&values.windows.iter().map(beyond).collect::<Vec<f64>>()))
    }
}

/// Returns half the width of the interval (95 %) of the sum of what windows hold. Windows of twice
/// the length differ by less, unless what comes in one comes in the next too: the larger error of
/// both counts. `least`: no error is smaller.
fn half_width(windows: &[f64], least: f64) -> f64 {
    let error = |values: &[f64]| (variance(values.iter().copied()) * values.len() as f64).sqrt();
    let double: Vec<f64> = windows.chunks(2).map(|pair| pair.iter().sum()).collect();
    let error = error(windows).max(error(&double)).max(least);
    error * t_critical(BEYOND, 1, windows.len() as f64 - 1.0)
}

/// Returns those requests that were answered in one window, as far as their order says.
fn part_of(times: &RequestTimes, number: usize) -> RequestTimes {
    let part = |all: &Vec<Ns>| {
        let edge = |number: usize| all.len() * number / WINDOWS;
        all[edge(number - 1)..edge(number)].to_vec()
    };
    let mut of_window = RequestTimes::default();
    of_window.services =
        times.services.iter().map(|(service, all)| (service.clone(), part(all))).collect();
    of_window
}

/// Returns the factor between whose inverse and itself a rate lies with 95 %, from how often it was
/// counted in each window. No rate is known better than that of values that come independently of
/// each other.
fn factor(counts: &[f64]) -> f64 {
    let sum: f64 = counts.iter().sum();
    if sum == 0.0 { f64::INFINITY } else { libm::exp(half_width(counts, sum.sqrt()) / sum) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 152 waits, 19 in each window: as far as independent waits would be off.
    #[test]
    fn a_steady_rate_is_known_as_well_as_that_of_independent_values() {
        let independent = (2.364_624 / 152f64.sqrt()).exp();
        assert!((factor(&[19.0; 8]) - independent).abs() < 1e-4, "{}", factor(&[19.0; 8]));
    }

    #[test]
    fn clusters_make_a_rate_uncertain() {
        let [spread, single, lasting] = [
            factor(&[12.0, 26.0, 15.0, 23.0, 14.0, 24.0, 17.0, 21.0]),
            factor(&[0.0, 0.0, 152.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
            // What comes in one window comes in the next.
            factor(&[35.0, 35.0, 35.0, 35.0, 3.0, 3.0, 3.0, 3.0]),
        ];
        assert!(spread < 1.35, "{spread}");
        assert!(single > 10.0, "{single}");
        assert!(lasting > factor(&[35.0, 3.0, 35.0, 3.0, 35.0, 3.0, 35.0, 3.0]), "{lasting}");
    }

    #[test]
    fn requests_are_divided_by_their_order() {
        let mut times = RequestTimes::default();
        times.services.insert(":1".to_owned(), (0..100).map(Ns).collect());
        let parts: Vec<Ns> = (1..=WINDOWS)
            .flat_map(|number| part_of(&times, number).services[":1"].clone())
            .collect();
        assert_eq!(parts, times.services[":1"]);
    }
}
