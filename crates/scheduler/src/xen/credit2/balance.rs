//! Balancing between run queues, done together with a credit reset.

use super::state::Credit2;
use crate::{Cmd, Cx, Work};
use schedlab_model::{CpuId, TaskId};

/// The best exchange so far: who leaves, who comes, and the load difference that would remain.
#[derive(Clone, Copy)]
struct Best {
    push: Option<TaskId>,
    pull: Option<TaskId>,
    delta: i64,
}

impl Credit2 {
    /// `cpu` is deciding and will run `next`.
    pub(super) fn balance(&mut self, cx: &Cx<'_>, local: usize, cpu: CpuId, next: TaskId) {
        self.load_change(cx, local, None, 0);
        let mut widest = (0, None);
        for other in (0..self.queues.len()).filter(|at| *at != local) {
            self.load_change(cx, other, None, 0);
            let delta = (self.queues[local].b_avgload - self.queues[other].b_avgload).abs();
            if delta > widest.0 {
                widest = (delta, Some(other));
            }
        }
        let (delta, Some(other)) = widest else { return };
        if !self.worth(local, delta) {
            return;
        }
        let best = self.best_exchange(cx, local, other, delta);
        if let Some(task) = best.push {
            self.send(cx, task, other, (cpu, next));
        }
        if let Some(task) = best.pull {
            self.send(cx, task, local, (cpu, next));
        }
    }

    /// Whether the difference is above the threshold. Xen compares with the last queue of its list
    /// here, not with the one that differs most.
    fn worth(&self, local: usize, delta: i64) -> bool {
        let (own, last) = (&self.queues[local], self.queues.last().expect("at least one"));
        let load = own.b_avgload.max(last.b_avgload);
        let cpus = own.active.count().max(last.active.count()) as i64;
        let precision = i64::from(self.settings.precision);
        let room = load < cpus << precision;
        let shift = precision + if room { self.settings.under } else { self.settings.over };
        delta >= 1 << shift.clamp(0, 62)
    }

    fn best_exchange(&mut self, cx: &Cx<'_>, local: usize, other: usize, delta: i64) -> Best {
        let mut best = Best { push: None, pull: None, delta };
        let (pushes, pulls) = (self.queues[local].units.clone(), self.queues[other].units.clone());
        let mut fresh = false;
        for push in pushes {
            self.unit_load_change(cx, push, 0);
            if !self.movable(push, other) {
                continue;
            }
            for pull in pulls.iter().copied() {
                if !fresh {
                    self.unit_load_change(cx, pull, 0);
                }
                if self.movable(pull, local) {
                    self.consider(&mut best, local, other, Some(push), Some(pull));
                }
            }
            fresh = true;
            self.consider(&mut best, local, other, Some(push), None);
        }
        for pull in pulls {
            if self.movable(pull, local) {
                self.consider(&mut best, local, other, None, Some(pull));
            }
        }
        cx.did(Work::RemoteLine, self.queues[other].units.len() as u32);
        best
    }

    fn movable(&self, task: TaskId, to: usize) -> bool {
        let unit = self.unit(task);
        unit.target.is_none()
            && !unit.core.hard.and(&self.pool).and(&self.queues[to].active).is_empty()
    }

    fn consider(
        &self,
        best: &mut Best,
        local: usize,
        other: usize,
        push: Option<TaskId>,
        pull: Option<TaskId>,
    ) {
        let load = |task: Option<TaskId>| task.map_or(0, |task| self.unit(task).avgload);
        let (push_load, pull_load) = (load(push), load(pull));
        let here = self.queues[local].b_avgload - push_load + pull_load;
        let there = self.queues[other].b_avgload + push_load - pull_load;
        let delta = (here - there).abs();
        if delta < best.delta {
            *best = Best { push, pull, delta };
        }
    }

    fn send(&mut self, cx: &Cx<'_>, task: TaskId, to: usize, (deciding, next): (CpuId, TaskId)) {
        if !self.unit(task).scheduled {
            return self.migrate(cx, task, to);
        }
        let unit = self.unit_mut(task);
        unit.target = Some(to);
        unit.core.migrating = true;
        let (cpu, rq) = (unit.core.cpu, unit.rq);
        self.tickle_cpu(cx, rq, cpu);
        // A unit that is just being switched out needs no other decision: it moves when its context
        // is saved. So it is with one that another CPU has decided against already.
        let leaving = match self.curr[cpu.index()] {
            Some(current) if current == task => cpu == deciding && task != next,
            _ => true,
        };
        self.unit_mut(task).leaving = leaving;
        if !leaving {
            cx.push(Cmd::Displace(task));
        }
    }
}
