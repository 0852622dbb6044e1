//! The CPU is given away now and then, so that the kernel's own throttling of real-time threads never strikes and the rest
//! of the system gets on.
//!
//! A yield window does not stop the scheduler. For its length the bands move down into the fair class: the thread that was chosen
//! has the policy of its own, and those that wait are SCHED_IDLE. So the rest of the system competes with one thread of
//! ours at most, a turn is not cut, a thread that wakes is placed as always, and batch work does not delay the thread that
//! it stands behind. Who wakes in a yield window and is chosen then is raised as ever, and the yield window lasts longer by its turn, up to a
//! limit: beside a SCHED_IDLE thread the fair class would let it wait for a tick at times. Where threads of ours are in control
//! groups (or autogroups) of their own, SCHED_IDLE counts within its group only: there the kernel shares a yield window between the
//! groups.

use super::agent_state::{AgentState, CpuControl, Interference, Placement, State, ThreadControl};
use crate::logged_core::Fate;
use schedlab_model::Ns;
use std::fs;

/// How often the CPU is given away, and for how long unless it was idle that long anyway.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct YieldWindows {
    /// How often.
    pub period: Ns,
    /// For how long.
    pub length: Ns,
}

/// What the kernel keeps for others when it says nothing: 5 % (`sched_rt_runtime_us` of 950,000, and the fair server's
/// 50 ms a second since Linux 6.12, which can be read in debugfs only).
const KEPT_PERCENT: u64 = 5;
/// What we give beyond that, so that our account, which is not the kernel's, may be a little wrong: interrupts and switches are in
/// it. (At 4000 wakeups a second, of 6 ms the fair class had 5.0 to 5.5 when also the agent was in it, by `perf`; the kernel's
/// fair server then took its 50 ms at once.)
const MORE_PERCENT: u64 = 2;
/// YieldWindows come more often than that, however long the kernel's period is.
const LONGEST: Ns = Ns::from_ms(100);
/// And not more often than that.
const SHORTEST: Ns = Ns::from_ms(10);

impl YieldWindows {
    /// As this kernel wants it.
    pub fn for_this_kernel() -> YieldWindows {
        let read = |name: &str| {
            let text = fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?;
            text.trim().parse::<i64>().ok()
        };
        YieldWindows::from_rt_limits(read("sched_rt_period_us"), read("sched_rt_runtime_us"))
    }

    /// From the kernel's period and runtime of real-time threads (us); -1 or nothing: no limit of that kind. A tenth of the
    /// period, so that no second window of the kernel misses a yield window; at least 5 %, because the fair server has its own
    /// account; at most half.
    pub fn from_rt_limits(period_us: Option<i64>, runtime_us: Option<i64>) -> YieldWindows {
        let known = period_us.and_then(|us| u64::try_from(us).ok()).filter(|us| *us > 0);
        let period_us = known.unwrap_or(1_000_000);
        let period = Ns((period_us * 100).clamp(SHORTEST.0, LONGEST.0));
        let runtime_us = runtime_us.and_then(|us| u64::try_from(us).ok()).unwrap_or(period_us);
        let kept = 100 - 100 * runtime_us.min(period_us) / period_us;
        let percent = (kept.max(KEPT_PERCENT) + MORE_PERCENT).min(50);
        YieldWindows { period, length: Ns(period.0 * percent / 100) }
    }
}

/// A yield window that is being made. What the agent needs in it is no part of it: with thousands of wakeups a second that was a tenth of
/// a yield window, and the kernel struck.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct YieldWindow {
    /// What the fair class shall still have.
    left: Ns,
    /// Since when it has the CPU, and the CPU time of the agent then; nothing while the agent goes round, or somebody is raised.
    yielded_since: Option<(Ns, Ns)>,
    /// From then on nobody is raised in it.
    strict: Ns,
    /// Somebody of ours is above the fair class all the same, until then at most.
    raised: Option<Ns>,
}

impl YieldWindow {
    /// When there is something to do about it.
    pub(super) fn due(&self) -> Option<Ns> {
        self.raised.or(self.yielded_since.map(|(since, _)| since + self.left))
    }

    /// What the fair class had: not what the agent used until it slept, and since it woke.
    fn count(&mut self, now: Ns, used: Ns) {
        let had =
            |(since, before): (Ns, Ns)| now.saturating_sub(since).saturating_sub(used.saturating_sub(before));
        self.left = self.left.saturating_sub(self.yielded_since.take().map_or(Ns::ZERO, had));
    }

    /// From now on the fair class has the CPU, if nobody is raised.
    fn go_on(&mut self, now: Ns, used: Ns) {
        self.yielded_since = self.raised.is_none().then_some((now, used));
    }

    /// Somebody is raised for as long as a yield window (`turn`) at most, and never for less: towards a fixed end the agent would have to be
    /// woken before the next tick: turns in the last 3 to 4 ms before such an end took some 12 us longer here (250 ticks a second, all
    /// of it in the agent's sleeping and waking). Probably each sleep programs the CPU's timer then; that was not traced.
    fn raise(&mut self, now: Ns, turn: Ns) {
        if now < self.strict {
            self.raised = Some(now + turn);
        }
    }
}

impl<T: ThreadControl, C: CpuControl> AgentState<T, C> {
    /// Whether the threads on a CPU are in the fair class just now.
    pub(super) fn is_yielded(&self, slot: usize) -> bool {
        self.slots[slot].window.is_some_and(|window| window.raised.is_none())
    }

    /// Whether a thread woke so lately that its turn is an answer to that.
    fn fresh(&self, task: u32, now: Ns) -> bool {
        let woke = self.threads[task as usize].woke;
        woke.is_some_and(|woke| now.saturating_sub(woke) <= self.rules.windows.length)
    }

    /// Another one, or nobody, gets a CPU; it may be given away just now.
    pub(super) fn switch_in_window(&mut self, now: Ns, slot: usize, next: Option<u32>) {
        let fresh = next.is_some_and(|next| self.fresh(next, now));
        let turn = self.rules.windows.length;
        let elsewhere = slot != self.acting;
        let Some(window) = &mut self.slots[slot].window else { return };
        // What the agent of that CPU used is not known here; it is asleep, as a rule.
        window.count(now, Ns::ZERO);
        window.raised = None;
        if fresh {
            window.raise(now, turn);
        }
        // Its own agent does that when it has gone round.
        if elsewhere {
            window.go_on(now, Ns::MAX);
        }
    }

    /// The agent of a slot begins to go round, or has gone round.
    pub(super) fn count_window(&mut self, slot: usize, done: bool) {
        if let Some(window) = &mut self.slots[slot].window {
            let (now, used) = ((self.rules.clock)(), (self.rules.used)());
            window.count(now, used);
            if done {
                window.go_on(now, used);
            }
        }
    }

    /// Puts everybody who wants a CPU, which is lent, where he belongs.
    pub(super) fn arrange(&mut self, slot: usize) {
        let front = self.current(slot);
        for task in 0..self.threads.len() as u32 {
            // Whoever sleeps is moved when it wakes.
            let thread = &self.threads[task as usize];
            if thread.slot == slot && !thread.left && self.core.runnable(task) {
                self.place(task, front == Some(task));
            }
        }
    }

    /// Lets the rest of the system run on a CPU, when it had no chance in this period.
    pub(super) fn update_window(&mut self, slot: usize) {
        let now = self.now();
        let YieldWindows { period, length } = self.rules.windows;
        let one = &self.slots[slot];
        if let Some(given) = one.window {
            match given.raised {
                Some(until) if now >= until => self.lower_all(slot),
                None if given.left == Ns::ZERO => {
                    self.close_window(slot);
                    self.count_idle_anew(slot);
                }
                _ => {}
            }
            return;
        }
        if now.saturating_sub(one.period_began) < period {
            return;
        }
        let idle = one.idle + one.idle_since.map_or(Ns::ZERO, |since| now.saturating_sub(since));
        if idle < length {
            self.open_window(slot, now, length.saturating_sub(idle));
        } else {
            self.slots[slot].period_began = now;
            self.count_idle_anew(slot);
        }
    }

    fn count_idle_anew(&mut self, slot: usize) {
        let now = self.now();
        let one = &mut self.slots[slot];
        one.idle = Ns::ZERO;
        one.idle_since = one.idle_since.map(|_| now);
    }

    fn open_window(&mut self, slot: usize, now: Ns, length: Ns) {
        self.counts.yield_windows += 1;
        self.counts.yielded_ns += length.0;
        let YieldWindows { period, length: turn } = self.rules.windows;
        // Half of a period at most is spent on a yield window and those who are raised in it: the last turn ends then.
        let strict = now + Ns(period.0 / 2).saturating_sub(turn);
        let mut window = YieldWindow { left: length, yielded_since: None, strict, raised: None };
        let front = self.current(slot);
        if front.is_some_and(|front| self.fresh(front, now)) {
            window.raise(now, turn);
        }
        let one = &mut self.slots[slot];
        one.window = Some(window);
        // The yield window belongs to the period that it begins: after it would be less than promised, and too little at times.
        one.period_began = now;
        if self.is_yielded(slot) {
            self.arrange(slot);
        }
    }

    /// The turn of the one that was raised in a yield window is over, though it goes on.
    fn lower_all(&mut self, slot: usize) {
        if let Some(window) = &mut self.slots[slot].window {
            window.raised = None;
        }
        if let Some(front) = self.current(slot) {
            self.threads[front as usize].woke = None;
        }
        self.arrange(slot);
    }

    fn close_window(&mut self, slot: usize) {
        self.slots[slot].window = None;
        for task in 0..self.threads.len() as u32 {
            let thread = &self.threads[task as usize];
            if thread.slot != slot || thread.left || thread.placement == Placement::Band {
                continue;
            }
            if thread.control.is_as_in_window() {
                self.place(task, self.current(slot) == Some(task));
            } else {
                self.leave_alone(task, Interference::Policy);
            }
        }
        // What the block detector said meanwhile is about the yield window.
        let _ = self.slots[slot].control.fired();
        if self.current(slot).is_some() {
            // First the block detector, then the look: one of both sees it when the chosen thread blocks now.
            self.slots[slot].control.arm();
            self.look_at_chosen(slot);
        }
    }

    /// Nobody says when a lent thread blocks: whenever something else wakes the agent, it looks.
    pub(super) fn look_at_chosen_in_window(&mut self, slot: usize) {
        if self.is_yielded(slot) {
            self.look_at_chosen(slot);
        }
    }

    fn look_at_chosen(&mut self, slot: usize) {
        let Some(task) = self.current(slot) else { return };
        match self.threads[task as usize].control.state() {
            State::Sleeping => self.decide(slot, Fate::Blocked),
            State::Gone => self.forget(task),
            State::Runnable => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yield_windows_follow_what_the_kernel_keeps() {
        let ms = |period: u64, window: u64| YieldWindows {
            period: Ns::from_ms(period),
            length: Ns::from_ms(window),
        };
        assert_eq!(YieldWindows::from_rt_limits(Some(1_000_000), Some(950_000)), ms(100, 7));
        // Unlimited, or unreadable: the fair server's 5 % all the same.
        assert_eq!(YieldWindows::from_rt_limits(Some(1_000_000), Some(-1)), ms(100, 7));
        assert_eq!(YieldWindows::from_rt_limits(None, None), ms(100, 7));
        assert_eq!(YieldWindows::from_rt_limits(Some(1_000_000), Some(1_000_000)), ms(100, 7));
        assert_eq!(YieldWindows::from_rt_limits(Some(1_000_000), Some(800_000)), ms(100, 22));
        assert_eq!(
            YieldWindows::from_rt_limits(Some(500_000), Some(475_000)),
            YieldWindows { period: Ns::from_ms(50), length: Ns::from_us(3_500) }
        );
        // Nonsense does not make it give everything, nor divide by nothing.
        assert_eq!(YieldWindows::from_rt_limits(Some(0), Some(0)), ms(100, 50));
        assert_eq!(YieldWindows::from_rt_limits(Some(10_000), Some(0)), ms(10, 5));
    }
}
