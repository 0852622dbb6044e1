//! Run queues of Credit: insertion, tickling, the choice of the next unit, stealing.

use super::super::common::{Step, cycle, minus, now, take};
use super::{BOOST, Credit, IDLE, OVER, UNDER};
use crate::{Cmd, Cx, Work};
use schedlab_model::{CpuId, CpuSet, TaskId};

impl Credit {
    /// Before the first unit of strictly lower priority; a yielder one place further back.
    pub(super) fn insert(&mut self, cx: &Cx<'_>, task: TaskId) {
        let unit = self.unit(task);
        let (cpu, pri, yielded) = (unit.core.cpu, unit.pri, unit.yielded);
        let pcpu = &self.pcpus[cpu.index()];
        let idle_queued = pcpu.curr.is_some();
        let len = pcpu.queue.len();
        let mut at = pcpu.queue.iter().position(|other| self.unit(*other).pri < pri).unwrap_or(len);
        cx.did(Work::Scan, at as u32 + 1);
        // Behind one lower-priority unit, unless that is the idle unit or the last one.
        if yielded && at < len && (idle_queued || at + 1 < len) {
            at += 1;
        }
        self.pcpus[cpu.index()].queue.insert(at, task);
        self.refresh(cpu);
        let early = !self.set.release.credit_limits_stealing();
        let unit = self.unit_mut(task);
        unit.queued = true;
        if early {
            unit.yielded = false;
        }
    }

    /// The queue of `cpu`, or a priority in it, has changed.
    pub(super) fn refresh(&mut self, cpu: CpuId) {
        let head = self.pcpus[cpu.index()].queue.first();
        let urgent = head.is_some_and(|head| self.unit(*head).pri >= UNDER);
        if urgent { self.urgent.insert(cpu) } else { self.urgent.remove(cpu) }
    }

    fn request(&mut self, cx: &Cx<'_>, cpu: CpuId) {
        self.idlers.remove(cpu);
        cx.push(Cmd::Resched(cpu));
    }

    /// Looks for a pCPU that should run the unit that was just queued.
    pub(super) fn tickle(&mut self, cx: &Cx<'_>, new: TaskId) {
        let (cpu, pri) = (self.unit(new).core.cpu, self.unit(new).pri);
        let cur_pri = self.curr_pri(cpu);
        let idle = self.idlers.and(&self.pool);
        let pinned = self.unit(new).core.pinned();
        let alone = cur_pri == IDLE || (idle.is_empty() && pri > cur_pri);
        if (pinned && idle.contains(cpu)) || alone {
            return self.request(cx, cpu);
        }
        if idle.is_empty() {
            return;
        }
        for (step, mask) in self.unit(new).core.steps() {
            let candidates = mask.and(&idle);
            if candidates.is_empty() {
                if step == Step::Hard && pri > cur_pri {
                    self.kick_away(cx, cpu, &idle);
                    self.request(cx, cpu);
                }
                continue;
            }
            return self.tickle_idlers(cx, &candidates);
        }
    }

    fn tickle_idlers(&mut self, cx: &Cx<'_>, candidates: &CpuSet) {
        if !self.set.tickle_one {
            for cpu in candidates.iter() {
                self.request(cx, cpu);
            }
            return;
        }
        let waker = &mut self.pcpus[cx.cpu.index()];
        let cpu = cycle(waker.last_tickled, candidates).expect("not empty");
        waker.last_tickled = cpu;
        self.request(cx, cpu);
    }

    /// Up to 4.12: the preempted unit moves to an idler if its own mask allows.
    fn kick_away(&mut self, cx: &Cx<'_>, cpu: CpuId, idle: &CpuSet) {
        let Some(cur) = self.pcpus[cpu.index()].curr else { return };
        if self.set.release.credit_kicks_away() && !self.unit(cur).core.hard.and(idle).is_empty() {
            cx.push(Cmd::Displace(cur));
        }
    }

    /// The head of the queue, or a better unit from elsewhere.
    pub(super) fn choose(&mut self, cx: &Cx<'_>, cpu: CpuId) -> Option<TaskId> {
        let now = now(cx);
        loop {
            let head = self.pcpus[cpu.index()].queue.first().copied();
            let threshold = head.map_or(IDLE, |task| self.unit(task).pri);
            let pcpu = &mut self.pcpus[cpu.index()];
            let limit = self.set.load_balance_ratelimit;
            if threshold <= OVER && (limit == 0 || now - pcpu.last_lb > limit) {
                pcpu.last_lb = now;
                if let Some(stolen) = self.steal(cx, cpu, threshold) {
                    return Some(stolen);
                }
            }
            let task = head?;
            self.remove(task);
            if self.unit(task).runnable() {
                return Some(task);
            }
        }
    }

    fn steal(&mut self, cx: &Cx<'_>, cpu: CpuId, threshold: i64) -> Option<TaskId> {
        let (own, nodes) = (self.places().node[cpu.index()], self.places().nodes);
        let mut busy = minus(&self.pool, &self.idlers);
        busy.remove(cpu);
        for step in [Step::Soft, Step::Hard] {
            for node in (0..nodes).map(|i| (own + i) % nodes) {
                let peers = busy.and(&self.places().of_node[node as usize]);
                let bias = self.balance_bias[node as usize];
                // All peers are looked at in turn; only those that have a unit to spare, above the
                // threshold, can make a difference.
                let (mut at, mut left) = (bias, peers.and(&self.crowded));
                if threshold == OVER {
                    left = left.and(&self.urgent);
                }
                if step == Step::Soft && !self.any_soft {
                    left = CpuSet::EMPTY;
                }
                while let Some(peer) = cycle(at, &left) {
                    left.remove(peer);
                    at = peer;
                    if let Some(task) = self.steal_from(cx, peer, cpu, threshold, step) {
                        cx.did(Work::RemoteLine, turns(&peers, bias, peer));
                        self.balance_bias[node as usize] = peer;
                        return Some(task);
                    }
                }
                cx.did(Work::RemoteLine, peers.count() as u32);
            }
        }
        None
    }

    fn steal_from(
        &mut self,
        cx: &Cx<'_>,
        peer: CpuId,
        cpu: CpuId,
        threshold: i64,
        step: Step,
    ) -> Option<TaskId> {
        let pcpu = &self.pcpus[peer.index()];
        if pcpu.nr_runnable <= 1 || pcpu.curr.is_none() {
            return None;
        }
        let now = now(cx);
        let task = pcpu
            .queue
            .iter()
            .copied()
            .take_while(|task| self.unit(*task).pri > threshold)
            .find(|task| self.may_steal(*task, cpu, step, now))?;
        self.remove(task);
        self.count(peer, -1);
        self.count(cpu, 1);
        self.assign(cx, task, cpu);
        cx.did(Work::Move, 1);
        Some(task)
    }

    fn may_steal(&self, task: TaskId, cpu: CpuId, step: Step, now: i64) -> bool {
        let unit = self.unit(task);
        if self.set.release.credit_limits_stealing() && unit.yielded {
            return false;
        }
        let mask = match step {
            Step::Soft if !unit.core.soft_useful() => return false,
            Step::Soft => unit.core.soft.and(&unit.core.hard),
            Step::Hard => unit.core.hard,
        };
        let hot = self.set.migrate_delay != 0 && now - unit.last_run < self.set.migrate_delay;
        !unit.core.running && mask.contains(cpu) && !hot
    }

    /// Moves everything that is at least UNDER in front of the rest, keeping the order inside both
    /// parts.
    pub(super) fn sort(&mut self, cpu: CpuId) {
        let queue = std::mem::take(&mut self.pcpus[cpu.index()].queue);
        let (mut sorted, rest): (Vec<_>, Vec<_>) =
            queue.into_iter().partition(|task| self.unit(*task).pri >= UNDER);
        debug_assert!(sorted.iter().all(|task| self.unit(*task).pri <= BOOST));
        sorted.extend(rest);
        self.pcpus[cpu.index()].queue = sorted;
        self.refresh(cpu);
    }
}

/// How many members of `peers` a walk behind `from` has met when it comes to `to`, which is the
/// last of them.
fn turns(peers: &CpuSet, from: CpuId, to: CpuId) -> u32 {
    let (start, end) = (peers.count_below(from.0 + 1), peers.count_below(to.0 + 1));
    (if to > from { end - start } else { peers.count() - start + end }) as u32
}

impl Credit {
    /// Takes a unit out of its queue, if it is in one.
    pub(super) fn remove(&mut self, task: TaskId) -> bool {
        let cpu = self.unit(task).core.cpu;
        let there = take(&mut self.pcpus[cpu.index()].queue, task);
        if there {
            self.refresh(cpu);
            let unit = self.unit_mut(task);
            unit.queued = false;
            unit.yielded = false;
        }
        there
    }
}
