//! The run queue of one CPU: its clock, its entities and the fair class's queues. Everything in it
//! is guarded by the CPU's one lock.

mod entity;
mod queue;

pub(in crate::linux) use entity::Entity;
pub(in crate::linux) use queue::Queue;

use crate::Cmd;
use crate::linux::Env;
use crate::linux::dl::{self, DlQueue};
use crate::linux::fair::pelt::Signal;
use crate::linux::fair::server::{FairServer, Wants};
use crate::linux::fair::{self, FairRules};
use crate::linux::fair_server_timer;
use crate::linux::rt::{self, RtQueue};
use crate::linux::tunables::Tunables;
use schedlab_model::{CpuId, GroupId, Ns, TaskId};
use std::mem::offset_of;

/// Index into [`Rq::entities`].
pub(in crate::linux) type EntityId = u32;
/// Number of a queue of a CPU; [`ROOT`] is its root queue.
pub(in crate::linux) type QueueId = u32;
/// No entity, queue or task.
pub(in crate::linux) const NONE: u32 = u32::MAX;
/// A vruntime to the left of every other: that of a task that slept for very long.
pub(in crate::linux) const LONG_AGO: i64 = i64::MIN / 4;
/// The root queue of the fair class.
pub(in crate::linux) const ROOT: QueueId = 0;

/// Classes, most urgent last. A lower one runs only when all higher ones have nothing to run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::linux) enum Class {
    /// CFS or EEVDF.
    Fair,
    /// FIFO and RR.
    Rt,
    /// SCHED_DEADLINE.
    Deadline,
}

/// The run queue of one CPU, kept with its lock [on a line](crate::OnLine). Behind the eight bytes
/// of the simulator's lock, what every decision touches fills three cache lines.
#[repr(C)]
pub(in crate::linux) struct Rq {
    /// Who runs; [`NONE`] = idle.
    pub(in crate::linux) curr: EntityId,
    /// Tasks queued and running, without throttled RT and deadline tasks.
    pub(in crate::linux) nr_running: u32,
    /// The run-queue clock without stolen time, ns. It moves only when a call refreshes it.
    pub(in crate::linux) clock: u64,
    /// When the clock was refreshed last.
    pub(in crate::linux) wall: Ns,
    /// Time of the first tick edge that is not, ns.
    pub(in crate::linux) next_edge: u64,
    /// Tasks and groups by [`EntityId`].
    pub(in crate::linux) entities: Vec<Entity>,
    // Second line.
    /// Queues of the fair class below the root, from number 1 on.
    groups: Vec<Queue>,
    /// Whose.
    pub(in crate::linux) cpu: CpuId,
    /// Tasks counted in `nr_running` that are `delayed`.
    pub(in crate::linux) delayed: u32,
    stamps: u32,
    pushed_to: CpuId,
    /// Stolen time that the clock leaves out, ns.
    steal: u64,
    /// RT tasks queued and running.
    pub(in crate::linux) rt_nr: u32,
    /// Deadline tasks that want the CPU, throttled ones included.
    pub(in crate::linux) dl_here: u32,
    /// The running task that balancing pushes away to `pushed_to`, or [`NONE`].
    pub(in crate::linux) pushed: u32,
    /// The next `schedule` does not refresh the clock: a wakeup asked for it and did so just
    /// before.
    pub(in crate::linux) skip_clock: bool,
    /// `schedule` was asked for and has not come yet.
    pub(in crate::linux) need_resched: bool,
    /// An RT task ran when the state was published last.
    pub(in crate::linux) rt_ran: bool,
    /// Others may still read a deadline of this CPU.
    pub(in crate::linux) dl_shown: bool,
    // Third line.
    /// The fair server (6.12+).
    pub(in crate::linux) fair_server: FairServer,
    /// Clock when the CPU became idle or its idle time was counted last, ns.
    pub(in crate::linux) idle_since: u64,
    // Fourth line, and two of the others behind it.
    /// The root queue of the fair class.
    top: Queue,
    // Rarely used.
    /// Tick edges that are accounted for.
    pub(in crate::linux) ticks_done: u64,
    /// The last of them was accounted for in its own instant, as left out; its tick may still come.
    pub(in crate::linux) counted_early: bool,
    /// The HRTICK timer is set.
    pub(in crate::linux) hrtick: bool,
    /// When it was to fire as it was set last, ns.
    pub(in crate::linux) hrtick_at: u64,
    free: Vec<EntityId>,
    /// Room for the tasks that balancing looks at, with their stamps.
    pub(in crate::linux) candidates: Vec<(u32, EntityId)>,
    /// By group: its queue here, or [`NONE`].
    pub(in crate::linux) queue_of_group: Vec<QueueId>,
    /// The RT class.
    pub(in crate::linux) rt: RtQueue,
    /// The deadline class.
    pub(in crate::linux) dl: DlQueue,
    /// Several CPUs: how much RT and deadline tasks use.
    pub(in crate::linux) rt_signal: Signal,
}

const _: () = assert!(
    offset_of!(Rq, groups) == 64 - 8
        && offset_of!(Rq, fair_server) == 2 * 64 - 8
        && offset_of!(Rq, top) == 3 * 64 - 8,
    "behind the lock, lines end where fields do"
);

impl Rq {
    /// An empty, idle one.
    pub(in crate::linux) fn new(cpu: CpuId, t: &Tunables) -> Rq {
        Rq {
            cpu,
            clock: 0,
            wall: Ns::ZERO,
            steal: 0,
            skip_clock: false,
            hrtick: false,
            hrtick_at: 0,
            need_resched: false,
            ticks_done: 0,
            counted_early: false,
            next_edge: 0,
            curr: NONE,
            nr_running: 0,
            entities: Vec::new(),
            free: Vec::new(),
            candidates: Vec::new(),
            groups: Vec::new(),
            top: Queue::new(GroupId::ROOT, NONE),
            queue_of_group: vec![ROOT],
            rt: RtQueue::new(),
            dl: DlQueue::default(),
            rt_signal: Signal::zero(Ns::ZERO),
            delayed: 0,
            pushed: NONE,
            pushed_to: CpuId(0),
            rt_nr: 0,
            rt_ran: false,
            dl_here: 0,
            dl_shown: false,
            stamps: 0,
            fair_server: FairServer::new(t.fair_server_runtime, t.fair_server_period),
            idle_since: 0,
        }
    }
    /// Refreshes the clock, after charging the tick edges that the driver left out. `in_tick`: the
    /// edge of this instant is being handled.
    #[inline]
    pub(in crate::linux) fn touch<F: FairRules>(&mut self, env: Env<'_>, in_tick: bool) {
        self.settle::<F>(env, in_tick);
        self.steal = env.cx.cpu(self.cpu).steal.get().0;
        self.clock = env.cx.now.0.saturating_sub(self.steal).max(self.clock);
    }
    /// `schedule` begins: refreshes the clock, if the wakeup that asked for it has not just done
    /// so. Edges since then, which an idle CPU does not have delivered, are none of the next
    /// task's.
    #[inline]
    pub(in crate::linux) fn touch_unless_skipped<F: FairRules>(&mut self, env: Env<'_>) {
        if !std::mem::take(&mut self.skip_clock) {
            self.touch::<F>(env, false);
        } else if self.curr == NONE {
            self.settle::<F>(env, false);
        }
    }
    /// Charges the tick edges that the driver left out, without refreshing the clock.
    #[inline]
    pub(in crate::linux) fn settle<F: FairRules>(&mut self, env: Env<'_>, in_tick: bool) {
        if env.cx.now.0 >= self.next_edge {
            self.catch_up::<F>(env, in_tick);
        }
        self.wall = env.cx.now;
    }
    fn catch_up<F: FairRules>(&mut self, env: Env<'_>, in_tick: bool) {
        let (now, tick) = (env.cx.now.0, env.cx.world.tick_ns.0);
        // Mostly it is one: no division.
        let (ticks, next) = if now - self.next_edge < tick && self.ticks_done > 0 {
            (self.ticks_done + 1, self.next_edge.saturating_add(tick))
        } else {
            let ticks = env.cx.ticks(self.cpu);
            (ticks, env.cx.world.tick_edge(self.cpu, ticks + 1).0)
        };
        let missed = (ticks - self.ticks_done).saturating_sub(u64::from(in_tick));
        if missed > 0 && self.curr != NONE {
            let first = self.next_edge.saturating_sub(self.steal);
            match self.entity(self.curr).class {
                Class::Fair => fair::charge_ticks::<F>(env, self, first, missed),
                Class::Deadline => dl::charge_ticks(env, self, first, missed),
                Class::Rt => {
                    let last = first + (missed - 1) * tick;
                    rt::charge_ticks(env, self, self.curr, missed, last);
                }
            }
        }
        // Another CPU's tick of the same instant may come here before this CPU's own is handled.
        self.counted_early = !in_tick && missed > 0 && self.curr != NONE && next - tick == now;
        self.ticks_done = ticks;
        self.next_edge = next;
    }
    /// The time, stolen time included, of a time of the run-queue clock.
    #[inline]
    pub(in crate::linux) fn to_wall(&self, at: u64) -> u64 {
        at.saturating_add(self.steal)
    }
    /// How many tick edges from now the first one at or after clock time `at` is, at least 1.
    #[inline]
    pub(in crate::linux) fn ticks_to(&self, env: Env<'_>, at: u64) -> u64 {
        self.ticks_to_wall(env, self.to_wall(at))
    }
    /// The same for a time that includes stolen time.
    #[inline]
    pub(in crate::linux) fn ticks_to_wall(&self, env: Env<'_>, at: u64) -> u64 {
        let next = if env.cx.now.0 < self.next_edge {
            self.next_edge
        } else {
            env.cx.world.tick_edge(self.cpu, env.cx.ticks(self.cpu) + 1).0
        };
        let (ahead, tick) = (at.saturating_sub(next), env.cx.world.tick_ns.0);
        // Mostly it is one of the next two: no division.
        match ahead {
            0 => 1,
            ahead if ahead <= tick => 2,
            ahead => 1 + ahead.div_ceil(tick),
        }
    }
    /// How many tick edges have passed that are not charged yet.
    #[inline]
    pub(in crate::linux) fn ticks_missed(&self, env: Env<'_>) -> u64 {
        if env.cx.now.0 < self.next_edge { 0 } else { env.cx.ticks(self.cpu) - self.ticks_done }
    }
    /// The running `task` is pushed away, to `to`.
    pub(in crate::linux) fn push_away(&mut self, task: u32, to: CpuId) {
        (self.pushed, self.pushed_to) = (task, to);
    }
    /// Where `task` was pushed to, once.
    #[inline]
    pub(in crate::linux) fn take_pushed(&mut self, task: u32) -> Option<CpuId> {
        if self.pushed != task {
            return None;
        }
        self.pushed = NONE;
        Some(self.pushed_to)
    }
    /// Asks the driver to call `schedule` for this CPU, once.
    #[inline]
    pub(in crate::linux) fn resched(&mut self, env: Env<'_>) {
        if !self.need_resched {
            self.need_resched = true;
            env.cx.push(Cmd::Resched(self.cpu));
        }
    }
    /// The fair queue is not empty any more.
    pub(in crate::linux) fn start_fair_server(&mut self, env: Env<'_>) {
        self.count_idle();
        let wants = self.fair_server.start(self.clock);
        self.carry_out(env, wants);
    }
    /// The fair queue became empty.
    pub(in crate::linux) fn stop_fair_server(&mut self, env: Env<'_>) {
        let wants = self.fair_server.stop();
        self.carry_out(env, wants);
    }
    /// A fair task ran for `delta` until `now`.
    #[inline]
    pub(in crate::linux) fn charge_fair_server(&mut self, env: Env<'_>, delta: u64, now: u64) {
        if self.fair_server.spend(delta) {
            let wants = self.fair_server.overdrawn(now);
            self.carry_out(env, wants);
        }
    }
    /// A fair task gave way to an RT one.
    pub(in crate::linux) fn fair_gave_way(&mut self, env: Env<'_>) {
        let wants = self.fair_server.gave_way(self.clock);
        self.carry_out(env, wants);
    }
    /// The fair server's timer fired.
    pub(in crate::linux) fn fair_server_fired(&mut self, env: Env<'_>) {
        let fair = self.queue(ROOT).h_nr > 0;
        let wants = self.fair_server.fired(self.clock, fair);
        self.carry_out(env, wants);
    }
    /// Counts the idle time up to now, if the CPU is idle.
    pub(in crate::linux) fn count_idle(&mut self) {
        if self.curr == NONE {
            self.fair_server.idle(self.clock.saturating_sub(self.idle_since));
        }
        self.idle_since = self.clock;
    }
    fn carry_out(&mut self, env: Env<'_>, wants: Wants) {
        if wants.resched {
            self.resched(env);
        }
        let timer = fair_server_timer(self.cpu);
        match wants.timer {
            // A timer is never served in the nanosecond of its expiry; on a machine without costs
            // this is what keeps the server's start off the tick's edge.
            Some(Some(at)) => env.cx.push(Cmd::Arm(timer, Ns(at.0 + self.steal + 1))),
            Some(None) => env.cx.push(Cmd::Disarm(timer)),
            None => {}
        }
    }
    /// Stores an entity and gives its id.
    pub(in crate::linux) fn store(&mut self, entity: Entity) -> EntityId {
        if let Some(id) = self.free.pop() {
            self.entities[id as usize] = entity;
            return id;
        }
        self.entities.push(entity);
        self.entities.len() as EntityId - 1
    }
    /// Takes an entity that is not queued out of the store.
    pub(in crate::linux) fn take(&mut self, id: EntityId) -> Entity {
        if self.entity(id).dl.is_some() {
            self.dl.forget(id);
            dl::reclaim::detach(self, id);
        }
        self.free.push(id);
        let gone = Entity::new(NONE, ROOT, 0);
        std::mem::replace(&mut self.entities[id as usize], gone)
    }
    /// The entity with this id.
    #[inline]
    pub(in crate::linux) fn entity(&self, id: EntityId) -> &Entity {
        &self.entities[id as usize]
    }
    /// The entity with this id.
    #[inline]
    pub(in crate::linux) fn entity_mut(&mut self, id: EntityId) -> &mut Entity {
        &mut self.entities[id as usize]
    }
    /// The queue with this id.
    #[inline]
    pub(in crate::linux) fn queue(&self, id: QueueId) -> &Queue {
        match id.checked_sub(1) {
            None => &self.top,
            Some(group) => &self.groups[group as usize],
        }
    }
    /// The queue with this id.
    #[inline]
    pub(in crate::linux) fn queue_mut(&mut self, id: QueueId) -> &mut Queue {
        match id.checked_sub(1) {
            None => &mut self.top,
            Some(group) => &mut self.groups[group as usize],
        }
    }
    /// The entities, and the root queue.
    #[inline(always)]
    pub(in crate::linux) fn root(&mut self) -> (&mut [Entity], &mut Queue) {
        (&mut self.entities, &mut self.top)
    }
    /// Whether it has fair tasks only, and others know that.
    #[inline]
    pub(in crate::linux) fn looks_fair(&self) -> bool {
        self.rt_nr == 0 && self.dl_here == 0 && !self.rt_ran && !self.dl_shown
    }
    /// Whether tasks are in the root queue only.
    #[inline(always)]
    pub(in crate::linux) fn is_flat(&self) -> bool {
        self.groups.is_empty()
    }
    /// How many queues there are.
    pub(in crate::linux) fn queues(&self) -> u32 {
        self.groups.len() as u32 + 1
    }
    /// Adds a queue and gives its number.
    pub(in crate::linux) fn add_queue(&mut self, queue: Queue) -> QueueId {
        self.groups.push(queue);
        self.groups.len() as QueueId
    }
    /// The group entity above `entity`, or [`NONE`] at the root.
    #[inline]
    pub(in crate::linux) fn parent(&self, entity: EntityId) -> EntityId {
        self.queue(self.entity(entity).queue).owner
    }
    /// Notes that a task was queued or runs now.
    #[inline]
    pub(in crate::linux) fn stamp(&mut self, id: EntityId) {
        self.stamped(id);
    }
    /// The same, and gives its entity.
    #[inline]
    pub(in crate::linux) fn stamped(&mut self, id: EntityId) -> &mut Entity {
        if self.stamps == u32::MAX {
            self.count_stamps_again();
        }
        self.stamps += 1;
        let entity = &mut self.entities[id as usize];
        entity.stamp = self.stamps;
        entity
    }
    /// The count of stamps has come to its end: the same order, from the start.
    #[cold]
    #[inline(never)]
    fn count_stamps_again(&mut self) {
        let mut stamps: Vec<&mut u32> =
            self.entities.iter_mut().map(|entity| &mut entity.stamp).collect();
        stamps.sort_unstable();
        let (mut before, mut count) = (0, 0);
        for stamp in stamps {
            // Entities that were never stamped here share the first.
            count += u32::from(std::mem::replace(&mut before, *stamp) != *stamp);
            *stamp = count;
        }
        self.stamps = count;
    }
    /// Whether the tasks of a queue may not run for want of bandwidth.
    #[inline]
    pub(in crate::linux) fn is_throttled(&self, queue: QueueId) -> bool {
        self.queue(queue).throttle_count > 0
    }
    /// Whether an RT task waits here that may run elsewhere.
    pub(in crate::linux) fn rt_movable(&self) -> bool {
        self.rt.waiting().any(|id| id != self.curr && !self.entity(id).pinned)
    }
    /// The running task's entity, when it belongs to this class.
    #[inline]
    pub(in crate::linux) fn curr_of(&self, class: Class) -> Option<EntityId> {
        (self.curr != NONE && self.entity(self.curr).class == class).then_some(self.curr)
    }
    /// The running task.
    #[inline]
    pub(in crate::linux) fn curr_task(&self) -> Option<TaskId> {
        (self.curr != NONE).then(|| TaskId(self.entity(self.curr).task))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::version::V6_18;

    #[test]
    fn stamps_keep_their_order_when_their_count_ends() {
        let cpu = CpuId(0);
        let t = Tunables::new(V6_18, 1, &crate::Knobs::default());
        let mut rq = Rq::new(cpu, &t);
        for task in 0..5 {
            rq.store(Entity::new(task, ROOT, 0));
        }
        rq.stamps = u32::MAX - 3;
        // No call has ever stamped 1.
        for id in [3, 0, 2, 4, 3] {
            rq.stamp(id);
        }
        let order = |rq: &Rq| {
            let mut ids: Vec<EntityId> = (0..5).collect();
            ids.sort_by_key(|&id| rq.entity(id).stamp);
            ids
        };
        assert_eq!(order(&rq), [1, 0, 2, 4, 3]);
        assert!(rq.stamps < 10, "counted from the start again: {}", rq.stamps);
        rq.stamp(1);
        assert_eq!(order(&rq), [0, 2, 4, 3, 1]);
    }
}
