//! Protection of the running entity: RUN_TO_PARITY and `vprot`.

use crate::linux::core::rq::{Entity, EntityId, Queue, Rq};
use crate::linux::tunables::Tunables;
use crate::linux::version::Feature;

/// Protection that an entity gets when it is switched in.
#[inline]
pub(super) fn protection(t: &Tunables, rq: &Rq, id: EntityId) -> i64 {
    let entity = rq.entity(id);
    protection_of(t, rq.queue(entity.queue), entity)
}

/// The same for an entity of `queue`.
#[inline]
pub(super) fn protection_of(t: &Tunables, queue: &Queue, entity: &Entity) -> i64 {
    if !t.version.eevdf_slice_protection() {
        return entity.deadline;
    }
    let mut slice = if t.has(Feature::RUN_TO_PARITY) {
        u64::from(queue.timeline.min_slice())
    } else {
        t.base_slice_unscaled
    };
    slice = slice.min(u64::from(entity.slice));
    let mut load = entity.load;
    if slice == u64::from(entity.slice) {
        entity.deadline
    } else {
        entity.deadline.min(entity.vruntime + load.virt(slice) as i64)
    }
}

/// Up to 6.16 protection ends with the request; later at a vruntime.
#[inline]
pub(super) fn is_protected(t: &Tunables, entity: &Entity) -> bool {
    if t.version.eevdf_slice_protection() {
        entity.protected_until() > entity.vruntime
    } else {
        entity.protected_until() == entity.deadline
    }
}

/// Whether an eligible running entity goes on whatever the others are.
#[inline]
pub(super) fn holds(t: &Tunables, entity: &Entity) -> bool {
    (t.version.eevdf_slice_protection() || t.has(Feature::RUN_TO_PARITY)) && is_protected(t, entity)
}

pub(super) fn cancel_protection(t: &Tunables, rq: &mut Rq, id: EntityId) {
    let entity = rq.entity_mut(id);
    if is_protected(t, entity) {
        let until =
            if t.version.eevdf_slice_protection() { entity.vruntime } else { entity.deadline + 1 };
        entity.protect_until(until);
    }
}

/// 6.17+: a shorter request arrived but does not win yet; it will not wait longer than it asks for.
pub(super) fn shrink_protection(rq: &mut Rq, id: EntityId) {
    let entity = rq.entity(id);
    let slice = u64::from(rq.queue(entity.queue).timeline.min_slice().min(entity.slice));
    let entity = rq.entity_mut(id);
    let until = entity.vruntime + entity.load.virt(slice) as i64;
    entity.protect_until(until.min(entity.protected_until()));
}
