//! Load tracking (PELT, Linux 3.8+): how much a task or a queue wanted and used the CPU lately.
//!
//! Time is cut into periods of 1024 µs (of 1024 ns each). What happened `n` periods ago counts `y^n`, with
//! `y^32 = 1/2`. A signal that is on all the time reaches the sum [`MAX_SUM`]; an average is a sum divided by
//! the largest sum that is possible at this point of the period.
//!
//! Sums only are kept; averages are computed when somebody reads them. Decay over any number of periods is one
//! step, so a signal costs the same after 1 ms as after 10 s, and nothing has to be done at ticks.
//!
//! | rule | where the real system has it | here | test |
//! |---|---|---|---|
//! | y^32 = 1/2, 1024 µs periods, integer decay with 32 factors | `kernel/sched/pelt.c` 3.8+ | modelled | `halves_every_32_periods` |
//! | largest sum 47742 | same | modelled | `a_signal_that_is_always_on_reaches_the_maximum` |
//! | averages refreshed at period ends and ticks | same | simplified: exact at every read | – |
//! | frequency and capacity scaling, time lost while idle | `clock_pelt` | omitted: every CPU has capacity 1024 | – |
//! | the clock of a throttled queue stops | 6.1 `throttled_clock_pelt` | modelled, see `groups` | `a_stopped_clock_keeps_the_signal` |
//! | `util_est` | 4.17+ | omitted | – |

use schedlab_model::Ns;

/// The sum of a signal that was always on (`1024 · Σ y^n`, with the integer decay of the kernel).
pub(super) const MAX_SUM: u64 = 47_742;
/// A fully used CPU, and the capacity of one.
pub(super) const SCALE: u64 = 1024;
/// Periods (of 1024 · 1024 ns) to half a signal.
const HALF_LIFE: u64 = 32;
/// Nanoseconds of one unit of time.
const UNIT_SHIFT: u32 = 10;

/// `floor((2^32 − 1) · y^n)` for n = 0 … 31, from five square roots of one half.
const FACTORS: [u64; HALF_LIFE as usize] = factors();

const fn factors() -> [u64; HALF_LIFE as usize] {
    // y in units of 2^-64: one half, square-rooted five times.
    let mut y: u128 = 1 << 63;
    let mut root = 0;
    while root < 5 {
        y = (y << 64).isqrt();
        root += 1;
    }
    let mut table = [u32::MAX as u64; HALF_LIFE as usize];
    let mut power = y;
    let mut n = 1;
    while n < HALF_LIFE as usize {
        table[n] = ((power * (u32::MAX as u128)) >> 64) as u64;
        power = (power * y) >> 64;
        n += 1;
    }
    table
}

/// By number of whole periods: what a signal gains that was on in all of them but the first and the last.
const WHOLE: [u64; HALF_LIFE as usize] = {
    let mut table = [0; HALF_LIFE as usize];
    let mut periods = 1;
    while periods < HALF_LIFE {
        table[periods as usize] = MAX_SUM - decay(MAX_SUM, periods) - 1024;
        periods += 1;
    }
    table
};

/// `value · factor / 2^32`, rounded down.
#[inline]
const fn scaled(value: u64, factor: u64) -> u64 {
    ((value as u128 * factor as u128) >> 32) as u64
}

/// `value · y^periods`, rounded down.
#[inline]
pub(super) const fn decay(value: u64, periods: u64) -> u64 {
    if periods == 0 {
        return value;
    }
    let halvings = periods / HALF_LIFE;
    if halvings > 63 {
        return 0;
    }
    scaled(value >> halvings, FACTORS[(periods % HALF_LIFE) as usize])
}

/// What a signal did since it was looked at last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Inputs {
    /// Tasks: 1 while runnable. Queues: the sum of the weights.
    pub(super) load: u64,
    /// Tasks: 1 while runnable. Queues: how many tasks are runnable.
    pub(super) runnable: u64,
    /// Whether it ran.
    pub(super) running: bool,
}

/// The three sums of one task or one queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Pelt {
    /// Up to here the sums are right; a whole number of units.
    at_ns: u64,
    /// Units of the unfinished period, below 1024.
    part: u64,
    load: u64,
    runnable: u64,
    util: u64,
}

impl Pelt {
    /// All zero, at time `now`.
    pub(super) fn zero(now: Ns) -> Pelt {
        Pelt { at_ns: now.0, ..Pelt::default() }
    }

    /// Time up to `now` has passed, during which `inputs` held.
    #[inline]
    pub(super) fn advance(&mut self, now: Ns, inputs: Inputs) {
        let units = now.0.saturating_sub(self.at_ns) >> UNIT_SHIFT;
        if units == 0 {
            return;
        }
        self.at_ns += units << UNIT_SHIFT;
        let total = units + self.part;
        let gained = if total < 1024 { units } else { self.cross(total) };
        self.part = total & 1023;
        self.load += inputs.load * gained;
        self.runnable += (inputs.runnable * gained) << 10;
        self.util += (gained << 10) * u64::from(inputs.running);
    }

    /// Periods end: the sums decay. Gives the largest possible gain of the `total` units since the period began,
    /// without those that were counted before.
    #[inline]
    fn cross(&mut self, total: u64) -> u64 {
        let (periods, first) = (total >> 10, 1024 - self.part);
        if periods >= HALF_LIFE {
            return self.cross_many(periods, first) + (total & 1023);
        }
        let n = (periods % HALF_LIFE) as usize;
        let factor = FACTORS[n];
        self.load = scaled(self.load, factor);
        self.runnable = scaled(self.runnable, factor);
        self.util = scaled(self.util, factor);
        scaled(first, factor) + WHOLE[n] + (total & 1023)
    }

    #[cold]
    fn cross_many(&mut self, periods: u64, first: u64) -> u64 {
        self.load = decay(self.load, periods);
        self.runnable = decay(self.runnable, periods);
        self.util = decay(self.util, periods);
        decay(first, periods) + MAX_SUM - decay(MAX_SUM, periods) - 1024
    }

    /// Time up to `now` passed unseen (the clock of a throttled queue stood still).
    pub(super) fn skip_to(&mut self, now: Ns) {
        self.at_ns = now.0.max(self.at_ns);
    }

    /// The largest sum that is possible at this point of the period.
    #[inline]
    fn largest(&self) -> u64 {
        MAX_SUM - 1024 + self.part
    }

    /// Average load: a queue's in weight units; a task's must be multiplied by its weight (`weight`).
    #[inline]
    pub(super) fn load_avg(&self, weight: u64) -> u64 {
        weight * self.load / self.largest()
    }

    /// Average number of runnable tasks × 1024.
    #[inline]
    pub(super) fn runnable_avg(&self) -> u64 {
        self.runnable / self.largest()
    }

    /// Average use of a CPU, 0 … 1024.
    #[inline]
    pub(super) fn util_avg(&self) -> u64 {
        self.util / self.largest()
    }

    /// Starts a new task: full load, and the given use (0 … 1024).
    pub(super) fn start_task(&mut self, now: Ns, util: u64) {
        *self = Pelt::zero(now);
        let largest = self.largest();
        self.load = largest;
        self.util = util * largest;
        self.runnable = self.util;
    }

    /// A task's (or a child queue's) share arrives on this queue, `load` being its average load.
    pub(super) fn attach(&mut self, load: u64, runnable: u64, util: u64) {
        let largest = self.largest();
        self.load += load * largest;
        self.runnable += runnable * largest;
        self.util += util * largest;
    }

    /// A task's share leaves this queue.
    pub(super) fn detach(&mut self, load: u64, runnable: u64, util: u64) {
        let largest = self.largest();
        self.load = self.load.saturating_sub(load * largest);
        self.runnable = self.runnable.saturating_sub(runnable * largest);
        self.util = self.util.saturating_sub(util * largest);
    }

    /// Time and sums, to be published.
    pub(super) fn parts(&self) -> [u64; 5] {
        [self.at_ns, self.part, self.load, self.runnable, self.util]
    }

    /// The opposite of [`parts`](Self::parts).
    pub(super) fn from_parts([at_ns, part, load, runnable, util]: [u64; 5]) -> Pelt {
        Pelt { at_ns, part, load, runnable, util }
    }

    /// The averages that this signal will have at `now` if `inputs` hold until then, without changing it.
    pub(super) fn at(&self, now: Ns, inputs: Inputs) -> Pelt {
        let mut later = *self;
        later.advance(now, inputs);
        later
    }
}

/// A [`Pelt`] with what is on now, so that it can be brought up to date after a change.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Signal {
    pelt: Pelt,
    inputs: Inputs,
    /// It is not what was published last.
    moved: bool,
}

impl Signal {
    /// Off and empty, at `now`.
    pub(super) fn zero(now: Ns) -> Signal {
        Signal { pelt: Pelt::zero(now), inputs: Inputs::default(), moved: true }
    }
    /// Until `now` the old inputs held; from now on these do. Without a change nothing is computed: a tick that
    /// the driver leaves out must not make a difference, not even in rounding.
    #[inline]
    pub(super) fn set(&mut self, now: Ns, inputs: Inputs) {
        if inputs != self.inputs {
            self.pelt.advance(now, self.inputs);
            self.inputs = inputs;
            self.moved = true;
        }
    }
    /// Whether it has changed since this was asked last.
    #[inline]
    pub(super) fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }
    /// The clock of this signal stood still until `now`.
    pub(super) fn resume(&mut self, now: Ns) {
        self.pelt.skip_to(now);
        self.moved = true;
    }
    /// Brings the sums up to `now` and gives them.
    #[inline]
    pub(super) fn at(&mut self, now: Ns) -> &mut Pelt {
        self.pelt.advance(now, self.inputs);
        self.moved = true;
        &mut self.pelt
    }
    /// As it will be at `now`, without changing anything.
    #[inline]
    pub(super) fn peek(&self, now: Ns) -> Pelt {
        self.pelt.at(now, self.inputs)
    }
    /// As of the last change.
    #[inline]
    pub(super) fn pelt(&self) -> &Pelt {
        &self.pelt
    }
    /// What is on.
    #[inline]
    pub(super) fn inputs(&self) -> Inputs {
        self.inputs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PERIOD: u64 = 1024 * 1024;
    const ON: Inputs = Inputs { load: 1, runnable: 1, running: true };
    const OFF: Inputs = Inputs { load: 0, runnable: 0, running: false };

    #[test]
    fn factors_are_the_powers_of_the_32nd_root_of_one_half() {
        // Known values of 2^32 / 2^(n/32).
        assert_eq!(FACTORS[0], 0xffff_ffff);
        assert_eq!(FACTORS[1], 0xfa83_b2da);
        assert_eq!(FACTORS[16], 0xb504_f333);
        assert_eq!(FACTORS[31], 0x82cd_8698);
    }

    #[test]
    fn halves_every_32_periods() {
        assert_eq!(decay(1 << 20, 32), ((1u64 << 19) * 0xffff_ffff) >> 32);
        assert_eq!(decay(MAX_SUM, 64), (MAX_SUM / 4 * 0xffff_ffff) >> 32);
        assert_eq!(decay(u64::MAX, 32 * 64), 0);
        assert_eq!(decay(77, 0), 77);
    }

    #[test]
    fn a_signal_that_is_always_on_reaches_the_maximum() {
        let mut pelt = Pelt::zero(Ns(0));
        // Period by period, as an observer who looks all the time sees it.
        for period in 1..=1000 {
            pelt.advance(Ns(period * PERIOD), ON);
        }
        pelt.advance(Ns(1000 * PERIOD + 1023 * 1024), ON);
        assert!(pelt.load <= MAX_SUM && pelt.load + 8 >= MAX_SUM, "{pelt:?}");
        assert!((1020..=1024).contains(&pelt.util_avg()), "{}", pelt.util_avg());
        assert!((1020..=1024).contains(&pelt.load_avg(1024)));
    }

    #[test]
    fn half_the_time_is_half_the_use() {
        let mut pelt = Pelt::zero(Ns(0));
        for period in 0..2000u64 {
            pelt.advance(Ns(period * PERIOD + PERIOD / 2), ON);
            pelt.advance(Ns((period + 1) * PERIOD), OFF);
        }
        assert!((500..=520).contains(&pelt.util_avg()), "{}", pelt.util_avg());
    }

    #[test]
    fn a_stopped_clock_keeps_the_signal() {
        let mut pelt = Pelt::zero(Ns(0));
        pelt.advance(Ns(100 * PERIOD), ON);
        let before = pelt.util_avg();
        pelt.skip_to(Ns(900 * PERIOD));
        assert_eq!(pelt.util_avg(), before);
        pelt.advance(Ns(932 * PERIOD), OFF);
        assert!(pelt.util_avg().abs_diff(before / 2) <= 1);
    }

    #[test]
    fn what_is_attached_can_be_detached() {
        let mut queue = Pelt::zero(Ns(0));
        queue.advance(Ns(50 * PERIOD), Inputs { load: 2048, runnable: 2, running: true });
        let before = queue;
        queue.attach(700, 1024, 300);
        assert_eq!(queue.util_avg(), before.util_avg() + 300);
        queue.detach(700, 1024, 300);
        assert_eq!(queue, before);
        queue.detach(1 << 30, 1 << 30, 1 << 30);
        assert_eq!(queue.load_avg(1), 0);
    }

    proptest! {
        /// However often one looks, a signal stays within its bounds and ends within rounding of the one-step
        /// result.
        #[test]
        fn looking_more_often_changes_only_rounding(
            steps in proptest::collection::vec((1u64..20_000_000, any::<bool>()), 1..60),
            cut in 1u64..8,
        ) {
            let (mut coarse, mut fine) = (Pelt::zero(Ns(0)), Pelt::zero(Ns(0)));
            let mut now = 0;
            for (length, on) in steps {
                let inputs = if on { ON } else { OFF };
                for k in 1..=cut {
                    fine.advance(Ns(now + length * k / cut), inputs);
                }
                now += length;
                coarse.advance(Ns(now), inputs);
            }
            prop_assert!(coarse.util_avg() <= 1024 && fine.util_avg() <= 1024);
            prop_assert!(coarse.load <= MAX_SUM && fine.load <= MAX_SUM);
            prop_assert!(coarse.util_avg().abs_diff(fine.util_avg()) <= 12,
                "{} {}", coarse.util_avg(), fine.util_avg());
        }
    }
}
