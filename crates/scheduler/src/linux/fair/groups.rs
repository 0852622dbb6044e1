//! Control groups: the queue and the entity of each group on each CPU, and its part of the group's
//! weight.
//!
//! | rule | where the real system has it | here | test |
//! |---|---|---|---|
//! | every level is a queue of its own; the algorithm is recursive | `sched_entity.my_q` | modelled, in `fair` | `weights_share_one_cpu_and_nested_ones_too` |
//! | a CPU's part of the weight: shares x load here / load everywhere, from 2 to shares | `calc_group_shares` | modelled; weights have no 10 extra bits | `weights_hold_over_several_cpus` |
//! | the load here is the larger of the queue's weight and its average | same | modelled | same |
//! | loads are reported when they change by 1/64, since 6.7 once a millisecond | `update_tg_load_avg` | modelled | same |
//! | a queue that lost a queued task reports without it | `update_load_avg`: `DO_DETACH` | modelled | `groups_get_what_a_real_kernel_gave_them_from_the_same_placement` |
//! | the load of a task that wakes on another CPU, or ends, leaves at the queue's next update | `remove_entity_load_avg` | simplified: it leaves at once, and is reported at that update | same |
//! | all queues of a CPU report when it balances, of idle CPUs once in 32 ms while others tick | `update_blocked_averages`, `NOHZ_STATS_KICK` | modelled; of throttled ones none | same |
//! | part of the time in which a group is runnable on a CPU: a signal of its entity; arriving tasks add theirs, up to all of it, and when one leaves it is at most the mean of the rest | `update_tg_cfs_load` | modelled | `a_group_is_runnable_as_often_as_its_tasks` |
//! | the load of the queue above follows a new weight at once | `reweight_entity`: `dequeue_load_avg`, `enqueue_load_avg` | modelled | `the_load_above_follows_the_weight_at_once` |
//! | a task weighs its part of its group, where CPUs' loads are compared | `task_h_load` | modelled; not kept for a jiffy | `a_task_weighs_its_part_of_the_group` |
//! | a group that becomes empty on a CPU gets the weight of what load is left, since 6.12 it keeps its weight | `update_cfs_group` | modelled; 6.6 to 6.11 keep it, too | `groups_get_what_a_real_kernel_gave_them_from_the_same_placement` |
//! | a task that changes its group takes its load along | `task_change_group_fair` | omitted: it decays where it was; no simulated task changes its group | – |
//! | refreshed at enqueue, dequeue and every tick | `update_cfs_group` | modelled: no tick of a group's CPU is left out | `linux_groups` (both tick modes) |
//! | `cpu.idle` groups weigh as SCHED_IDLE; their tasks count as idle above | 5.15 | modelled | `an_idle_group_gets_the_rest` |
//! | autogroup: sessions are groups, if switched on | `kernel/sched/autogroup.c` | modelled: `GroupSpec::autogroup` | `sessions_share_regardless_of_nice` |
//! | a group's own minimum slice (EEVDF) | 6.12 | see `eevdf` | - |

use crate::linux::core::rq::{Class, Entity, EntityId, NONE, Queue, QueueId, ROOT, Rq};
use crate::linux::core::smp::Smp;
use crate::linux::fair::FairRules;
use crate::linux::fair::pelt::Moment;
use crate::linux::fair::weights::{Load, NICE_0};
use crate::linux::{Env, Linux};
use crate::{Cx, Lock, Locks};
use schedlab_model::{CpuId, GroupId, Ns};
use std::sync::atomic::Ordering::Relaxed;

/// How often the loads of idle CPUs are looked at, ns (`LOAD_AVG_PERIOD`, 32 ms).
const BLOCKED_NS: u64 = 32_000_000;

/// The queue of `group` on this CPU; made, with those above it, when it is first needed.
pub(in crate::linux) fn queue_of(env: Env<'_>, rq: &mut Rq, group: GroupId) -> QueueId {
    match rq.queue_of_group.get(group.index()) {
        Some(&queue) if queue != NONE => queue,
        _ => create(env, rq, group),
    }
}

fn create(env: Env<'_>, rq: &mut Rq, group: GroupId) -> QueueId {
    let view = env.cx.group(group);
    let Some(parent) = view.parent else { return ROOT };
    let above = queue_of(env, rq, parent);
    if view.autogroup && !env.t.smp.autogroup {
        return above;
    }
    let depth = match rq.queue(above).owner {
        NONE => 0,
        owner => rq.entity(owner).depth + 1,
    };
    let queue = rq.queues();
    let mut entity = Entity::new(NONE, above, depth);
    entity.owns = queue;
    entity.idle = view.idle;
    entity.load = weight(view.weight, view.idle);
    let owner = rq.store(entity);
    rq.add_queue(Queue::new(group, owner));
    rq.queue_mut(queue).limited = view.bandwidth.is_some();
    rq.queue_mut(queue).throttle_count = rq.queue(above).throttle_count;
    if rq.queue_of_group.len() <= group.index() {
        rq.queue_of_group.resize(group.index() + 1, NONE);
    }
    rq.queue_of_group[group.index()] = queue;
    queue
}

/// The weight of a whole group: `cpu.shares`, or that of SCHED_IDLE.
fn weight(shares: Option<u32>, idle: bool) -> Load {
    if idle {
        Load::IDLE
    } else {
        Load::from_weight(u64::from(shares.unwrap_or(NICE_0 as u32)).clamp(2, 1 << 18))
    }
}

impl<L: Locks, F: FairRules> Linux<L, F> {
    /// Whether the running task's tick may change its group's weight here.
    pub(in crate::linux) fn shares_change(&self, rq: &Rq) -> bool {
        self.smp.get().is_some() && rq.entity(rq.curr).queue != ROOT
    }

    /// Gives the groups above a fair task their part of the group's weight, from near to far.
    #[inline]
    pub(in crate::linux) fn share_out(&self, env: Env<'_>, rq: &mut Rq, id: EntityId) {
        if rq.entity(id).queue != ROOT && rq.entity(id).class == Class::Fair {
            self.share_out_above(env, rq, id);
        }
    }

    fn share_out_above(&self, env: Env<'_>, rq: &mut Rq, id: EntityId) {
        let mut queue = rq.entity(id).queue;
        while queue != ROOT {
            if !rq.queue(queue).throttled {
                self.reweigh(env, rq, queue);
            }
            queue = rq.entity(rq.queue(queue).owner).queue;
        }
    }

    /// Gives a group's entity on this CPU the weight that it has now.
    pub(in crate::linux) fn reweigh(&self, env: Env<'_>, rq: &mut Rq, queue: QueueId) {
        let view = env.cx.group(rq.queue(queue).group);
        let whole = weight(view.weight, view.idle);
        let load = match self.smp.get() {
            None => whole,
            Some(smp) => match part(env, smp, rq.queue_mut(queue), whole) {
                Some(part) => part,
                None => return,
            },
        };
        let owner = rq.queue(queue).owner;
        let old = rq.entity(owner).load.weight();
        if old != load.weight() {
            F::reweight(env, rq, owner, load);
            if self.smp.get().is_some() {
                carry_average(rq, owner, old);
            }
        }
    }

    /// Reports the loads of all queues of a CPU that balances (`update_blocked_averages`): a queue
    /// that was emptied is looked at by nothing else. The clock of a throttled one is stopped.
    pub(in crate::linux) fn report_all(&self, cx: &Cx<'_>, smp: &Smp, cpu: CpuId) {
        if !smp.has_groups() {
            return;
        }
        let env = &self.env(cx);
        let mut rq = self.rqs[cpu.index()].lock();
        for queue in ROOT + 1..rq.queues() {
            let q = rq.queue_mut(queue);
            // It is a division whether the load has changed enough.
            if (q.nr > 0 || q.reported > 0) && q.throttle_count == 0 && may_report(env, q) {
                report(env, smp, q);
            }
        }
    }

    /// A tick of a busy CPU: once in 32 ms the loads of the idle ones are looked at
    /// (`nohz_balancer_kick`: `NOHZ_STATS_KICK`). Only weights of groups depend on it, so only a
    /// CPU with a group's task, none of whose ticks is left out, does it.
    pub(in crate::linux) fn look_at_idle(&self, cx: &Cx<'_>, cpu: CpuId) {
        let Some(smp) = self.smp.get() else { return };
        let due = smp.has_groups() && cx.now.0 >= smp.next_blocked.load(Relaxed);
        if !due || smp.summary.idle_cpus() == 0 {
            return;
        }
        let grouped = {
            let rq = self.rqs[cpu.index()].lock();
            rq.curr_of(Class::Fair).is_some() && self.shares_change(&rq)
        };
        if grouped {
            smp.next_blocked.store(cx.now.0 + BLOCKED_NS, Relaxed);
            let online = smp.online();
            let idle = online.iter().filter(|&other| smp.summary.idle(other));
            idle.for_each(|other| self.report_all(cx, smp, other));
        }
    }

    /// Weight or `cpu.idle` of a group changed.
    pub(in crate::linux) fn weight_changed(&self, env: Env<'_>, rq: &mut Rq, group: GroupId) {
        let Some(&queue) = rq.queue_of_group.get(group.index()) else { return };
        if queue != NONE && queue != ROOT {
            self.reweigh(env, rq, queue);
        }
    }
}

/// The weight of a group on a CPU whose queue is `q`, when that of the whole group is `whole`;
/// `None`: it stays as it is.
fn part(env: Env<'_>, smp: &Smp, q: &mut Queue, whole: Load) -> Option<Load> {
    let average = report(env, smp, q);
    let here = q.load.weight().max(average);
    let sum = smp.group_load[q.group.index()].load(Relaxed) - q.reported + here;
    if sum == 0 || q.nr == 0 && env.t.version.empty_groups_keep_their_weight() {
        return None;
    }
    Some(match share(whole.weight(), here, sum) {
        all if all == whole.weight() => whole,
        part => Load::from_weight(part),
    })
}

/// Lets the average load of the queue above follow the new weight of a group's entity at once
/// (`reweight_entity`: `dequeue_load_avg`, `enqueue_load_avg`).
fn carry_average(rq: &mut Rq, owner: EntityId, old: u64) {
    let now = rq.wall;
    let entity = rq.entity(owner);
    let on = entity.signal.peek(now);
    let (before, after) = (on.load_avg(old), on.load_avg(entity.load.weight()));
    let q = rq.queue_mut(rq.entity(owner).queue);
    let (load, mut inputs) = (q.load.weight(), q.signal.inputs());
    let pelt = q.signal.at(now);
    pelt.attach(after.saturating_sub(before), 0, 0);
    pelt.detach(before.saturating_sub(after), 0, 0);
    inputs.load = load;
    q.signal.set(Moment::new(now), inputs);
}

/// Tells the group the load of one of its queues if that has changed enough
/// (`update_tg_load_avg`). Returns the load.
fn report(env: Env<'_>, smp: &Smp, q: &mut Queue) -> u64 {
    let now = env.cx.now;
    let average = q.signal.peek(now).load_avg(1);
    if average.abs_diff(q.reported) > q.reported / 64 && may_report(env, q) {
        let everywhere = &smp.group_load[q.group.index()];
        let sum = everywhere.load(Relaxed) + average - q.reported;
        everywhere.store(sum, Relaxed);
        (q.reported, q.reported_at) = (average, now);
    }
    average
}

/// Whether the last report is old enough.
#[inline]
fn may_report(env: Env<'_>, q: &Queue) -> bool {
    !env.t.version.reports_once_a_ms() || env.cx.now >= q.reported_at + Ns::from_ms(1)
}

/// A CPU's part of a group's weight, when `here` of the group's load `sum` is on it.
fn share(shares: u64, here: u64, sum: u64) -> u64 {
    (shares * here / sum.max(1)).clamp(2.min(shares), shares)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::core::smp::{attach, load_at_root};
    use crate::linux::fair::pelt::TaskSignal;
    use crate::linux::tunables::Tunables;
    use crate::linux::version::V6_1;

    const NOW: Ns = Ns::from_ms(700);

    /// A group of weight 1024 with two hogs.
    fn two_hogs() -> (Rq, EntityId, EntityId) {
        let t = Tunables::new(V6_1, 2, &crate::Knobs::default());
        let mut rq = Rq::new(CpuId(0), &t);
        rq.wall = NOW;
        let mut entity = Entity::new(NONE, ROOT, 0);
        (entity.owns, entity.load) = (1, weight(None, false));
        let owner = rq.store(entity);
        rq.add_queue(Queue::new(GroupId(1), owner));
        let hogs = [0, 1].map(|task| {
            let mut hog = Entity::new(task, 1, 1);
            (hog.load, hog.signal) = (Load::from_weight(NICE_0), TaskSignal::start(NOW, 1024));
            let id = rq.store(hog);
            attach(&mut rq, id);
            id
        });
        (rq, owner, hogs[1])
    }

    fn load_of(rq: &Rq, queue: QueueId) -> u64 {
        rq.queue(queue).signal.peek(NOW).load_avg(1)
    }

    #[test]
    fn the_load_above_follows_the_weight_at_once() {
        let (mut rq, owner, _) = two_hogs();
        assert_eq!((load_of(&rq, ROOT), load_of(&rq, 1)), (1024, 2048), "a group counts once");
        rq.entity_mut(owner).load = Load::from_weight(64);
        carry_average(&mut rq, owner, 1024);
        assert_eq!((load_of(&rq, ROOT), load_of(&rq, 1)), (64, 2048));
    }

    /// Half of its group, however much the group weighs here.
    #[test]
    fn a_task_weighs_its_part_of_the_group() {
        let (mut rq, owner, hog) = two_hogs();
        assert_eq!(load_at_root(&rq, hog, 1024), 511, "of 1024, rounded down as in the kernel");
        rq.entity_mut(owner).load = Load::from_weight(64);
        assert_eq!((load_at_root(&rq, hog, 1024), load_at_root(&rq, hog, 0)), (31, 0));
    }

    #[test]
    fn a_share_is_between_2_and_the_whole() {
        assert_eq!(share(1024, 1024, 1024), 1024);
        assert_eq!(share(1024, 1024, 4096), 256);
        assert_eq!(share(1024, 5, 100_000), 2);
        assert_eq!(share(1024, 2048, 1024), 1024, "loads that were not reported yet");
        assert_eq!(weight(None, false).weight(), 1024);
        assert_eq!(weight(Some(1), false).weight(), 2);
        assert_eq!(weight(Some(5000), true).weight(), 3);
    }
}
