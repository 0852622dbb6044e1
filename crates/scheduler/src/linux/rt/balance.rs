//! The RT class over several CPUs: the best tasks of the machine run, wherever they may.
//!
//! | rule | real place (6.1 to 6.18) | here | test |
//! |---|---|---|---|
//! | wakeup: keep the last CPU unless it runs an RT task of the same or better priority, or a pinned one | `select_task_rq_rt` | modelled | `the_best_rt_tasks_run` |
//! | lowest CPU: the allowed CPUs of least RT priority; last CPU first, then the waker's, then near ones | `find_lowest_rq`, `cpupri_find` | modelled; fair and idle CPUs are one level, as since 5.10 | `a_woken_rt_task_goes_where_no_rt_task_runs` |
//! | wakee of equal priority that cannot go elsewhere, beside a running task that can: it goes first | `check_preempt_equal_prio` | modelled | `a_pinned_equal_pushes_the_running_task_away` |
//! | push the waiting ones away after a choice, and after a wakeup that does not preempt | `push_rt_tasks` | modelled; at once, without the retry of a lost race | `the_best_rt_tasks_run` |
//! | pull when an RT task leaves and the next best is worse | `pull_rt_task` | modelled; at once: RT_PUSH_IPI's chain of interrupts takes no time | `the_best_rt_tasks_run` |
//! | 2.6.24: neither push nor pull, the load balancer moves RT tasks | `sched_rt.c` of 2.6.24 | simplified: an RT task stays on its CPU | |
//! | stop class pushes a running task away for a pinned one | `push_cpu_stop` | omitted | |

use crate::linux::core::rq::{Class, EntityId, NONE, Rq};
use crate::linux::core::smp::Smp;
use crate::linux::fair::FairRules;
use crate::linux::{Env, Linux, dl, rt};
use crate::{Cmd, Cx, Locks, Prev};
use schedlab_model::{CpuId, CpuSet, TaskId};

impl<L: Locks, F: FairRules> Linux<L, F> {
    /// The CPUs that `task`, which was on `from`, may use on which the least urgent RT work runs,
    /// if that is less urgent than `priority`.
    fn lowest(
        &self,
        cx: &Cx<'_>,
        smp: &Smp,
        task: TaskId,
        priority: u8,
        from: CpuId,
    ) -> Option<CpuSet> {
        let allowed = smp.allowed(cx, task).and(&smp.domains.root_of(from));
        let least = allowed.iter().map(|cpu| smp.summary.rt_best(cpu)).min()?;
        (least < priority)
            .then(|| allowed.iter().filter(|&cpu| smp.summary.rt_best(cpu) == least).collect())
    }

    /// One of the lowest CPUs for a task that was on `from`.
    fn lowest_cpu(
        &self,
        cx: &Cx<'_>,
        smp: &Smp,
        task: TaskId,
        priority: u8,
        from: CpuId,
    ) -> Option<CpuId> {
        if cx.task(task).affinity.count() < 2 {
            return None;
        }
        let lowest = self.lowest(cx, smp, task, priority, from)?;
        self.nearest_of(cx, smp, &lowest, from)
    }

    /// One of the CPUs of `lowest` for a task that was on `from`: that, the waker's, a near one.
    pub(in crate::linux) fn nearest_of(
        &self,
        cx: &Cx<'_>,
        smp: &Smp,
        lowest: &CpuSet,
        from: CpuId,
    ) -> Option<CpuId> {
        if lowest.contains(from) {
            return Some(from);
        }
        let this = lowest.contains(cx.cpu).then_some(cx.cpu);
        for (domain, _) in smp.domains.chain(from) {
            if let Some(this) = this.filter(|this| domain.span.contains(*this)) {
                return Some(this);
            }
            if let Some(near) = smp.any(&lowest.and(&domain.span)) {
                return Some(near);
            }
        }
        this.or_else(|| smp.any(lowest))
    }

    /// The CPU on which an RT task that wakes, last on `from`, is queued.
    pub(in crate::linux) fn select_rt(
        &self,
        cx: &Cx<'_>,
        smp: &Smp,
        task: TaskId,
        from: CpuId,
    ) -> CpuId {
        let priority = cx.task(task).policy.rt_priority();
        let (runs, pinned) = smp.summary.rt_runs(from);
        let crowded = runs > 0 && (pinned || runs >= priority);
        if !crowded || !self.t.version.rt_push_pull() {
            return from;
        }
        self.lowest_cpu(cx, smp, task, priority, from).unwrap_or(from)
    }

    /// A wakee of the running task's priority: whether it goes first because only the running one
    /// can leave.
    pub(in crate::linux) fn equal_goes_first(
        &self,
        env: Env<'_>,
        rq: &Rq,
        curr: EntityId,
        woken: EntityId,
    ) -> bool {
        let Some(smp) =
            self.smp.get().filter(|_| !rq.need_resched && self.t.version.rt_push_pull())
        else {
            return false;
        };
        let movable = |id: EntityId| {
            let entity = rq.entity(id);
            !entity.pinned
                && self
                    .lowest(env.cx, smp, TaskId(entity.task), entity.rt_priority, rq.cpu)
                    .is_some()
        };
        movable(curr) && !movable(woken)
    }

    /// Whether the CPU should look for RT tasks elsewhere: the RT (or deadline) task that leaves
    /// was better than the rest.
    pub(in crate::linux) fn wants_rt(&self, rq: &Rq, left: EntityId, why: Prev) -> bool {
        if dl::leaves(rq) {
            return self.smp.get().is_some();
        }
        let leaves = matches!(why, Prev::Blocked | Prev::Exited | Prev::Migrating);
        leaves
            && left != NONE
            && self.smp.get().is_some()
            && rq.entity(left).class == Class::Rt
            && rq.rt.best() < rq.entity(left).rt_priority
    }

    /// Takes from each overloaded CPU its best waiting RT task, if that is better than what `cpu`
    /// has.
    pub(in crate::linux) fn pull_rt(&self, cx: &Cx<'_>, cpu: CpuId) {
        let Some(smp) = self.smp.get().filter(|_| self.t.version.rt_push_pull()) else { return };
        let env = &self.env(cx);
        for from in smp.domains.root_of(cpu).iter().filter(|&from| from != cpu) {
            if !smp.summary.rt_overloaded(from) {
                continue;
            }
            let best = smp.summary.rt_best(cpu);
            let taken = self.locked(from, |rq| {
                let id =
                    waiting(rq, |id| cx.task(TaskId(rq.entity(id).task)).affinity.contains(cpu))?;
                let (found, runs) = (rq.entity(id).rt_priority, running(rq));
                if found <= best || found > runs {
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

    /// Moves waiting RT tasks of `cpu`, best first, to CPUs that run something less urgent.
    pub(in crate::linux) fn push_rt(&self, cx: &Cx<'_>, cpu: CpuId) {
        let Some(smp) = self.smp.get().filter(|_| self.t.version.rt_push_pull()) else { return };
        let env = &self.env(cx);
        while smp.summary.rt_overloaded(cpu) {
            let pushed = self.locked(cpu, |rq| {
                let id = waiting(rq, |id| !rq.entity(id).pinned)?;
                let (task, priority) = (TaskId(rq.entity(id).task), rq.entity(id).rt_priority);
                if priority > running(rq) && !rq.rt.throttled {
                    rq.resched(env);
                    return None;
                }
                let to = self.lowest_cpu(cx, smp, task, priority, cpu).filter(|&to| to != cpu)?;
                rq.touch::<F>(env, false);
                Some((to, self.detach(env, rq, id)))
            });
            let Some((to, entity)) = pushed else { return };
            cx.push(Cmd::TickDue(cpu));
            self.attach_all(cx, to, vec![entity], false);
        }
    }

    /// After a wakeup on `cpu`: an RT task that did not preempt another one may be pushed away.
    pub(in crate::linux) fn push_woken(&self, cx: &Cx<'_>, cpu: CpuId, task: TaskId) {
        let Some(smp) = self.smp.get() else { return };
        let policy = cx.task(task).policy;
        if !policy.is_realtime() || cx.task(task).affinity.count() < 2 {
            return;
        }
        let (runs, pinned) = smp.summary.rt_runs(cpu);
        let waits = !self.rqs_need_resched(cpu);
        if waits && runs > 0 && (pinned || runs >= policy.rt_priority()) {
            self.push_rt(cx, cpu);
        }
    }

    fn rqs_need_resched(&self, cpu: CpuId) -> bool {
        use crate::Lock;
        self.rqs[cpu.index()].lock().need_resched
    }
}

/// The best waiting RT task that `may` leave.
fn waiting(rq: &Rq, may: impl Fn(EntityId) -> bool) -> Option<EntityId> {
    rq.rt.waiting().find(|&id| id != rq.curr && may(id))
}

/// RT priority of the running task, 100 for a deadline task, 0 for others.
fn running(rq: &Rq) -> u8 {
    if rq.curr == NONE { 0 } else { rq.entity(rq.curr).rt_priority }
}

/// Puts a woken task of equal priority before the running one.
pub(in crate::linux) fn go_first(env: Env<'_>, rq: &mut Rq, woken: EntityId) {
    rt::requeue(rq, woken, true);
    rq.resched(env);
}
