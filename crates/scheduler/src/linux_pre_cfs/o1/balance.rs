//! Where tasks go: a CPU whose queue is much shorter than the longest one pulls, and a woken task
//! chooses between two CPUs.

use super::super::records::NIL;
use super::version::Era;
use super::{O1, Pull, Rq};
use crate::{Cmd, Cx, Lock, Locks, Work};
use schedlab_model::{CpuId, TaskId};

impl<L: Locks> O1<L> {
    /// In how many ticks `cpu` should look for work elsewhere.
    pub(super) fn balance_due(&self, cx: &Cx<'_>, cpu: CpuId, rq: &Rq) -> u64 {
        if self.balance == Pull::Stay || !self.others_busy(cpu) {
            return u64::MAX;
        }
        if rq.curr.is_none() {
            return 1;
        }
        match rq.next_balance.saturating_sub(cx.now.0) {
            0 => 1,
            left => left.div_ceil(cx.world.tick_ns.0),
        }
    }

    /// Whether another CPU has a task to give away.
    pub(super) fn others_busy(&self, cpu: CpuId) -> bool {
        self.crowded.get() > i64::from(self.lens[cpu.index()].get() >= 2)
    }

    pub(super) fn tick_balance(&self, cx: &Cx<'_>, cpu: CpuId, rq: &mut Rq) {
        if cx.now.0 >= rq.next_balance && self.others_busy(cpu) {
            rq.next_balance = cx.now.0 + self.version.busy_balance.0;
            self.pull(cx, cpu, rq, false);
        }
    }

    /// Moves tasks from the longest queue to this one.
    pub(super) fn pull(&self, cx: &Cx<'_>, cpu: CpuId, rq: &mut Rq, idle: bool) {
        if self.balance == Pull::Stay {
            return;
        }
        let Some((busiest, length)) = self.busiest(cx, cpu, rq, idle) else { return };
        let own = rq.nr_running.max(if idle { 0 } else { rq.prev_len[cpu.index()] as usize });
        rq.prev_len[cpu.index()] = rq.nr_running as u32;
        let Some(mut count) = self.wanted(own, length, idle) else { return };
        let Some(mut theirs) = self.rqs[busiest].try_lock() else {
            cx.did(Work::TryLockMiss, 1);
            return;
        };
        cx.did(Work::RemoteLock, 1);
        if theirs.nr_running <= rq.nr_running + usize::from(!idle) {
            return;
        }
        for array in [1 - theirs.active, theirs.active] {
            while count > 0 {
                let Some(task) = self.movable(cx, cpu, &theirs, array, idle) else { break };
                let from = CpuId::from(busiest);
                self.deactivate(cx, from, &mut theirs, task);
                let to = if self.version.era == Era::Late26 && array != theirs.active {
                    1 - rq.active
                } else {
                    rq.active
                };
                self.activate(cx, cpu, rq, task, to);
                cx.did(Work::Move, 1);
                cx.push(Cmd::Moved(task, cpu));
                cx.push(Cmd::TickDue(from));
                let prio = self.record(cx, task).prio.get();
                if rq.curr.is_some_and(|curr| prio < self.record(cx, curr).prio.get()) {
                    cx.push(Cmd::Resched(cpu));
                }
                count -= 1;
            }
        }
    }

    /// The longest other queue by the shorter of its length now and last time (now, when idle).
    fn busiest(&self, cx: &Cx<'_>, cpu: CpuId, rq: &mut Rq, idle: bool) -> Option<(usize, usize)> {
        cx.did(Work::RemoteLine, self.lens.len() as u32 - 1);
        let own = rq.prev_len[cpu.index()];
        let (mut best, mut longest) = (0, 1);
        for (other, (now, before)) in self.lens.iter().zip(&mut rq.prev_len).enumerate() {
            let now = now.get() as usize;
            let length = if idle { now } else { now.min(*before as usize) };
            *before = now as u32;
            if length > longest && other != cpu.index() {
                (best, longest) = (other, length);
            }
        }
        rq.prev_len[cpu.index()] = own;
        (longest > 1).then_some((best, longest))
    }

    /// How many tasks to move, if any.
    fn wanted(&self, own: usize, length: usize, idle: bool) -> Option<usize> {
        if idle {
            return Some(1);
        }
        let difference = length.checked_sub(own)?;
        let enough = match (self.balance, self.version.era) {
            (Pull::Change, _) => difference >= 3,
            // A quarter of the longest, rounded up.
            (_, Era::Backport) => difference / 2 >= length.div_ceil(4),
            (_, Era::Early26) => difference * 4 >= length,
            (_, Era::Late26) => length * 100 > own * 125,
        };
        (enough && difference >= 2).then_some(difference / 2)
    }

    /// The first task that may go, best priority first, each list from its tail.
    fn movable(
        &self,
        cx: &Cx<'_>,
        cpu: CpuId,
        theirs: &Rq,
        array: usize,
        idle: bool,
    ) -> Option<TaskId> {
        let mut from = 0;
        while let Some(prio) = theirs.arrays[array].first_prio(from) {
            let mut id = theirs.arrays[array].list(prio).tail;
            while id != NIL {
                let task = TaskId(id as u32);
                let record = &self.records(cx)[id as usize];
                cx.did(Work::Scan, 1);
                let age = cx.now.0 as i64 - record.last_ran.get();
                let hot =
                    !idle && record.last_ran.get() > 0 && age <= self.version.cache_hot.0 as i64;
                let runs = record.running.flag() || theirs.curr == Some(task);
                let may = record.anywhere.flag() || cx.task(task).affinity.contains(cpu);
                if !runs && !hot && may {
                    return Some(task);
                }
                id = record.links.prev.get();
            }
            from = prio + 1;
            if from >= super::array::PRIORITIES {
                break;
            }
        }
        None
    }

    /// Where a woken task goes.
    pub(super) fn select(&self, cx: &Cx<'_>, task: TaskId, sync: bool) -> CpuId {
        let record = self.record(cx, task);
        let (mut last, this) = (CpuId(record.cpu.get() as u32), cx.cpu);
        let mut here_too = true;
        if !record.anywhere.flag() {
            let allowed = &cx.task(task).affinity;
            last = if allowed.contains(last) { last } else { allowed.lowest().unwrap_or(last) };
            here_too = allowed.contains(this);
        }
        if last == this || !here_too {
            return last;
        }
        match self.version.era {
            Era::Backport | Era::Early26 if sync => this,
            Era::Backport | Era::Early26 => last,
            Era::Late26 => {
                // Loads in tasks; the waker leaves when it says so.
                let here = self.lens[this.index()].get() - i64::from(sync);
                let there = self.lens[last.index()].get();
                let near = (here <= there && here + there <= 1) || 112 * here <= 100 * there;
                if near && here < there { this } else { last }
            }
        }
    }

    /// Remembers whether a task may run on every CPU.
    pub(super) fn note_affinity(&self, cx: &Cx<'_>, task: TaskId) {
        let all = cx.world.all_cpus();
        self.record(cx, task).anywhere.set(i64::from(cx.task(task).affinity.and(&all) == all));
    }

    pub(super) fn affinity_changed(&self, cx: &Cx<'_>, task: TaskId) {
        self.note_affinity(cx, task);
        let from = CpuId(self.record(cx, task).cpu.get() as u32);
        let allowed = cx.task(task).affinity;
        if allowed.contains(from) {
            return;
        }
        let mut rq = self.rqs[from.index()].lock();
        if rq.curr == Some(task) {
            return cx.push(Cmd::Displace(task));
        }
        let queued = self.record(cx, task).array.get() != NIL;
        self.deactivate(cx, from, &mut rq, task);
        drop(rq);
        let Some(to) = allowed.lowest() else { return };
        self.record(cx, task).cpu.set(i64::from(to.0));
        if queued {
            let mut rq = self.rqs[to.index()].lock();
            let active = rq.active;
            self.activate(cx, to, &mut rq, task, active);
            cx.push(Cmd::Moved(task, to));
            cx.push(Cmd::Resched(to));
        }
    }
}
