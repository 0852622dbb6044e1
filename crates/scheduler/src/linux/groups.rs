//! Control groups: the queue and the entity of each group on each CPU.

use super::Env;
use super::fair::FairRules;
use super::rq::{Entity, NONE, Queue, QueueId, ROOT, Rq};
use super::weights::{Load, NICE_0};
use schedlab_model::GroupId;

/// The queue of `group` on this CPU; made, with those above it, when it is first needed.
pub(super) fn queue_of(env: Env<'_>, rq: &mut Rq, group: GroupId) -> QueueId {
    match rq.queue_of_group.get(group.index()) {
        Some(&queue) if queue != NONE => queue,
        _ => create(env, rq, group),
    }
}

fn create(env: Env<'_>, rq: &mut Rq, group: GroupId) -> QueueId {
    let view = env.cx.group(group);
    let Some(parent) = view.parent else { return ROOT };
    let above = queue_of(env, rq, parent);
    let depth = match rq.queue(above).owner {
        NONE => 0,
        owner => rq.entity(owner).depth + 1,
    };
    let queue = rq.queues.len() as QueueId;
    let mut entity = Entity::new(NONE, above, depth);
    entity.owns = queue;
    entity.idle = view.idle;
    entity.load = weight(view.weight, view.idle);
    let owner = rq.store(entity);
    rq.queues.push(Queue::new(group, owner));
    if rq.queue_of_group.len() <= group.index() {
        rq.queue_of_group.resize(group.index() + 1, NONE);
    }
    rq.queue_of_group[group.index()] = queue;
    queue
}

/// The weight of a whole group: `cpu.shares`, or that of SCHED_IDLE.
fn weight(shares: Option<u32>, idle: bool) -> Load {
    if idle { Load::IDLE } else { Load::of(u64::from(shares.unwrap_or(NICE_0 as u32)).clamp(2, 1 << 18)) }
}

/// Gives the group's entity on this CPU, if there is one, the weight that the group has now.
pub(super) fn reweigh<F: FairRules>(env: Env<'_>, rq: &mut Rq, group: GroupId) {
    let Some(&queue) = rq.queue_of_group.get(group.index()) else { return };
    if queue == NONE || queue == ROOT {
        return;
    }
    let (owner, view) = (rq.queue(queue).owner, env.cx.group(group));
    F::reweight(env, rq, owner, weight(view.weight, view.idle));
}
