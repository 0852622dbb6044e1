//! The period timer of RT throttling: one for the machine.

use super::fair::FairRules;
use super::{Env, Linux, rt};
use crate::{Cmd, Cx, Lock, Locks, Timer};
use schedlab_model::Ns;

/// Timer slot of the machine: the period of RT throttling.
pub(super) const RT_PERIOD: Timer = Timer::Global(0);

/// State of the RT period timer.
pub(super) struct RtPeriod {
    pub(super) active: bool,
    /// When it fires next, ns.
    pub(super) next: u64,
}

impl<L: Locks, F: FairRules> Linux<L, F> {
    /// The RT period starts anew when the first RT task shows up after a quiet period.
    pub(super) fn start_rt_period(&self, env: Env<'_>) {
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
    pub(super) fn rt_period_ended(&self, cx: &Cx<'_>) {
        let env = self.env(cx);
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
