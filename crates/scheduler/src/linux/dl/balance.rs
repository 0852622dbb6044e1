//! The deadline class over several CPUs: the earliest deadlines of the machine run.
//!
//! | rule | real place (6.1 to 6.18) | here | test |
//! |---|---|---|---|
//! | wakeup: keep the last CPU unless a deadline task runs there that the wakee does not beat, or that is pinned; compared by the old deadline | `select_task_rq_dl` | modelled | `the_earliest_deadlines_run` |
//! | CPUs for it: those without deadline tasks, else the one with the latest deadline; near ones first | `find_later_rq`, `cpudl_find` | modelled | `the_earliest_deadlines_run` |
//! | push the waiting ones after a choice, after a wakeup that does not preempt, after a renewal | `push_dl_tasks` | modelled; at once, without the retry of a lost race | `the_earliest_deadlines_run` |
//! | pull when the running one blocks or is throttled | `pull_dl_task` | modelled; at once | `the_earliest_deadlines_run` |
//! | a throttled task whose CPU went offline | `dl_task_offline_migration` | simplified: it stays and is evicted when it is runnable | |

use super::{NEVER, server};
use crate::linux::core::rq::{Class, EntityId, Rq};
use crate::linux::core::smp::Smp;
use crate::linux::fair::FairRules;
use crate::linux::{Env, Linux};
use crate::{Cmd, Cx, Locks};
use schedlab_model::{CpuId, CpuSet, TaskId};

impl<L: Locks, F: FairRules> Linux<L, F> {
    /// The CPU to which a task with deadline `until` could go from `from`.
    fn later_cpu(
        &self,
        cx: &Cx<'_>,
        smp: &Smp,
        task: TaskId,
        until: i64,
        from: CpuId,
    ) -> Option<CpuId> {
        if cx.task(task).affinity.count() < 2 {
            return None;
        }
        let root = smp.domains.root_of(from);
        let allowed = smp.allowed(cx, task).and(&root);
        let free: CpuSet = allowed.iter().filter(|&cpu| smp.deadlines(cpu).0 == NEVER).collect();
        if !free.is_empty() {
            return self.nearest_of(cx, smp, &free, from);
        }
        // Of equal ones the first.
        let latest =
            root.iter().max_by_key(|&cpu| (smp.deadlines(cpu).0, std::cmp::Reverse(cpu)))?;
        (allowed.contains(latest) && until < smp.deadlines(latest).0).then_some(latest)
    }

    /// The CPU on which a deadline task that wakes, last on `from`, is queued.
    pub(in crate::linux) fn select_dl(
        &self,
        cx: &Cx<'_>,
        smp: &Smp,
        task: TaskId,
        from: CpuId,
    ) -> CpuId {
        let Some((cpu, id)) = self.index.get(task) else { return from };
        let (until, crowded) = {
            use crate::Lock;
            let until = {
                let rq = self.rqs[cpu.index()].lock();
                rq.entity(id).dl.as_deref().map_or(NEVER, |cbs| cbs.until)
            };
            let rq = self.rqs[from.index()].lock();
            let curr = rq.curr_of(Class::Deadline);
            let stays = |curr: EntityId| rq.entity(curr).pinned || until >= server(&rq, curr).until;
            (until, curr.is_some_and(stays))
        };
        if !crowded {
            return from;
        }
        let to = self.later_cpu(cx, smp, task, until, from);
        to.filter(|&to| until < smp.deadlines(to).0).unwrap_or(from)
    }

    /// Takes from each CPU where deadline tasks wait the most urgent one, if it beats what `cpu`
    /// has.
    pub(in crate::linux) fn pull_dl(&self, cx: &Cx<'_>, cpu: CpuId) {
        let Some(smp) = self.smp.get() else { return };
        let env = &self.env(cx);
        for from in smp.domains.root_of(cpu).iter().filter(|&from| from != cpu) {
            if smp.deadlines(from).1 >= smp.deadlines(cpu).0 {
                continue;
            }
            let taken = self.locked(from, |rq| {
                let may = |id| cx.task(TaskId(rq.entity(id).task)).affinity.contains(cpu);
                let (until, id) = waiting(rq, may)?;
                let curr = rq.curr_of(Class::Deadline)?;
                if until >= smp.deadlines(cpu).0 || until < server(rq, curr).until {
                    return None;
                }
                rq.touch::<F>(env, false);
                Some(self.detach(env, rq, id))
            });
            if let Some(entity) = taken {
                cx.push(Cmd::TickDue(from));
                self.attach_all(cx, cpu, vec![entity], false);
            }
        }
    }

    /// Moves waiting deadline tasks of `cpu`, earliest first, to CPUs that run something later.
    pub(in crate::linux) fn push_dl(&self, cx: &Cx<'_>, cpu: CpuId) {
        let Some(smp) = self.smp.get() else { return };
        let env = &self.env(cx);
        while smp.deadlines(cpu).1 != NEVER {
            let pushed = self.locked(cpu, |rq| {
                let (until, id) = waiting(rq, |id| !rq.entity(id).pinned)?;
                let curr = rq.curr_of(Class::Deadline).filter(|&curr| rq.dl.holds(curr));
                if curr.is_none_or(|curr| until < server(rq, curr).until) {
                    rq.resched(env);
                    return None;
                }
                let task = TaskId(rq.entity(id).task);
                let to = self.later_cpu(cx, smp, task, until, cpu).filter(|&to| to != cpu)?;
                if until >= smp.deadlines(to).0 {
                    return None;
                }
                rq.touch::<F>(env, false);
                Some((to, self.detach(env, rq, id)))
            });
            let Some((to, entity)) = pushed else { return };
            cx.push(Cmd::TickDue(cpu));
            self.attach_all(cx, to, vec![entity], false);
        }
    }

    /// After a wakeup on `cpu`: a deadline task that did not preempt another one may be pushed
    /// away.
    pub(in crate::linux) fn push_woken_dl(&self, cx: &Cx<'_>, cpu: CpuId) {
        use crate::Lock;
        let waits = {
            let rq = self.rqs[cpu.index()].lock();
            !rq.need_resched && rq.curr_of(Class::Deadline).is_some()
        };
        if waits {
            self.push_dl(cx, cpu);
        }
    }

    /// The CPU's deadline timer fired.
    pub(in crate::linux) fn deadline_due(&self, cx: &Cx<'_>, env: Env<'_>, cpu: CpuId) {
        self.locked(cpu, |rq| {
            rq.touch::<F>(env, false);
            super::fired(env, rq);
        });
        self.push_woken_dl(cx, cpu);
        cx.push(Cmd::TickDue(cpu));
    }
}

/// The most urgent waiting deadline task that `may` leave.
fn waiting(rq: &Rq, may: impl Fn(EntityId) -> bool) -> Option<(i64, EntityId)> {
    rq.dl.queued().find(|&(_, id)| id != rq.curr && may(id))
}
