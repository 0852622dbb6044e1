//! CFS: the running task is the one with the least weighted run time, checked at ticks and wakeups
//! (2.6.24 … 6.5; the rules here are those of 6.1, and of 2.6.24, 2.6.32 and 3.0 where they
//! differ).
//!
//! Each entity has a *vruntime*: its run time, divided by its weight. The queue is sorted by it. At
//! a tick the running entity must go when it has run longer than its *slice* (its part, by weight,
//! of a period in which every task runs once), or when it is more than that ahead of the leftmost.
//! A task that wakes is placed up to half a period to the left of `min_vruntime`, and preempts if
//! it is more than the wakeup granularity behind.
//!
//! # Worked example
//! Two `yes` on one CPU of a machine with 8 CPUs or more, HZ=250 (the article's 16 ms). The scaling
//! factor is 4: `latency_ns` is 24 ms, a slice of two equal tasks 12 ms. Ticks come at 4, 8, 12, 16
//! ms. At the third tick the task has run 12 ms, which is not *more* than 12 ms; the fourth takes
//! the CPU away. So each runs 16 ms. With one CPU the factor is 1, the slice 3 ms, and the first
//! tick, at 4 ms, ends it. The test `two_hogs_alternate_as_in_the_table` runs this for every HZ and
//! number of CPUs of the specification.
//!
//! # Fidelity
//! Judged by the recorded choices of 6.1.192 (`cargo xtask oracle --replay`: 99.5 % equal, the rest
//! are ties of a few µs) and by its shares and waits (`cargo xtask oracle`).
//!
//! | rule | real place (6.1, `kernel/sched/fair.c`) | here | test |
//! |---|---|---|---|
//! | vruntime by weight | `calc_delta_fair` | modelled, with its rounding | `shares_converge_to_weights` |
//! | slice | `sched_slice`, ALT_PERIOD, BASE_SLICE | modelled; the division is exact, where the kernel's inverse of a sum loses ns | `two_hogs_alternate_as_in_the_table` |
//! | slice of SCHED_IDLE beside others | `idle_min_granularity_ns` | modelled | `golden_values_of_6_1` (G8) |
//! | check at the tick | `check_preempt_tick` | modelled | `golden_values_of_6_1` |
//! | run time counts from the pick of a *different* entity | `pick_next_task_fair`, `set_next_entity` | modelled | oracle replay |
//! | `min_vruntime` | `update_min_vruntime` | modelled | `vruntimes_stay_together` |
//! | placement of sleepers and of new tasks | `place_entity`, `task_fork_fair` | modelled | `a_sleeper_preempts_a_hog_at_once` |
//! | the debt of a new task without a parent | `task_fork_fair` runs on the forking task's CPU, which that task keeps busy | counted on the queue it comes to as that is: alone there it owes a whole period, so a light task among heavy ones may wait for seconds | `a_light_task_pays_a_whole_period_before_it_runs` |
//! | a sleep of more than 104 days | `entity_is_long_sleeper` | omitted: no run is that long | |
//! | wakeup preemption, scaled by the wakee's weight; IDLE and BATCH | `check_preempt_wakeup` | modelled | oracle replay |
//! | buddies: next, last, skip | `set_next_buddy`, `set_last_buddy`, `yield_task_fair` | modelled | `a_yielding_task_lets_the_next_one_run` |
//! | vruntime between CPUs | `migrate_task_rq_fair` | modelled (relative to `min_vruntime`) | `no_task_is_lost_in_6_1` |
//! | nice change | `reweight_entity`, `prio_changed_fair` | modelled | `no_task_is_lost_in_6_1` |
//! | HRTICK, DOUBLE_TICK | `hrtick_start_fair` | modelled | `hrtick_ends_slices_exactly` |
//! | interrupt time is not charged | `update_rq_clock_task` | omitted: the driver's interrupts are part of the task | |
//! | stolen time is not charged | same | modelled, in whole | |
//! | core scheduling | `CONFIG_SCHED_CORE` | omitted | |
//! | 2.6.24: period stretched from 5 tasks on, full credit, granularity by the running task, child first, no buddies, no check of the lead | `sched_fair.c` | modelled | `two_hogs_alternate_as_in_the_table`, `old_cfs_differs_where_the_table_says` |
//! | 2.6.32, 3.0: slices, half credit, buddies, skip buddy from 3.0 on | `sched_fair.c` | modelled | `linsched_2_6_32_three_hogs` |
//! | sched_compat_yield, TREE_AVG, sleeper fairness switches of 2.6.24 … 2.6.32 | | omitted | |
//! | placement at wakeup and balancing before 5.x (load of queues instead of PELT) | `select_task_rq_fair`, `load_balance` | simplified: the rules of 6.1 | |

use crate::linux::Env;
use crate::linux::core::rq::{EntityId, LONG_AGO, NONE, Queue, QueueId, ROOT, Rq};
use crate::linux::fair::weights::Load;
use crate::linux::fair::{Dequeue, Enqueue, FairRules, matching};
use crate::linux::tunables::Tunables;
use crate::linux::version::Feature;
use schedlab_model::Policy;

/// Rules of CFS.
pub(in crate::linux) struct Cfs;

impl FairRules for Cfs {
    #[inline]
    fn update_curr(_env: Env<'_>, rq: &mut Rq, queue: QueueId) {
        let now = rq.clock;
        let curr = rq.queue(queue).curr;
        if curr == NONE {
            return;
        }
        let entity = rq.entity_mut(curr);
        let delta = now.saturating_sub(entity.exec_start);
        if delta == 0 {
            return;
        }
        entity.exec_start = now;
        entity.ran_on(delta);
        entity.vruntime += entity.load.virt(delta) as i64;
        update_min_vruntime(rq, queue);
    }

    fn update_curr_ticks(
        _env: Env<'_>,
        rq: &mut Rq,
        queue: QueueId,
        first: u64,
        ticks: u64,
        tick_ns: u64,
    ) {
        let curr = rq.queue(queue).curr;
        if curr == NONE {
            return;
        }
        let entity = rq.entity_mut(curr);
        let head = first.saturating_sub(entity.exec_start);
        let tail = tick_ns * (ticks - 1);
        entity.exec_start += head + tail;
        entity.ran_on(head + tail);
        // Each tick rounds its virtual time by itself.
        entity.vruntime +=
            (entity.load.virt(head) + entity.load.virt(tick_ns) * (ticks - 1)) as i64;
        update_min_vruntime(rq, queue);
    }

    fn enqueue(env: Env<'_>, rq: &mut Rq, id: EntityId, why: Enqueue) {
        let queue = rq.entity(id).queue;
        let running = rq.queue(queue).curr == id;
        let base = rq.queue(queue).min_vruntime;
        if running {
            make_absolute(rq, id, base);
        }
        Cfs::update_curr(env, rq, queue);
        let base = rq.queue(queue).min_vruntime;
        make_absolute(rq, id, base);
        let (weight, idle) = (rq.entity(id).load.weight(), rq.entity(id).idle);
        let account = rq.queue_mut(queue);
        account.load.add(weight);
        account.nr += 1;
        account.idle_nr += u32::from(idle);
        if why == Enqueue::Wake {
            place_sleeper(env.t, rq, id);
        }
        if !running {
            let key = rq.entity(id).vruntime;
            rq.queue_mut(queue).insert(key, id);
        }
        rq.entity_mut(id).on_rq = true;
    }

    fn dequeue(env: Env<'_>, rq: &mut Rq, id: EntityId, why: Dequeue) -> bool {
        let queue = rq.entity(id).queue;
        Cfs::update_curr(env, rq, queue);
        clear_buddies(rq, id);
        let (key, weight, idle) = {
            let entity = rq.entity_mut(id);
            entity.on_rq = false;
            (entity.vruntime, entity.load.weight(), entity.idle)
        };
        let account = rq.queue_mut(queue);
        if account.curr != id {
            account.remove(key, id);
        }
        account.load.sub(weight);
        account.nr -= 1;
        account.idle_nr -= u32::from(idle);
        if why == Dequeue::Save {
            let base = account.min_vruntime;
            make_relative(rq, id, base);
        }
        update_min_vruntime(rq, queue);
        true
    }

    fn wake_delayed(_env: Env<'_>, _rq: &mut Rq, _id: EntityId) {
        debug_assert!(false, "CFS delays no dequeue");
    }

    #[inline]
    fn pick(env: Env<'_>, rq: &mut Rq, queue: QueueId) -> Option<EntityId> {
        let q = rq.queue(queue);
        let curr = (q.curr != NONE && rq.entity(q.curr).on_rq).then_some(q.curr);
        let before = |a: EntityId, b: EntityId| rq.entity(a).vruntime < rq.entity(b).vruntime;
        let first = q.leftmost().map(|w| w.entity);
        let left = match (first, curr) {
            (Some(first), Some(curr)) if before(curr, first) => curr,
            (Some(first), _) => first,
            (None, Some(curr)) => curr,
            (None, None) => return None,
        };
        let near = |entity: EntityId| wants_preempt(env.t, rq, entity, left) < 1;
        if q.next != NONE && near(q.next) {
            return Some(q.next);
        }
        if q.last != NONE && near(q.last) {
            return Some(q.last);
        }
        if q.skip == left {
            let second = if Some(left) == curr {
                first
            } else {
                match (q.second().map(|w| w.entity), curr) {
                    (Some(second), Some(curr)) if before(curr, second) => Some(curr),
                    (None, curr) => curr,
                    (second, _) => second,
                }
            };
            if let Some(second) = second.filter(|&second| near(second)) {
                return Some(second);
            }
        }
        Some(left)
    }

    #[inline]
    fn set_next(_env: Env<'_>, rq: &mut Rq, id: EntityId) {
        clear_buddies(rq, id);
        let now = rq.clock;
        let entity = rq.entity_mut(id);
        let (queue, key, queued) = (entity.queue, entity.vruntime, entity.on_rq);
        entity.exec_start = now;
        entity.begin_stint();
        let q = rq.queue_mut(queue);
        if queued && q.curr != id {
            q.remove(key, id);
        }
        q.curr = id;
    }

    #[inline]
    fn put_prev(env: Env<'_>, rq: &mut Rq, id: EntityId) {
        let queue = rq.entity(id).queue;
        let queued = rq.entity(id).on_rq;
        if queued {
            Cfs::update_curr(env, rq, queue);
        }
        let key = rq.entity(id).vruntime;
        let q = rq.queue_mut(queue);
        q.curr = NONE;
        if queued {
            q.insert(key, id);
        }
    }

    fn tick(env: Env<'_>, rq: &mut Rq, id: EntityId) {
        let queue = rq.entity(id).queue;
        Cfs::update_curr(env, rq, queue);
        if rq.queue(queue).nr < 2 || (rq.hrtick && !env.t.has(Feature::DOUBLE_TICK)) {
            return;
        }
        let ideal = slice(env.t, rq, id);
        let entity = rq.entity(id);
        let ran = entity.ran();
        let vruntime = entity.vruntime;
        if ran > ideal {
            rq.resched(env);
            clear_buddies(rq, id);
        } else if ran >= env.t.min_granularity && env.t.version.tick_checks_lead() {
            let ahead = rq.queue(queue).leftmost().map_or(0, |left| vruntime - left.key);
            if ahead > ideal as i64 {
                rq.resched(env);
            }
        }
    }

    fn tick_at(env: Env<'_>, rq: &Rq, id: EntityId) -> u64 {
        let entity = rq.entity(id);
        let q = rq.queue(entity.queue);
        if q.nr < 2 {
            return u64::MAX;
        }
        let ran = entity.ran();
        let ideal = slice(env.t, rq, id);
        // `ran > ideal` is true from this time on.
        let mut due = entity.exec_start + (ideal + 1).saturating_sub(ran);
        if let Some(left) = q.leftmost().filter(|_| env.t.version.tick_checks_lead()) {
            // `vruntime - left > ideal` is not true before this much more run time (rounded down).
            let short = (ideal as i64 - (entity.vruntime - left.key)).max(0) as u64;
            let granularity = env.t.min_granularity.saturating_sub(ran);
            let real = (u128::from(short) * u128::from(entity.load.weight()) / 1024) as u64;
            due = due.min(entity.exec_start + granularity.max(real.saturating_sub(real >> 12)));
        }
        due
    }

    fn wakeup_preempt(env: Env<'_>, rq: &mut Rq, curr: EntityId, woken: EntityId, new: bool) {
        if curr == woken {
            return;
        }
        let (task, scale) = (woken, rq.queue(rq.entity(curr).queue).nr >= env.t.nr_latency);
        let marked = env.t.has(Feature::NEXT_BUDDY) && scale && !new;
        if marked {
            set_buddy(rq, woken, |q| &mut q.next);
        }
        if rq.need_resched {
            return;
        }
        let (mut se, mut pse) = (curr, woken);
        let version = &env.t.version;
        let idle = |rq: &Rq, id: EntityId| {
            version.idle_policy_gives_way() && rq.entity(id).policy == Policy::Idle
        };
        if !idle(rq, curr) || idle(rq, task) {
            let waits = match rq.entity(task).policy {
                Policy::Idle => version.idle_policy_gives_way(),
                policy => policy != Policy::Other,
            };
            if waits || !env.t.has(Feature::WAKEUP_PREEMPTION) {
                return;
            }
            (se, pse) = matching(rq, se, pse);
            match (rq.entity(se).idle, rq.entity(pse).idle) {
                (true, false) => {}
                (false, true) => return,
                _ => {
                    let queue = rq.entity(se).queue;
                    Cfs::update_curr(env, rq, queue);
                    if wants_preempt(env.t, rq, se, pse) < 1 {
                        return;
                    }
                    if !marked && version.has_buddies() {
                        set_buddy(rq, pse, |q| &mut q.next);
                    }
                }
            }
        }
        rq.resched(env);
        if env.t.has(Feature::LAST_BUDDY)
            && scale
            && rq.entity(se).on_rq
            && rq.entity(se).owns == NONE
        {
            set_buddy(rq, se, |q| &mut q.last);
        }
    }

    fn yielded(env: Env<'_>, rq: &mut Rq, id: EntityId) {
        if rq.nr_running == 1 {
            return;
        }
        clear_buddies(rq, id);
        if rq.entity(id).policy != Policy::Batch {
            let queue = rq.entity(id).queue;
            Cfs::update_curr(env, rq, queue);
            rq.skip_clock = true;
        }
        if !env.t.version.yield_skips() {
            return;
        }
        let mut entity = id;
        while entity != NONE {
            let queue = rq.entity(entity).queue;
            rq.queue_mut(queue).skip = entity;
            entity = rq.parent(entity);
        }
    }

    fn slice_left(env: Env<'_>, rq: &Rq, id: EntityId) -> i64 {
        let entity = rq.entity(id);
        slice(env.t, rq, id) as i64 - entity.ran() as i64
    }

    fn fork(env: Env<'_>, rq: &mut Rq, id: EntityId, parent: Option<EntityId>) {
        let queue = rq.entity(id).queue;
        let curr = rq.queue(queue).curr;
        if curr != NONE && parent.is_some() {
            Cfs::update_curr(env, rq, queue);
            rq.entity_mut(id).vruntime = rq.entity(curr).vruntime;
        } else {
            rq.entity_mut(id).vruntime = LONG_AGO;
        }
        let base = rq.queue(queue).min_vruntime;
        let mut start = base;
        if env.t.has(Feature::START_DEBIT) {
            let slice = slice(env.t, rq, id);
            start += rq.entity_mut(id).load.virt(slice) as i64;
        }
        let entity = rq.entity_mut(id);
        entity.relative = false;
        entity.vruntime = entity.vruntime.max(start);
        if env.t.child_runs_first && curr != NONE && parent.is_some() {
            let (child, mother) = (rq.entity(id).vruntime, rq.entity(curr).vruntime);
            if mother < child {
                rq.entity_mut(id).vruntime = mother;
                rq.entity_mut(curr).vruntime = child;
                rq.resched(env);
            }
        }
        make_relative(rq, id, base);
    }

    fn reweight(env: Env<'_>, rq: &mut Rq, id: EntityId, load: Load) {
        let queue = rq.entity(id).queue;
        if rq.entity(id).on_rq {
            if rq.queue(queue).curr == id {
                Cfs::update_curr(env, rq, queue);
            }
            let old = rq.entity(id).load.weight();
            let sum = &mut rq.queue_mut(queue).load;
            sum.sub(old);
            sum.add(load.weight());
        }
        rq.entity_mut(id).load = load;
    }

    fn standing(rq: &Rq, id: EntityId) -> crate::Standing {
        let entity = rq.entity(id);
        crate::Standing {
            behind: rq.queue(entity.queue).min_vruntime - entity.vruntime,
            to_deadline: None,
        }
    }

    fn eligible(_rq: &Rq, _id: EntityId) -> bool {
        true
    }

    fn depart(_env: Env<'_>, rq: &mut Rq, id: EntityId) {
        let base = rq.queue(rq.entity(id).queue).min_vruntime;
        make_relative(rq, id, base);
    }
}

/// From "counted from a queue's base" to plain vruntime.
#[inline]
fn make_absolute(rq: &mut Rq, id: EntityId, base: i64) {
    let entity = rq.entity_mut(id);
    if entity.relative {
        entity.relative = false;
        entity.vruntime += base;
    }
}

/// The opposite of [`make_absolute`].
#[inline]
fn make_relative(rq: &mut Rq, id: EntityId, base: i64) {
    let entity = rq.entity_mut(id);
    if !entity.relative {
        entity.relative = true;
        entity.vruntime -= base;
    }
}

/// Moves `min_vruntime` up to the least vruntime, never down.
#[inline]
fn update_min_vruntime(rq: &mut Rq, queue: QueueId) {
    let q = rq.queue(queue);
    let curr = (q.curr != NONE && rq.entity(q.curr).on_rq).then(|| rq.entity(q.curr).vruntime);
    let least = match (curr, q.leftmost()) {
        (Some(curr), Some(left)) => curr.min(left.key),
        (Some(curr), None) => curr,
        (None, Some(left)) => left.key,
        (None, None) => return,
    };
    if least > q.min_vruntime {
        rq.queue_mut(queue).min_vruntime = least;
    }
}

/// A sleeper starts at most its credit to the left of `min_vruntime`.
fn place_sleeper(t: &Tunables, rq: &mut Rq, id: EntityId) {
    let base = rq.queue(rq.entity(id).queue).min_vruntime;
    let entity = rq.entity_mut(id);
    let mut credit = if entity.idle { t.min_granularity } else { t.latency };
    if entity.owns != NONE && !t.version.has_buddies() {
        // 2.6.24: tasks only.
        credit = 0;
    }
    if t.has(Feature::GENTLE_FAIR_SLEEPERS) {
        credit /= 2;
    }
    entity.vruntime = entity.vruntime.max(base - credit as i64);
}

/// Real time that `id` may run before others of its queue get their turn (`sched_slice`).
fn slice(t: &Tunables, rq: &Rq, id: EntityId) -> u64 {
    let entity = rq.entity(id);
    let own = rq.queue(entity.queue);
    let queued = entity.on_rq;
    let count = if t.has(Feature::ALT_PERIOD) { rq.queue(ROOT).h_nr } else { own.nr };
    let count = count + u32::from(!queued);
    let period = if count <= t.nr_latency {
        t.latency
    } else if let Some(tasks) = t.version.tasks_of_a_period() {
        t.latency * u64::from(count) / u64::from(tasks)
    } else {
        u64::from(count) * t.min_granularity
    };
    let (mut slice, mut level) = (period, id);
    while level != NONE {
        let entity = rq.entity(level);
        let own = entity.load.weight();
        let sum = rq.queue(entity.queue).load.weight() + if entity.on_rq { 0 } else { own };
        // Exact: the kernel's inverse of a sum loses a few ns, which its ticks, never quite on
        // time, hide.
        if own != sum {
            slice = slice * own / sum;
        }
        level = rq.parent(level);
    }
    if t.has(Feature::BASE_SLICE) {
        slice = slice.max(least_slice(t, own, entity.idle));
    }
    slice
}

/// The least slice: smaller for an idle entity beside others.
fn least_slice(t: &Tunables, queue: &Queue, idle: bool) -> u64 {
    if idle && !queue.only_idle() { t.idle_min_granularity } else { t.min_granularity }
}

/// 1: `to` is more than the wakeup granularity (in `to`'s virtual time) behind `from`; −1: not
/// behind.
#[inline]
fn wants_preempt(t: &Tunables, rq: &Rq, from: EntityId, to: EntityId) -> i32 {
    let target = rq.entity(to);
    let behind = rq.entity(from).vruntime - target.vruntime;
    let mut load =
        if t.version.wakeup_granularity_of_wakee() { target.load } else { rq.entity(from).load };
    if behind <= 0 {
        -1
    } else if behind > load.virt(t.wakeup_granularity) as i64 {
        1
    } else {
        0
    }
}

/// Forgets the buddy marks that point to `id`, level by level.
#[inline]
fn clear_buddies(rq: &mut Rq, id: EntityId) {
    let q = rq.queue(rq.entity(id).queue);
    if q.next == id || q.last == id || q.skip == id {
        clear_marks(rq, id);
    }
}

fn clear_marks(rq: &mut Rq, id: EntityId) {
    let buddies: [fn(&mut Queue) -> &mut EntityId; 3] =
        [|q| &mut q.next, |q| &mut q.last, |q| &mut q.skip];
    for buddy in buddies {
        let mut entity = id;
        while entity != NONE {
            let queue = rq.entity(entity).queue;
            let mark = buddy(rq.queue_mut(queue));
            if *mark != entity {
                break;
            }
            *mark = NONE;
            entity = rq.parent(entity);
        }
    }
}

/// Marks `id` as a buddy on every level; idle entities are never buddies.
fn set_buddy(rq: &mut Rq, id: EntityId, buddy: fn(&mut Queue) -> &mut EntityId) {
    let mut entity = id;
    while entity != NONE {
        if !rq.entity(entity).on_rq || rq.entity(entity).idle {
            return;
        }
        let queue = rq.entity(entity).queue;
        *buddy(rq.queue_mut(queue)) = entity;
        entity = rq.parent(entity);
    }
}
