//! What the 2.4 scheduler and the multi-queue patch share: time slices, goodness, task records,
//! per-CPU ticks.

use super::records::{Byte, Half, Links, Word};
use crate::{Cx, Knob, KnobDefault, NumberKnob, Work, rows};
use schedlab_model::{CpuId, Policy, TaskId};

/// Goodness of "nothing found".
pub(super) const NOTHING: i64 = -1000;
/// Process number of a task without address space of its own.
pub(super) const NO_MM: i64 = -1;

/// Ticks of a fresh slice: about 50 ms at nice 0, whole ticks (2.4 `TICK_SCALE`).
pub(super) fn slice_ticks(nice: i8, hz: u32) -> i64 {
    let steps = 20 - i64::from(nice);
    let scaled = match hz {
        0..200 => steps >> 2,
        200..400 => steps >> 1,
        400..800 => steps,
        800..1600 => steps << 1,
        _ => steps << 2,
    };
    scaled + 1
}

/// The scheduler's record of one task: one cache line, as in 2.4 what a scan reads.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) links: Links,
    /// On a run queue list.
    pub(super) listed: Byte,
    /// Ticks left.
    pub(super) counter: Half,
    /// 20 − nice, 1 … 40.
    pub(super) steps: Byte,
    /// Ticks of a fresh slice.
    pub(super) slice: Half,
    /// 0, or the real-time priority 1 … 99.
    pub(super) rt: Byte,
    /// Round robin among equals.
    pub(super) rr: Byte,
    /// Gives way once.
    pub(super) yields: Byte,
    /// The CPU where it runs or ran last.
    pub(super) processor: Half,
    /// It runs, or its context is not saved yet.
    pub(super) running: Byte,
    /// Address space.
    pub(super) mm: Word,
    /// It may run on every CPU of the machine.
    pub(super) everywhere: Byte,
    /// It exists.
    pub(super) alive: Byte,
    /// The task with which the first slice is shared: what is left of it goes back there at an
    /// early exit.
    pub(super) parent: Half,
}

const _: () = assert!(size_of::<Record>() <= 64, "a scan reads one line a task");

impl Record {
    pub(super) fn describe(&self, cx: &Cx<'_>, task: TaskId) {
        let view = cx.task(task);
        self.steps.set(20 - i64::from(view.nice.get()));
        self.slice.set(slice_ticks(view.nice.get(), cx.world.hz));
        self.rt.set(i64::from(view.policy.rt_priority()));
        self.rr.set(i64::from(matches!(view.policy, Policy::Rr(_))));
        self.allow(cx, task);
        self.mm.set(if view.process == u32::MAX {
            -2 - i64::from(task.0)
        } else {
            i64::from(view.process)
        });
    }

    /// A new task: half of its parent's slice, or a fresh one.
    pub(super) fn born(&self, cx: &Cx<'_>, task: TaskId, parent: Option<(TaskId, &Record)>) {
        self.describe(cx, task);
        self.alive.set(1);
        self.parent.set(super::records::NIL);
        self.processor.set(i64::from(cx.task(task).last_cpu().0));
        match parent {
            Some((id, parent)) => {
                let counter = parent.counter.get();
                self.counter.set((counter + 1) >> 1);
                parent.counter.set(counter >> 1);
                self.processor.set(parent.processor.get());
                self.parent.set(i64::from(id.0));
            }
            None => self.counter.set(self.slice.get()),
        }
    }

    /// Half of what is left, and a fresh slice; a slice shared at the fork is no other task's any
    /// more.
    #[inline]
    pub(super) fn recharge(&self) {
        self.parent.set(super::records::NIL);
        self.counter.set((self.counter.get() >> 1) + self.slice.get());
    }

    /// Where it may run has changed.
    pub(super) fn allow(&self, cx: &Cx<'_>, task: TaskId) {
        let all = cx.world.all_cpus().without(&cx.task(task).affinity).is_empty();
        self.everywhere.set(i64::from(all));
    }

    #[inline]
    pub(super) fn runs_on(&self, cx: &Cx<'_>, task: TaskId, cpu: CpuId) -> bool {
        self.everywhere.flag() || cx.task(task).affinity.contains(cpu)
    }

    /// Goodness on `cpu` next to the address space `mm`, with `penalty` for a change of CPU.
    #[inline]
    pub(super) fn goodness(&self, cpu: CpuId, mm: i64, penalty: i64) -> i64 {
        let base = self.base();
        if base <= 0 || self.rt.flag() {
            return base;
        }
        let same_cpu = if self.processor.get() == i64::from(cpu.0) { penalty } else { 0 };
        base + same_cpu + i64::from(self.same_mm(mm))
    }

    /// Goodness without what depends on the CPU (`na_goodness` of the multi-queue patch).
    #[inline]
    pub(super) fn base(&self) -> i64 {
        if self.yields.flag() {
            -1
        } else if self.rt.flag() {
            1000 + self.rt.get()
        } else if self.counter.get() == 0 {
            0
        } else {
            self.counter.get() + self.steps.get()
        }
    }

    #[inline]
    pub(super) fn same_mm(&self, mm: i64) -> bool {
        let own = self.mm.get();
        own == mm || own == NO_MM
    }
}

/// Recharges every task that exists; `false`: that changed nothing. Then the best goodness stays 0,
/// which a negative penalty can make of more than nothing, and searching again would never end.
pub(super) fn recharge_all<'a>(cx: &Cx<'_>, all: impl Iterator<Item = &'a Record>) -> bool {
    let (mut count, mut changed) = (0, false);
    for record in all.filter(|record| record.alive.flag()) {
        let before = record.counter.get();
        record.recharge();
        (count, changed) = (count + 1, changed || record.counter.get() != before);
    }
    cx.did(Work::Account, count);
    changed
}

/// Goodness of the CPU on which a task ran last.
pub(super) const PROC_CHANGE_PENALTY: NumberKnob = NumberKnob {
    name: "proc_change_penalty",
    unit: "goodness",
    allowed: (-1000, 1000),
    default: KnobDefault::Is(15),
    doc: "what a task gains on the CPU on which it ran last (i386: 15, others 20). The \
          evaluation's variant `stay` is 115, \
          `change` -85 (below 0 tasks that wait change places with those that run for ever, so \
          that switches must cost \
          something)",
    source: "include/asm-i386/smp.h of 2.4.17, PROC_CHANGE_PENALTY; `stay` and `change`: \
             Taniguchi, Ishikawa, Hiraki, SMP \
             環境における Linux スケジューラの評価",
};

/// The knobs of both.
pub(super) fn knobs() -> Vec<Knob> {
    rows(&[&PROC_CHANGE_PENALTY], &())
}

/// Charges the tick edges of `cpu` since the last call to the task that runs there. `seen` is the
/// number of edges charged so far. Returns whether the slice is used up (the tick asks for a
/// decision).
pub(super) fn charge_ticks(
    cx: &Cx<'_>,
    cpu: CpuId,
    seen: &mut u64,
    record: Option<&Record>,
) -> bool {
    let ticks = cx.ticks(cpu);
    // With real threads another CPU may have looked a little later than this call began.
    let new = ticks.saturating_sub(*seen);
    *seen += new;
    let Some(record) = record else { return false };
    if new == 0 {
        return false;
    }
    let left = (record.counter.get() - new as i64).max(0);
    record.counter.set(left);
    left == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_at_hz_100() {
        let ticks = [-20, -15, -10, -5, 0, 5, 10, 15, 19].map(|nice| slice_ticks(nice, 100));
        assert_eq!(ticks, [11, 9, 8, 7, 6, 4, 3, 2, 1]);
    }

    #[test]
    fn a_sleeper_collects_at_most_a_slice_and_a_half() {
        for (nice, fixed_point) in [(0, 11), (-20, 21), (19, 1)] {
            let record = Record::default();
            record.slice.set(slice_ticks(nice, 100));
            (0..20).for_each(|_| record.recharge());
            assert_eq!(record.counter.get(), fixed_point, "nice {nice}");
        }
    }

    #[test]
    fn goodness_of_the_examples() {
        let record = Record::default();
        record.counter.set(6);
        record.steps.set(20);
        record.mm.set(7);
        assert_eq!(record.goodness(CpuId(0), 7, 15), 42);
        assert_eq!(record.goodness(CpuId(0), 8, 15), 41);
        assert_eq!(record.goodness(CpuId(1), 7, 15), 27);
        assert_eq!(record.goodness(CpuId(1), 8, 15), 26);
        assert_eq!(record.goodness(CpuId(0), 7, 115), 142);
        assert_eq!(record.goodness(CpuId(0), 7, -85), -58);
        record.counter.set(0);
        assert_eq!(record.goodness(CpuId(0), 7, 15), 0);
        record.rt.set(50);
        assert_eq!(record.goodness(CpuId(0), 7, 15), 1050);
        record.yields.set(1);
        assert_eq!(record.goodness(CpuId(0), 7, 15), -1);
    }
}
