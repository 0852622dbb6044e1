//! The constant-bandwidth server of one task: how much it may run until when. Knows nothing of
//! queues.
//!
//! A reservation is `runtime` in each `period`, to be had by `deadline` after the period's
//! beginning. The server has a budget (`left`) and an absolute deadline (`until`); both are renewed
//! by the rules of Abeni and Buttazzo (1998) as Linux 3.14 and later use them
//! (`sched-deadline.rst`, `deadline.c`).

use schedlab_model::Policy;

/// The kernel compares products of times without their last ten bits, so that they fit into 64.
const SCALE: u32 = 10;
/// Fixed point of bandwidths: 20 bits.
pub(in crate::linux) const BW_SHIFT: u32 = 20;

/// `runtime / period` as a fixed-point number of 20 bits, rounded down.
pub(in crate::linux) fn ratio(runtime: u64, period: u64) -> u64 {
    ((u128::from(runtime) << BW_SHIFT) / u128::from(period.max(1))) as u64
}

/// Whether `left` until `laxity` from now is more than the reservation of `runtime` in `deadline`
/// gives.
pub(in crate::linux) fn overflows(left: i64, laxity: i64, runtime: i64, deadline: i64) -> bool {
    (deadline >> SCALE) * (left >> SCALE) > (laxity >> SCALE) * (runtime >> SCALE)
}

/// See the module. Times in ns, absolute ones of the run-queue clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cbs {
    runtime: i64,
    deadline: i64,
    period: i64,
    /// Budget that is left; overruns are debts.
    pub(crate) left: i64,
    /// Absolute deadline.
    pub(crate) until: i64,
    /// It waits for its next period.
    pub(crate) throttled: bool,
    /// It gave the rest of its budget away.
    pub(crate) yielded: bool,
    /// It has no budget and deadline yet.
    fresh: bool,
    /// When its budget is renewed, in time that includes what was stolen.
    pub(in crate::linux) timer: Option<u64>,
    /// It counts as active: it runs, waits, or slept too short a time to have given its bandwidth
    /// back.
    pub(in crate::linux) active: bool,
    /// It sleeps and counts as active until then (its 0-lag time).
    pub(in crate::linux) zero_lag: Option<u64>,
}

impl Cbs {
    /// A server for tasks of this policy; `None` for other policies than deadline.
    pub(crate) fn for_policy(policy: Policy) -> Option<Cbs> {
        let Policy::Deadline { runtime, deadline, period } = policy else { return None };
        Some(Cbs {
            runtime: runtime.0 as i64,
            deadline: deadline.0 as i64,
            period: period.0 as i64,
            left: 0,
            until: 0,
            throttled: false,
            yielded: false,
            fresh: true,
            timer: None,
            active: false,
            zero_lag: None,
        })
    }

    /// New parameters; budget and deadline stay until the next renewal.
    pub(in crate::linux) fn becomes(&mut self, policy: Policy) {
        if let Policy::Deadline { runtime, deadline, period } = policy {
            (self.runtime, self.deadline) = (runtime.0 as i64, deadline.0 as i64);
            self.period = period.0 as i64;
        }
    }

    /// Its part of a CPU, 20-bit fixed point.
    pub(in crate::linux) fn bandwidth(&self) -> u64 {
        ratio(self.runtime as u64, self.period as u64)
    }

    /// The deadline comes before the end of the period.
    fn constrained(&self) -> bool {
        self.deadline < self.period
    }

    /// The beginning of the period after the present one.
    pub(crate) fn next_period(&self) -> i64 {
        self.until - self.deadline + self.period
    }

    /// When a task that sleeps from now on stops to have a claim on what it did not use.
    pub(in crate::linux) fn zero_lag_time(&self) -> i64 {
        self.until
            - (i128::from(self.left) * i128::from(self.period) / i128::from(self.runtime)) as i64
    }

    fn new_period(&mut self, now: i64) {
        (self.until, self.left, self.fresh) = (now + self.deadline, self.runtime, false);
    }

    /// The task wakes. Budget and deadline stay if they ask for no more than the reservation; a
    /// constrained task whose deadline has passed waits for its next period (`throttled` is set).
    pub(crate) fn wake(&mut self, now: i64) {
        if self.throttled {
            return;
        }
        if self.fresh {
            return self.new_period(now);
        }
        let passed = self.until < now;
        if passed && self.constrained() && now < self.next_period() {
            (self.throttled, self.left) = (true, self.left.min(0));
        } else if passed {
            self.new_period(now);
        } else if overflows(self.left, self.until - now, self.runtime, self.deadline) {
            if self.constrained() {
                // The present deadline stays; the budget is what the density gives until then.
                let density = ratio(self.runtime as u64, self.deadline as u64);
                let laxity = (self.until - now) as u128;
                self.left = ((u128::from(density) * laxity) >> BW_SHIFT) as i64;
            } else {
                self.new_period(now);
            }
        }
    }

    /// The task comes onto a queue without a wakeup: from another CPU, another class or with new
    /// parameters.
    pub(in crate::linux) fn restore(&mut self, now: i64) {
        if self.fresh || (!self.throttled && self.until < now) {
            self.new_period(now);
        }
    }

    /// Takes `delta` of CPU time off the budget; `true`: it is used up (or given away).
    pub(crate) fn spend(&mut self, delta: u64) -> bool {
        self.left -= delta as i64;
        self.left <= 0 || self.yielded
    }

    /// The next period begins: the budget is renewed, debts are paid from it.
    pub(crate) fn replenish(&mut self, now: i64) {
        if self.yielded {
            self.left = self.left.min(0);
        }
        while self.left <= 0 {
            self.until += self.period;
            self.left += self.runtime;
        }
        if self.until < now {
            self.new_period(now);
        }
        (self.throttled, self.yielded) = (false, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: i64 = 1_000_000;

    fn cbs(text: &str) -> Cbs {
        Cbs::for_policy(text.parse().expect("a policy")).expect("a deadline policy")
    }

    /// docs/sources/linux-facts.md, A7: Q = 10, D = T = 100.
    #[test]
    fn a_wakeup_keeps_what_the_reservation_covers() {
        for (laxity, expected) in [(30, (10, 100)), (50, (4, 50)), (41, (4, 41)), (39, (10, 100))] {
            let mut cbs = cbs("deadline:10ms/100ms/100ms");
            let now = 1_000 * MS;
            (cbs.fresh, cbs.left, cbs.until) = (false, 4 * MS, now + laxity * MS);
            cbs.wake(now);
            // (At 40 ms, where both are equal, the ten bits that the comparison drops decide.)
            assert_eq!((cbs.left / MS, (cbs.until - now) / MS), expected, "laxity {laxity}");
        }
    }

    #[test]
    fn a_constrained_task_gets_a_revised_budget_or_waits() {
        let mut early = cbs("deadline:10ms/50ms/100ms");
        early.wake(0);
        assert_eq!((early.left, early.until), (10 * MS, 50 * MS));
        // It slept from 2 to 40 ms: 8 ms in 10 is more than 10 in 50, and 10 ms times 10/50 is left
        // to it.
        early.spend(2 * MS as u64);
        let mut late = early.clone();
        early.wake(40 * MS);
        assert!(early.left.abs_diff(2 * MS) < 1_000 && early.until == 50 * MS, "{early:?}");
        // It slept beyond its deadline: nothing before the next period.
        late.wake(60 * MS);
        assert!(late.throttled && late.left == 0);
        assert_eq!(late.next_period(), 100 * MS);
        late.replenish(100 * MS);
        assert_eq!((late.left, late.until, late.throttled), (10 * MS, 150 * MS, false));
    }

    #[test]
    fn an_overrun_is_paid_from_the_next_budgets() {
        let mut cbs = cbs("deadline:4ms/10ms/10ms");
        cbs.wake(0);
        assert!(cbs.spend(7 * MS as u64));
        cbs.replenish(10 * MS);
        assert_eq!((cbs.left, cbs.until), (MS, 20 * MS));
        assert!(cbs.spend(10 * MS as u64));
        cbs.replenish(20 * MS);
        // 9 ms of debt: three budgets, and the deadline goes with them.
        assert_eq!((cbs.left, cbs.until), (3 * MS, 50 * MS));
    }

    #[test]
    fn the_0_lag_time_of_the_kernel_document() {
        let mut cbs = cbs("deadline:4ms/8ms/8ms");
        cbs.wake(0);
        cbs.spend(2 * MS as u64);
        assert_eq!(cbs.zero_lag_time(), 4 * MS);
    }

    proptest! {
        /// However a task sleeps and wakes, in any window it gets no more than the reservation
        /// allows: a budget for each period that fits, and one more at each edge.
        #[test]
        fn no_window_gets_more_than_the_reservation(
            runtime in 1i64..20, slack in 0i64..20, gap in 0i64..20,
            steps in prop::collection::vec((0i64..30, 1i64..30), 1..60),
        ) {
            let (deadline, period) = (runtime + slack, runtime + slack + gap);
            let policy = format!("deadline:{runtime}ms/{deadline}ms/{period}ms");
            let (mut cbs, mut now) = (cbs(&policy), 1_000 * MS);
            let mut runs: Vec<(i64, i64)> = Vec::new();
            for (sleep, work) in steps {
                now += sleep * MS;
                if cbs.throttled && now >= cbs.next_period() {
                    cbs.replenish(now);
                }
                cbs.wake(now);
                let mut work = work * MS;
                while work > 0 {
                    if cbs.throttled {
                        now = now.max(cbs.next_period());
                        cbs.replenish(now);
                    }
                    let run = work.min(cbs.left);
                    runs.push((now, now + run));
                    (now, work) = (now + run, work - run);
                    cbs.throttled = cbs.spend(run as u64);
                }
            }
            // A millisecond's worth of the bits that the comparison drops.
            let slack = 2_000 * runs.len() as i64;
            for from in 0..runs.len() {
                let mut sum = 0;
                for to in from..runs.len() {
                    sum += runs[to].1 - runs[to].0;
                    let window = runs[to].1 - runs[from].0;
                    let periods = window / (period * MS) + 2;
                    prop_assert!(sum <= periods * runtime * MS + slack, "{} ns in {}", sum, window);
                }
            }
        }
    }
}
