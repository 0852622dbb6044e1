//! Stealing: a CPU takes the best task that another one advertises.

use super::{MultiQueue, Queue};
use crate::linux_pre_cfs::records::NIL;
use crate::{Cmd, Cx, Lock, Locks, Work};
use schedlab_model::{CpuId, TaskId};

impl<L: Locks> MultiQueue<L> {
    /// Looks at the advertisements of the others and takes the best that beats `goodness`.
    pub(super) fn steal(
        &self,
        cx: &Cx<'_>,
        cpu: CpuId,
        queue: &mut Queue,
        local: &mut (Option<TaskId>, i64),
    ) -> bool {
        let mut offers: Vec<(i64, CpuId)> = Vec::with_capacity(self.boards.len());
        for peer in self.cpu_ids().filter(|peer| *peer != cpu) {
            cx.did(Work::RemoteLine, 1);
            let board = &self.boards[peer.index()];
            let (na, task) = (board.max_na.get(), board.max_task.get());
            if na > local.1 && task != NIL && cx.task(TaskId(task as u32)).affinity.contains(cpu) {
                offers.push((na, peer));
            }
        }
        let mut missed = false;
        // Best first; the lower CPU among equals.
        offers.sort_by_key(|(na, peer)| (-na, peer.0));
        for (_, peer) in offers {
            let Some(mut theirs) = self.queues[peer.index()].try_lock() else {
                cx.did(Work::TryLockMiss, 1);
                missed = true;
                continue;
            };
            cx.did(Work::RemoteLock, 1);
            let board = &self.boards[peer.index()];
            let (na, id) = (board.max_na.get(), board.max_task.get());
            if na <= local.1 || id == NIL {
                continue;
            }
            let task = TaskId(id as u32);
            let record = self.record(cx, task);
            if !self.waits_on(cx, task, peer) || !record.runs_on(cx, task, cpu) {
                continue;
            }
            if let Some(own) = local.0.filter(|own| queue.curr != Some(*own)) {
                self.advertise(cpu, self.record(cx, own).base(), Some(own));
            }
            self.delist(cx, peer, &mut theirs, task);
            self.readvertise(cx, peer, &theirs);
            let (max_na, max_task) =
                (self.boards[cpu.index()].max_na.get(), self.boards[cpu.index()].max_task.get());
            self.enlist(cx, cpu, queue, task, true);
            self.boards[cpu.index()].max_na.set(max_na);
            self.boards[cpu.index()].max_task.set(max_task);
            cx.did(Work::Move, 1);
            cx.push(Cmd::Moved(task, cpu));
            *local = (Some(task), na);
            return false;
        }
        missed
    }

    /// The first stealable task in list order is good enough.
    fn readvertise(&self, cx: &Cx<'_>, cpu: CpuId, queue: &Queue) {
        let records = self.records(cx);
        let mut id = queue.list.head;
        let mut looked = 0;
        while id != NIL {
            looked += 1;
            let record = &records[id as usize];
            if !record.running.flag() && record.base() > 0 {
                self.advertise(cpu, record.base(), Some(TaskId(id as u32)));
                break;
            }
            id = record.links.next.get();
        }
        cx.did(Work::Scan, looked);
    }
}
