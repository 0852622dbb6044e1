//! Control groups: the queue and the entity of each group on each CPU, and its part of the group's
//! weight.
//!
//! | rule | where the real system has it | here | test |
//! |---|---|---|---|
//! | every level is a queue of its own; the algorithm is recursive | `sched_entity.my_q` | modelled, in `fair` | `weights_share_one_cpu_and_nested_ones_too` |
//! | a CPU's part of the weight: shares x load here / load everywhere, from 2 to shares | `calc_group_shares` | modelled; weights have no 10 extra bits | `weights_hold_over_several_cpus` |
//! | the load here is the larger of the queue's weight and its average | same | modelled | same |
//! | loads are reported when they change by 1/64, since 6.7 once a millisecond | `update_tg_load_avg` | modelled | same |
//! | refreshed at enqueue, dequeue and every tick | `update_cfs_group` | modelled: no tick of a group's CPU is left out | `linux_groups` (both tick modes) |
//! | `cpu.idle` groups weigh as SCHED_IDLE; their tasks count as idle above | 5.15 | modelled | `an_idle_group_gets_the_rest` |
//! | autogroup: sessions are groups, if switched on | `kernel/sched/autogroup.c` | modelled: `GroupSpec::autogroup` | `sessions_share_regardless_of_nice` |
//! | a group's own minimum slice (EEVDF) | 6.12 | see `eevdf` | - |

use crate::Locks;
use crate::linux::core::rq::{Class, Entity, EntityId, NONE, Queue, QueueId, ROOT, Rq};
use crate::linux::fair::FairRules;
use crate::linux::fair::weights::{Load, NICE_0};
use crate::linux::{Env, Linux};
use schedlab_model::{GroupId, Ns};
use std::sync::atomic::Ordering::Relaxed;

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
            Some(smp) => {
                let now = env.cx.now;
                let q = rq.queue_mut(queue);
                let average = q.signal.peek(now).load_avg(1);
                let everywhere = &smp.group_load[q.group.index()];
                let rested =
                    !env.t.version.release.has_eevdf() || now >= q.reported_at + Ns::from_ms(1);
                if average.abs_diff(q.reported) > q.reported / 64 && rested {
                    let sum = everywhere.load(Relaxed) + average - q.reported;
                    everywhere.store(sum, Relaxed);
                    (q.reported, q.reported_at) = (average, now);
                }
                let here = q.load.weight().max(average);
                let sum = everywhere.load(Relaxed) - q.reported + here;
                if q.nr == 0 || sum == 0 {
                    return;
                }
                match share(whole.weight(), here, sum) {
                    all if all == whole.weight() => whole,
                    part => Load::from_weight(part),
                }
            }
        };
        let owner = rq.queue(queue).owner;
        if rq.entity(owner).load.weight() != load.weight() {
            F::reweight(env, rq, owner, load);
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

/// A CPU's part of a group's weight, when `here` of the group's load `sum` is on it.
fn share(shares: u64, here: u64, sum: u64) -> u64 {
    (shares * here / sum.max(1)).clamp(2.min(shares), shares)
}

#[cfg(test)]
mod tests {
    use super::*;

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
