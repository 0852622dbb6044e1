//! Random lengths: one stream per entity, integers out, the same bits on every machine.

use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use schedlab_model::random::{GOLDEN, mix};
use schedlab_model::{Draw, Ns};

/// What a stream belongs to. Part of the seed, so that adding a task does not shift the source's
/// stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entity {
    /// A task of the workload.
    Task,
    /// The gaps, wires and thinking times of a source.
    Source,
    /// The delays of a CPU.
    Cpu,
}

/// The random stream of one entity with the state of its distributions.
#[derive(Debug)]
pub(crate) struct Stream {
    pcg: Pcg64Mcg,
    /// State of [`Draw::SplitMix`]: one generator per entity, seeded with its number.
    splitmix: u64,
    /// Position of [`Draw::Cycle`], one per distribution of the entity.
    cursors: Vec<u32>,
}

impl Stream {
    /// Returns the stream of entity `index` of a run with `seed`, which draws from `draws`
    /// distributions.
    pub(crate) fn new(seed: u64, entity: Entity, index: usize, draws: usize) -> Stream {
        let a = mix(seed.wrapping_add(GOLDEN));
        let b = mix(a ^ (entity as u64 + 1).wrapping_mul(GOLDEN));
        let c = mix(b.wrapping_add((index as u64 + 1).wrapping_mul(GOLDEN)));
        let state = (u128::from(c) << 64) | u128::from(mix(c ^ b));
        Stream { pcg: Pcg64Mcg::new(state), splitmix: index as u64, cursors: vec![0; draws] }
    }

    /// Returns one draw from `draw`, which is distribution number `slot` of the entity.
    pub(crate) fn draw(&mut self, draw: &Draw, slot: usize) -> u64 {
        match draw {
            Draw::Fixed(ns) => ns.0,
            Draw::Uniform { low, high } => {
                let span = high.0.saturating_sub(low.0);
                low.0 + if span == u64::MAX { self.pcg.next_u64() } else { self.below(span + 1) }
            }
            Draw::Exponential { mean } => to_ns(-libm::log(self.unit()) * mean.0 as f64),
            Draw::LogNormal { median, sigma_permille } => {
                let sigma = f64::from(*sigma_permille) / 1000.0;
                to_ns(median.0 as f64 * libm::exp(sigma * self.normal()))
            }
            Draw::Mix(parts) => {
                let total: u64 = parts.iter().map(|(weight, _)| u64::from(*weight)).sum();
                if total == 0 {
                    return 0;
                }
                let mut at = self.below(total);
                for (weight, part) in parts {
                    match at.checked_sub(u64::from(*weight)) {
                        Some(rest) => at = rest,
                        None => return self.draw(part, slot),
                    }
                }
                0
            }
            Draw::Cycle(values) => self.cycle(values, slot),
            Draw::Empirical(values) if values.is_empty() => 0,
            Draw::Empirical(values) => values[self.below(values.len() as u64) as usize].0,
            Draw::SplitMix { low, span } => {
                self.splitmix = self.splitmix.wrapping_add(GOLDEN);
                low.0 + mix(self.splitmix) % span.0.max(1)
            }
        }
    }

    fn cycle(&mut self, values: &[Ns], slot: usize) -> u64 {
        let cursor = &mut self.cursors[slot];
        let Some(value) = values.get(*cursor as usize) else { return 0 };
        *cursor = if *cursor as usize + 1 == values.len() { 0 } else { *cursor + 1 };
        value.0
    }

    /// Returns a whole number below `bound`, each equally likely (multiply and reject).
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        let mut wide = u128::from(self.pcg.next_u64()) * u128::from(bound);
        if (wide as u64) < bound {
            let threshold = bound.wrapping_neg() % bound;
            while (wide as u64) < threshold {
                wide = u128::from(self.pcg.next_u64()) * u128::from(bound);
            }
        }
        (wide >> 64) as u64
    }

    /// Returns a number in (0, 1] with 53 random bits.
    fn unit(&mut self) -> f64 {
        ((self.pcg.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Returns a standard normal number (Box and Muller; the second one is thrown away to keep no
    /// state).
    fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(-2.0 * libm::log(self.unit()));
        radius * libm::cos(2.0 * std::f64::consts::PI * self.unit())
    }
}

/// Returns the nearest whole nanosecond (of two the later one), between 0 and about 146 years.
/// Without `libm::round`, which is a call: both parts of the number are exact, and above 2^52 there
/// is no second one.
#[inline]
fn to_ns(value: f64) -> u64 {
    let whole = (value as u64).min(1 << 62);
    (whole + u64::from(value - whole as f64 >= 0.5)).min(1 << 62)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(draw: &Draw) -> f64 {
        let mut stream = Stream::new(1, Entity::Task, 0, 1);
        (0..200_000).map(|_| stream.draw(draw, 0) as f64).sum::<f64>() / 200_000.0
    }

    #[test]
    fn means_are_right() {
        let near = |draw: Draw, expected: f64| {
            let got = mean(&draw);
            assert!((got / expected - 1.0).abs() < 0.01, "{draw:?}: {got}, expected {expected}");
        };
        near(Draw::Exponential { mean: Ns(50_000) }, 50_000.0);
        near(Draw::Uniform { low: Ns(10), high: Ns(20) }, 15.0);
        near(
            Draw::LogNormal { median: Ns(10_000), sigma_permille: 500 },
            10_000.0 * 0.125f64.exp(),
        );
        near(Draw::Mix(vec![(3, Draw::Fixed(Ns(100))), (1, Draw::Fixed(Ns(900)))]), 300.0);
        near(Draw::Cycle(vec![Ns(1), Ns(2), Ns(3)]), 2.0);
        near(Draw::Empirical(vec![Ns(10), Ns(30)]), 20.0);
    }

    #[test]
    fn lengths_are_rounded_as_by_the_library() {
        let rounded = |value: f64| libm::round(value).clamp(0.0, (1u64 << 62) as f64) as u64;
        let edges = [
            0.0,
            -0.0,
            -0.5,
            -7.0,
            0.499_999_999_999_999_94,
            0.5,
            1.5,
            2.5,
            4_503_599_627_370_495.5,
            4_503_599_627_370_497.0,
            1e18,
            4.7e18,
            1e300,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
        ];
        let mut stream = Stream::new(3, Entity::Task, 0, 0);
        let drawn = (0..10_000).map(|power| stream.unit() * 2f64.powi(power % 64));
        for value in edges.into_iter().chain(drawn) {
            assert_eq!(to_ns(value), rounded(value), "{value}");
        }
    }

    #[test]
    fn streams_are_fixed() {
        // The bits are part of the results of every scenario: a change must be seen here first.
        let mut stream = Stream::new(7, Entity::Source, 3, 0);
        let drawn: Vec<u64> =
            (0..4).map(|_| stream.draw(&Draw::Exponential { mean: Ns(1_000_000) }, 0)).collect();
        assert_eq!(drawn, STREAM_7_SOURCE_3);
    }

    const STREAM_7_SOURCE_3: [u64; 4] = [1_304_339, 372_926, 2_725_103, 72_160];
}
