//! Caps: a budget per domain and period, shared out to its units in quotas.

use super::super::common::{now, take};
use super::MIN_TIMER;
use super::state::Credit2;
use crate::{Cmd, Cx, Timer};
use schedlab_model::{Ns, TaskId};

impl Credit2 {
    pub(super) fn capped(&self, task: TaskId) -> bool {
        self.domains[self.unit(task).domain.index()].cap != 0
    }

    /// Sets the cap of a domain, per cent of one pCPU; 0 takes it away.
    pub(super) fn set_cap(&mut self, cx: &Cx<'_>, index: usize, cap: i64) {
        let before = std::mem::replace(&mut self.domains[index].cap, cap);
        let units = self.domains[index].units.clone();
        let Some(first) = units.first().copied() else { return };
        let total = self.settings.cap_period * cap / 100;
        self.domains[index].total = total;
        let quota = (total / units.len() as i64).max(MIN_TIMER);
        for task in units.iter().copied() {
            self.unit_mut(task).quota = quota;
        }
        if before == 0 && cap != 0 {
            let next = now(cx) + self.settings.cap_period;
            let domain = &mut self.domains[index];
            (domain.pool, domain.next_repl) = (total, next);
            for task in units {
                let cpu = self.unit(task).core.cpu;
                self.unit_mut(task).budget = 0;
                if self.curr[cpu.index()] == Some(task) {
                    self.burn(cx, task);
                    let rq = self.unit(task).rq;
                    self.tickle_cpu(cx, rq, cpu);
                }
            }
            cx.push(Cmd::Arm(Timer::Task(first), Ns(next as u64)));
        } else if before != 0 && cap == 0 {
            cx.push(Cmd::Disarm(Timer::Task(first)));
            for task in units {
                self.unit_mut(task).budget = i64::MAX;
            }
            self.unpark_all(cx, index);
        }
    }

    /// Makes sure that the unit has budget; parks it when the domain has none left.
    pub(super) fn grab(&mut self, cx: &Cx<'_>, task: TaskId) -> bool {
        let unit = self.unit(task);
        if unit.budget > 0 {
            return true;
        }
        let (index, debt, quota) = (unit.domain.index(), unit.budget, unit.quota);
        let domain = &mut self.domains[index];
        domain.pool += debt;
        if domain.pool > 0 {
            let share = quota.min(domain.pool);
            domain.pool -= share;
            self.unit_mut(task).budget = share;
            return true;
        }
        domain.parked.insert(0, task);
        let unit = self.unit_mut(task);
        unit.budget = 0;
        unit.parked = true;
        let (rq, queued) = (unit.rq, unit.queued);
        if queued {
            self.load_change(cx, rq, Some(task), -1);
            self.dequeue(task);
        }
        cx.push(Cmd::Throttled(task));
        false
    }

    /// A unit that stops running gives back what it did not use. Returns whether others can run on
    /// it.
    pub(super) fn return_budget(&mut self, task: TaskId) -> bool {
        if !self.capped(task) {
            return false;
        }
        let unit = self.unit_mut(task);
        let index = unit.domain.index();
        let rest = if unit.budget > 0 { std::mem::take(&mut unit.budget) } else { return false };
        self.domains[index].pool += rest;
        self.domains[index].pool > 0
    }

    /// The replenishment timer of the domain whose first unit is `first`.
    pub(super) fn replenish(&mut self, cx: &Cx<'_>, first: TaskId) {
        let index = self.unit(first).domain.index();
        let (now, period) = (now(cx), self.settings.cap_period);
        let domain = &mut self.domains[index];
        while domain.next_repl <= now {
            domain.next_repl += period;
            domain.pool += domain.total;
        }
        let ready = domain.pool > 0;
        if ready {
            domain.pool = domain.pool.min(domain.total);
        }
        let next = domain.next_repl;
        if ready {
            self.unpark_all(cx, index);
        }
        cx.push(Cmd::Arm(Timer::Task(first), Ns(next as u64)));
    }

    pub(super) fn unpark_all(&mut self, cx: &Cx<'_>, index: usize) {
        for task in self.domains[index].parked.clone() {
            take(&mut self.domains[index].parked, task);
            let unit = self.unit_mut(task);
            unit.parked = false;
            cx.push(Cmd::Unthrottled(task));
            let (scheduled, runnable, rq) = (unit.scheduled, unit.runnable(), unit.rq);
            if scheduled {
                self.unit_mut(task).delayed_add = true;
            } else if runnable && !self.unit(task).queued {
                self.load_change(cx, rq, Some(task), 1);
                self.enqueue(cx, task);
                self.tickle(cx, task);
            }
        }
    }
}
