//! The NOHZ kick: a tick of a busy CPU lets an idle one, which has no ticks, balance for all idle
//! ones.

use super::domains;
use crate::linux::Linux;
use crate::linux::core::smp::Smp;
use crate::linux::fair::FairRules;
use crate::linux::fair::pelt::SCALE;
use crate::{Cmd, Cx, Locks, Timer};
use schedlab_model::{CpuId, Ns};
use std::sync::atomic::Ordering::Relaxed;

/// Timer slot of the machine: the next tick that kicks an idle CPU.
pub(in crate::linux) const KICK: Timer = Timer::Global(1);
/// How long after its tick a kick arrives, ns: the idle CPU takes an interrupt and a softirq, and
/// the busy one has chosen its next task by then.
const AFTER_TICK: u64 = 1;

impl<L: Locks, F: FairRules> Linux<L, F> {
    /// Sets the timer for the next kick, if there is an idle CPU and a reason, and it is not set.
    #[inline]
    pub(in crate::linux) fn arm_kick(&self, cx: &Cx<'_>, smp: Option<&Smp>) {
        let Some(smp) = smp else { return };
        if smp.summary.idle_cpus() > 0 && !smp.kick_armed.load(Relaxed) && smp.summary.any_work() {
            self.arm_next_kick(cx, smp);
        }
    }

    #[inline(never)]
    fn arm_next_kick(&self, cx: &Cx<'_>, smp: &Smp) {
        let from = smp.next_kick.load(Relaxed).max(cx.now.0 + 1);
        let Some(at) = smp.edges.first(cx.world, from, |cpu| self.kicks(cx, smp, cpu)) else {
            return;
        };
        smp.kick_armed.store(true, Relaxed);
        cx.push(Cmd::Arm(KICK, Ns(at + AFTER_TICK)));
    }

    /// Whether a tick of this CPU would kick an idle one.
    fn kicks(&self, cx: &Cx<'_>, smp: &Smp, cpu: CpuId) -> bool {
        let summary = &smp.summary;
        if summary.idle(cpu) || !cx.cpu(cpu).online {
            return false;
        }
        // Its tick is off.
        if cx.world.roles.nohz_full.contains(cpu) && summary.nr_running(cpu) < 2 {
            return false;
        }
        let pressed = || summary.fair(cpu) > 0 && summary.capacity(cpu, cx.now) * 117 < SCALE * 100;
        let llc = &smp.domains.llc[cpu.index()];
        let busy = || llc.count() - llc.and(&summary.idle_set()).count();
        summary.nr_running(cpu) >= 2 || pressed() || busy() > 1
    }

    /// The kick: one idle CPU balances for all idle ones, itself last.
    pub(in crate::linux) fn kicked(&self, cx: &Cx<'_>) {
        let Some(smp) = self.smp.get() else { return };
        smp.kick_armed.store(false, Relaxed);
        let online = smp.online();
        let idle = |cpu: &CpuId| smp.summary.idle(*cpu);
        // `find_new_ilb` looks among the housekeeping CPUs.
        let housekeeping = online.without(&cx.world.roles.nohz_full);
        let Some(first) = housekeeping.iter().find(|cpu| idle(cpu)) else { return };
        if !online.iter().any(|cpu| self.kicks(cx, smp, cpu)) {
            return;
        }
        // Balancing counts in ticks.
        let tick = cx.now.0 - AFTER_TICK;
        let mut next = u64::MAX;
        for cpu in domains::wrap(&online, first.0 + 1).filter(idle).collect::<Vec<_>>() {
            if !idle(&first) {
                break;
            }
            self.report_all(cx, smp, cpu);
            if tick >= smp.next_balance[cpu.index()].load(Relaxed) {
                self.rebalance(cx, smp, cpu, tick);
            }
            next = next.min(smp.next_balance[cpu.index()].load(Relaxed));
        }
        smp.next_kick.store(next, Relaxed);
        self.arm_kick(cx, self.smp.get());
    }
}
