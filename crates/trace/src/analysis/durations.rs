//! A distribution of durations.

mod pages;

use pages::Pages;
use schedlab_model::Ns;
use std::borrow::Cow;

/// So many different durations are kept as a list, with 6 bytes each; more in pages
/// ([`Pages`]), where one more costs the same however many there are. A recording of a large
/// machine has thousands of distributions of some hundreds of values.
const FEW: usize = 512;
/// Longer durations count as this.
const LONGEST: u64 = u64::MAX / 4;
/// Durations below this have a bucket each; above, every octave has half as many: three significant
/// digits, as those of the crate `hdrhistogram`, whose histogram has 70 KB or more and is read from
/// end to end for each question.
const EXACT: u64 = 2_048;

/// How durations are distributed: exact count, sum and extremes; quantiles to 3 significant digits.
/// Few ones take little memory.
#[derive(Clone, Debug, Default)]
pub struct Durations {
    counts: Counts,
    count: u64,
    sum: u128,
    /// The shortest and the longest; a bucket is up to 0.1 % off.
    extremes: Option<(Ns, Ns)>,
}

/// So many durations are taken down before they are sorted in, or a quarter of those that are: a
/// search for each would be most of what a summary costs.
const FRESH: usize = 64;

/// How often durations of each bucket came.
#[derive(Clone, Debug)]
enum Counts {
    Few(List),
    Many(Box<Pages>),
}

/// Buckets that are not empty.
#[derive(Clone, Debug, Default)]
struct List {
    /// Ascending.
    sorted: Vec<Bucket>,
    /// The numbers of the buckets of durations that are not sorted in yet.
    fresh: Vec<u16>,
}

/// A bucket and its count, in 6 bytes.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    number: u16,
    count: [u16; 2],
}

impl Bucket {
    fn new(number: u16, count: u32) -> Bucket {
        Bucket { number, count: [count as u16, (count >> 16) as u16] }
    }

    fn count(self) -> u32 {
        u32::from(self.count[0]) | u32::from(self.count[1]) << 16
    }

    fn add(&mut self, count: u32) {
        *self = Bucket::new(self.number, self.count().saturating_add(count));
    }
}

impl Default for Counts {
    fn default() -> Counts {
        Counts::Few(List::default())
    }
}

/// The number of the bucket of a duration up to [`LONGEST`]: fewer than 2^16.
const fn number(duration: u64) -> u16 {
    if duration < EXACT {
        return duration as u16;
    }
    let shift = duration.ilog2() - (EXACT.ilog2() - 1);
    // The upper half of the octave's numbers: the lower half are those of the octave below.
    (shift as u64 * (EXACT / 2) + (duration >> shift)) as u16
}

/// The largest value of the bucket with a number.
fn top(number: u16) -> u64 {
    let number = u64::from(number);
    if number < EXACT {
        return number;
    }
    let shift = number / (EXACT / 2) - 1;
    ((number - shift * (EXACT / 2) + 1) << shift) - 1
}

/// Adds buckets, which ascend and may come several times, to a list that ascends.
fn merge(list: &mut Vec<Bucket>, more: impl DoubleEndedIterator<Item = Bucket> + Clone) {
    let (mut at, mut new, mut before) = (0, 0, None);
    for bucket in more.clone() {
        while list.get(at).is_some_and(|known| known.number < bucket.number) {
            at += 1;
        }
        let known = list.get(at).is_some_and(|known| known.number == bucket.number);
        let again = before.replace(bucket.number) == Some(bucket.number);
        new += usize::from(!known && !again);
    }
    let mut from = list.len();
    list.reserve_exact(new);
    list.resize(from + new, Bucket::new(0, 0));
    // From the largest on, so that nothing is overwritten that is still to be read.
    let mut to = list.len();
    for bucket in more.rev() {
        while from > 0 && list[from - 1].number > bucket.number {
            (from, to) = (from - 1, to - 1);
            list[to] = list[from];
        }
        if from > 0 && list[from - 1].number == bucket.number {
            list[from - 1].add(bucket.count());
        } else if list.get(to).is_some_and(|last| last.number == bucket.number) {
            list[to].add(bucket.count());
        } else {
            to -= 1;
            list[to] = bucket;
        }
    }
}

impl List {
    fn is_empty(&self) -> bool {
        self.sorted.is_empty() && self.fresh.is_empty()
    }

    /// Whether it is time to sort the fresh ones in.
    fn is_due(&self) -> bool {
        self.fresh.len() >= FRESH.max(self.sorted.len() / 4)
    }

    /// All of them, ascending.
    fn settled(&self) -> Cow<'_, [Bucket]> {
        if self.fresh.is_empty() {
            return Cow::Borrowed(&self.sorted);
        }
        let mut all = self.clone();
        all.settle();
        Cow::Owned(all.sorted)
    }

    fn settle(&mut self) {
        self.fresh.sort_unstable();
        merge(&mut self.sorted, self.fresh.iter().map(|&one| Bucket::new(one, 1)));
        self.fresh.clear();
    }
}

impl Counts {
    fn add(&mut self, duration: u64) {
        match self {
            Counts::Few(list) => {
                list.fresh.push(number(duration));
                if list.is_due() {
                    list.settle();
                    self.grow();
                }
            }
            Counts::Many(pages) => pages.add(number(duration), 1),
        }
    }

    /// A list that has become too long is in pages from now on.
    fn grow(&mut self) {
        if matches!(self, Counts::Few(list) if list.sorted.len() > FEW) {
            self.many();
        }
    }

    /// From now on in pages.
    fn many(&mut self) {
        if let Counts::Few(list) = self {
            let mut pages = Box::new(Pages::default());
            pages.add_list(list);
            *self = Counts::Many(pages);
        }
    }

    fn merge(&mut self, other: &Counts) {
        match (&mut *self, other) {
            (Counts::Few(own), _) if own.is_empty() => self.clone_from(other),
            (Counts::Few(own), Counts::Few(theirs)) => {
                own.fresh.extend_from_slice(&theirs.fresh);
                if !theirs.sorted.is_empty() {
                    own.settle();
                    merge(&mut own.sorted, theirs.sorted.iter().copied());
                } else if own.is_due() {
                    own.settle();
                }
                self.grow();
            }
            (Counts::Many(own), Counts::Few(theirs)) => own.add_list(theirs),
            (Counts::Many(own), Counts::Many(theirs)) => own.add_all(theirs),
            (Counts::Few(_), Counts::Many(_)) => {
                self.many();
                self.merge(other);
            }
        }
    }

    /// The buckets that are not empty: the largest value and the count, ascending.
    fn buckets(&self) -> Buckets<'_> {
        match self {
            Counts::Few(list) => Buckets::Few(list.settled(), 0),
            Counts::Many(pages) => Buckets::Many(pages.buckets()),
        }
    }
}

/// See [`Counts::buckets`].
enum Buckets<'a> {
    /// The list, and the place of the next.
    Few(Cow<'a, [Bucket]>, usize),
    Many(pages::Buckets<'a>),
}

impl Iterator for Buckets<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        let (number, count) = match self {
            Buckets::Few(list, at) => {
                *at += 1;
                list.get(*at - 1).map(|bucket| (bucket.number, bucket.count()))?
            }
            Buckets::Many(pages) => pages.next()?,
        };
        Some((top(number), u64::from(count)))
    }
}

impl Durations {
    /// Adds one.
    pub fn add(&mut self, duration: Ns) {
        self.counts.add(duration.0.min(LONGEST));
        self.count += 1;
        self.sum += u128::from(duration.0);
        self.reach(duration, duration);
    }

    /// Puts the values in order once, for many questions about them.
    pub fn settle(&mut self) {
        if let Counts::Few(list) = &mut self.counts {
            list.settle();
            list.fresh.shrink_to_fit();
        }
    }

    #[inline]
    fn reach(&mut self, low: Ns, high: Ns) {
        let (least, most) = self.extremes.unwrap_or((low, high));
        self.extremes = Some((least.min(low), most.max(high)));
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Durations) {
        self.count += other.count;
        self.sum += other.sum;
        if let Some((low, high)) = other.extremes {
            self.reach(low, high);
        }
        self.counts.merge(&other.counts);
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The arithmetic mean; 0 when empty.
    pub fn mean(&self) -> Ns {
        Ns((self.sum / u128::from(self.count().max(1))) as u64)
    }

    /// All together.
    pub fn sum(&self) -> Ns {
        Ns(u64::try_from(self.sum).unwrap_or(u64::MAX))
    }

    /// The duration that `per_million` millionths of all do not exceed (500_000 is the median); 0
    /// when empty.
    pub fn quantile(&self, per_million: u32) -> Ns {
        if let (Counts::Many(pages), Some((low, high)), 1..1_000_000) =
            (&self.counts, self.extremes, per_million)
        {
            // Whole pages are counted until the one in which it is.
            let found = pages.of_rank(self.rank(per_million));
            return found.map_or(high, |number| Ns(top(number)).clamp(low, high));
        }
        let [value] = self.quantiles([per_million])[..] else { return Ns::ZERO };
        value
    }

    /// The rank of a part of all, from 1 (nearest rank).
    fn rank(&self, per_million: u32) -> u64 {
        let part = f64::from(per_million) / 1e6;
        ((part * self.count as f64).ceil() as u64).max(1)
    }

    /// Returns the same for many parts, which ascend; nothing when empty. The buckets are read
    /// once for all of them.
    fn quantiles(&self, parts: impl IntoIterator<Item = u32>) -> Vec<Ns> {
        let Some((low, high)) = self.extremes else { return Vec::new() };
        let (mut buckets, mut seen, mut reached) = (self.counts.buckets(), 0, 0);
        let mut quantile = |per_million: u32| {
            if per_million == 0 {
                return low;
            }
            if per_million >= 1_000_000 {
                return high;
            }
            // The bucket in which this part of all is reached.
            let rank = self.rank(per_million);
            while seen < rank {
                let Some((top, count)) = buckets.next() else { break };
                (seen, reached) = (seen + count, top);
            }
            Ns(reached).clamp(low, high)
        };
        parts.into_iter().map(&mut quantile).collect()
    }

    /// The median.
    pub fn p50(&self) -> Ns {
        self.quantile(500_000)
    }

    /// 99 of 100 do not exceed it.
    pub fn p99(&self) -> Ns {
        self.quantile(990_000)
    }

    /// Returns the two durations between which the quantile lies with 95 %, by order statistics:
    /// whatever the distribution. `None` at an end: the values are too few to say where it is.
    pub fn interval(&self, per_million: u32) -> (Option<Ns>, Option<Ns>) {
        let buckets: Vec<(u64, u64)> =
            self.buckets().map(|(value, count)| (value.0, count)).collect();
        let [low, high] = schedlab_stats::quantile_interval(f64::from(per_million) / 1e6, &buckets);
        (low.map(Ns), high.map(Ns))
    }

    /// The shortest, exactly; 0 when empty.
    pub fn min(&self) -> Ns {
        self.extremes.map_or(Ns::ZERO, |(low, _)| low)
    }

    /// The longest, exactly; 0 when empty.
    pub fn max(&self) -> Ns {
        self.extremes.map_or(Ns::ZERO, |(_, high)| high)
    }

    /// `count` values that are distributed like all: evenly spaced quantiles. Empty when this is.
    pub fn sample(&self, count: u32) -> Vec<Ns> {
        let middle = |i: u32| ((2 * u64::from(i) + 1) * 1_000_000 / (2 * u64::from(count))) as u32;
        self.quantiles((0..count).map(middle))
    }

    /// Returns the largest value of each non-empty bucket and its count, ascending; the last is the
    /// longest, exactly.
    pub fn buckets(&self) -> impl Iterator<Item = (Ns, u64)> + '_ {
        self.counts.buckets().map(|(top, count)| (Ns(top).min(self.max()), count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::Histogram;
    use proptest::prelude::*;

    /// A bucket of 12 ms reaches to 12.008 ms.
    #[test]
    fn extremes_are_exact_in_the_buckets_too() {
        let mut all = Durations::default();
        [Ns::from_us(50), Ns::from_ms(12)].into_iter().for_each(|one| all.add(one));
        assert_eq!((all.min(), all.max()), (Ns::from_us(50), Ns::from_ms(12)));
        assert_eq!(all.quantile(1_000_000), Ns::from_ms(12));
        assert_eq!(all.buckets().last(), Some((Ns::from_ms(12), 1)));
        // The bucket alone does not know it.
        assert_ne!(top(number(12_000_000)), 12_000_000);
    }

    /// The buckets lie end to end, from 0 to the longest duration.
    #[test]
    fn every_duration_has_one_bucket() {
        let last = number(LONGEST);
        assert_eq!((number(0), top(last)), (0, LONGEST));
        for bucket in 0..last {
            assert_eq!(number(top(bucket)), bucket);
            assert_eq!(number(top(bucket) + 1), bucket + 1);
        }
    }

    /// Of 1000 values the binomial rule takes the 984th and the 997th for p99 (mean 990, standard
    /// deviation 3.1), and of 100 none above it.
    #[test]
    fn percentiles_have_intervals_by_order_statistics() {
        let mut all = Durations::default();
        (1..=100u64).for_each(|us| all.add(Ns::from_us(us)));
        assert_eq!(all.interval(990_000).1, None);
        assert!(all.interval(990_000).0.is_some_and(|low| low > Ns::from_us(90)));
        (101..=1_000u64).for_each(|us| all.add(Ns::from_us(us)));
        let (low, high) = schedlab_stats::quantile_ranks(1_000, 0.99);
        let near = |end: Option<Ns>, rank: Option<u64>| {
            end.unwrap().0.abs_diff(Ns::from_us(rank.unwrap()).0) <= 1_000
        };
        let (least, most) = all.interval(990_000);
        assert!(near(least, low) && near(most, high), "{least:?} {most:?} {low:?} {high:?}");
        assert!(least.unwrap() < all.p99() && all.p99() < most.unwrap());
        assert_eq!(Durations::default().interval(500_000), (None, None));
    }

    fn of(values: &[u64]) -> Durations {
        let mut all = Durations::default();
        values.iter().for_each(|value| all.add(Ns(*value)));
        all
    }

    proptest! {
        /// A list of few durations says what pages say of them, and `hdrhistogram`.
        #[test]
        fn a_list_is_as_pages_and_as_the_histogram(values in prop::collection::vec(any::<u64>(), 1..500), shift in 0u32..60, part in 1u32..1_000_000) {
            let values: Vec<u64> = values.into_iter().map(|value| value >> shift).collect();
            let few = of(&values);
            let mut many = few.clone();
            many.counts.many();
            prop_assert_eq!(few.count(), values.len() as u64);
            prop_assert_eq!(few.count(), many.count());
            let mut histogram = Histogram::<u32>::new(3).unwrap();
            values.iter().for_each(|value| histogram.record((*value).min(LONGEST)).unwrap());
            let (low, high) = few.extremes.unwrap();
            let expected = Ns(histogram.value_at_quantile(f64::from(part) / 1e6)).clamp(low, high);
            prop_assert_eq!(few.quantile(part), expected);
            let recorded = histogram.iter_recorded();
            let recorded = recorded.map(|bucket| (Ns(bucket.value_iterated_to()).min(high), u64::from(bucket.count_at_value())));
            prop_assert_eq!(recorded.collect::<Vec<_>>(), many.buckets().collect::<Vec<_>>());
            prop_assert_eq!(few.quantile(part), many.quantile(part));
            prop_assert_eq!(few.interval(part), many.interval(part));
            prop_assert_eq!(few.buckets().collect::<Vec<_>>(), many.buckets().collect::<Vec<_>>());
        }

        /// In whatever form the two are.
        #[test]
        fn merging_is_adding_all(one in prop::collection::vec(0u64..9_000, 0..1_200), two in prop::collection::vec(0u64..9_000, 0..1_200)) {
            let all = of(&[one.clone(), two.clone()].concat());
            let mut merged = of(&one);
            merged.merge(&of(&two));
            prop_assert_eq!(all.buckets().collect::<Vec<_>>(), merged.buckets().collect::<Vec<_>>());
            prop_assert_eq!((all.count(), all.sum(), all.min(), all.max()), (merged.count(), merged.sum(), merged.min(), merged.max()));
        }
    }

    /// As many different values as make a list into pages on its way.
    #[test]
    fn samples_are_quantiles_one_by_one_and_growing_loses_nothing() {
        let values: Vec<u64> = (0..3_000u64).map(|i| i * i * 7 % 1_000_003).collect();
        let all = of(&values);
        assert!(matches!(all.counts, Counts::Many(_)));
        assert_eq!(all.buckets().map(|(_, count)| count).sum::<u64>(), 3_000);
        let sample = all.sample(250);
        let middle = |i: u64| all.quantile((2 * i + 1) as u32 * 2_000);
        assert_eq!(sample, (0..250).map(middle).collect::<Vec<_>>());
        assert_eq!(Durations::default().sample(9), Vec::new());
    }

    #[test]
    fn quantiles_hold_over_nine_decades() {
        let mut all = Durations::default();
        assert_eq!((all.count(), all.p50(), all.max()), (0, Ns(0), Ns(0)));
        (1..=1_000u64).for_each(|i| all.add(Ns(i * 1_000_000)));
        all.add(Ns(3));
        let mut other = Durations::default();
        other.add(Ns::from_s(1_000));
        other.merge(&all);
        assert_eq!(other.count(), 1_002);
        assert_eq!(other.sum(), Ns(500_500 * 1_000_000 + 3 + 1_000_000_000_000));
        assert!(other.p50().0.abs_diff(500_000_000) < 1_000_000, "{}", other.p50());
        assert!(other.p99().0.abs_diff(991_000_000) < 2_000_000, "{}", other.p99());
        assert_eq!((other.min(), other.max()), (Ns(3), Ns::from_s(1_000)));
        assert_eq!((other.quantile(0), other.quantile(1_000_000)), (Ns(3), Ns::from_s(1_000)));
        other.add(Ns(u64::MAX));
    }
}
