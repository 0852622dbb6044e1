//! Who runs where: tickling, the candidate of a pCPU, placement on a run queue.

use super::super::common::{Step, cycle, minus, now, test_or_cycle};
use super::state::{Credit2, IDLE_CREDIT};
use super::{INIT, TICKLE_TOLERANCE};
use crate::{Cx, Work};
use schedlab_model::{CpuId, TaskId};

impl Credit2 {
    /// Finds a pCPU that should decide again because `new` was queued.
    pub(super) fn tickle(&mut self, cx: &Cx<'_>, new: TaskId) {
        let unit = self.unit(new);
        let (home, rq) = (unit.core.cpu, unit.rq);
        let chosen = self.idle_for(new).or_else(|| self.busy_for(cx, new));
        if let Some(cpu) = chosen {
            debug_assert!(self.queues[rq].active.contains(home));
            self.tickle_cpu(cx, rq, cpu);
            self.unit_mut(new).tickled_cpu = Some(cpu);
        }
    }

    fn idle_for(&self, new: TaskId) -> Option<CpuId> {
        let unit = self.unit(new);
        let home = unit.core.cpu;
        let queue = &self.queues[unit.rq];
        if queue.idle.is_empty() {
            return None;
        }
        let free = minus(&queue.idle, &queue.tickled);
        if unit.core.pinned() && free.contains(home) {
            return Some(home);
        }
        for (_, mask) in unit.core.steps() {
            let mask = mask.and(&self.pool);
            let cores = if self.settings.pack {
                minus(&queue.idle, &queue.smt_idle)
            } else {
                queue.smt_idle
            };
            let found = test_or_cycle(home, &cores.and(&mask))
                .or_else(|| test_or_cycle(home, &free.and(&mask)));
            if found.is_some() {
                return found;
            }
        }
        None
    }

    fn busy_for(&mut self, cx: &Cx<'_>, new: TaskId) -> Option<CpuId> {
        let unit = self.unit(new);
        let (home, rq) = (unit.core.cpu, unit.rq);
        let queue = &self.queues[rq];
        let mut best = (0, None);
        let busy = queue.active.contains(home)
            && !queue.idle.contains(home)
            && !queue.tickled.contains(home);
        if busy && unit.core.hard.contains(home) && self.pool.contains(home) {
            let score = self.score(cx, home, new);
            if score > 0 && self.unit(new).core.soft.contains(home) {
                return Some(home);
            }
            if score > 0 {
                best = (score, Some(home));
            }
        }
        for word in self.queues[rq].words.clone() {
            let queue = &self.queues[rq];
            let free = queue.idle.word(word) | queue.tickled.word(word);
            let hard = self.unit(new).core.hard.word(word) & self.pool.word(word);
            let mut left = queue.active.word(word) & !free & hard;
            while left != 0 {
                let cpu = CpuId(64 * word as u32 + left.trailing_zeros());
                left &= left - 1;
                if cpu == home || self.is_sheltered(cx, cpu) {
                    continue;
                }
                let score = self.score(cx, cpu, new);
                if score > best.0 {
                    best = (score, Some(cpu));
                }
            }
        }
        best.1
    }

    /// No task runs on `cpu`, or a task that may not be preempted yet.
    #[inline]
    fn is_sheltered(&self, cx: &Cx<'_>, cpu: CpuId) -> bool {
        let limit = self.settings.ratelimit;
        self.curr[cpu.index()].is_none_or(|current| {
            let ran = now(cx) - self.unit(current).core.entry;
            limit > TICKLE_TOLERANCE && ran <= limit - TICKLE_TOLERANCE
        })
    }

    /// How much is won by preempting what runs on `cpu`; negative: it must not be preempted.
    fn score(&mut self, cx: &Cx<'_>, cpu: CpuId, new: TaskId) -> i64 {
        if self.is_sheltered(cx, cpu) {
            return -1;
        }
        let Some(current) = self.curr[cpu.index()] else { return -1 };
        self.burn(cx, current);
        cx.did(Work::RemoteLine, 1);
        let (unit, runs) = (self.unit(new), self.unit(current));
        let mut score = unit.credit - runs.credit;
        if cpu != unit.core.cpu {
            score -= self.settings.resist;
        }
        if score > 0 {
            score += if unit.core.soft.contains(cpu) { INIT } else { 0 };
            score += if runs.core.soft.contains(cpu) { 0 } else { INIT };
        }
        score
    }

    /// Who should run on `cpu`.
    pub(super) fn candidate(
        &mut self,
        cx: &Cx<'_>,
        cpu: CpuId,
        current: Option<TaskId>,
    ) -> Option<TaskId> {
        let rq = self.queue_of[cpu.index()];
        let mut best = None;
        let mut yielding = false;
        if let Some(task) = current {
            let limit = self.settings.ratelimit;
            let now = now(cx);
            let unit = self.unit_mut(task);
            yielding = std::mem::take(&mut unit.yielded);
            let runnable = unit.runnable();
            if !yielding && limit != 0 && runnable && now - unit.core.entry < limit {
                return Some(task);
            }
            if runnable && !self.better_elsewhere(rq, cpu, task) {
                best = Some(task);
            }
        }
        let best_credit = best.map_or(IDLE_CREDIT, |task| self.unit(task).credit);
        let mut at = 0;
        while let Some(task) = self.queues[rq].list.get(at).copied() {
            cx.did(Work::Scan, 1);
            if !yielding && self.unit(task).credit <= best_credit {
                break;
            }
            if self.eligible(rq, cpu, task, best_credit)
                && (!self.capped(task) || self.grab(cx, task))
            {
                return Some(task);
            }
            // A unit that asked for budget in vain was parked: the next one has moved up to its
            // place.
            if self.queues[rq].list.get(at) == Some(&task) {
                at += 1;
            }
        }
        best
    }

    fn eligible(&self, rq: usize, cpu: CpuId, task: TaskId, best_credit: i64) -> bool {
        let unit = self.unit(task);
        let taken = unit
            .tickled_cpu
            .is_some_and(|other| other != cpu && self.queues[rq].tickled.contains(other));
        let resists = unit.core.cpu != cpu && best_credit + self.settings.resist > unit.credit;
        unit.runnable() && unit.core.hard.contains(cpu) && !taken && !resists
    }

    /// The running unit prefers another pCPU of this queue, and one such is free.
    fn better_elsewhere(&self, rq: usize, cpu: CpuId, task: TaskId) -> bool {
        let core = &self.unit(task).core;
        if !core.soft_useful() {
            return false;
        }
        let queue = &self.queues[rq];
        let soft = core.soft.and(&core.hard);
        !soft.contains(cpu) && !minus(&queue.idle, &queue.tickled).and(&soft).is_empty()
    }

    /// The pCPU for a unit that is created, or whose migration completes.
    pub(super) fn place(&mut self, task: TaskId) -> CpuId {
        let unit = self.unit(task);
        let (own, load) = (unit.rq, unit.avgload);
        let hard = unit.core.hard.and(&self.pool);
        if let Some(target) = unit.target {
            let there = hard.and(&self.queues[target].active);
            if let Some(cpu) = cycle(self.queues[target].pick_bias, &there) {
                self.queues[target].pick_bias = cpu;
                return cpu;
            }
        }
        let soft_mask =
            unit.core.steps().find(|(step, _)| *step == Step::Soft).map(|(_, mask)| mask);
        let mut least: Option<(i64, usize)> = None;
        let mut least_soft: Option<(i64, usize)> = None;
        for (at, queue) in self.queues.iter().enumerate() {
            if queue.active.and(&hard).is_empty() {
                continue;
            }
            let value = if at == own { (queue.b_avgload - load).max(0) } else { queue.b_avgload };
            if least.is_none_or(|(best, _)| value < best) {
                least = Some((value, at));
            }
            let meets = soft_mask.is_some_and(|mask| !mask.and(&queue.active).is_empty());
            if meets && least_soft.is_none_or(|(best, _)| value < best) {
                least_soft = Some((value, at));
            }
        }
        let Some((_, overall)) = least else { return self.unit(task).core.cpu };
        let (chosen, mask) = match (least_soft, soft_mask) {
            (Some((_, at)), Some(mask)) => (at, mask),
            _ => (overall, hard),
        };
        // Xen reads and stores the bias of the queue that is least overall, even when another was
        // chosen.
        let among = mask.and(&self.queues[chosen].active).and(&self.pool);
        let cpu = cycle(self.queues[overall].pick_bias, &among).expect("meets the mask");
        self.queues[overall].pick_bias = cpu;
        cpu
    }
}
