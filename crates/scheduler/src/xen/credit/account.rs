//! Credit's periodic work: the tick of each pCPU and the accounting of the pool.

use super::super::common::{div_ceil, now};
use super::{ACCOUNTING, BOOST, Credit, MS, OVER, TICK_SLOT, UNDER};
use crate::{Cmd, Cx, Timer};
use schedlab_model::{CpuId, GroupId, Ns, TaskId};

/// What one pass over the domains shares.
struct Pass {
    /// Credit to hand out.
    credit: i64,
    /// Weight of all active units at the start.
    weight: i64,
    /// Weight of the domains still to come.
    weight_left: i64,
    /// Sum of the credits afterwards.
    sum: i64,
    /// A domain got less than it could take.
    wanting: bool,
}

impl Credit {
    /// The tick of one pCPU.
    pub(super) fn tick(&mut self, cx: &Cx<'_>, cpu: CpuId) {
        if let Some(task) = self.pcpus[cpu.index()].curr {
            let unit = self.unit_mut(task);
            if unit.pri == BOOST {
                unit.pri = UNDER;
            }
            match self.set.sampled {
                true => self.unit_mut(task).credit -= self.set.tick() * 10 / MS,
                false => self.burn(cx, task),
            }
            if !self.unit(task).active {
                self.activate(task);
            } else if self.place(cx, task, false) != cpu {
                self.unit_mut(task).core.migrating = true;
                cx.push(Cmd::Displace(task));
            }
        }
        if self.pcpus[cpu.index()].sort_seen != self.sort_epoch {
            self.pcpus[cpu.index()].sort_seen = self.sort_epoch;
            self.sort(cpu);
        }
        let next = now(cx) + self.set.tick();
        cx.push(Cmd::Arm(Timer::Cpu(cpu, TICK_SLOT), Ns(next as u64)));
    }

    fn activate(&mut self, task: TaskId) {
        let unit = self.unit_mut(task);
        unit.active = true;
        let id = unit.domain;
        let domain = &mut self.domains[id.index()];
        if domain.active.is_empty() {
            self.active.insert(0, id);
        }
        domain.active.push_front(task);
        self.weight += domain.weight;
    }

    /// Takes a unit out of the active set.
    pub(super) fn deactivate(&mut self, task: TaskId) {
        let unit = self.unit_mut(task);
        if !std::mem::take(&mut unit.active) {
            return;
        }
        let id = unit.domain;
        self.weight -= self.domains[id.index()].weight;
        self.drop_inactive(id);
    }

    /// Takes units that are not active any more out of the list of their domain.
    fn drop_inactive(&mut self, id: GroupId) {
        let mut active = std::mem::take(&mut self.domains[id.index()].active);
        active.retain(|member| self.unit(*member).active);
        if active.is_empty() {
            self.active.retain(|member| *member != id);
        }
        self.domains[id.index()].active = active;
    }

    /// Once per slice: hands out credit and sets priorities.
    pub(super) fn account(&mut self, cx: &Cx<'_>) {
        let next = now(cx) + self.set.tslice;
        if self.weight == 0 {
            self.balance = 0;
        } else {
            let pool = self.set.per_slice() * self.pool.count() as i64;
            let mut pass = Pass {
                credit: pool - self.balance.min(0),
                weight: self.weight,
                weight_left: self.weight,
                sum: 0,
                wanting: false,
            };
            for id in self.active.clone() {
                self.account_domain(cx, id, &mut pass);
            }
            self.balance = pass.sum;
            self.sort_epoch += 1;
        }
        cx.push(Cmd::Arm(ACCOUNTING, Ns(next as u64)));
    }

    fn account_domain(&mut self, cx: &Cx<'_>, id: GroupId, pass: &mut Pass) {
        let per_slice = self.set.per_slice();
        let domain = &self.domains[id.index()];
        let members = domain.active.clone();
        let (n, share) = (members.len() as i64, domain.weight * members.len() as i64);
        pass.weight_left -= share;
        let mut peak = n * per_slice;
        if self.balance < 0 {
            peak += div_ceil(-self.balance * share, pass.weight);
        }
        let mut per_unit_cap = 0;
        if domain.cap > 0 {
            let cap = div_ceil(domain.cap * per_slice, 100);
            peak = peak.min(cap);
            per_unit_cap = div_ceil(cap, n);
        }
        let capped = domain.cap > 0;
        let mut fair = div_ceil(pass.credit * share, pass.weight);
        if fair < peak {
            pass.wanting = true;
        } else {
            if pass.weight_left != 0 {
                pass.credit += div_ceil((fair - peak) * pass.weight, pass.weight_left);
            }
            if pass.wanting {
                self.active.retain(|member| *member != id);
                self.active.insert(0, id);
            }
            fair = peak;
        }
        let each = div_ceil(fair, n);
        let weight = self.weight;
        for task in members {
            pass.sum += self.pay(cx, task, each, capped.then_some(per_unit_cap));
        }
        if self.weight != weight {
            self.drop_inactive(id);
        }
    }

    /// Pays one unit, sets its priority, parks or unparks it. Returns its credit afterwards.
    fn pay(&mut self, cx: &Cx<'_>, task: TaskId, credit: i64, cap: Option<i64>) -> i64 {
        let per_slice = self.set.per_slice();
        let unit = self.unit_mut(task);
        unit.credit += credit;
        unit.pri = if unit.credit < 0 { OVER } else { UNDER };
        if unit.queued {
            let cpu = unit.core.cpu;
            self.refresh(cpu);
        }
        let unit = self.unit_mut(task);
        if unit.credit < 0 {
            if cap.is_some_and(|cap| unit.credit < -cap) && !unit.parked {
                unit.parked = true;
                cx.push(Cmd::Throttled(task));
                self.sleep(cx, task);
            }
            let unit = self.unit_mut(task);
            unit.credit = unit.credit.max(-per_slice);
            return unit.credit;
        }
        if unit.parked {
            self.unpark(cx, task);
        }
        let unit = self.unit_mut(task);
        if unit.credit > per_slice {
            unit.credit /= 2;
            // The list follows when every task is paid.
            let domain = unit.domain;
            if std::mem::take(&mut unit.active) {
                self.weight -= self.domains[domain.index()].weight;
            }
        }
        self.unit(task).credit
    }

    fn unpark(&mut self, cx: &Cx<'_>, task: TaskId) {
        cx.push(Cmd::Unthrottled(task));
        let unboosted = !self.set.release.credit_boosts_after_unpark();
        let unit = self.unit_mut(task);
        unit.parked = unboosted;
        if unit.core.awake && !unit.core.migrating {
            self.wake(cx, task);
        }
        self.unit_mut(task).parked = false;
    }
}
