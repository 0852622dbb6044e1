//! Yield windows: each managed CPU is given to the fair class now and then, so that the kernel's
//! own throttling of real-time threads never strikes and the rest of the system gets on.
//!
//! The scheduler goes on deciding in a yield window. For its length the bands move down into the
//! fair class: the chosen thread has its own policy, the waiting ones have SCHED_IDLE. So the rest
//! of the system competes with one managed thread at most, a turn is not cut, a woken thread is
//! placed as always, and batch work does not delay the thread that it waits behind.
//!
//! A thread that wakes during a yield window and is picked runs in its FIFO band as usual, because
//! beside a SCHED_IDLE thread the fair class would let it wait for a tick at times; the window is
//! extended by that run, up to `strict`. Where managed threads are in control groups (or
//! autogroups) of their own, SCHED_IDLE counts within its group only: there the kernel shares a
//! window between the groups.

use super::agent_state::{AgentState, Placement};
use super::control::{CpuControl, Interference, ThreadActivity, ThreadControl};
use crate::logged_core::Fate;
use schedlab_model::Ns;
use std::fs;

/// How often a CPU is given to the fair class, and for how long, unless it was idle that long
/// anyway.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct YieldWindows {
    /// How often.
    pub period: Ns,
    /// For how long.
    pub length: Ns,
}

/// Share of each CPU, in per cent, that the kernel reserves for fair tasks when its limits cannot
/// be read: `sched_rt_runtime_us` of 950,000 (Documentation/scheduler/sched-rt-group.rst), and the
/// fair server's 50 ms a second since Linux 6.12 (`sched_init_dl_servers`,
/// kernel/sched/deadline.c), which is shown in debugfs only.
const KEPT_PERCENT: u64 = 5;
/// What is given beyond that, in per cent of the period: the driver's account is not the kernel's,
/// which counts interrupts and switches. (Measured with `perf` at 4000 wakeups a second: of windows
/// of 6 ms the fair class had 5.0 to 5.5 ms when the agent's time was part of them, and the
/// kernel's fair server took its 50 ms at once.)
const MORE_PERCENT: u64 = 2;
/// Windows come at least as often as this, however long the kernel's period is.
const LONGEST: Ns = Ns::from_ms(100);
/// And not more often than this.
const SHORTEST: Ns = Ns::from_ms(10);

impl YieldWindows {
    /// Returns the windows that this kernel's limits want.
    pub fn for_this_kernel() -> YieldWindows {
        let read = |name: &str| {
            let text = fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?;
            text.trim().parse::<i64>().ok()
        };
        YieldWindows::from_rt_limits(read("sched_rt_period_us"), read("sched_rt_runtime_us"))
    }

    /// Returns the windows for the kernel's period and runtime of real-time threads (us); -1 or
    /// nothing: no limit of that kind. The period is a tenth of the kernel's, so that no second
    /// period of the kernel is without a window; the length is at least 5 % of it, because the fair
    /// server has its own account, and at most half.
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

/// A yield window that is open. The agent's own time is no part of it: with thousands of wakeups a
/// second that was a tenth of a window, and the kernel's throttling struck.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct YieldWindow {
    /// Time that the fair class shall still have.
    left: Ns,
    /// Since when the fair class has the CPU, and the agent's CPU time then; `None` during a round
    /// of the agent, and while a thread is raised.
    yielded_since: Option<(Ns, Ns)>,
    /// From then on no thread is raised in this window.
    strict: Ns,
    /// A managed thread is above the fair class all the same, until then at most.
    raised: Option<Ns>,
}

impl YieldWindow {
    /// Returns when there is something to do about the window.
    pub(super) fn due(&self) -> Option<Ns> {
        self.raised.or(self.yielded_since.map(|(since, _)| since + self.left))
    }

    /// Takes off what the fair class had: not what the agent used until it slept, and since it
    /// woke.
    fn count(&mut self, now: Ns, used: Ns) {
        let had = |(since, before): (Ns, Ns)| {
            now.saturating_sub(since).saturating_sub(used.saturating_sub(before))
        };
        self.left = self.left.saturating_sub(self.yielded_since.take().map_or(Ns::ZERO, had));
    }

    /// Gives the CPU to the fair class from now on, unless a thread is raised.
    fn go_on(&mut self, now: Ns, used: Ns) {
        self.yielded_since = self.raised.is_none().then_some((now, used));
    }

    /// Raises a thread for the length of a window (`turn`) at most, and never for less: towards a
    /// fixed end the agent would have to be woken before the next tick. (Measured at 250 ticks a
    /// second: turns in the last 3 to 4 ms before such an end took some 12 us longer, all of it in
    /// the agent's going to sleep and waking. Probably each sleep programs the CPU's timer then;
    /// that was not traced.)
    fn raise(&mut self, now: Ns, turn: Ns) {
        if now < self.strict {
            self.raised = Some(now + turn);
        }
    }
}

impl<T: ThreadControl, C: CpuControl> AgentState<T, C> {
    /// Returns whether the managed threads on a CPU are in the fair class now.
    pub(super) fn is_yielded(&self, slot: usize) -> bool {
        self.slots[slot].window.is_some_and(|window| window.raised.is_none())
    }

    /// Returns whether a thread woke so lately that its turn is an answer to that.
    fn fresh(&self, task: u32, now: Ns) -> bool {
        let woke = self.threads[task as usize].woke;
        woke.is_some_and(|woke| now.saturating_sub(woke) <= self.rules.windows.length)
    }

    /// Another thread, or none, gets a CPU: updates the window that may be open there.
    pub(super) fn switch_in_window(&mut self, now: Ns, slot: usize, next: Option<u32>) {
        let fresh = next.is_some_and(|next| self.fresh(next, now));
        let turn = self.rules.windows.length;
        let elsewhere = slot != self.acting;
        let Some(window) = &mut self.slots[slot].window else { return };
        // What the agent of that CPU used is not known here; as a rule it is asleep.
        window.count(now, Ns::ZERO);
        window.raised = None;
        if fresh {
            window.raise(now, turn);
        }
        // Its own agent does that at the end of its round.
        if elsewhere {
            window.go_on(now, Ns::MAX);
        }
    }

    /// Brings the account of a window up to date at the beginning and (`done`) at the end of a
    /// round of the CPU's agent.
    pub(super) fn count_window(&mut self, slot: usize, used: Ns, done: bool) {
        if let Some(window) = &mut self.slots[slot].window {
            let now = (self.rules.clock)();
            window.count(now, used);
            if done {
                window.go_on(now, used);
            }
        }
    }

    /// Places every thread that wants a CPU on which a window is open.
    pub(super) fn arrange(&mut self, slot: usize) {
        let front = self.current(slot);
        for task in 0..self.threads.len() as u32 {
            // A sleeping thread is placed when it wakes.
            let thread = &self.threads[task as usize];
            if thread.slot == slot && !thread.left && self.core.runnable(task) {
                self.place(task, front == Some(task));
            }
        }
    }

    /// Opens a window on a CPU when the fair class had no chance in this period, and ends the turn
    /// of a raised thread and the window when their time is over.
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
        // A window, and the turns of threads that are raised in it, take half of a period at most:
        // the last turn ends then.
        let strict = now + Ns(period.0 / 2).saturating_sub(turn);
        let mut window = YieldWindow { left: length, yielded_since: None, strict, raised: None };
        let front = self.current(slot);
        if front.is_some_and(|front| self.fresh(front, now)) {
            window.raise(now, turn);
        }
        let one = &mut self.slots[slot];
        one.window = Some(window);
        // The window belongs to the period that it begins: after that period the share would be
        // less than promised, and too little at times.
        one.period_began = now;
        if self.is_yielded(slot) {
            self.arrange(slot);
        }
    }

    /// The turn of the thread that was raised in a window is over, though the thread goes on.
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
        // What the block detector told meanwhile is about the window.
        let _ = self.slots[slot].control.fired();
        if self.current(slot).is_some() {
            // First the detector, then the look: one of both sees it when the chosen thread blocks
            // now.
            self.arm(slot);
            self.look_at_chosen(slot);
        }
    }

    /// Looks at the chosen thread in a window, where no detector tells that it blocks: at each
    /// round of the agent.
    pub(super) fn look_at_chosen_in_window(&mut self, slot: usize) {
        if self.is_yielded(slot) {
            self.look_at_chosen(slot);
        }
    }

    fn look_at_chosen(&mut self, slot: usize) {
        let Some(task) = self.current(slot) else { return };
        match self.threads[task as usize].control.state() {
            ThreadActivity::Sleeping => self.decide(slot, Fate::Blocked),
            ThreadActivity::Gone => self.forget(task),
            ThreadActivity::Runnable => {}
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
        // Nonsense neither gives everything away nor divides by zero.
        assert_eq!(YieldWindows::from_rt_limits(Some(0), Some(0)), ms(100, 50));
        assert_eq!(YieldWindows::from_rt_limits(Some(10_000), Some(0)), ms(10, 5));
    }
}
