//! Distributions of times, shown as complementary CDFs on two logarithmic axes: how large a part
//! took longer.

use schedlab_model::Ns;
use serde::Serialize;

/// Points of one curve at most: more than a screen shows.
const POINTS: usize = 240;

/// A curve of fewer values shows nothing that a table does not say.
const FEWEST: u64 = 10;

/// The distributions of one subject.
#[derive(Clone, PartialEq, Debug)]
pub struct Cdf {
    /// What it is about.
    pub title: String,
    /// Run-queue latency, response time, …; a reader chooses one at a time.
    pub measures: Vec<Measure>,
}

/// One quantity, a curve for each run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Measure {
    /// Its name.
    pub name: String,
    /// What exactly is counted: from when to when.
    pub about: String,
    /// One for each run that has values.
    pub curves: Vec<Curve>,
}

/// One distribution.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Curve {
    /// Name of the run.
    pub name: String,
    /// Colour and dashes: 0 is the recording, 1 the baseline, 2 the first other run, …
    pub style: usize,
    /// How many values.
    pub count: u64,
    /// Percentiles and extremes.
    pub ladder: Ladder,
    /// Upper edges of buckets, nanoseconds, ascending.
    pub ns: Vec<u64>,
    /// Which part is longer than that edge, 0 … 1, descending; the last is 0.
    pub longer: Vec<f64>,
}

/// The usual rungs, nearest rank, nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Ladder {
    /// Half take no longer.
    pub p50: Ns,
    /// 90 %.
    pub p90: Ns,
    /// 99 %.
    pub p99: Ns,
    /// 99.9 %; `None` below 1000 values, where it is the longest or none at all.
    pub p999: Option<Ns>,
    /// 99.99 %; `None` below 10 000 values.
    pub p9999: Option<Ns>,
    /// The longest.
    pub max: Ns,
    /// Where p50, p90, p99, p99.9 and p99.99 lie.
    pub intervals: [Between; 5],
}

/// The two values between which a percentile lies with 95 %, by order statistics; `None` at an end:
/// the values are too few for one.
pub type Between = [Option<Ns>; 2];

/// The percentiles of several runs as lines, from the median to the maximum.
#[derive(Clone, PartialEq, Debug)]
pub struct Ladders {
    /// What is shown of what.
    pub title: String,
    /// How it is counted.
    pub about: String,
    /// Names of the rungs, such as `p99`.
    pub rungs: Vec<String>,
    /// The runs.
    pub curves: Vec<LadderLine>,
}

/// One line of [`Ladders`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LadderLine {
    /// Name of the run.
    pub name: String,
    /// As [`Curve::style`].
    pub style: usize,
    /// By rung; `None` where there are too few values.
    pub ns: Vec<Option<Ns>>,
    /// By rung: where the percentile lies. The maximum is exact and has none.
    pub between: Vec<Between>,
}

impl Ladders {
    /// Returns the ladders of a measure; `None` when no run has values enough for a picture.
    pub fn of_measure(title: &str, measure: &Measure) -> Option<Ladders> {
        measure.curves.iter().any(|curve| curve.count >= FEWEST).then(|| Ladders {
            title: format!("{title}: {}", measure.name),
            about: measure.about.clone(),
            rungs: ["p50", "p90", "p99", "p99.9", "max"].map(str::to_owned).to_vec(),
            curves: measure
                .curves
                .iter()
                .map(|curve| {
                    let Ladder { p50, p90, p99, p999, max, intervals, .. } = curve.ladder;
                    let ns = vec![Some(p50), Some(p90), Some(p99), p999, Some(max)];
                    let between = intervals[..4].iter().copied().chain([[None, None]]).collect();
                    LadderLine { name: curve.name.clone(), style: curve.style, ns, between }
                })
                .collect(),
        })
    }
}

impl Measure {
    /// Unless no curve has values enough for a picture.
    pub fn worth_drawing(self) -> Option<Measure> {
        self.curves.iter().any(|curve| curve.count >= FEWEST).then_some(self)
    }
}

impl Curve {
    /// Out of the non-empty buckets of a histogram, ascending: largest value of the bucket and
    /// count. `None` without values.
    pub fn of_buckets(name: &str, style: usize, buckets: &[(Ns, u64)]) -> Option<Curve> {
        let count: u64 = buckets.iter().map(|(_, count)| count).sum();
        if count == 0 {
            return None;
        }
        let mut seen = 0;
        let mut all = Vec::with_capacity(buckets.len());
        for (ns, here) in buckets.iter().filter(|(_, count)| *count > 0) {
            seen += here;
            all.push((ns.0, seen));
        }
        let at = |per_10000: u64| {
            let rank = (u128::from(count) * u128::from(per_10000)).div_ceil(10_000) as u64;
            Ns(all.iter().find(|(_, seen)| *seen >= rank).map_or(0, |(ns, _)| *ns))
        };
        let exact: Vec<(u64, u64)> = buckets.iter().map(|(ns, count)| (ns.0, *count)).collect();
        let interval =
            |quantile| schedlab_stats::quantile_interval(quantile, &exact).map(|end| end.map(Ns));
        let ladder = Ladder {
            p50: at(5_000),
            p90: at(9_000),
            p99: at(9_900),
            p999: (count >= 1_000).then(|| at(9_990)),
            p9999: (count >= 10_000).then(|| at(9_999)),
            max: Ns(all.last().map_or(0, |(ns, _)| *ns)),
            intervals: [0.5, 0.9, 0.99, 0.999, 0.9999].map(interval),
        };
        let kept = thin(&all, count);
        let longer =
            kept.iter().map(|(_, seen)| round((count - seen) as f64 / count as f64)).collect();
        let ns = kept.iter().map(|(ns, _)| *ns).collect();
        Some(Curve { name: name.to_owned(), style, count, ladder, ns, longer })
    }
}

/// Five digits are more than a screen shows.
fn round(part: f64) -> f64 {
    if part == 0.0 {
        return 0.0;
    }
    let scale = 10f64.powi(4 - part.log10().floor() as i32);
    (part * scale).round() / scale
}

/// Keeps a point wherever the curve moved visibly on either axis; first and last always stay.
fn thin(all: &[(u64, u64)], count: u64) -> Vec<(u64, u64)> {
    if all.len() <= POINTS {
        return all.to_vec();
    }
    let place = |(ns, seen): (u64, u64)| {
        let left = (count - seen).max(1) as f64 / count as f64;
        ((ns.max(1) as f64).ln(), left.ln())
    };
    let (first, last) = (place(all[0]), place(all[all.len() - 1]));
    let (wide, high) = ((last.0 - first.0).abs().max(1e-9), (last.1 - first.1).abs().max(1e-9));
    // A step of either axis costs its part of the axis; both axes together are 2 long.
    let step = 2.0 / (POINTS - 2) as f64;
    let (mut kept, mut from) = (vec![all[0]], first);
    for point in &all[1..all.len() - 1] {
        let here = place(*point);
        if (here.0 - from.0).abs() / wide + (here.1 - from.1).abs() / high >= step {
            kept.push(*point);
            from = here;
        }
    }
    kept.push(all[all.len() - 1]);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_picture_needs_ten_values_in_some_run() {
        let curve = |count| Curve::of_buckets("a", 0, &[(Ns(5), count)]).unwrap();
        let measure = |curves| Measure { name: String::new(), about: String::new(), curves };
        assert_eq!(measure(vec![curve(9), curve(2)]).worth_drawing(), None);
        assert_eq!(measure(vec![curve(9), curve(10)]).worth_drawing().unwrap().curves.len(), 2);
    }

    #[test]
    fn the_ladder_of_known_values() {
        let buckets: Vec<(Ns, u64)> = (1..=1000).map(|us| (Ns::from_us(us), 1)).collect();
        let curve = Curve::of_buckets("x", 1, &buckets).unwrap();
        assert_eq!(curve.count, 1000);
        assert_eq!(curve.ladder.p50, Ns::from_us(500));
        assert_eq!(curve.ladder.p99, Ns::from_us(990));
        assert_eq!(curve.ladder.p999, Some(Ns::from_us(999)));
        assert_eq!(curve.ladder.p9999, None);
        assert_eq!(curve.ladder.max, Ns::from_us(1000));
        // The binomial rule: ranks 468 and 533 of 1000 hold the median (mean 500, standard
        // deviation 15.8), and no value is certain to be above p99.9.
        let [median, _, _, tail, _] = curve.ladder.intervals;
        let near =
            |end: Option<Ns>, us: u64| end.is_some_and(|end| end.0.abs_diff(us * 1_000) <= 2_000);
        assert!(near(median[0], 468) && near(median[1], 533), "{median:?}");
        assert!(tail[0].is_some() && tail[1].is_none(), "{tail:?}");
        assert_eq!(curve.longer.last(), Some(&0.0));
        assert!(Curve::of_buckets("x", 1, &[]).is_none());
    }

    proptest! {
        /// Whatever the values: few points, both axes monotonic, the ends exact.
        #[test]
        fn a_thinned_curve_is_a_curve(mut values in proptest::collection::vec((0u64..1 << 40, 1u64..1000), 1..4000)) {
            values.sort_unstable();
            values.dedup_by_key(|(ns, _)| *ns);
            let buckets: Vec<(Ns, u64)> = values.iter().map(|(ns, count)| (Ns(*ns), *count)).collect();
            let curve = Curve::of_buckets("x", 1, &buckets).unwrap();
            prop_assert!(curve.ns.len() <= POINTS + 1);
            prop_assert!(curve.ns.windows(2).all(|pair| pair[0] < pair[1]));
            prop_assert!(curve.longer.windows(2).all(|pair| pair[0] >= pair[1]));
            prop_assert_eq!(curve.ns[0], values[0].0);
            prop_assert_eq!(*curve.ns.last().unwrap(), curve.ladder.max.0);
        }
    }
}
