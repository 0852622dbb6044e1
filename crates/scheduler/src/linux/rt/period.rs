//! The period timer of RT throttling: one for the machine.

use crate::linux::fair::FairRules;
use crate::linux::{Env, Linux, rt};
use crate::{Cmd, Cx, Lock, Locks, Timer};
use schedlab_model::{CpuId, Ns};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Timer slot of the machine: the period of RT throttling.
pub(in crate::linux) const RT_PERIOD: Timer = Timer::Global(0);

/// State of the RT period timer.
pub(in crate::linux) struct RtPeriod {
    pub(in crate::linux) active: bool,
    /// When it fires next, ns.
    pub(in crate::linux) next: u64,
}

/// RT run time of one CPU, in a place where other CPUs may borrow from it (RT_RUNTIME_SHARE).
/// Written under the lock of the CPU, except that a borrower lowers `runtime` of another CPU.
#[derive(Debug)]
pub(in crate::linux) struct RtBudget {
    runtime: AtomicU64,
    time: AtomicU64,
}

impl RtBudget {
    /// Nothing used of `runtime` ns in each period (`u64::MAX` = no limit).
    pub(in crate::linux) fn new(runtime: u64) -> RtBudget {
        RtBudget { runtime: AtomicU64::new(runtime), time: AtomicU64::new(0) }
    }
    /// How long RT tasks may run in each period, ns.
    #[inline]
    pub(in crate::linux) fn runtime(&self) -> u64 {
        self.runtime.load(Relaxed)
    }
    /// Publishes how long they ran in this one, ns.
    #[inline]
    pub(in crate::linux) fn set_time(&self, time: u64) {
        self.time.store(time, Relaxed);
    }
}

/// `cpu` takes from each other CPU its share of the run time that is unused there, up to a whole
/// period.
pub(in crate::linux) fn borrow(env: Env<'_>, cpu: CpuId) {
    let own = &env.budgets[cpu.index()].runtime;
    let cpus = env.budgets.len() as u64;
    for (other, budget) in env.budgets.iter().enumerate() {
        if other == cpu.index() || own.load(Relaxed) >= env.t.rt_period {
            continue;
        }
        let unused = budget.runtime().saturating_sub(budget.time.load(Relaxed)) / cpus;
        let taken = unused.min(env.t.rt_period - own.load(Relaxed));
        budget.runtime.fetch_sub(taken, Relaxed);
        own.fetch_add(taken, Relaxed);
    }
}

impl<L: Locks, F: FairRules> Linux<L, F> {
    /// The RT period starts anew when the first RT task shows up after a quiet period.
    pub(in crate::linux) fn start_rt_period(&self, env: Env<'_>) {
        if !self.t.version.rt_throttling || self.t.rt_runtime == u64::MAX {
            return;
        }
        let mut period = self.rt_period.lock();
        if !period.active {
            *period = RtPeriod { active: true, next: env.cx.now.0 };
            env.cx.push(Cmd::Arm(RT_PERIOD, env.cx.now));
        }
    }

    /// The RT period timer fired.
    pub(in crate::linux) fn rt_period_ended(&self, cx: &Cx<'_>) {
        let env = &self.env(cx);
        let periods = {
            let period = self.rt_period.lock();
            if !period.active || cx.now.0 < period.next {
                return;
            }
            (cx.now.0 - period.next) / self.t.rt_period + 1
        };
        let mut idle = true;
        for cpu in 0..self.rqs.len() {
            let step = self.locked(cpu.into(), |rq| {
                rq.touch::<F>(env, false);
                rt::period_step(env, rq, periods)
            });
            idle &= step.idle;
        }
        let mut period = self.rt_period.lock();
        period.next += periods * self.t.rt_period;
        period.active = !idle;
        if period.active {
            cx.push(Cmd::Arm(RT_PERIOD, Ns(period.next)));
        }
    }
}
