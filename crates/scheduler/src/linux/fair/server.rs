//! The fair server (6.12 and later): a deadline-class reservation of each CPU that keeps RT tasks
//! from starving fair ones. It replaces RT throttling; `sched_rt_runtime_us` no longer touches FIFO
//! and RR tasks.
//!
//! While fair tasks are queued, the server holds a budget of `runtime` for each `period`. It
//! is *deferred*: it waits until there is just enough time left before its deadline (zero laxity),
//! and fair execution in the meantime is charged to the budget. When the budget is used up that
//! way, a new period begins and the server never fires. Otherwise it becomes an entity of the
//! deadline class at zero laxity, and fair tasks run above RT ones until the budget is gone, which
//! is noticed at a tick.
//!
//! # Worked example
//! One FIFO hog and one fair hog, HZ=250, 50 ms each 1 s. At 0 the fair hog is queued: deadline
//! 1000 ms, timer at 950 ms. There the server starts; the rule of the constant-bandwidth server
//! gives it a new deadline (50 ms in 50 ms is more than 5 %). At the tick of 1004 ms the budget is
//! overdrawn: RT goes on, and the last bit of fair time, charged at the switch, starts a new period
//! from 1004: the timer fires at 1954. So RT runs 950 ms and fair 54 ms, with a period of 1004 ms.

use crate::linux::dl::cbs;
use schedlab_model::Ns;

/// The shortest time by which the start is put off again (`dl_server_min_res`).
const MIN_DEFER: i64 = 1_000_000;

/// One CPU's fair server. All times in ns.
#[derive(Clone, Debug)]
pub(crate) struct FairServer {
    /// Budget of a period; 0 = switched off.
    runtime: i64,
    /// Period, and relative deadline.
    period: i64,
    /// Fair tasks are queued.
    active: bool,
    /// It is an entity of the deadline class: fair tasks go above RT ones.
    queued: bool,
    /// It waits for its timer.
    throttled: bool,
    /// It waits for zero laxity (as against: for its next period).
    deferred: bool,
    /// It has fired and fair tasks have not caught up since.
    running: bool,
    /// Absolute deadline.
    deadline: i64,
    /// Budget left.
    left: i64,
    timer: Option<Ns>,
}

/// What a call asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Wants {
    /// Choose anew on this CPU.
    pub(crate) resched: bool,
    /// The timer is to be set (`Some`) or stopped (`None`).
    pub(crate) timer: Option<Option<Ns>>,
}

impl FairServer {
    /// A server with this budget (0 = off) for each period.
    pub(crate) fn new(runtime: Ns, period: Ns) -> FairServer {
        FairServer {
            runtime: runtime.0 as i64,
            period: period.0 as i64,
            active: false,
            queued: false,
            throttled: false,
            deferred: false,
            running: false,
            deadline: 0,
            left: 0,
            timer: None,
        }
    }
    /// Fair tasks go above RT ones now.
    #[inline]
    pub(crate) fn queued(&self) -> bool {
        self.queued
    }
    /// Its absolute deadline, ns.
    #[inline]
    pub(crate) fn deadline(&self) -> i64 {
        self.deadline
    }
    /// Fair execution from now on overdraws the budget after this long; `None`: it is not charged.
    #[inline]
    pub(crate) fn left(&self) -> Option<u64> {
        self.active.then_some(self.left.max(0) as u64)
    }
    /// The first fair task came.
    pub(crate) fn start(&mut self, now: u64) -> Wants {
        if self.runtime == 0 || self.active {
            return Wants::default();
        }
        let (before, now) = (self.timer, now as i64);
        self.active = true;
        if self.deadline <= now || self.overflows(now) {
            // A starved period that ended with the fair tasks gone does not count for the new one.
            self.running = false;
            self.new_period(now);
        } else if !self.running {
            (self.deferred, self.throttled) = (true, true);
        }
        let resched = self.enqueue(now);
        self.wants(before, resched)
    }
    /// The last fair task went.
    pub(crate) fn stop(&mut self) -> Wants {
        let before = self.timer;
        (self.active, self.queued, self.throttled, self.deferred) = (false, false, false, false);
        self.timer = None;
        self.wants(before, false)
    }
    /// A fair task ran for `delta` until `now`, under the server or beside it.
    #[cfg(test)]
    pub(crate) fn charge(&mut self, delta: u64, now: u64) -> Wants {
        if self.spend(delta) { self.overdrawn(now) } else { Wants::default() }
    }
    /// The first half of it: gives whether the budget is used up, which
    /// [`overdrawn`](Self::overdrawn) must hear.
    #[inline]
    pub(crate) fn spend(&mut self, delta: u64) -> bool {
        if !self.active {
            return false;
        }
        self.left -= delta as i64;
        self.left <= 0
    }
    /// The second half: the budget is used up at `now`.
    pub(crate) fn overdrawn(&mut self, now: u64) -> Wants {
        let (before, now) = (self.timer, now as i64);
        self.timer = None;
        if self.throttled {
            // Fair tasks had their share without help.
            self.running = false;
            self.new_period(now);
            self.arm(now);
            return self.wants(before, false);
        }
        (self.throttled, self.queued) = (true, false);
        if !self.arm(now) {
            self.replenish(now);
            self.enqueue(now);
        }
        self.wants(before, true)
    }
    /// A fair task gave way to an RT one. On a real machine a bit of fair time always passes
    /// between the tick that overdraws the budget and the switch; where the machine costs nothing,
    /// this is that bit.
    pub(crate) fn gave_way(&mut self, now: u64) -> Wants {
        if !self.active || self.left > 0 || !self.throttled || self.deferred {
            return Wants::default();
        }
        self.overdrawn(now)
    }
    /// The CPU was idle for `delta`: that counts as served.
    pub(crate) fn idle(&mut self, delta: u64) {
        if self.left < 0 {
            return;
        }
        self.left -= delta as i64;
        if self.left < 0 {
            (self.left, self.running) = (0, false);
        }
    }
    /// The timer fired; `fair`: fair tasks are queued.
    pub(crate) fn fired(&mut self, now: u64, fair: bool) -> Wants {
        let now = now as i64;
        self.timer = None;
        if !self.throttled {
            return Wants::default();
        }
        if !fair {
            self.replenish(now);
            return self.wants(None, false);
        }
        if self.deferred {
            if now < self.deadline - self.left - MIN_DEFER {
                self.timer = Some(Ns((self.deadline - self.left) as u64));
                return self.wants(None, false);
            }
            self.running = true;
        }
        self.replenish(now);
        let resched = self.enqueue(now);
        self.wants(None, resched)
    }
    /// Whether budget and deadline ask for more than the reservation (the CBS rule).
    fn overflows(&self, now: i64) -> bool {
        cbs::overflows(self.left, self.deadline - now, self.runtime, self.period)
    }
    fn new_period(&mut self, now: i64) {
        (self.deadline, self.left) = (now + self.period, self.runtime);
        if !self.running {
            (self.throttled, self.deferred) = (true, true);
        }
    }
    /// Enters the deadline class, or waits for the timer. `true`: it is in.
    fn enqueue(&mut self, now: i64) -> bool {
        if self.throttled && self.arm(now) {
            return false;
        }
        (self.throttled, self.deferred, self.timer, self.queued) = (false, false, None, true);
        true
    }
    /// Sets the timer; `false` when its time has passed.
    fn arm(&mut self, now: i64) -> bool {
        let at = if self.deferred { self.deadline - self.left } else { self.deadline };
        if at < now {
            return false;
        }
        self.timer.get_or_insert(Ns(at as u64));
        true
    }
    fn replenish(&mut self, now: i64) {
        if self.deferred && self.overflows(now) {
            (self.deadline, self.left) = (now + self.period, self.runtime);
        }
        while self.left <= 0 {
            self.deadline += self.period;
            self.left += self.runtime;
        }
        if self.deadline < now {
            self.new_period(now);
        }
        self.throttled = false;
        if self.deferred {
            self.deferred = false;
        } else if !self.running && now < self.deadline - self.left {
            (self.deferred, self.throttled) = (true, true);
        }
    }
    fn wants(&self, before: Option<Ns>, resched: bool) -> Wants {
        Wants { resched, timer: (self.timer != before).then_some(self.timer) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn server() -> FairServer {
        FairServer::new(Ns::from_ms(50), Ns::from_s(1))
    }

    fn fires(wants: Wants) -> Option<u64> {
        wants.timer.flatten().map(|at| at.0 / MS)
    }

    /// The worked example of the module: RT 950 ms, fair 54 ms, period 1004 ms
    /// (docs/sources/linux-facts.md, G17).
    #[test]
    fn a_starved_fair_task_gets_54_of_1004_ms() {
        let mut server = server();
        assert_eq!(fires(server.start(0)), Some(950));
        for round in 0..5 {
            let at = 950 + 1004 * round;
            let fired = server.fired(at * MS, true);
            assert!(fired.resched && server.queued());
            // Ticks each 4 ms; the budget of 50 ms is seen overdrawn at the 13th (the phase of
            // G17).
            for tick in 1..=12 {
                assert_eq!(server.charge(4 * MS, (at + 4 * tick) * MS), Wants::default());
            }
            let over = server.charge(4 * MS, (at + 52) * MS);
            assert!(over.resched && !server.queued());
            // The bit between the tick and the switch restarts the server.
            let restarted = server.charge(MS, (at + 54) * MS);
            assert!(!restarted.resched);
            assert_eq!(fires(restarted), Some(at + 1004));
        }
    }

    #[test]
    fn it_never_fires_while_fair_tasks_get_their_share() {
        let mut server = server();
        server.start(0);
        // 10 % of the time: the timer, each time it fires, finds budget used in the meantime.
        let mut timer = 950;
        for now in (0..20_000).step_by(10) {
            if now >= timer {
                timer = fires(server.fired(now * MS, true)).unwrap_or(timer);
            }
            assert!(!server.queued(), "fired at {now} ms");
            timer = fires(server.charge(MS, now * MS)).unwrap_or(timer);
        }
    }

    #[test]
    fn a_budget_of_zero_switches_it_off() {
        let mut server = FairServer::new(Ns::ZERO, Ns::from_s(1));
        assert_eq!(server.start(0), Wants::default());
        assert_eq!(server.charge(MS, MS), Wants::default());
    }

    #[test]
    fn idle_time_is_charged_and_stopping_disarms() {
        let mut server = server();
        server.start(0);
        server.idle(60 * MS);
        assert_eq!(server.left(), Some(0));
        assert_eq!(server.stop().timer, Some(None));
        assert_eq!(server.left(), None);
    }
}
