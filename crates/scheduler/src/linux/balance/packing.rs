//! Tasks are kept together on few CPUs of a virtual machine, so that the others can halt: the boot
//! option `sched_vcpu_pack=15` of the kernels of some Firecracker guests.
//!
//! Upstream has no such option. The rules were read from the machine code of Linux 6.18.44
//! (`vcpu_pack_room` and its only caller, `select_task_rq_fair`), booted so; the option is a sum of
//! the bits below. Nothing else in that kernel asks for it.
//!
//! | rule | where the real system has it | here | test |
//! |---|---|---|---|
//! | a CPU has room: allowed, fair tasks only, one runnable at most, used below 70 % with the newcomer | `vcpu_pack_room` | modelled | `room_is_one_fair_task_and_70_percent` |
//! | what is used is the larger of average and estimate | `cpu_util`, `task_util_est` | modelled for the one task that runs | `an_estimate_outlasts_the_average` |
//! | a task's estimate follows its average up at once, down by a quarter of the difference for each period of its signals; not while it waits for a CPU (runnable average more than 1 % above) | `util_est_update` (`UTIL_EST`) | modelled | `an_estimate_outlasts_the_average` |
//! | a wakeup on its way to that CPU leaves no room there | `rq->ttwu_pending` | omitted: wakeups are on no way | – |
//! | interrupts of an idle CPU wake there | bit 1 | modelled | `an_idle_cpus_interrupt_wakes_there` |
//! | wakers about to sleep, last CPU, waker's CPU, any busy CPU | bits 2 and 4 | modelled | `wakees_go_where_another_task_runs` |
//! | new tasks stay with their parent | bit 8 | modelled; for `exec` omitted: programs have none | `children_stay_where_room_is` |
//! | tasks that may run on one CPU only are left alone | `nr_cpus_allowed` | modelled | `who_has_no_choice_is_not_packed` |

use crate::Locks;
use crate::linux::balance::placement::{Placement, Wakeup};
use crate::linux::core::rq::{Class, EntityId, Rq};
use crate::linux::core::task_index::ByTask;
use crate::linux::fair::pelt::{PERIOD_SHIFT, Pelt, SCALE};
use crate::linux::{Linux, fair::FairRules};
use schedlab_model::{CpuId, Ns, TaskId};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// An interrupt on an idle CPU wakes there.
const IRQ: u8 = 1;
/// A waker that is about to sleep has its wakee come to it.
const SYNC: u8 = 2;
/// Wakees go to a busy CPU: the last one, the waker's, any.
const BUSY: u8 = 4;
/// New tasks stay with their parent.
const FORK: u8 = 8;

/// A CPU is full from this part on, in hundredths of its capacity.
const FULL: u64 = 70;

/// A difference of estimate and average that is none: 1 % of a CPU.
const MARGIN: u64 = SCALE / 100;

/// What tasks are estimated to use of a CPU, 0 to 1024.
#[derive(Debug)]
pub(in crate::linux) struct Estimates {
    /// By task: that, and in the upper half the period of its signals in which it was worked out
    /// last.
    tasks: ByTask<0>,
    /// By CPU: of the task that runs there.
    running: Box<[AtomicU64]>,
}

impl Estimates {
    pub(in crate::linux) fn new(cpus: usize) -> Estimates {
        Estimates { tasks: ByTask::new(), running: (0..cpus).map(|_| AtomicU64::new(0)).collect() }
    }

    pub(in crate::linux) fn of_task(&self, task: TaskId) -> u64 {
        u64::from(self.tasks.cell(task).load(Relaxed) as u32)
    }

    /// A task goes to sleep. Averages change at the ends of periods only, and with them this.
    fn sleeps(&self, task: TaskId, average: &Pelt, now: Ns) {
        let (cell, period) = (self.tasks.cell(task), now.0 >> PERIOD_SHIFT & u64::from(u32::MAX));
        let before = cell.load(Relaxed);
        if before >> 32 == period {
            return;
        }
        let (util, runnable, old) =
            (average.util_avg(), average.runnable_avg(), u64::from(before as u32));
        let new = match old.checked_sub(util) {
            None | Some(0) => util,
            Some(above) if above < MARGIN || util + MARGIN < runnable => old,
            Some(above) => (4 * old - above) / 4,
        };
        cell.store(period << 32 | new.min(SCALE), Relaxed);
    }

    fn runs(&self, cpu: CpuId, task: Option<TaskId>) {
        let estimate = task.map_or(0, |task| self.of_task(task));
        self.running[cpu.index()].store(estimate, Relaxed);
    }
}

impl<L: Locks, F: FairRules> Linux<L, F> {
    /// A task goes to sleep, where estimates are asked for.
    #[inline(always)]
    pub(in crate::linux) fn estimate(&self, rq: &Rq, id: EntityId, now: Ns) {
        if self.t.smp.vcpu_pack != 0 {
            self.estimate_sleeper(rq, id, now);
        }
    }

    #[inline(never)]
    fn estimate_sleeper(&self, rq: &Rq, id: EntityId, now: Ns) {
        if let (Some(smp), entity) = (self.smp.get(), rq.entity(id))
            && entity.class == Class::Fair
        {
            smp.estimates.sleeps(TaskId(entity.task), &entity.signal.peek(now), now);
        }
    }

    /// Another task runs, maybe.
    #[inline(always)]
    pub(in crate::linux) fn publish_estimate(&self, rq: &Rq) {
        if self.t.smp.vcpu_pack != 0 {
            self.publish_runner(rq);
        }
    }

    #[inline(never)]
    fn publish_runner(&self, rq: &Rq) {
        if let Some(smp) = self.smp.get() {
            smp.estimates.runs(rq.cpu, rq.curr_task());
        }
    }
}

impl Placement<'_> {
    /// The CPU on which a wakee is kept, if it is packed.
    #[inline]
    pub(in crate::linux) fn packed_wakee(&self, wakeup: &Wakeup) -> Option<CpuId> {
        if self.t.vcpu_pack & (IRQ | SYNC | BUSY) == 0 { None } else { self.pack_wakee(wakeup) }
    }

    #[inline(never)]
    fn pack_wakee(&self, wakeup: &Wakeup) -> Option<CpuId> {
        if self.allowed.count() == 1 {
            return None;
        }
        let (pack, this, prev) = (self.t.vcpu_pack, wakeup.this, wakeup.prev);
        let has = |bit| pack & bit != 0;
        let room = |cpu: CpuId| self.room(cpu, if cpu == prev { 0 } else { wakeup.util });
        if has(IRQ) && self.summary.idle(this) && self.allowed.contains(this) {
            return Some(this);
        }
        if has(SYNC) && wakeup.sync && room(this) {
            return Some(this);
        }
        if !has(BUSY) {
            return None;
        }
        if !self.summary.idle(prev) && room(prev) {
            return Some(prev);
        }
        if room(this) {
            return Some(this);
        }
        self.allowed.iter().find(|&cpu| !self.summary.idle(cpu) && room(cpu))
    }

    /// Whether a new task stays on the CPU where it is created.
    #[inline]
    pub(in crate::linux) fn packs_child(&self, this: CpuId) -> bool {
        // The child begins on this CPU, so that its own use is not added.
        self.t.vcpu_pack & FORK != 0 && self.allowed.count() > 1 && self.room(this, 0)
    }

    /// Whether a task that uses `more` of a CPU has room on this one.
    fn room(&self, cpu: CpuId, more: u64) -> bool {
        let fair = self.summary.fair(cpu);
        if !self.allowed.contains(cpu) || self.summary.nr_running(cpu) != fair || fair > 1 {
            return false;
        }
        let now = self.summary.averages(cpu, self.now);
        // No task waits here: the CPU runs one task or none.
        let estimated =
            if fair == 1 { self.estimates.running[cpu.index()].load(Relaxed) } else { 0 };
        (now.util.max(estimated) + more) * 100 < now.capacity * FULL
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::balance::placement::tests::{Machine, NOW, wakeup};
    use crate::linux::core::cpu_summary::Facts;
    use crate::linux::core::cpu_summary::tests::{hogs, runs_for};
    use crate::linux::fair::pelt::Inputs;
    use schedlab_model::{Ns, Topology};

    /// Four CPUs behind one cache; those of `light` run a task that came 5 ms ago.
    fn machine(pack: u8, light: &[u32]) -> Machine {
        let mut machine = Machine::new(&Topology::flat(4), &[]);
        machine.t.vcpu_pack = pack;
        light.iter().for_each(|&cpu| runs_for(&machine.summary, cpu, Ns::from_ms(5), NOW));
        machine
    }

    #[test]
    fn room_is_one_fair_task_and_70_percent() {
        let machine = machine(15, &[1]);
        let room = |cpu, more| machine.place().room(CpuId(cpu), more);
        let used = machine.summary.averages(CpuId(1), NOW).util;
        assert!((50..200).contains(&used), "{used} of 1024 after 5 ms");
        // 716.8 is 70 % of 1024.
        assert!(room(1, 716 - used) && !room(1, 717 - used));
        hogs(&machine.summary, 2, 1, NOW);
        assert!(!room(2, 0), "a hog uses all of it");
        let two = Facts { nr_running: 2, fair: 2, busy: true, ..Facts::default() };
        machine.summary.publish(CpuId(1), NOW, &two);
        assert!(!room(1, 0), "two are too many");
        let rt = Facts {
            nr_running: 1,
            fair: 0,
            busy: true,
            rt_runs: 1,
            rt_best: 1,
            ..Facts::default()
        };
        machine.summary.publish(CpuId(1), NOW, &rt);
        assert!(!room(1, 0), "not beside a real-time task");
        assert!(room(3, 0), "an idle CPU has room");
    }

    #[test]
    fn an_estimate_outlasts_the_average() {
        let estimates = Estimates::new(1);
        let task = TaskId(3);
        let inputs = |on, running| Inputs { load: u64::from(on), runnable: u64::from(on), running };
        let mut average = Pelt::zero(NOW);
        let mut at = NOW;
        let mut goes = |average: &mut Pelt, ms: u64, inputs: Inputs| {
            at += Ns::from_ms(ms);
            average.advance(at, inputs);
            estimates.sleeps(task, average, at);
            estimates.of_task(task)
        };
        // Up at once.
        let top = goes(&mut average, 100, inputs(true, true));
        assert!(top == average.util_avg() && top > 850, "{top}");
        // It waits for a CPU: what it used less of it says nothing.
        assert_eq!(goes(&mut average, 50, inputs(true, false)), top);
        assert!(average.util_avg() < top / 2);
        // It sleeps, until the average of its waiting is gone, too; then a quarter of the way in
        // each period.
        assert_eq!(goes(&mut average, 100, inputs(false, false)), top);
        average = Pelt::zero(at);
        average.advance(at + Ns::from_ms(10), inputs(true, true));
        let used = average.util_avg();
        at += Ns::from_ms(10);
        estimates.sleeps(task, &average, at);
        let quarter = estimates.of_task(task);
        assert_eq!(quarter, (4 * top - (top - used)) / 4);
        estimates.sleeps(task, &average, at);
        assert_eq!(estimates.of_task(task), quarter, "averages change with the periods");
        // Where it runs there is room as if it used so much.
        let machine = machine(15, &[1]);
        machine.estimates.tasks.cell(task).store(650, Relaxed);
        machine.estimates.runs(CpuId(1), Some(task));
        let room = |more| machine.place().room(CpuId(1), more);
        assert!(room(716 - 650) && !room(717 - 650));
        machine.estimates.runs(CpuId(1), None);
        assert!(room(717 - 650));
    }

    #[test]
    fn an_idle_cpus_interrupt_wakes_there() {
        // The last CPU, 2, is idle too, and so is the waker's, 0.
        let from_outside = Wakeup { waker: None, ..wakeup(0, 2) };
        assert_eq!(machine(0, &[]).place().wake(&from_outside), CpuId(2), "as upstream");
        assert_eq!(machine(IRQ, &[]).place().wake(&from_outside), CpuId(0));
        assert_eq!(
            machine(SYNC | BUSY | FORK, &[]).place().wake(&from_outside),
            CpuId(0),
            "it has room"
        );
    }

    #[test]
    fn wakees_go_where_another_task_runs() {
        // CPU 0 wakes a task of CPU 2; CPUs 0 and 3 run something.
        let sync = Wakeup { sync: true, ..wakeup(0, 2) };
        assert_eq!(machine(0, &[0, 3]).place().wake(&sync), CpuId(2));
        assert_eq!(machine(SYNC, &[0, 3]).place().wake(&sync), CpuId(0));
        assert_eq!(machine(SYNC, &[0, 3]).place().wake(&wakeup(0, 2)), CpuId(2), "it goes on");
        assert_eq!(
            machine(BUSY, &[0, 3]).place().wake(&wakeup(0, 2)),
            CpuId(0),
            "not to an idle CPU"
        );
        assert_eq!(
            machine(BUSY, &[0, 2, 3]).place().wake(&wakeup(0, 2)),
            CpuId(2),
            "its last CPU first"
        );
        let full = machine(BUSY, &[3]);
        hogs(&full.summary, 0, 1, NOW);
        assert_eq!(full.place().wake(&wakeup(0, 2)), CpuId(3), "then any busy one with room");
        hogs(&full.summary, 3, 1, NOW);
        assert_eq!(full.place().wake(&wakeup(0, 2)), CpuId(2), "then as upstream");
    }

    #[test]
    fn children_stay_where_room_is() {
        assert_ne!(
            machine(IRQ | SYNC | BUSY, &[0]).place().fork(CpuId(0)),
            CpuId(0),
            "as upstream"
        );
        let packed = machine(FORK, &[0]);
        assert_eq!(packed.place().fork(CpuId(0)), CpuId(0));
        hogs(&packed.summary, 0, 1, NOW);
        assert_ne!(packed.place().fork(CpuId(0)), CpuId(0), "no room");
    }

    #[test]
    fn who_has_no_choice_is_not_packed() {
        let mut machine = machine(15, &[0]);
        machine.allowed = "2".parse().expect("a CPU");
        assert_eq!(machine.place().wake(&wakeup(0, 2)), CpuId(2));
        assert!(!machine.place().packs_child(CpuId(2)));
    }
}
