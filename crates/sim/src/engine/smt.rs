//! Hardware threads of one core slow each other.
//!
//! The model is one number: while another thread of its core runs a task, a thread runs at
//! `smt_yield` of its speed. What a program still has to do is kept in wall time at the present
//! speed of its CPU, and is converted when the speed changes. Kernel work is not slowed.

use super::Engine;
use super::slots::OfCpu;
use crate::Machine;
use schedlab_model::{CpuId, EventSink};

/// Speed of a thread beside idle ones, in thousandths.
const FULL_SPEED: u64 = schedlab_model::FULL_SPEED as u64;

/// Which CPUs are slowed now.
#[derive(Debug)]
pub(super) struct Smt {
    /// Speed beside a busy thread, in thousandths.
    speed: u64,
    /// By CPU: the other threads of its core.
    siblings: Vec<Vec<usize>>,
    slowed: Vec<bool>,
}

impl Smt {
    /// `None`: no CPU of the machine is ever slowed.
    pub(super) fn of(machine: &Machine) -> Option<Box<Smt>> {
        if !machine.slows_siblings() {
            return None;
        }
        let cpus = machine.topology.cpus();
        let others = |cpu: usize| {
            machine.topology.siblings(CpuId::from(cpu)).into_iter().map(CpuId::index).collect()
        };
        Some(Box::new(Smt {
            speed: u64::from(machine.smt_yield),
            siblings: (0..cpus).map(others).collect(),
            slowed: vec![false; cpus],
        }))
    }

    /// Returns how long `work` takes on `cpu` at its present speed.
    pub(super) fn length(&self, cpu: usize, work: u64) -> u64 {
        if self.slowed[cpu] { scaled(work, FULL_SPEED, self.speed) } else { work }
    }

    /// Returns the work that is done on `cpu` in `length`.
    fn work(&self, cpu: usize, length: u64) -> u64 {
        if self.slowed[cpu] { scaled(length, self.speed, FULL_SPEED) } else { length }
    }
}

/// Rounded up, so that what is left never becomes nothing.
fn scaled(value: u64, by: u64, of: u64) -> u64 {
    u64::try_from((u128::from(value) * u128::from(by)).div_ceil(u128::from(of))).unwrap_or(u64::MAX)
}

impl<S: EventSink, const FREE: bool> Engine<'_, S, FREE> {
    /// The occupant of `cpu`, which is accounted, is about to change: its rest is work again.
    pub(super) fn leaves_thread(&mut self, cpu: usize) {
        let (Some(smt), Some(task)) = (&self.features.smt, self.cpus[cpu].occupant) else { return };
        let left = &mut self.tasks[task.index()].left;
        *left = smt.work(cpu, *left);
    }

    /// The occupant of `cpu` has changed: the speeds of the threads of its core follow.
    pub(super) fn enters_thread(&mut self, cpu: usize) {
        let Some(mut smt) = self.features.smt.take() else { return };
        let busy = |other: &usize| self.cpus[*other].occupant.is_some();
        smt.slowed[cpu] = smt.siblings[cpu].iter().any(busy);
        if let Some(task) = self.cpus[cpu].occupant {
            let left = &mut self.tasks[task.index()].left;
            *left = smt.length(cpu, *left);
        }
        for at in 0..smt.siblings[cpu].len() {
            let sibling = smt.siblings[cpu][at];
            let busy = |other: &usize| self.cpus[*other].occupant.is_some();
            let slowed = smt.siblings[sibling].iter().any(busy);
            if smt.slowed[sibling] != slowed {
                self.account(sibling);
                let work = self.cpus[sibling]
                    .occupant
                    .map(|task| (task.index(), smt.work(sibling, self.tasks[task.index()].left)));
                smt.slowed[sibling] = slowed;
                if let Some((task, work)) = work {
                    self.tasks[task].left = smt.length(sibling, work);
                    let armed = self.due.slots.cpu_at(sibling, OfCpu::Work).is_some();
                    if armed && self.cpus[sibling].switching.is_none() {
                        self.arm_work(sibling);
                    }
                }
            }
        }
        self.features.smt = Some(smt);
    }

    /// The program of `t` needs CPU time on `cpu`: as much as it takes there.
    #[inline]
    pub(super) fn stretch(&mut self, cpu: usize, t: usize) {
        if let Some(smt) = &self.features.smt {
            let left = &mut self.tasks[t].left;
            *left = smt.length(cpu, *left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::Topology;

    #[test]
    fn work_takes_longer_beside_a_busy_thread() {
        let topology = Topology::regular(1, 1, 1, 2);
        let machine = Machine { topology, smt_yield: 600, ..Machine::flat(1) };
        let mut smt = Smt::of(&machine).unwrap();
        assert_eq!(smt.length(0, 600), 600);
        smt.slowed[0] = true;
        assert_eq!((smt.length(0, 600), smt.work(0, 1_000)), (1_000, 600));
        assert_eq!((smt.length(0, 1), smt.work(0, 1)), (2, 1), "what is left stays");
        assert_eq!(smt.length(0, u64::MAX), u64::MAX);
        assert!(Smt::of(&Machine::flat(2)).is_none());
    }
}
