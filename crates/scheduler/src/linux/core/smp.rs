//! What the CPUs of one machine share: the CPU summary, the domains, and the times of their next
//! balance. A machine with one CPU has none of it.

use crate::linux::balance::LONGEST_PER_CPU;
use crate::linux::balance::domains::{self, Domain, Domains, Level, Parts};
use crate::linux::balance::packing::Estimates;
use crate::linux::balance::placement::{Own, Placement, WakerFacts, Wakeup};
use crate::linux::core::cpu_summary::{CpuSummary, Facts, SharedSet, Turn};
use crate::linux::core::rq::{Class, Entity, EntityId, NONE, QueueId, ROOT, Rq};
use crate::linux::core::tick_edges::TickEdges;
use crate::linux::fair::FairRules;
use crate::linux::fair::pelt::{Inputs, Moment, SCALE, TaskSignal};
use crate::linux::tunables::Tunables;
use crate::linux::{Linux, dl};
use crate::{Cmd, Cx, Lock, Locks, Wake, WakeKind};
use schedlab_model::{CpuId, CpuSet, Policy, TaskId};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};

/// See the module.
#[derive(Debug)]
pub(in crate::linux) struct Smp {
    pub(in crate::linux) summary: CpuSummary,
    /// Delayed tasks count in `nr_running`.
    counts_delayed: bool,
    pub(in crate::linux) domains: Domains,
    pub(in crate::linux) edges: TickEdges,
    /// By CPU: when its next periodic balance is due, ns.
    pub(in crate::linux) next_balance: Box<[AtomicU64]>,
    /// By CPU: how long it is idle on average, ns.
    pub(in crate::linux) avg_idle: Box<[AtomicU64]>,
    /// When a busy CPU's tick may kick an idle one next, ns.
    pub(in crate::linux) next_kick: AtomicU64,
    /// The timer for it is set.
    pub(in crate::linux) kick_armed: AtomicBool,
    /// By domain and group: affinity prevented balance inside the group.
    pinned: Vec<Vec<AtomicBool>>,
    /// By group: the sum of the loads that its queues have reported.
    pub(in crate::linux) group_load: Box<[AtomicU64]>,
    /// When the loads of idle CPUs are looked at next, ns.
    pub(in crate::linux) next_blocked: AtomicU64,
    /// Where `cpumask_any_and_distribute` stopped last.
    distributed: AtomicU32,
    /// What tasks use of a CPU, where that is asked for.
    pub(in crate::linux) estimates: Estimates,
    /// The CPUs that are online.
    online: SharedSet,
    /// By CPU: the earliest deadline there, and the earliest of those that wait and may move.
    deadlines: Box<[[AtomicI64; 2]]>,
    /// A CPU on which a single RT task waits, below a deadline task, counts as overloaded.
    single_rt_overloads: bool,
    /// The longest time between two balances of a domain, ticks.
    pub(in crate::linux) longest_interval: u64,
}

/// Longest time that counts as idle, ns: twice the cost that one balance is assumed to have at
/// most.
const LONGEST_IDLE: u64 = 1_000_000;

impl Smp {
    /// Everything idle. `one_thread`: see [`Locks::ONE_THREAD`].
    pub(in crate::linux) fn new(cx: &Cx<'_>, t: &Tunables, one_thread: bool) -> Smp {
        let topology = &cx.world.topology;
        let highest = if t.smp.missing_domains { Level::Pkg } else { Level::Numa };
        let domains = Domains::up_to(topology, &CpuSet::ALL, Parts::of(cx.world), highest);
        let times = |value: u64| (0..topology.cpus()).map(|_| AtomicU64::new(value)).collect();
        let flags = |d: &Domain| d.groups.iter().map(|_| AtomicBool::new(false)).collect();
        let online = SharedSet::first(0);
        for cpu in domains.online.iter() {
            online.set(cpu, cx.cpu(cpu).online);
        }
        let longest_interval = LONGEST_PER_CPU * topology.cpus() as u64 / cx.world.tick_ns.0;
        let no_deadlines = |_| [AtomicI64::new(dl::NEVER), AtomicI64::new(dl::NEVER)];
        Smp {
            counts_delayed: t.version.counts_delayed(),
            online,
            single_rt_overloads: t.version.pushable_rt_overloads(),
            deadlines: (0..topology.cpus()).map(no_deadlines).collect(),
            summary: CpuSummary::new(topology.cpus(), &domains.caches()).of_threads(one_thread),
            next_balance: times(0),
            avg_idle: times(LONGEST_IDLE),
            estimates: Estimates::new(topology.cpus()),
            next_kick: AtomicU64::new(0),
            kick_armed: AtomicBool::new(false),
            group_load: cx.world.groups.iter().map(|_| AtomicU64::new(0)).collect(),
            next_blocked: AtomicU64::new(0),
            pinned: domains.all.iter().map(flags).collect(),
            domains,
            edges: TickEdges::new(cx.world),
            distributed: AtomicU32::new(u32::MAX),
            longest_interval: longest_interval.max(1),
        }
    }

    /// Whether there is any group but the root.
    #[inline]
    pub(in crate::linux) fn has_groups(&self) -> bool {
        self.group_load.len() > 1
    }

    /// Where `task` may run now.
    #[inline]
    pub(in crate::linux) fn allowed(&self, cx: &Cx<'_>, task: TaskId) -> CpuSet {
        cx.task(task).affinity.and(&self.online())
    }

    /// The CPUs that are online now.
    #[inline]
    pub(in crate::linux) fn online(&self) -> CpuSet {
        if self.all_online() { self.domains.online } else { self.online.get() }
    }

    /// Whether every CPU of the machine is online.
    #[inline]
    pub(in crate::linux) fn all_online(&self) -> bool {
        self.online.count() as usize == self.summary.cpus()
    }

    /// A CPU came or went.
    pub(in crate::linux) fn set_online(&self, cpu: CpuId, online: bool) {
        self.online.set(cpu, online);
    }

    /// Whether affinity prevented balance inside a group of a domain.
    pub(in crate::linux) fn pinned(&self, domain: usize, group: usize) -> bool {
        self.pinned[domain][group].load(Relaxed)
    }

    /// Tells the domain above `level` of `cpu` whether affinity prevents balance in this one.
    pub(in crate::linux) fn set_pinned(&self, cpu: CpuId, level: usize, pinned: bool) {
        if let Some(link) = self.domains.of_cpu[cpu.index()].get(level + 1) {
            self.pinned[link.domain][link.local].store(pinned, Relaxed);
        }
    }

    /// Any CPU of `set`, another one each time.
    pub(in crate::linux) fn any(&self, set: &CpuSet) -> Option<CpuId> {
        let from = self.distributed.load(Relaxed).wrapping_add(1);
        let cpu = domains::wrap(set, from).next()?;
        self.distributed.store(cpu.0, Relaxed);
        Some(cpu)
    }

    /// Publishes the state of `rq`, whose lock the caller holds.
    #[inline]
    pub(in crate::linux) fn publish(&self, rq: &mut Rq) {
        let urgent = rq.rt_nr > 0
            || rq.dl_here > 0
            || rq.curr != NONE && rq.entity(rq.curr).class > Class::Fair;
        self.publish_all(rq, Moment::new(rq.wall), urgent);
    }

    /// The same of one that is [`plain`](super::plain). `wall`: the run queue's.
    #[inline(always)]
    pub(in crate::linux) fn publish_plain(&self, rq: &mut Rq, wall: Moment) {
        self.publish_all(rq, wall, false);
    }

    /// `urgent`: RT or deadline tasks are here.
    #[inline(always)]
    fn publish_all(&self, rq: &mut Rq, wall: Moment, urgent: bool) {
        let (cpu, now, delayed) = (rq.cpu, rq.wall, rq.delayed);
        let (all, busy) = (rq.nr_running, rq.curr != NONE);
        let nr_running = if self.counts_delayed { all } else { all.saturating_sub(delayed) };
        // They may have left a moment ago.
        let urgent = urgent | rq.rt_ran | rq.dl_shown;
        let root = rq.queue_mut(ROOT);
        let fair = root.h_nr.saturating_sub(delayed);
        let running = root.curr != NONE;
        let inputs = Inputs { load: root.load.weight(), runnable: u64::from(fair), running };
        root.signal.set(wall, inputs);
        let moved = root.signal.take_moved();
        // `sched_idle_cpu` counts delayed tasks too: a CPU on which another task is delayed behind
        // SCHED_IDLE work does not look like an idle one.
        let fair_idle = if all == root.idle_h_nr { nr_running } else { 0 };
        let delayed = if self.counts_delayed { delayed.min(255) as u8 } else { 0 };
        let turn = if urgent {
            if moved {
                self.summary.publish_fair(cpu, &root.signal);
            }
            let facts = Facts { nr_running, busy, fair, delayed, fair_idle, ..Facts::default() };
            self.publish_urgent(rq, facts)
        } else {
            let facts = Facts::packed_fair(nr_running, fair, delayed, fair_idle, busy);
            self.summary.publish_plain(cpu, now, moved.then_some(&root.signal), facts)
        };
        match turn {
            Turn::None => {}
            Turn::Idles => self.idles(cpu),
            Turn::Yields => self.next_balance[cpu.index()].store(now.0, Relaxed),
            Turn::Works => {
                let idle = now.saturating_sub(self.summary.idle_since(cpu)).0;
                let average = &self.avg_idle[cpu.index()];
                let old = average.load(Relaxed);
                average.store(((7 * old + idle) / 8).min(LONGEST_IDLE), Relaxed);
            }
        }
    }

    /// The rest where RT or deadline tasks are, or were a moment ago.
    #[inline(never)]
    fn publish_urgent(&self, rq: &mut Rq, mut facts: Facts) -> Turn {
        if rq.dl_here > 0 || rq.dl_shown {
            self.publish_deadlines(rq);
        }
        if rq.rt_nr > 0 || rq.rt_ran || rq.curr != NONE && rq.entity(rq.curr).class > Class::Fair {
            self.publish_rt(rq, &mut facts);
        }
        self.summary.publish(rq.cpu, rq.wall, &facts)
    }

    /// Earliest deadline of a CPU, and the earliest one of those that wait there and may move.
    #[inline]
    pub(in crate::linux) fn deadlines(&self, cpu: CpuId) -> (i64, i64) {
        let [earliest, waiting] = &self.deadlines[cpu.index()];
        (earliest.load(Relaxed), waiting.load(Relaxed))
    }

    /// The part of the deadline class.
    fn publish_deadlines(&self, rq: &mut Rq) {
        let (earliest, waiting) = dl::facts(rq);
        let [e, w] = &self.deadlines[rq.cpu.index()];
        e.store(earliest, Relaxed);
        w.store(waiting, Relaxed);
        rq.dl_shown = earliest != dl::NEVER;
    }

    /// The part of the RT and the deadline class.
    fn publish_rt(&self, rq: &mut Rq, facts: &mut Facts) {
        let curr = (rq.curr != NONE).then(|| rq.entity(rq.curr)).filter(|e| e.class > Class::Fair);
        facts.rt_runs = curr.map_or(0, |e| e.rt_priority);
        facts.rt_pinned = curr.is_some_and(|e| e.pinned);
        facts.rt_best = match rq.dl.first() {
            Some(_) => 100,
            None if rq.rt.throttled => 0,
            None => rq.rt.best(),
        };
        facts.rt_overloaded = (rq.rt_nr > 1 || self.single_rt_overloads) && rq.rt_movable();
        rq.rt_ran = facts.rt_runs > 0;
        rq.rt_signal.set(Moment::new(rq.wall), Inputs { running: rq.rt_ran, ..Inputs::default() });
        if rq.rt_signal.take_moved() {
            self.summary.publish_rt(rq.cpu, &rq.rt_signal);
        }
    }

    /// `cpu` has become idle: so may have its core.
    fn idles(&self, cpu: CpuId) {
        if !self.domains.has_smt {
            return;
        }
        let core = &self.domains.smt[cpu.index()];
        if core.iter().all(|cpu| self.summary.idle(cpu)) {
            self.summary.set_idle_core(self.domains.llc_id[cpu.index()], true);
        }
    }
}

impl<L: Locks, F: FairRules> Linux<L, F> {
    /// Whether `task` may run on `cpu` now.
    pub(in crate::linux) fn usable(&self, cx: &Cx<'_>, task: TaskId, cpu: CpuId) -> bool {
        cx.task(task).affinity.contains(cpu) && cx.cpu(cpu).online
    }

    /// Brings the load signals of a fair task, and of the groups above it, up to date after a
    /// change. (The root's follow when the queue is published.)
    #[inline]
    pub(in crate::linux) fn track(&self, rq: &mut Rq, id: EntityId) {
        if id == NONE || self.rqs.len() == 1 {
            return;
        }
        let (now, running) = (rq.wall, rq.curr == id);
        let entity = rq.entity_mut(id);
        if entity.class != Class::Fair {
            return;
        }
        let on = entity.on_rq && !entity.delayed;
        entity.signal.set(Moment::new(now), on, on && running);
        if entity.queue != ROOT {
            track_groups(rq, id);
        }
    }

    /// As [`track`](Self::track) of a fair task of the root group that exists.
    #[inline(always)]
    pub(in crate::linux) fn track_plain(&self, rq: &mut Rq, id: EntityId, wall: Moment) {
        let running = rq.curr == id;
        self.track_entity(rq.entity_mut(id), running, wall);
    }

    /// The same of an entity at hand.
    #[inline(always)]
    pub(in crate::linux) fn track_entity(&self, entity: &mut Entity, running: bool, wall: Moment) {
        let on = entity.on_rq & !entity.delayed;
        entity.signal.set(wall, on, on & running);
    }

    /// The CPU on which `task`, last on `from`, is queued.
    pub(in crate::linux) fn select(
        &self,
        cx: &Cx<'_>,
        task: TaskId,
        from: CpuId,
        wake: Wake,
    ) -> CpuId {
        let Some(smp) = self.smp.get() else { return from };
        let allowed = smp.allowed(cx, task);
        if allowed.is_empty() {
            return from;
        }
        let placement = self.placement(cx, smp, task, &allowed);
        match wake.kind {
            WakeKind::Migrated => {
                if allowed.contains(from) {
                    from
                } else {
                    smp.any(&allowed).unwrap_or(from)
                }
            }
            _ if !cx.task(task).policy.is_fair() => {
                let near = placement.nearest(from);
                match cx.task(task).policy {
                    _ if near != from => near,
                    Policy::Deadline { .. } => self.select_dl(cx, smp, task, from),
                    _ => self.select_rt(cx, smp, task, from),
                }
            }
            WakeKind::New => match cx.task(task).began_on.filter(|cpu| allowed.contains(*cpu)) {
                Some(known) => known,
                None => placement.fork(from),
            },
            WakeKind::Wake => {
                let waker = self.waker_facts(cx, task, wake.sync);
                let wakeup = self.wakeup(cx, task, from, waker, wake.sync);
                let choice = placement.choose(&wakeup);
                if choice.asked_recent && wakeup.recent != from.0 {
                    self.note_recent(task, from);
                }
                choice.cpu
            }
        }
    }

    fn placement<'a>(
        &'a self,
        cx: &Cx<'_>,
        smp: &'a Smp,
        task: TaskId,
        allowed: &'a CpuSet,
    ) -> Placement<'a> {
        Placement {
            summary: &smp.summary,
            domains: &smp.domains,
            estimates: &smp.estimates,
            now: cx.now,
            allowed,
            beside_idle: cx.task(task).policy != Policy::Idle
                || !self.t.version.idle_tasks_avoid_each_other(),
            without: None,
            t: &self.t.smp,
        }
    }

    /// The running task becomes another program: if another CPU is idler, it goes on there
    /// (`sched_exec`). Those of other classes than the fair one stay.
    pub(in crate::linux) fn executes(&self, cx: &Cx<'_>, task: TaskId) {
        let (Some(smp), Some((from, id))) = (self.smp.get(), self.index.get(task)) else { return };
        let allowed = smp.allowed(cx, task);
        if !cx.task(task).policy.is_fair() || !allowed.contains(from) {
            return;
        }
        let env = &self.env(cx);
        let own = self.locked(from, |rq| {
            rq.touch::<F>(env, false);
            let entity = rq.entity(id);
            let average = entity.signal.peek(cx.now);
            let load = load_at_root(rq, id, average.load_avg(entity.load.weight()));
            let (util, runnable) = (average.util_avg(), average.runnable_avg());
            Own { cpu: from, load, util, runnable }
        });
        let placement = Placement { without: Some(own), ..self.placement(cx, smp, task, &allowed) };
        let to = placement.idlest(from);
        if to == from {
            return;
        }
        self.locked(from, |rq| {
            if rq.curr == id && rq.pushed == NONE {
                rq.push_away(task.0, to);
                cx.push(Cmd::Displace(task));
            }
        });
    }

    /// Notes on the running task of this CPU that it wakes `task`. Its load is given when it is
    /// about to block (`sync`); otherwise it is not asked for.
    #[inline]
    fn waker_facts(&self, cx: &Cx<'_>, task: TaskId, sync: bool) -> Option<WakerFacts> {
        let mut rq = self.rqs[cx.cpu.index()].lock();
        let id = rq.curr;
        if id == NONE {
            return None;
        }
        let entity = rq.entity_mut(id);
        let flips = entity.partners.woke(task.0, cx.now);
        let weight = entity.load.weight();
        let load = if sync { entity.signal.peek(cx.now).load_avg(weight) } else { 0 };
        let load = load_at_root(&rq, id, load);
        Some(WakerFacts { flips, load })
    }

    #[inline]
    fn wakeup(
        &self,
        cx: &Cx<'_>,
        task: TaskId,
        prev: CpuId,
        waker: Option<WakerFacts>,
        sync: bool,
    ) -> Wakeup {
        let mut rq = self.rqs[prev.index()].lock();
        let (mut load, mut util, mut flips, mut recent) = (0, 0, 0, u32::MAX);
        if let Some((_, id)) = self.index.get(task).filter(|(cpu, _)| *cpu == prev) {
            let entity = rq.entity_mut(id);
            let weight = entity.load.weight();
            // On its own CPU its load is compared with nothing. Elsewhere it counts as when the
            // task fell asleep: `task_h_load` reads an average that nothing decays until then.
            load = if prev == cx.cpu { 0 } else { entity.signal.last().load_avg(weight) };
            if self.t.smp.vcpu_pack != 0 {
                util = entity.signal.peek(cx.now).util_avg();
                util = self.smp.get().map_or(util, |smp| util.max(smp.estimates.of_task(task)));
            }
            flips = entity.partners.flips();
            recent = entity.partners.recent_cpu;
            load = load_at_root(&rq, id, load);
        }
        Wakeup { this: cx.cpu, prev, load, util, recent, flips, waker, sync }
    }

    /// A wakeup of `task`, last on `prev`, has looked at the CPU that it used before.
    fn note_recent(&self, task: TaskId, prev: CpuId) {
        let mut rq = self.rqs[prev.index()].lock();
        if let Some((_, id)) = self.index.get(task).filter(|(cpu, _)| *cpu == prev) {
            rq.entity_mut(id).partners.recent_cpu = prev.0;
        }
    }
}

/// Brings the load signals of the groups above a task up to date.
fn track_groups(rq: &mut Rq, id: EntityId) {
    let now = Moment::new(rq.wall);
    let mut queue = rq.entity(id).queue;
    while queue != ROOT {
        let q = rq.queue_mut(queue);
        let (load, runnable) = (q.load.weight(), u64::from(q.h_nr));
        q.signal.set(now, Inputs { load, runnable, running: q.curr != NONE });
        let owner = q.owner;
        queue = note_group(rq, owner, now);
    }
}

/// A group's entity came onto its queue or left it, maybe. Returns that queue.
fn note_group(rq: &mut Rq, owner: EntityId, now: Moment) -> QueueId {
    let entity = rq.entity_mut(owner);
    let on = entity.on_rq;
    entity.signal.set(now, on, false);
    entity.queue
}

/// The same of one that no task's [`track`](Linux::track) finds.
pub(in crate::linux) fn track_owner(rq: &mut Rq, owner: EntityId) {
    note_group(rq, owner, Moment::new(rq.wall));
}

/// What a task with average load `load` (on its own queue) weighs at the root (`task_h_load`).
pub(in crate::linux) fn load_at_root(rq: &Rq, id: EntityId, mut load: u64) -> u64 {
    let now = rq.wall;
    let mut queue = rq.entity(id).queue;
    // Mostly a wakeup asks for no load, and nothing is nothing of any group.
    while queue != ROOT && load > 0 {
        let q = rq.queue(queue);
        let whole = q.signal.peek(now).load_avg(1) + 1;
        let group = rq.entity(q.owner);
        load = load * group.signal.peek(now).load_avg(group.load.weight()) / whole;
        queue = group.queue;
    }
    load
}

/// A new task starts with full load, and with half of what its queue leaves of the CPU.
/// `by_weight`: no more than its weight's part of what the queue uses (since 6.10; before, weights
/// were multiplied by 1024 there, so that it was always half).
pub(in crate::linux) fn start(rq: &mut Rq, id: EntityId, by_weight: bool) {
    let now = rq.wall;
    let (weight, queue) = (rq.entity(id).load.weight(), rq.entity(id).queue);
    let sums = *rq.queue_mut(queue).signal.at(now);
    let used = sums.util_avg();
    let mut util = SCALE.saturating_sub(used) / 2;
    if by_weight && used > 0 {
        util = util.min(used * weight / (sums.load_avg(1) + 1));
    }
    rq.entity_mut(id).signal = TaskSignal::start(now, util);
}

/// A new task has come to the CPU on which it begins: its averages follow from the queue there, not
/// from that of its parent's CPU (`post_init_entity_util_avg` in `wake_up_new_task`).
pub(in crate::linux) fn begin(rq: &mut Rq, id: EntityId, by_weight: bool) {
    detach(rq, id);
    start(rq, id, by_weight);
    attach(rq, id);
}

/// The load that a task, not queued, left on its CPU comes along to this one (or is there for the
/// first time).
pub(in crate::linux) fn attach(rq: &mut Rq, id: EntityId) {
    share(rq, id, true);
}

/// The opposite of [`attach`].
pub(in crate::linux) fn detach(rq: &mut Rq, id: EntityId) {
    share(rq, id, false);
}

/// Adds or takes away a task's averages on every level. Above its own queue the load of a group
/// changes, which is its weight here by the part of the time in which it was runnable
/// (`propagate_entity_load_avg`).
fn share(rq: &mut Rq, id: EntityId, comes: bool) {
    if rq.entity(id).class != Class::Fair {
        return;
    }
    let wall = rq.wall;
    let now = Moment::new(wall);
    let entity = rq.entity_mut(id);
    let (weight, mut queue) = (entity.load.weight(), entity.queue);
    let task = entity.signal.at(now);
    let (runnable, util) = (task.runnable_avg(), task.util_avg());
    let load = task.load_avg(weight);
    let (mut more, mut less) = if comes { (load, 0) } else { (0, load) };
    loop {
        let q = rq.queue_mut(queue);
        let (owner, weight) = (q.owner, q.load.weight());
        let pelt = q.signal.at(wall);
        if comes {
            pelt.attach(more, runnable, util);
            pelt.detach(less, 0, 0);
        } else {
            pelt.attach(more, 0, 0);
            pelt.detach(less, runnable, util);
        }
        let sums = *pelt;
        if owner == NONE {
            return;
        }
        let group = rq.entity_mut(owner);
        let before = group.signal.at(now).load_avg(group.load.weight());
        if comes {
            group.signal.gains(&task, &sums);
        } else {
            group.signal.loses(&sums, weight);
        }
        let after = group.signal.at(now).load_avg(group.load.weight());
        (more, less) = (after.saturating_sub(before), before.saturating_sub(after));
        queue = group.queue;
    }
}
