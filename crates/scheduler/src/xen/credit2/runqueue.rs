//! The sorted run queue: burning, order, wake, context saved, reset, slice.

use super::super::common::now;
use super::state::Credit2;
use super::{CARRYOVER, INIT, MAX_TIMER, MIN, MIN_TIMER};
use crate::{Cmd, Cx, Work};
use schedlab_model::{CpuId, CpuSet, TaskId};

impl Credit2 {
    /// Charges a unit that is current somewhere, up to now.
    pub(super) fn burn(&mut self, cx: &Cx<'_>, task: TaskId) {
        let now = now(cx);
        let max_weight = self.queues[self.unit(task).rq].max_weight;
        let capped = self.capped(task);
        let unit = self.unit_mut(task);
        let delta = now - unit.start;
        if delta > 0 {
            // The heaviest unit of the queue burns 1 credit a nanosecond; the product may need 80
            // bits.
            let short =
                delta.checked_mul(max_weight).and_then(|total| total.checked_add(unit.residual));
            let charge = match short {
                Some(_) if unit.weight == max_weight && unit.residual < max_weight => {
                    delta.min(1 << 60)
                }
                Some(total) => {
                    unit.residual = total % unit.weight;
                    (total / unit.weight).min(1 << 60)
                }
                None => {
                    let total =
                        i128::from(delta) * i128::from(max_weight) + i128::from(unit.residual);
                    unit.residual = (total % i128::from(unit.weight)) as i64;
                    (total / i128::from(unit.weight)).min(1 << 60) as i64
                }
            };
            unit.credit = (unit.credit - charge).max(MIN);
            if capped {
                unit.budget -= delta;
            }
            cx.did(Work::Account, 1);
        }
        self.unit_mut(task).start = now;
    }

    /// Most credit first, first come first served among equals.
    pub(super) fn enqueue(&mut self, cx: &Cx<'_>, task: TaskId) {
        let unit = self.unit(task);
        let (rq, credit) = (unit.rq, unit.credit);
        let list = &self.queues[rq].list;
        let at = list.partition_point(|other| self.unit(*other).credit >= credit);
        cx.did(Work::Scan, at as u32 + 1);
        self.queues[rq].list.insert(at, task);
        self.unit_mut(task).queued = true;
    }

    pub(super) fn dequeue(&mut self, task: TaskId) {
        let rq = self.unit(task).rq;
        super::super::common::take(&mut self.queues[rq].list, task);
        self.unit_mut(task).queued = false;
    }

    pub(super) fn wake(&mut self, cx: &Cx<'_>, task: TaskId) {
        let unit = self.unit(task);
        if unit.queued || self.curr[unit.core.cpu.index()] == Some(task) {
            return;
        }
        let unit = self.unit_mut(task);
        if unit.scheduled {
            unit.delayed_add = true;
            return;
        }
        let rq = unit.rq;
        self.load_change(cx, rq, Some(task), 1);
        self.enqueue(cx, task);
        self.tickle(cx, task);
    }

    /// Not runnable any more.
    pub(super) fn sleep(&mut self, cx: &Cx<'_>, task: TaskId) {
        let unit = self.unit_mut(task);
        let (cpu, rq) = (unit.core.cpu, unit.rq);
        if self.curr[cpu.index()] == Some(task) {
            self.tickle_cpu(cx, rq, cpu);
        } else if self.unit(task).queued {
            self.load_change(cx, rq, Some(task), -1);
            self.dequeue(task);
        } else {
            self.unit_mut(task).delayed_add = false;
        }
    }

    /// Every task of the queue gets credit anew.
    pub(super) fn reset(&mut self, cx: &Cx<'_>, rq: usize, next: TaskId) {
        let amount = if self.unit(next).credit == MIN { 2 * INIT } else { INIT };
        let now = now(cx);
        for at in 0..self.queues[rq].units.len() {
            let task = self.queues[rq].units[at];
            let cpu = self.unit(task).core.cpu;
            if self.curr[cpu.index()] == Some(task) {
                self.burn(cx, task);
                if self.capped(task) && self.unit(task).budget <= 0 {
                    self.tickle_cpu(cx, rq, cpu);
                }
            }
            let unit = self.unit_mut(task);
            unit.credit = (unit.credit + amount).min(INIT + CARRYOVER);
            unit.start = now;
        }
    }

    /// How long `task` may run now, ns. `inflight`: credit of the unit that is being switched out.
    pub(super) fn slice(
        &self,
        cx: &Cx<'_>,
        task: TaskId,
        rq: usize,
        goes_on: bool,
        inflight: i64,
    ) -> i64 {
        let unit = self.unit(task);
        let mut min = MIN_TIMER;
        let ratelimit = self.settings.ratelimit;
        if ratelimit != 0 {
            let rest = if goes_on { unit.core.entry + ratelimit - now(cx) } else { ratelimit };
            min = min.max(rest);
        }
        let first = self.queues[rq].list.first().map_or(0, |head| self.unit(*head).credit);
        let want = unit.credit - first.max(inflight).max(0);
        let max_weight = self.queues[rq].max_weight;
        let mut time = match want.max(0).checked_mul(unit.weight) {
            Some(0) => 0,
            Some(_) if unit.weight == max_weight => want,
            Some(product) => product / max_weight,
            None => (i128::from(want) * i128::from(unit.weight) / i128::from(max_weight)) as i64,
        };
        if self.capped(task) {
            time = time.min(unit.budget);
        }
        time.max(min).min(MAX_TIMER)
    }

    /// The whole core of `cpu`, as far as it belongs to the run queue.
    fn core_of(&self, rq: usize, cpu: CpuId) -> CpuSet {
        self.siblings[cpu.index()].and(&self.queues[rq].active)
    }

    /// `cpu` became idle or lost its tickle: is its whole core idle now?
    pub(super) fn join_smt_idle(&mut self, rq: usize, cpu: CpuId) {
        if self.alone[cpu.index()] {
            let queue = &mut self.queues[rq];
            if queue.idle.contains(cpu) && !queue.tickled.contains(cpu) {
                queue.smt_idle.insert(cpu);
            }
            return;
        }
        let core = self.core_of(rq, cpu);
        let queue = &mut self.queues[rq];
        if core.iter().all(|cpu| queue.idle.contains(cpu) && !queue.tickled.contains(cpu)) {
            queue.smt_idle = queue.smt_idle.or(&core);
        }
    }

    /// `cpu` was tickled or became busy.
    pub(super) fn leave_smt_idle(&mut self, rq: usize, cpu: CpuId) {
        if self.alone[cpu.index()] {
            return self.queues[rq].smt_idle.remove(cpu);
        }
        let core = self.core_of(rq, cpu);
        let queue = &mut self.queues[rq];
        if core.iter().all(|cpu| queue.smt_idle.contains(cpu)) {
            core.iter().for_each(|cpu| queue.smt_idle.remove(cpu));
        }
    }

    pub(super) fn untickle(&mut self, rq: usize, cpu: CpuId) {
        self.queues[rq].tickled.remove(cpu);
        self.join_smt_idle(rq, cpu);
    }

    /// Asks `cpu` to decide again.
    pub(super) fn tickle_cpu(&mut self, cx: &Cx<'_>, rq: usize, cpu: CpuId) {
        self.queues[rq].tickled.insert(cpu);
        self.leave_smt_idle(rq, cpu);
        cx.push(Cmd::Resched(cpu));
    }
}
