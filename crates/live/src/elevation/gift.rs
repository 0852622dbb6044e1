//! The CPU is given away now and then, so that the kernel's own throttling of real-time threads never strikes and the rest
//! of the system gets on.
//!
//! A gift does not stop the scheduler. For its length the bands move down into the fair class: the thread that was chosen
//! has the policy of its own, and those that wait are SCHED_IDLE. So the rest of the system competes with one thread of
//! ours at most, a turn is not cut, a thread that wakes is placed as always, and batch work does not delay the thread that
//! it stands behind. Where threads of ours are in control groups (or autogroups) of their own, SCHED_IDLE counts within its
//! group only: there the kernel shares a gift between the groups.

use super::board::{Board, Grip, Hold, Post, State};
use crate::desk::Fate;
use schedlab_model::Ns;
use std::fs;

/// How often the CPU is given away, and for how long unless it was idle that long anyway.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gifts {
    /// How often.
    pub period: Ns,
    /// For how long.
    pub gift: Ns,
}

/// What the kernel keeps for others when it says nothing: 5 % (`sched_rt_runtime_us` of 950,000, and the fair server's
/// 50 ms a second since Linux 6.12, which can be read in debugfs only).
const KEPT_PERCENT: u64 = 5;
/// What we give beyond that, so that our account, which is not the kernel's, may be a little wrong.
const MORE_PERCENT: u64 = 1;
/// Gifts come more often than that, however long the kernel's period is.
const LONGEST: Ns = Ns::from_ms(100);
/// And not more often than that.
const SHORTEST: Ns = Ns::from_ms(10);

impl Gifts {
    /// As this kernel wants it.
    pub fn here() -> Gifts {
        let read = |name: &str| {
            let text = fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?;
            text.trim().parse::<i64>().ok()
        };
        Gifts::of(read("sched_rt_period_us"), read("sched_rt_runtime_us"))
    }

    /// From the kernel's period and runtime of real-time threads (us); -1 or nothing: no limit of that kind. A tenth of the
    /// period, so that no second window of the kernel misses a gift; at least 5 %, because the fair server has its own
    /// account; at most half.
    pub fn of(period_us: Option<i64>, runtime_us: Option<i64>) -> Gifts {
        let known = period_us.and_then(|us| u64::try_from(us).ok()).filter(|us| *us > 0);
        let period_us = known.unwrap_or(1_000_000);
        let period = Ns((period_us * 100).clamp(SHORTEST.0, LONGEST.0));
        let runtime_us = runtime_us.and_then(|us| u64::try_from(us).ok()).unwrap_or(period_us);
        let kept = 100 - 100 * runtime_us.min(period_us) / period_us;
        let percent = (kept.max(KEPT_PERCENT) + MORE_PERCENT).min(50);
        Gifts { period, gift: Ns(period.0 * percent / 100) }
    }
}

impl<H: Hold, P: Post> Board<H, P> {
    /// Lets the rest of the system run on the CPU of a seat, when it had no chance in this period.
    pub(super) fn share_the_cpu(&mut self, seat: usize) {
        let now = self.now();
        let Gifts { period, gift } = self.rules.gifts;
        let one = &self.seats[seat];
        if let Some(until) = one.gift {
            if now >= until {
                self.end_gift(seat);
                self.count_idle_anew(seat);
            }
            return;
        }
        if now.saturating_sub(one.period_began) < period {
            return;
        }
        let idle = one.idle + one.idle_since.map_or(Ns::ZERO, |since| now.saturating_sub(since));
        if idle < gift {
            self.begin_gift(seat, now, gift.saturating_sub(idle));
        } else {
            self.seats[seat].period_began = now;
            self.count_idle_anew(seat);
        }
    }

    fn count_idle_anew(&mut self, seat: usize) {
        let now = self.now();
        let one = &mut self.seats[seat];
        one.idle = Ns::ZERO;
        one.idle_since = one.idle_since.map(|_| now);
    }

    fn begin_gift(&mut self, seat: usize, now: Ns, length: Ns) {
        self.counts.gifts += 1;
        self.counts.given_ns += length.0;
        let one = &mut self.seats[seat];
        one.gift = Some(now + length);
        // The gift belongs to the period that it begins: after it would be less than promised, and too little at times.
        one.period_began = now;
        let front = self.current(seat);
        for task in 0..self.threads.len() as u32 {
            // Whoever sleeps is moved when it wakes.
            let thread = &self.threads[task as usize];
            if thread.seat == seat && !thread.left && self.desk.runnable(task) {
                self.place(task, front == Some(task));
            }
        }
    }

    fn end_gift(&mut self, seat: usize) {
        self.seats[seat].gift = None;
        for task in 0..self.threads.len() as u32 {
            let thread = &self.threads[task as usize];
            if thread.seat != seat || thread.left || !thread.lent {
                continue;
            }
            if thread.hold.is_as_lent() {
                self.place(task, self.current(seat) == Some(task));
            } else {
                self.leave_alone(task, Grip::Policy);
            }
        }
        // What the sentinel said meanwhile is about the gift.
        let _ = self.seats[seat].post.fired();
        if self.current(seat).is_some() {
            // First the sentinel, then the look: one of both sees it when the chosen thread blocks now.
            self.seats[seat].post.arm();
            self.look_at_chosen(seat);
        }
    }

    /// In a gift nobody says when the chosen thread blocks: whenever something else wakes the agent, it looks.
    pub(super) fn look_at_lent(&mut self, seat: usize) {
        if self.seats[seat].gift.is_some() {
            self.look_at_chosen(seat);
        }
    }

    fn look_at_chosen(&mut self, seat: usize) {
        let Some(task) = self.current(seat) else { return };
        match self.threads[task as usize].hold.state() {
            State::Sleeping => self.decide(seat, Fate::Blocked),
            State::Gone => self.forget(task),
            State::Runnable => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gifts_follow_what_the_kernel_keeps() {
        let ms = |period: u64, gift: u64| Gifts { period: Ns::from_ms(period), gift: Ns::from_ms(gift) };
        assert_eq!(Gifts::of(Some(1_000_000), Some(950_000)), ms(100, 6));
        // Unlimited, or unreadable: the fair server's 5 % all the same.
        assert_eq!(Gifts::of(Some(1_000_000), Some(-1)), ms(100, 6));
        assert_eq!(Gifts::of(None, None), ms(100, 6));
        assert_eq!(Gifts::of(Some(1_000_000), Some(1_000_000)), ms(100, 6));
        assert_eq!(Gifts::of(Some(1_000_000), Some(800_000)), ms(100, 21));
        assert_eq!(Gifts::of(Some(500_000), Some(475_000)), ms(50, 3));
        // Nonsense does not make it give everything, nor divide by nothing.
        assert_eq!(Gifts::of(Some(0), Some(0)), ms(100, 50));
        assert_eq!(Gifts::of(Some(10_000), Some(0)), ms(10, 5));
    }
}
