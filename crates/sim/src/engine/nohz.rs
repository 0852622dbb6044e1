//! CPUs without ticks (`nohz_full=`): while the scheduler can do without them, they cost nothing.

use super::Engine;
use super::slots::OfCpu;
use crate::Machine;
use schedlab_model::{CpuId, EventSink};
use schedlab_scheduler::Needs;

/// Which CPUs have no ticks now.
#[derive(Debug)]
pub(super) struct NohzFull {
    /// By CPU: one of `nohz_full`.
    able: Vec<bool>,
    /// By CPU.
    off: Vec<bool>,
}

impl NohzFull {
    /// `None`: every CPU has all its ticks.
    pub(super) fn of(machine: &Machine, needs: &Needs) -> Option<Box<NohzFull>> {
        if machine.roles.nohz_full.is_empty() || !needs.nohz_full {
            return None;
        }
        let cpus = machine.topology.cpus();
        let able = (0..cpus as u32).map(|cpu| machine.roles.nohz_full.contains(CpuId(cpu)));
        Some(Box::new(NohzFull { able: able.collect(), off: vec![false; cpus] }))
    }
}

impl<S: EventSink, const FREE: bool> Engine<'_, S, FREE> {
    /// What a tick of `cpu` costs now.
    #[inline]
    pub(super) fn tick_cost(&self, cpu: usize) -> u64 {
        match &self.features.nohz {
            Some(nohz) if nohz.off[cpu] => 0,
            _ => self.input.machine.costs.tick_ns.0,
        }
    }

    /// The queue of `cpu` may have changed: its ticks stop, or come again.
    #[cold]
    pub(super) fn follow_tick(&mut self, cpu: usize) {
        let Some(nohz) = self.features.nohz.as_ref().filter(|nohz| nohz.able[cpu]) else { return };
        let was = nohz.off[cpu];
        let off = self.input.scheduler.tick_stops(&self.cx(cpu), CpuId(cpu as u32));
        if off == was {
            return;
        }
        // What ran until now ran under the old rule.
        self.account(cpu);
        if let Some(nohz) = &mut self.features.nohz {
            nohz.off[cpu] = off;
        }
        let armed = self.due.slots.cpu_at(cpu, OfCpu::Work).is_some();
        if armed && self.cpus[cpu].switching.is_none() {
            self.arm_work(cpu);
        }
    }
}
