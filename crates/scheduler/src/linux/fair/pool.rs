//! CPU bandwidth control (`cpu.max`): the pool of run time that a group shares over its CPUs.
//!
//! Every period the pool is filled with `quota`. A CPU's queue of the group takes a slice of run
//! time out of it (5 ms), runs on it, and asks for the next one when it is used up. When the pool
//! is empty the queue is throttled and joins the list of those that wait for the next refill; the
//! refill pays their debts in the order in which they were throttled. A queue that empties gives
//! back what it has above 1 ms.
//!
//! Here is the arithmetic alone; `bandwidth` acts on the run queues.
//!
//! | rule | where the real system has it | here | test |
//! |---|---|---|---|
//! | refill to at most quota + burst once a period | `__refill_cfs_bandwidth_runtime` (burst 5.14+) | modelled | `unused_quota_is_saved_up_to_the_burst` |
//! | slices of `sched_cfs_bandwidth_slice_us` | `__assign_cfs_rq_runtime` | modelled | `a_queue_takes_slices_until_the_pool_is_empty` |
//! | run time that a queue took from an earlier filling is void (3.2 to 3.15, 4.18 to 5.3) | `expire_cfs_rq_runtime` | modelled: at the refill; the local clock is the machine's | `each_refill_is_a_filling_of_its_own` |
//! | the refill gives each waiting queue its debt + 1 ns, in order | `distribute_cfs_runtime` | modelled | `debts_are_paid_in_order` |
//! | an empty queue keeps 1 ms and returns the rest; given out after 5 ms, not in the last 2 ms of a period | `__return_cfs_rq_runtime`, slack timer | modelled | `slack_is_given_out_later` |
//! | the period timer stops after a whole period without use | `do_sched_cfs_period_timer` | modelled | `an_unused_pool_goes_to_sleep` |
//! | period boundaries on the grid of the clock | `start_cfs_bandwidth` | modelled; the random offset of 6.4+ is omitted | same |
//! | a period too short for the machine is made longer | `sched_cfs_period_timer` | omitted: timers cost nothing | – |

use schedlab_model::{Bandwidth, CpuId, Ns};

/// What an emptied queue keeps.
const KEPT: u64 = 1_000_000;
/// Slack is given out this long after it was returned.
const SLACK_DELAY: u64 = 5_000_000;
/// No slack is given out this short before a refill.
const REFILL_NEAR: u64 = 2_000_000;

/// The run time that a group may still use in this period.
#[derive(Clone, Debug, Default)]
pub(in crate::linux) struct Pool {
    limit: Option<Bandwidth>,
    /// Unused run time, ns.
    runtime: u64,
    /// Counts refills, and starts of the timer (`expires_seq`).
    filling: u64,
    /// No task asked for run time since the last refill.
    idle: bool,
    /// Queues that wait for run time, in the order in which they were throttled.
    throttled: Vec<CpuId>,
    /// Next refill; `None` while the timer sleeps.
    refill_at: Option<u64>,
    /// When returned slack is given out.
    slack_at: Option<u64>,
}

impl Pool {
    /// Sets the limit (`None` = unlimited) and fills the pool.
    pub(in crate::linux) fn set(&mut self, limit: Option<Bandwidth>) {
        self.limit = limit;
        self.runtime = limit.map_or(0, |b| b.quota.0);
        self.refill_at = None;
        self.slack_at = None;
    }

    /// A queue that has `remaining` (0 or less, mostly) wants to fill up to `target`. Gives what it
    /// gets.
    pub(in crate::linux) fn take(&mut self, now: Ns, remaining: i64, target: u64) -> u64 {
        let wanted = (target as i64 - remaining).max(0) as u64;
        let Some(limit) = self.limit else { return wanted };
        if self.refill_at.is_none() {
            self.filling += 1;
            self.refill_at = Some((now.0 / limit.period.0 + 1) * limit.period.0);
        }
        let got = wanted.min(self.runtime);
        if got > 0 {
            self.runtime -= got;
            self.idle = false;
        }
        got
    }

    /// Which filling run time is taken from now.
    pub(in crate::linux) fn filling(&self) -> u64 {
        self.filling
    }

    /// The queue of `cpu` waits from now on.
    pub(in crate::linux) fn throttle(&mut self, cpu: CpuId) {
        if !self.throttled.contains(&cpu) {
            self.throttled.push(cpu);
        }
    }
    /// It waits no longer.
    pub(in crate::linux) fn unthrottle(&mut self, cpu: CpuId) {
        self.throttled.retain(|&c| c != cpu);
    }
    /// Who waits, in order.
    pub(in crate::linux) fn waiting(&self) -> &[CpuId] {
        &self.throttled
    }

    /// Pays the debt of a waiting queue (`remaining` ≤ 0) out of the pool. Gives what it gets:
    /// enough to run when `remaining` plus this is above 0.
    pub(in crate::linux) fn pay(&mut self, remaining: i64) -> u64 {
        let wanted = (1 - remaining).max(0) as u64;
        let got = wanted.min(self.runtime);
        self.runtime -= got;
        got
    }

    /// A queue emptied with `remaining` left. Gives what it returns.
    pub(in crate::linux) fn give_back(&mut self, now: Ns, remaining: i64, slice: u64) -> u64 {
        let slack = (remaining - KEPT as i64).max(0) as u64;
        if slack == 0 || self.limit.is_none() {
            return 0;
        }
        self.runtime += slack;
        let refill_is_near =
            self.refill_at.is_some_and(|at| at < now.0 + SLACK_DELAY + REFILL_NEAR);
        let wanted = self.runtime > slice && !self.throttled.is_empty();
        if wanted && !refill_is_near && self.slack_at.is_none() {
            self.slack_at = Some(now.0 + SLACK_DELAY);
        }
        slack
    }

    /// The refill timer fired. Gives whether waiting queues should be paid now.
    pub(in crate::linux) fn refill(&mut self, now: Ns) -> bool {
        let (Some(limit), Some(at)) = (self.limit, self.refill_at) else { return false };
        if now.0 < at {
            return false;
        }
        let most = limit.quota.0 + limit.burst.0;
        self.runtime = (self.runtime + limit.quota.0).min(most);
        self.filling += 1;
        if self.idle && self.throttled.is_empty() {
            self.refill_at = None;
            return false;
        }
        self.refill_at = Some(at + ((now.0 - at) / limit.period.0 + 1) * limit.period.0);
        self.idle = self.throttled.is_empty();
        !self.idle
    }

    /// The slack timer fired. Gives whether waiting queues should be paid now.
    pub(in crate::linux) fn slack(&mut self, now: Ns, slice: u64) -> bool {
        if self.slack_at.is_none_or(|at| now.0 < at) {
            return false;
        }
        self.slack_at = None;
        let refill_is_near = self.refill_at.is_some_and(|at| at < now.0 + REFILL_NEAR);
        !refill_is_near && self.limit.is_some() && self.runtime > slice
    }

    /// When `refill` or `slack` is due.
    pub(in crate::linux) fn due(&self) -> Option<Ns> {
        match (self.refill_at, self.slack_at) {
            (Some(a), Some(b)) => Some(Ns(a.min(b))),
            (a, b) => a.or(b).map(Ns),
        }
    }
    /// Whether there is run time to pay with.
    pub(in crate::linux) fn has_runtime(&self) -> bool {
        self.runtime > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;
    const SLICE: u64 = 5 * MS;

    fn pool(quota_ms: u64, burst_ms: u64) -> Pool {
        let mut pool = Pool::default();
        pool.set(Some(Bandwidth {
            quota: Ns::from_ms(quota_ms),
            period: Ns::from_ms(100),
            burst: Ns::from_ms(burst_ms),
        }));
        pool
    }

    #[test]
    fn a_queue_takes_slices_until_the_pool_is_empty() {
        let mut pool = pool(12, 0);
        assert_eq!(pool.take(Ns(0), 0, SLICE), 5 * MS);
        assert_eq!(pool.take(Ns(0), -(MS as i64), SLICE), 6 * MS, "the debt and a slice");
        assert_eq!(pool.take(Ns(0), 0, SLICE), MS, "the rest");
        assert_eq!(pool.take(Ns(0), 0, SLICE), 0);
        assert_eq!(pool.due(), Some(Ns::from_ms(100)));
    }

    #[test]
    fn each_refill_is_a_filling_of_its_own() {
        let mut pool = pool(12, 0);
        pool.take(Ns(0), 0, SLICE);
        let first = pool.filling();
        pool.take(Ns::from_ms(99), 0, SLICE);
        assert_eq!(pool.filling(), first, "the same period");
        pool.refill(Ns::from_ms(100));
        assert_eq!(pool.filling(), first + 1);
    }

    #[test]
    fn debts_are_paid_in_order() {
        let mut pool = pool(10, 0);
        pool.take(Ns::from_ms(3), 0, 10 * MS);
        pool.throttle(CpuId(2));
        pool.throttle(CpuId(0));
        pool.throttle(CpuId(2));
        assert_eq!(pool.waiting(), [CpuId(2), CpuId(0)]);
        assert!(!pool.refill(Ns::from_ms(99)), "not yet");
        assert!(pool.refill(Ns::from_ms(100)));
        assert_eq!(pool.pay(-9 * MS as i64), 9 * MS + 1);
        assert_eq!(pool.pay(-9 * MS as i64), MS - 1, "what is left is not enough");
        assert!(!pool.has_runtime());
        assert_eq!(pool.due(), Some(Ns::from_ms(200)));
    }

    #[test]
    fn unused_quota_is_saved_up_to_the_burst() {
        let mut pool = pool(10, 4);
        pool.take(Ns(1), 0, MS);
        pool.refill(Ns::from_ms(100));
        assert_eq!(pool.take(Ns::from_ms(100), 0, 99 * MS), 14 * MS);
    }

    #[test]
    fn an_unused_pool_goes_to_sleep() {
        let mut pool = pool(10, 0);
        assert_eq!(pool.due(), None, "nobody ran yet");
        pool.take(Ns::from_ms(250), 0, SLICE);
        assert_eq!(pool.due(), Some(Ns::from_ms(300)), "on the grid of the period");
        pool.refill(Ns::from_ms(300));
        assert_eq!(
            pool.due(),
            Some(Ns::from_ms(400)),
            "one more period to see whether a group asks"
        );
        pool.refill(Ns::from_ms(400));
        assert_eq!(pool.due(), None);
    }

    #[test]
    fn slack_is_given_out_later() {
        let mut pool = pool(20, 0);
        pool.take(Ns(0), 0, 20 * MS);
        assert_eq!(pool.give_back(Ns::from_ms(10), MS as i64, SLICE), 0, "1 ms is kept");
        pool.throttle(CpuId(1));
        assert_eq!(pool.give_back(Ns::from_ms(10), 8 * MS as i64, SLICE), 7 * MS);
        assert_eq!(pool.due(), Some(Ns::from_ms(15)));
        assert!(!pool.slack(Ns::from_ms(14), SLICE));
        assert!(pool.slack(Ns::from_ms(15), SLICE));
        // Close to the refill it is not worth it.
        pool.take(Ns::from_ms(20), 0, 7 * MS);
        pool.give_back(Ns::from_ms(94), 8 * MS as i64, SLICE);
        assert_eq!(pool.due(), Some(Ns::from_ms(100)));
    }

    proptest! {
        /// What queues hold never exceeds what refills put in: quota for each period, and the burst
        /// once.
        #[test]
        fn nothing_is_made_out_of_nothing(
            quota in 1u64..50, burst in 0u64..50,
            steps in proptest::collection::vec((0u64..30, 0u8..3, 0u64..8), 1..200),
        ) {
            let mut pool = pool(quota, burst);
            let (mut now, mut held, mut taken) = (0u64, 0u64, 0u64);
            for (pass, what, amount) in steps {
                now += pass * MS;
                let at = Ns(now);
                pool.refill(at);
                match what {
                    0 => { let got = pool.take(at, 0, amount * MS); held += got; taken += got; }
                    1 => {
                        let back = pool.give_back(at, held as i64, SLICE);
                        held -= back; taken -= back;
                    }
                    _ => { let got = pool.pay(-((amount * MS) as i64)); taken += got; }
                }
                let periods = now / (100 * MS) + 1;
                prop_assert!(taken <= (periods * quota + burst) * MS);
            }
        }
    }
}
