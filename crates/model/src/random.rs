//! SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): the mixing function from which seeds, ticks and
//! the schedulers' random numbers follow. Statistics draw from `schedlab-stats`; lengths of a
//! simulated run from `schedlab-sim`.

/// What the state grows by from one number to the next: 2^64 divided by the golden ratio.
pub const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the finaliser of SplitMix64: neighbouring values give unrelated ones.
#[inline]
pub const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_published_stream() {
        // The first numbers of the reference implementation with seed 1234567.
        let mut state = 1_234_567u64;
        let mut next = || {
            state = state.wrapping_add(GOLDEN);
            mix(state)
        };
        assert_eq!([next(), next()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }
}
