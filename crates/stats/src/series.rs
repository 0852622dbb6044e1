//! What makes a series of rounds suspicious: it drifts, or single values lie far off.

use crate::median;
use serde::Serialize;

/// A trend over the rounds: Mann (1945) and Kendall.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Drift {
    /// Later pairs that are larger, less those that are smaller.
    pub score: i64,
    /// The score in standard deviations of what chance gives (with the correction for continuity).
    pub sigmas: f64,
}

/// Above this many standard deviations chance is no explanation (two-sided 1 %).
const SIGMAS: f64 = 2.576;
/// With fewer rounds the test says nothing.
const FEWEST: usize = 6;
/// A value further from the median than this many times the median distance (scaled to a standard
/// deviation) is an outlier (Iglewicz and Hoaglin 1993).
const FAR: f64 = 3.5;
/// Median distance to standard deviation, for a normal distribution.
const SCALE: f64 = 1.4826;

/// The trend of values in the order in which they were measured. `None`: too few.
pub fn drift(values: &[f64]) -> Option<Drift> {
    let n = values.len();
    if n < FEWEST {
        return None;
    }
    let sign = |a: f64, b: f64| i64::from(b > a) - i64::from(b < a);
    let pairs = (0..n).flat_map(|i| (i + 1..n).map(move |j| (i, j)));
    let score: i64 = pairs.map(|(i, j)| sign(values[i], values[j])).sum();
    // Groups of equal values make chance give smaller scores.
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let part = |n: f64| n * (n - 1.0) * (2.0 * n + 5.0);
    let ties: f64 = sorted.chunk_by(|a, b| a == b).map(|group| part(group.len() as f64)).sum();
    let variance = (part(n as f64) - ties) / 18.0;
    let corrected = (score.abs() - 1).max(0) as f64 * score.signum() as f64;
    let sigmas = if variance > 0.0 { corrected / variance.sqrt() } else { 0.0 };
    Some(Drift { score, sigmas })
}

/// The indices of values that lie far from all others; empty when more than half of them are equal.
pub fn outliers(values: &[f64]) -> Vec<usize> {
    let Some(middle) = median(values) else { return Vec::new() };
    let distances: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    let Some(usual) = median(&distances).filter(|usual| *usual > 0.0) else { return Vec::new() };
    (0..values.len()).filter(|&index| distances[index] > FAR * SCALE * usual).collect()
}

/// Whether a series drifts, in words: "rises" or "falls" from round to round. `None`: chance
/// explains it.
pub fn trend(values: &[f64]) -> Option<&'static str> {
    let found = drift(values).filter(|found| found.sigmas.abs() > SIGMAS)?;
    Some(if found.score > 0 { "rises" } else { "falls" })
}

/// The rounds, counted from 1, whose value lies far from all others. Of few rounds one is always
/// far off: none is named.
pub fn odd_rounds(values: &[f64]) -> Vec<usize> {
    let far = if values.len() < FEWEST { Vec::new() } else { outliers(values) };
    far.into_iter().map(|index| index + 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_rise_has_the_score_of_the_closed_form() {
        let rising: Vec<f64> = (0..10).map(f64::from).collect();
        let found = drift(&rising).unwrap();
        // S = n (n - 1) / 2 = 45, variance = 10 * 9 * 25 / 18 = 125, z = 44 / sqrt(125).
        assert_eq!(found.score, 45);
        assert!((found.sigmas - 44.0 / 125f64.sqrt()).abs() < 1e-12);
        let falling: Vec<f64> = rising.iter().rev().copied().collect();
        assert_eq!(drift(&falling).unwrap().sigmas, -found.sigmas);
        assert_eq!((trend(&rising), trend(&falling)), (Some("rises"), Some("falls")));
    }

    #[test]
    fn ties_and_few_values_say_nothing() {
        assert_eq!(drift(&[1.0; 10]).unwrap().sigmas, 0.0);
        assert_eq!((drift(&[1.0, 2.0, 3.0]), trend(&[1.0; 10])), (None, None));
        // Two groups of five equal values: variance (10*9*25 - 2 * 5*4*15) / 18.
        let steps: Vec<f64> = (0..10).map(|i| f64::from(i / 5)).collect();
        let found = drift(&steps).unwrap();
        assert_eq!(found.score, 25);
        let expected = 24.0 / ((2250.0 - 600.0) / 18.0f64).sqrt();
        assert!((found.sigmas - expected).abs() < 1e-12);
    }

    #[test]
    fn only_the_far_one_is_an_outlier() {
        assert_eq!(outliers(&[1.0, 2.0, 3.0, 4.0, 5.0, 50.0]), [5]);
        assert_eq!(outliers(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), [0usize; 0]);
        assert_eq!(outliers(&[2.0, 2.0, 2.0, 9.0]), [0usize; 0]);
        assert_eq!(odd_rounds(&[5.0, 1.0, 4.0, 2.0, 3.0, 50.0]), [6]);
        assert_eq!(odd_rounds(&[1.0, 2.0, 50.0]), [0usize; 0]);
    }
}
