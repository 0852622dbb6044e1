//! The CPU is given away now and then, so that the kernel's own throttling of real-time threads never strikes and the rest
//! of the system gets on.
//!
//! A gift does not stop the scheduler. For its length the bands move down into the fair class: the thread that was chosen
//! has the policy of its own, and those that wait are SCHED_IDLE. So the rest of the system competes with one thread of
//! ours at most, a turn is not cut, a thread that wakes is placed as always, and batch work does not delay the thread that
//! it stands behind. Who wakes in a gift and is chosen then is raised as ever, and the gift lasts longer by its turn, up to a
//! limit: beside a SCHED_IDLE thread the fair class would let it wait for a tick at times. Where threads of ours are in control
//! groups (or autogroups) of their own, SCHED_IDLE counts within its group only: there the kernel shares a gift between the
//! groups.

use super::board::{Board, Grip, Hold, Post, Stands, State};
use crate::logged_core::Fate;
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
/// What we give beyond that, so that our account, which is not the kernel's, may be a little wrong: interrupts and switches are in
/// it. (At 4000 wakeups a second, of 6 ms the fair class had 5.0 to 5.5 when also the agent was in it, by `perf`; the kernel's
/// fair server then took its 50 ms at once.)
const MORE_PERCENT: u64 = 2;
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

/// A gift that is being made. What the agent needs in it is no part of it: with thousands of wakeups a second that was a tenth of
/// a gift, and the kernel struck.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Gift {
    /// What the fair class shall still have.
    left: Ns,
    /// Since when it has the CPU, and the CPU time of the agent then; nothing while the agent goes round, or somebody is raised.
    lent_since: Option<(Ns, Ns)>,
    /// From then on nobody is raised in it.
    strict: Ns,
    /// Somebody of ours is above the fair class all the same, until then at most.
    raised: Option<Ns>,
}

impl Gift {
    /// When there is something to do about it.
    pub(super) fn due(&self) -> Option<Ns> {
        self.raised.or(self.lent_since.map(|(since, _)| since + self.left))
    }

    /// What the fair class had: not what the agent used until it slept, and since it woke.
    fn count(&mut self, now: Ns, used: Ns) {
        let had =
            |(since, before): (Ns, Ns)| now.saturating_sub(since).saturating_sub(used.saturating_sub(before));
        self.left = self.left.saturating_sub(self.lent_since.take().map_or(Ns::ZERO, had));
    }

    /// From now on the fair class has the CPU, if nobody is raised.
    fn go_on(&mut self, now: Ns, used: Ns) {
        self.lent_since = self.raised.is_none().then_some((now, used));
    }

    /// Somebody is raised for as long as a gift (`turn`) at most, and never for less: towards a fixed end the agent would have to be
    /// woken before the next tick: turns in the last 3 to 4 ms before such an end took some 12 us longer here (250 ticks a second, all
    /// of it in the agent's sleeping and waking). Probably each sleep programs the CPU's timer then; that was not traced.
    fn raise(&mut self, now: Ns, turn: Ns) {
        if now < self.strict {
            self.raised = Some(now + turn);
        }
    }
}

impl<H: Hold, P: Post> Board<H, P> {
    /// Whether the threads on the CPU of a seat are in the fair class just now.
    pub(super) fn lends(&self, seat: usize) -> bool {
        self.seats[seat].gift.is_some_and(|gift| gift.raised.is_none())
    }

    /// Whether a thread woke so lately that its turn is an answer to that.
    fn fresh(&self, task: u32, now: Ns) -> bool {
        let woke = self.threads[task as usize].woke;
        woke.is_some_and(|woke| now.saturating_sub(woke) <= self.rules.gifts.gift)
    }

    /// Another one, or nobody, gets the CPU of a seat; it may be given away just now.
    pub(super) fn turn_in_gift(&mut self, now: Ns, seat: usize, next: Option<u32>) {
        let fresh = next.is_some_and(|next| self.fresh(next, now));
        let turn = self.rules.gifts.gift;
        let elsewhere = seat != self.acting;
        let Some(gift) = &mut self.seats[seat].gift else { return };
        // What the agent of that CPU used is not known here; it is asleep, as a rule.
        gift.count(now, Ns::ZERO);
        gift.raised = None;
        if fresh {
            gift.raise(now, turn);
        }
        // Its own agent does that when it has gone round.
        if elsewhere {
            gift.go_on(now, Ns::MAX);
        }
    }

    /// The agent of a seat begins to go round, or has gone round.
    pub(super) fn count_gift(&mut self, seat: usize, done: bool) {
        if let Some(gift) = &mut self.seats[seat].gift {
            let (now, used) = ((self.rules.clock)(), (self.rules.used)());
            gift.count(now, used);
            if done {
                gift.go_on(now, used);
            }
        }
    }

    /// Puts everybody who wants the CPU of a seat, which is lent, where he belongs.
    pub(super) fn arrange(&mut self, seat: usize) {
        let front = self.current(seat);
        for task in 0..self.threads.len() as u32 {
            // Whoever sleeps is moved when it wakes.
            let thread = &self.threads[task as usize];
            if thread.seat == seat && !thread.left && self.core.runnable(task) {
                self.place(task, front == Some(task));
            }
        }
    }

    /// Lets the rest of the system run on the CPU of a seat, when it had no chance in this period.
    pub(super) fn share_the_cpu(&mut self, seat: usize) {
        let now = self.now();
        let Gifts { period, gift } = self.rules.gifts;
        let one = &self.seats[seat];
        if let Some(given) = one.gift {
            match given.raised {
                Some(until) if now >= until => self.lower_all(seat),
                None if given.left == Ns::ZERO => {
                    self.end_gift(seat);
                    self.count_idle_anew(seat);
                }
                _ => {}
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
        let Gifts { period, gift: turn } = self.rules.gifts;
        // Half of a period at most is spent on a gift and those who are raised in it: the last turn ends then.
        let strict = now + Ns(period.0 / 2).saturating_sub(turn);
        let mut gift = Gift { left: length, lent_since: None, strict, raised: None };
        let front = self.current(seat);
        if front.is_some_and(|front| self.fresh(front, now)) {
            gift.raise(now, turn);
        }
        let one = &mut self.seats[seat];
        one.gift = Some(gift);
        // The gift belongs to the period that it begins: after it would be less than promised, and too little at times.
        one.period_began = now;
        if self.lends(seat) {
            self.arrange(seat);
        }
    }

    /// The turn of the one that was raised in a gift is over, though it goes on.
    fn lower_all(&mut self, seat: usize) {
        if let Some(gift) = &mut self.seats[seat].gift {
            gift.raised = None;
        }
        if let Some(front) = self.current(seat) {
            self.threads[front as usize].woke = None;
        }
        self.arrange(seat);
    }

    fn end_gift(&mut self, seat: usize) {
        self.seats[seat].gift = None;
        for task in 0..self.threads.len() as u32 {
            let thread = &self.threads[task as usize];
            if thread.seat != seat || thread.left || thread.stands == Stands::Band {
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

    /// Nobody says when a lent thread blocks: whenever something else wakes the agent, it looks.
    pub(super) fn look_at_lent(&mut self, seat: usize) {
        if self.lends(seat) {
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
        assert_eq!(Gifts::of(Some(1_000_000), Some(950_000)), ms(100, 7));
        // Unlimited, or unreadable: the fair server's 5 % all the same.
        assert_eq!(Gifts::of(Some(1_000_000), Some(-1)), ms(100, 7));
        assert_eq!(Gifts::of(None, None), ms(100, 7));
        assert_eq!(Gifts::of(Some(1_000_000), Some(1_000_000)), ms(100, 7));
        assert_eq!(Gifts::of(Some(1_000_000), Some(800_000)), ms(100, 22));
        assert_eq!(
            Gifts::of(Some(500_000), Some(475_000)),
            Gifts { period: Ns::from_ms(50), gift: Ns::from_us(3_500) }
        );
        // Nonsense does not make it give everything, nor divide by nothing.
        assert_eq!(Gifts::of(Some(0), Some(0)), ms(100, 50));
        assert_eq!(Gifts::of(Some(10_000), Some(0)), ms(10, 5));
    }
}
