//! Load tracking (PELT, Linux 3.8+): how much a task or a queue wanted and used the CPU lately.
//!
//! Time is cut into periods of 1024 µs (of 1024 ns each). What happened `n` periods ago counts
//! `y^n`, with `y^32 = 1/2`. An average is a sum divided by the largest sum that is possible at
//! this point of the period.
//!
//! The kernel lets every sum decay at each period end. Here the sums stand still and the present
//! counts more and more instead: within an *epoch* of 32 periods, what happens in its `n`-th period
//! is added with the weight `y^-n`; when the next epoch begins, sums are halved. What a signal
//! gains between two moments is then the difference of one function of time ([`gain_until`]), which
//! costs the same after 1 ns as after 30 ms, and is exactly additive: however often one looks, the
//! sums are the same to the last bit. So nothing has to be done at ticks, and averages are computed
//! when they are read.
//!
//! | rule | where the real system has it | here | test |
//! |---|---|---|---|
//! | y^32 = 1/2, 1024 µs periods | `kernel/sched/pelt.c` 3.8+ | modelled | `halves_every_32_periods` |
//! | integer decay with 32 factors, largest sum 47742 | same | simplified: 14 more bits, so the largest sum is 47788; averages agree within 0.4 % | `agrees_with_the_integer_decay_of_the_kernel` |
//! | periods begin when the task began | same | simplified: all begin at multiples of 1024 µs | same |
//! | averages refreshed at period ends and ticks | same | simplified: exact at every read | `looking_more_often_changes_nothing` |
//! | frequency and capacity scaling, time lost while idle | `clock_pelt` | omitted: every CPU has capacity 1024 | – |
//! | the clock of a throttled queue stops | 6.1 `throttled_clock_pelt` | modelled, see `groups` | `a_stopped_clock_keeps_the_signal` |
//! | `util_est` | 4.17+ | omitted | – |

mod task;

use schedlab_model::Ns;

pub(in crate::linux) use task::TaskSignal;

/// A fully used CPU, and the capacity of one.
pub(in crate::linux) const SCALE: u64 = 1024;
/// Periods to half a signal, and of an epoch.
const HALF_LIFE: usize = 32;
/// Nanoseconds of one unit of time, units of a period, nanoseconds of a period and of an epoch, as
/// powers of two.
const UNIT_SHIFT: u32 = 10;
const UNITS_SHIFT: u32 = 10;
/// Logarithm of the length of a period in nanoseconds: 1.05 ms.
pub(in crate::linux) const PERIOD_SHIFT: u32 = UNIT_SHIFT + UNITS_SHIFT;
const EPOCH_SHIFT: u32 = PERIOD_SHIFT + HALF_LIFE.trailing_zeros();
/// Bits behind the point of [`GROWTH`] and of the sums.
const FRACTION: u32 = 14;

/// `y^-n` for n = 0 … 31, in units of 2^-[`FRACTION`], rounded down.
const GROWTH: [u64; HALF_LIFE] = growth();
/// What a signal gains in the first n periods of an epoch while it is on; the last one is the whole
/// epoch.
const GAINS: [u64; HALF_LIFE + 1] = {
    let mut table = [0; HALF_LIFE + 1];
    let mut n = 0;
    while n < HALF_LIFE {
        table[n + 1] = table[n] + (GROWTH[n] << UNITS_SHIFT);
        n += 1;
    }
    table
};
/// Both of a period side by side, for they are asked for together.
const STEPS: [[u64; 2]; HALF_LIFE] = {
    let mut table = [[0; 2]; HALF_LIFE];
    let mut n = 0;
    while n < HALF_LIFE {
        table[n] = [GAINS[n], GROWTH[n]];
        n += 1;
    }
    table
};
/// The same of a whole epoch.
const EPOCH_GAIN: u64 = GAINS[HALF_LIFE];

const fn growth() -> [u64; HALF_LIFE] {
    // y^-1 in units of 2^-62: two, square-rooted five times.
    let mut step: u128 = 2 << 62;
    let mut root = 0;
    while root < 5 {
        step = (step << 62).isqrt();
        root += 1;
    }
    let mut table = [0; HALF_LIFE];
    let mut power: u128 = 1 << 62;
    let mut n = 0;
    while n < HALF_LIFE {
        table[n] = (power >> (62 - FRACTION)) as u64;
        power = (power * step) >> 62;
        n += 1;
    }
    table
}

/// Number of the period within its epoch.
#[inline]
const fn period(ns: u64) -> usize {
    (ns >> PERIOD_SHIFT) as usize % HALF_LIFE
}

/// Units of the unfinished period.
#[inline]
const fn part(ns: u64) -> u64 {
    (ns >> UNIT_SHIFT) & ((1 << UNITS_SHIFT) - 1)
}

/// What a signal that is on has gained since the epoch of `ns` began.
#[inline]
const fn gain_until(ns: u64) -> u64 {
    let [gain, growth] = STEPS[period(ns)];
    gain + part(ns) * growth
}

/// A time, with [`gain_until`] it: a decision brings several signals up to one time.
#[derive(Clone, Copy, Debug)]
pub(in crate::linux) struct Moment {
    now: Ns,
    gained: u64,
}

impl Moment {
    #[inline(always)]
    pub(in crate::linux) fn new(now: Ns) -> Moment {
        Moment { now, gained: gain_until(now.0) }
    }
}

/// What a signal did since it was looked at last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::linux) struct Inputs {
    /// Tasks: 1 while runnable. Queues: the sum of the weights.
    pub(in crate::linux) load: u64,
    /// Tasks: 1 while runnable. Queues: how many tasks are runnable.
    pub(in crate::linux) runnable: u64,
    /// Whether it ran.
    pub(in crate::linux) running: bool,
}

/// The three sums of one task or one queue, in units of time at the weight of the epoch's first
/// period.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::linux) struct Pelt {
    /// Up to here the sums are right.
    at_ns: u64,
    /// [`gain_until`] that time.
    gained: u64,
    load: u64,
    runnable: u64,
    util: u64,
}

impl Pelt {
    /// All zero, at time `now`.
    pub(in crate::linux) fn zero(now: Ns) -> Pelt {
        Pelt { at_ns: now.0, gained: gain_until(now.0), ..Pelt::default() }
    }

    /// Time up to `now` has passed, during which `inputs` held.
    #[inline]
    pub(in crate::linux) fn advance(&mut self, now: Ns, inputs: Inputs) {
        self.advance_to(Moment::new(now), inputs);
    }

    #[inline(always)]
    fn advance_to(&mut self, Moment { now, gained }: Moment, inputs: Inputs) {
        if now.0 <= self.at_ns {
            return;
        }
        if now.0 >> EPOCH_SHIFT != self.at_ns >> EPOCH_SHIFT {
            // One by one: as a whole they would be put into memory even where no epoch ends.
            self.cross(now, inputs.load, inputs.runnable, inputs.running);
        }
        self.add(gained - self.gained, inputs);
        (self.at_ns, self.gained) = (now.0, gained);
    }

    #[inline]
    fn add(&mut self, gain: u64, inputs: Inputs) {
        self.load += inputs.load * gain;
        self.runnable += inputs.runnable * gain;
        self.util += if inputs.running { gain } else { 0 };
    }

    /// Epochs end: brings the sums to the beginning of the epoch of `now`.
    #[cold]
    #[inline(never)]
    fn cross(&mut self, now: Ns, load: u64, runnable: u64, running: bool) {
        let inputs = Inputs { load, runnable, running };
        let epochs = (now.0 >> EPOCH_SHIFT) - (self.at_ns >> EPOCH_SHIFT);
        self.end_epochs(epochs, inputs);
    }

    /// So many epochs end while `inputs` hold.
    fn end_epochs(&mut self, epochs: u64, inputs: Inputs) {
        self.add(EPOCH_GAIN - self.gained, inputs);
        self.gained = 0;
        // After 64 halvings nothing is left of what was before.
        let epochs = epochs.min(64);
        if inputs == Inputs::default() {
            return self.halve(epochs);
        }
        for epoch in 1..=epochs {
            let before = (self.load, self.runnable, self.util);
            self.halve(1);
            if epoch < epochs {
                self.add(EPOCH_GAIN, inputs);
                // From here on every epoch gives as much as it takes.
                if (self.load, self.runnable, self.util) == before {
                    return self.halve(1);
                }
            }
        }
    }

    /// Halves the sums so many times, 64 at most, each time rounding down.
    #[inline]
    fn halve(&mut self, times: u64) {
        let halved = |sum: u64| sum.checked_shr(times as u32).unwrap_or(0);
        (self.load, self.runnable, self.util) =
            (halved(self.load), halved(self.runnable), halved(self.util));
    }

    /// Time up to `now` passed unseen (the clock of a throttled queue stood still).
    pub(in crate::linux) fn skip_to(&mut self, now: Ns) {
        if now.0 <= self.at_ns {
            return;
        }
        let (from, to) = (GROWTH[period(self.at_ns)], GROWTH[period(now.0)]);
        let moved = |sum: u64| (u128::from(sum) * u128::from(to) / u128::from(from)) as u64;
        *self = Pelt {
            load: moved(self.load),
            runnable: moved(self.runnable),
            util: moved(self.util),
            ..Pelt::zero(now)
        };
    }

    /// The sum of a signal that was always on: the largest that is possible now.
    #[inline]
    fn largest(&self) -> u64 {
        // Of the endless past before the epoch the epoch's own gain is left: each one before counts
        // half.
        EPOCH_GAIN + self.gained
    }

    /// `times · sum / largest`.
    #[inline]
    fn average(&self, sum: u64, times: u64) -> u64 {
        match sum.checked_mul(times) {
            Some(0) => 0,
            Some(sum) => sum / self.largest(),
            None => (u128::from(sum) * u128::from(times) / u128::from(self.largest())) as u64,
        }
    }

    /// Average load: a queue's in weight units; a task's must be multiplied by its weight
    /// (`weight`).
    #[inline]
    pub(in crate::linux) fn load_avg(&self, weight: u64) -> u64 {
        self.average(self.load, weight)
    }

    /// Average number of runnable tasks × 1024.
    #[inline]
    pub(in crate::linux) fn runnable_avg(&self) -> u64 {
        self.average(self.runnable, SCALE)
    }

    /// Average use of a CPU, 0 … 1024.
    #[inline]
    pub(in crate::linux) fn util_avg(&self) -> u64 {
        self.average(self.util, SCALE)
    }

    /// The sum that makes an average of `value / 1024`, rounded up so that reading it gives `value`
    /// again.
    fn sum_of(&self, value: u64) -> u64 {
        (u128::from(value) * u128::from(self.largest())).div_ceil(u128::from(SCALE)) as u64
    }

    /// Starts a new task: full load, and the given use (0 … 1024).
    pub(in crate::linux) fn start_task(&mut self, now: Ns, util: u64) {
        *self = Pelt::zero(now);
        self.load = self.largest();
        self.util = self.sum_of(util);
        self.runnable = self.util;
    }

    /// A task's (or a child queue's) share arrives on this queue, `load` being its average load.
    pub(in crate::linux) fn attach(&mut self, load: u64, runnable: u64, util: u64) {
        self.load += load * self.largest();
        self.runnable += self.sum_of(runnable);
        self.util += self.sum_of(util);
    }

    /// A task's share leaves this queue.
    pub(in crate::linux) fn detach(&mut self, load: u64, runnable: u64, util: u64) {
        self.load = self.load.saturating_sub(load.saturating_mul(self.largest()));
        self.runnable = self.runnable.saturating_sub(self.sum_of(runnable));
        self.util = self.util.saturating_sub(self.sum_of(util));
    }

    /// Time and sums, to be published.
    #[inline]
    pub(in crate::linux) fn parts(&self) -> [u64; 4] {
        [self.at_ns, self.load, self.runnable, self.util]
    }

    /// The opposite of [`parts`](Self::parts).
    #[inline]
    pub(in crate::linux) fn from_parts([at_ns, load, runnable, util]: [u64; 4]) -> Pelt {
        Pelt { at_ns, gained: gain_until(at_ns), load, runnable, util }
    }

    /// The averages that this signal will have at `now` if `inputs` hold until then, without
    /// changing it.
    #[inline]
    pub(in crate::linux) fn at(&self, now: Ns, inputs: Inputs) -> Pelt {
        self.at_moment(Moment::new(now), inputs)
    }

    /// The same where the moment is at hand.
    #[inline]
    pub(in crate::linux) fn at_moment(&self, now: Moment, inputs: Inputs) -> Pelt {
        let mut later = *self;
        later.advance_to(now, inputs);
        later
    }
}

/// A queue's [`Pelt`] with what is on now ([`Inputs`], closer together), so that it can be brought
/// up to date after a change.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::linux) struct Signal {
    pelt: Pelt,
    load: u64,
    runnable: u32,
    running: bool,
    /// It is not what was published last.
    moved: bool,
}

impl Signal {
    /// Off and empty, at `now`.
    pub(in crate::linux) fn zero(now: Ns) -> Signal {
        Signal { pelt: Pelt::zero(now), moved: true, ..Signal::default() }
    }
    /// Until `now` the old inputs held; from now on these do. Without a change nothing is computed.
    #[inline]
    pub(in crate::linux) fn set(&mut self, now: Moment, inputs: Inputs) {
        // Which of them is different cannot be foreseen: one branch, not three.
        let old = self.inputs();
        let (load, runnable) = (inputs.load ^ old.load, inputs.runnable ^ old.runnable);
        if load | runnable | u64::from(inputs.running ^ old.running) != 0 {
            self.pelt.advance_to(now, old);
            (self.load, self.runnable, self.running) =
                (inputs.load, inputs.runnable as u32, inputs.running);
            self.moved = true;
        }
    }
    /// Whether it has changed since this was asked last.
    #[inline]
    pub(in crate::linux) fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }
    /// The clock of this signal stood still until `now`.
    pub(in crate::linux) fn resume(&mut self, now: Ns) {
        self.pelt.skip_to(now);
        self.moved = true;
    }
    /// Brings the sums up to `now` and gives them.
    #[inline]
    pub(in crate::linux) fn at(&mut self, now: Ns) -> &mut Pelt {
        self.pelt.advance(now, self.inputs());
        self.moved = true;
        &mut self.pelt
    }
    /// As it will be at `now`, without changing anything.
    #[inline]
    pub(in crate::linux) fn peek(&self, now: Ns) -> Pelt {
        self.pelt.at(now, self.inputs())
    }
    /// As of the last change.
    #[inline]
    pub(in crate::linux) fn pelt(&self) -> &Pelt {
        &self.pelt
    }
    /// What is on.
    #[inline]
    pub(in crate::linux) fn inputs(&self) -> Inputs {
        Inputs { load: self.load, runnable: u64::from(self.runnable), running: self.running }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PERIOD: u64 = 1024 * 1024;
    const ON: Inputs = Inputs { load: 1, runnable: 1, running: true };
    const OFF: Inputs = Inputs { load: 0, runnable: 0, running: false };

    /// The kernel's own arithmetic: integer sums that decay at each period end by one of 32
    /// factors.
    struct Integer {
        at: u64,
        part: u64,
        util: u64,
    }

    impl Integer {
        const LARGEST: u64 = 47_742;

        fn advance(&mut self, now: u64, on: bool) {
            while self.at < now {
                let units = ((now - self.at) >> 10).min(1024 - self.part);
                if units == 0 {
                    return;
                }
                self.at += units << 10;
                self.part += units;
                self.util += if on { units << 10 } else { 0 };
                if self.part == 1024 {
                    // 2^32 / 2^(1/32).
                    self.util = (self.util * 0xfa83_b2da) >> 32;
                    self.part = 0;
                }
            }
        }
        fn util_avg(&self) -> u64 {
            self.util / (Integer::LARGEST - 1024 + self.part)
        }
    }

    #[test]
    fn weights_grow_by_the_32nd_root_of_two() {
        // Known values of 2^14 * 2^(n/32).
        assert_eq!(GROWTH[0], 16_384);
        assert_eq!(GROWTH[1], 16_742);
        assert_eq!(GROWTH[16], 23_170);
        assert_eq!(GROWTH[31], 32_065);
    }

    proptest! {
        /// However many epochs end at once, the sums are those of one end after another.
        #[test]
        fn many_epochs_end_as_one_by_one(
            from in 0u64..1 << 36, sums in prop::array::uniform3(0u64..1 << 40),
            epochs in 0u64..200, load in 0u64..90_000, runnable in 0u64..3, running in any::<bool>(),
        ) {
            let [of_load, of_runnable, util] = sums;
            let start = Pelt { load: of_load, runnable: of_runnable, util, ..Pelt::zero(Ns(from)) };
            let inputs = Inputs { load: load * runnable, runnable, running };
            let mut at_once = start;
            at_once.end_epochs(epochs, inputs);
            let mut slow = start;
            slow.add(EPOCH_GAIN - slow.gained, inputs);
            slow.gained = 0;
            for epoch in 1..=epochs.min(64) {
                (slow.load, slow.runnable, slow.util) =
                    (slow.load / 2, slow.runnable / 2, slow.util / 2);
                if epoch < epochs.min(64) {
                    slow.add(EPOCH_GAIN, inputs);
                }
            }
            prop_assert_eq!(at_once, slow);
        }
    }

    #[test]
    fn halves_every_32_periods() {
        let mut pelt = Pelt::zero(Ns(0));
        pelt.advance(Ns(200 * PERIOD), ON);
        let full = pelt.util_avg();
        pelt.advance(Ns(232 * PERIOD), OFF);
        assert!(pelt.util_avg().abs_diff(full / 2) <= 1, "{} of {full}", pelt.util_avg());
        pelt.advance(Ns(296 * PERIOD), OFF);
        assert!(pelt.util_avg().abs_diff(full / 8) <= 1);
        pelt.advance(Ns(296 * PERIOD + (70 << EPOCH_SHIFT)), OFF);
        assert_eq!(pelt.util_avg(), 0);
    }

    #[test]
    fn a_signal_that_is_always_on_reaches_the_maximum() {
        let mut pelt = Pelt::zero(Ns(0));
        for period in 1..=1000 {
            pelt.advance(Ns(period * PERIOD), ON);
        }
        for time in [1000 * PERIOD + 1023 * 1024, 1010 * PERIOD, 9999 * PERIOD + 77] {
            pelt.advance(Ns(time), ON);
            assert!((1023..=1024).contains(&pelt.util_avg()), "{}", pelt.util_avg());
            assert!((1023..=1024).contains(&pelt.load_avg(1024)));
            assert!(pelt.load <= pelt.largest());
        }
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
        assert!(pelt.util_avg().abs_diff(before) <= 1, "{} {before}", pelt.util_avg());
        let before = pelt.util_avg();
        pelt.advance(Ns(932 * PERIOD), OFF);
        assert!(pelt.util_avg().abs_diff(before / 2) <= 1);
    }

    #[test]
    fn what_is_attached_can_be_detached() {
        for time in [50 * PERIOD, 77 * PERIOD + 12_345] {
            let mut queue = Pelt::zero(Ns(0));
            queue.advance(Ns(time), Inputs { load: 2048, runnable: 2, running: true });
            let before = queue;
            queue.attach(700, 1024, 300);
            assert!(queue.util_avg().abs_diff(before.util_avg() + 300) <= 1);
            assert_eq!(queue.load_avg(1), before.load_avg(1) + 700);
            queue.detach(700, 1024, 300);
            assert_eq!(queue, before);
            queue.detach(1 << 30, 1 << 30, 1 << 30);
            assert_eq!(queue.load_avg(1), 0);
        }
    }

    #[test]
    fn a_new_task_has_the_use_it_is_given() {
        for now in [0, 5 * PERIOD + 999, 40 * PERIOD] {
            let mut pelt = Pelt::default();
            pelt.start_task(Ns(now), 333);
            assert_eq!(
                (pelt.util_avg(), pelt.runnable_avg(), pelt.load_avg(1024)),
                (333, 333, 1024)
            );
        }
    }

    proptest! {
        /// However often one looks, the sums are the same.
        #[test]
        fn looking_more_often_changes_nothing(
            steps in proptest::collection::vec((1u64..90_000_000, any::<bool>()), 1..60),
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
            prop_assert_eq!(fine, coarse);
            prop_assert!(coarse.util_avg() <= 1024 && coarse.util <= coarse.largest());
            prop_assert_eq!(Pelt::from_parts(coarse.parts()), coarse);
        }

        /// Within 4 of 1024 of what the kernel's rounding makes of the same history.
        #[test]
        fn agrees_with_the_integer_decay_of_the_kernel(
            steps in proptest::collection::vec((1u64..20_000, any::<bool>()), 1..80),
        ) {
            let (mut ours, mut kernel) = (Pelt::zero(Ns(0)), Integer { at: 0, part: 0, util: 0 });
            let mut now = 0;
            for (units, on) in steps {
                now += units << 10;
                ours.advance(Ns(now), if on { ON } else { OFF });
                kernel.advance(now, on);
                prop_assert!(ours.util_avg().abs_diff(kernel.util_avg()) <= 4,
                    "{} {} at {now}", ours.util_avg(), kernel.util_avg());
            }
        }
    }
}
