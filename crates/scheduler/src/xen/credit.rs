//! Xen's Credit scheduler (`sched=credit`, the default until 4.11).
//!
//! Each domain earns credit in proportion to its weight once per time slice and its vCPUs burn it
//! while they run; a vCPU with credit left is UNDER, one in debt OVER, and one that wakes UNDER is
//! boosted above both.
//!
//! # Example
//! Two hogs on one pCPU alternate every 30 ms; each is dispatched with 150 or 0 credits (golden
//! vector G1, test `credit_two_hogs_alternate_every_slice`).
//!
//! # Fidelity
//! | rule | real system | here | test |
//! |---|---|---|---|
//! | charging, tick, accounting, caps | 4.7 … 4.22 | modelled, to the credit | decision logs of 4.15 and 4.20 |
//! | charging before accurate accounting | until 2010 | `accounting=sampled` | `d3_11_who_sleeps_over_the_tick_pays_nothing` |
//! | wake, BOOST, tickle, stealing, placement | 4.7 … 4.22 | modelled | decision logs |
//! | load-balance rate limit, YIELD not stolen | from 4.18 | by release | decision logs |
//! | kick-away and boost after unpark | up to 4.12 | by release, from the published description | none: no log of 4.12 |
//! | trylock failures while stealing | all | omitted: every lock attempt succeeds | |
//! | core scheduling, cpupools, tasklets | all | omitted | |
//! | locks | one per pCPU queue, one pool lock | one lock around everything | |

mod account;
mod placement;
mod queue;
pub(super) mod settings;

use super::common::{Core, Places, Table, Units, now};
use super::one_lock::XenRules;
use super::release::XenRelease;
use crate::{Change, Cmd, Cx, Knobs, Needs, Pick, Prev, Timer};
use schedlab_model::{CpuId, CpuSet, GroupId, Ns, TaskId};
use settings::Settings;
use std::collections::VecDeque;

const BOOST: i64 = 0;
const UNDER: i64 = -1;
const OVER: i64 = -2;
const IDLE: i64 = -64;

const ACCOUNTING: Timer = Timer::Global(0);
const TICK_SLOT: u8 = 0;
const MS: i64 = 1_000_000;

/// Credit's own state of a unit. What a decision touches comes first.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Unit {
    pri: i64,
    credit: i64,
    residual: i64,
    start: i64,
    last_run: i64,
    domain: GroupId,
    alive: bool,
    parked: bool,
    yielded: bool,
    placed: bool,
    active: bool,
    queued: bool,
    core: Core,
}

impl Unit {
    fn runnable(&self) -> bool {
        self.core.runnable() && !self.parked
    }
}

#[derive(Debug, Default)]
struct Domain {
    weight: i64,
    cap: i64,
    /// Active units, newest first.
    active: VecDeque<TaskId>,
}

#[derive(Debug)]
struct Pcpu {
    curr: Option<TaskId>,
    /// Queued units in order; the idle unit, last when it does not run, is not listed.
    queue: Vec<TaskId>,
    nr_runnable: i64,
    sort_seen: u64,
    idle_bias: CpuId,
    last_lb: i64,
    last_tickled: CpuId,
}

/// See the module.
pub(super) struct Credit {
    set: Settings,
    places: Option<Places>,
    units: Table<Unit>,
    domains: Vec<Domain>,
    pcpus: Vec<Pcpu>,
    pool: CpuSet,
    idlers: CpuSet,
    /// pCPUs with more than one runnable unit.
    crowded: CpuSet,
    /// pCPUs whose queue begins with a unit that is at least UNDER.
    urgent: CpuSet,
    /// Some unit has had a soft affinity that is worth a step of its own.
    any_soft: bool,
    /// Active domains, in the order in which accounting visits them.
    active: Vec<GroupId>,
    weight: i64,
    balance: i64,
    sort_epoch: u64,
    /// Per NUMA node: where stealing went on last.
    balance_bias: Vec<CpuId>,
}

impl Credit {
    pub(super) fn new(release: XenRelease, cpus: usize, knobs: &Knobs) -> Self {
        let set = Settings::new(release, knobs);
        let pool = CpuSet::first(cpus);
        let last = CpuId::from(cpus.max(1) - 1);
        let pcpu = |_| Pcpu {
            curr: None,
            queue: Vec::new(),
            nr_runnable: 0,
            sort_seen: 0,
            idle_bias: last,
            last_lb: 0,
            last_tickled: CpuId(0),
        };
        Credit {
            set,
            places: None,
            units: Table::new(),
            domains: Vec::new(),
            pcpus: (0..cpus).map(pcpu).collect(),
            pool,
            idlers: pool,
            crowded: CpuSet::EMPTY,
            urgent: CpuSet::EMPTY,
            any_soft: false,
            active: Vec::new(),
            weight: 0,
            balance: 0,
            sort_epoch: 0,
            balance_bias: Vec::new(),
        }
    }

    fn decide(&mut self, cx: &Cx<'_>, cpu: CpuId, why: Prev) -> Pick {
        let prev = self.pcpus[cpu.index()].curr;
        let mut slice = self.set.tslice;
        if let Some(task) = prev {
            if let Some(pick) = self.charge_prev(cx, task, why) {
                return pick;
            }
            if self.unit(task).runnable() {
                self.insert(cx, task);
            } else {
                self.count(cpu, -1);
                self.unit_mut(task).yielded = false;
            }
        }
        let next = self.choose(cx, cpu);
        if let Some(task) = prev {
            let unit = self.unit_mut(task);
            unit.start -= now(cx);
        }
        self.switch(cx, cpu, prev, next);
        if next.is_none() {
            slice = -1;
        }
        Pick {
            task: next,
            slice_ns: (slice >= 0).then_some(Ns(slice as u64)),
            note: next.map_or(IDLE, |task| self.unit(task).pri),
        }
    }

    fn unit(&self, task: TaskId) -> &Unit {
        &self.units[task]
    }

    fn unit_mut(&mut self, task: TaskId) -> &mut Unit {
        &mut self.units[task]
    }

    /// So many units more are runnable on `cpu`.
    fn count(&mut self, cpu: CpuId, more: i64) {
        let pcpu = &mut self.pcpus[cpu.index()];
        pcpu.nr_runnable += more;
        if pcpu.nr_runnable > 1 { self.crowded.insert(cpu) } else { self.crowded.remove(cpu) }
    }

    fn curr_pri(&self, cpu: CpuId) -> i64 {
        self.pcpus[cpu.index()].curr.map_or(IDLE, |task| self.unit(task).pri)
    }

    fn places(&self) -> &Places {
        self.places.as_ref().expect("init came first")
    }

    fn assign(&mut self, cx: &Cx<'_>, task: TaskId, cpu: CpuId) {
        self.unit_mut(task).core.cpu = cpu;
        cx.push(Cmd::Moved(task, cpu));
    }

    /// Reads weight and cap of every domain.
    fn read_domains(&mut self, cx: &Cx<'_>) {
        while self.domains.len() < cx.world.groups.len() {
            self.domains.push(Domain { weight: 256, ..Domain::default() });
        }
        for (index, view) in cx.world.groups.iter().enumerate() {
            let weight = i64::from(view.weight.unwrap_or(256)).clamp(1, 65_535);
            let domain = &mut self.domains[index];
            self.weight += (weight - domain.weight) * domain.active.len() as i64;
            domain.weight = weight;
            domain.cap = i64::from(view.cap_percent);
        }
    }

    /// Charges a running unit up to now: 1 credit is 100 µs.
    fn burn(&mut self, cx: &Cx<'_>, task: TaskId) {
        let sampled = self.set.sampled;
        let unit = self.unit_mut(task);
        let delta = now(cx) - unit.start;
        if delta <= 0 || sampled {
            return;
        }
        let charge = 10 * delta + unit.residual;
        unit.residual = charge % MS;
        unit.credit -= charge / MS;
        unit.start += charge / MS * 100_000;
        cx.did(crate::Work::Account, 1);
    }

    /// The unit became runnable: boost it, queue it, find it a pCPU.
    fn wake(&mut self, cx: &Cx<'_>, task: TaskId) {
        let unit = self.unit_mut(task);
        let cpu = unit.core.cpu;
        if unit.queued || self.pcpus[cpu.index()].curr == Some(task) {
            return;
        }
        let unit = self.unit_mut(task);
        let was_migrating = std::mem::take(&mut unit.placed);
        if !was_migrating && unit.pri == UNDER && !unit.parked {
            unit.pri = BOOST;
        }
        self.insert(cx, task);
        self.count(cpu, 1);
        self.tickle(cx, task);
    }

    /// Not runnable any more (cap, or it ended while queued).
    fn sleep(&mut self, cx: &Cx<'_>, task: TaskId) {
        let cpu = self.unit(task).core.cpu;
        if self.pcpus[cpu.index()].curr == Some(task) {
            cx.push(Cmd::Resched(cpu));
        } else if self.remove(task) {
            self.count(cpu, -1);
        }
    }

    /// Charges the unit that ran; the answer when the rate limit keeps it.
    fn charge_prev(&mut self, cx: &Cx<'_>, task: TaskId, why: Prev) -> Option<Pick> {
        self.burn(cx, task);
        let (ratelimit, now) = (self.set.ratelimit, now(cx));
        let unit = self.unit_mut(task);
        unit.last_run = now;
        unit.core.stopped(why);
        if why == Prev::Exited {
            unit.alive = false;
        }
        let ran = now - unit.core.entry;
        if unit.yielded || ratelimit == 0 || !unit.runnable() || ran >= ratelimit {
            return None;
        }
        // The guard below is meant to be 100 us in Xen; it compares with 100 ns.
        let slice = if ran < 100 { 100 } else { ratelimit - ran };
        Some(Pick { task: Some(task), slice_ns: Some(Ns(slice as u64)), note: unit.pri })
    }

    /// Books the outcome of a decision: idlers, tick, run marks.
    fn switch(&mut self, cx: &Cx<'_>, cpu: CpuId, prev: Option<TaskId>, next: Option<TaskId>) {
        let now = now(cx);
        if let Some(task) = next {
            let unit = self.unit_mut(task);
            unit.start += now;
            if prev != next {
                unit.core.running = true;
                unit.core.entry = now;
            }
            self.idlers.remove(cpu);
        } else {
            self.idlers.insert(cpu);
        }
        self.pcpus[cpu.index()].curr = next;
        let tick = Timer::Cpu(cpu, TICK_SLOT);
        match (prev, next) {
            (Some(_), None) => cx.push(Cmd::Disarm(tick)),
            (None, Some(_)) => {
                let period = self.set.tick();
                cx.push(Cmd::Arm(tick, Ns((now + period - now % period) as u64)));
            }
            _ => {}
        }
    }

    /// After an affinity change: a unit on a pCPU where it may not be any more goes elsewhere.
    fn leave_forbidden(&mut self, cx: &Cx<'_>, task: TaskId) {
        let unit = self.unit(task);
        let from = unit.core.cpu;
        if unit.core.hard.contains(from) {
            return;
        }
        if self.pcpus[from.index()].curr == Some(task) {
            cx.push(Cmd::Displace(task));
            return;
        }
        let queued = self.remove(task);
        let cpu = self.place(cx, task, true);
        self.assign(cx, task, cpu);
        if queued {
            self.count(from, -1);
            self.wake(cx, task);
        }
    }

    fn forget(&mut self, task: TaskId) {
        self.deactivate(task);
        let unit = self.unit_mut(task);
        unit.alive = false;
        unit.core.awake = false;
    }
}

impl Units for Credit {
    fn create(&mut self, cx: &Cx<'_>, task: TaskId) {
        if self.has(task) {
            return;
        }
        let view = cx.task(task);
        let core = Core::new(view, &self.pool);
        self.any_soft |= core.soft_useful();
        let unit = Unit {
            core,
            domain: view.group,
            alive: true,
            credit: 0,
            residual: 0,
            start: 0,
            pri: UNDER,
            last_run: 0,
            parked: false,
            yielded: false,
            placed: false,
            active: false,
            queued: false,
        };
        self.units.add(task, unit);
        let cpu = self.place(cx, task, true);
        self.assign(cx, task, cpu);
    }

    fn has(&self, task: TaskId) -> bool {
        self.units.has(task)
    }

    fn core_mut(&mut self, task: TaskId) -> &mut Core {
        &mut self.unit_mut(task).core
    }

    fn is_runnable(&self, task: TaskId) -> bool {
        self.unit(task).runnable()
    }

    fn insert_woken(&mut self, cx: &Cx<'_>, task: TaskId) {
        self.wake(cx, task);
    }

    fn take_asleep(&mut self, cx: &Cx<'_>, task: TaskId) {
        self.sleep(cx, task);
    }
}

impl XenRules for Credit {
    fn needs() -> Needs {
        Needs { cpu_timers: 1, global_timers: 1, ..super::needs() }
    }

    fn begin(&mut self, cx: &Cx<'_>) {
        let places = Places::from_topology(&cx.world.topology);
        self.balance_bias = (0..places.nodes).map(|_| CpuId(0)).collect();
        self.places = Some(places);
        cx.push(Cmd::Arm(ACCOUNTING, Ns(self.set.tslice as u64)));
        for cpu in 0..self.pcpus.len() {
            cx.push(Cmd::Arm(Timer::Cpu(cpu.into(), TICK_SLOT), Ns(self.set.tick() as u64)));
        }
        self.read_domains(cx);
        self.create_all(cx);
    }

    fn yielded(&mut self, task: TaskId) {
        self.unit_mut(task).yielded = true;
    }

    fn schedule(&mut self, cx: &Cx<'_>, cpu: CpuId, prev: Option<TaskId>, why: Prev) -> Pick {
        let pick = self.decide(cx, cpu, why);
        if why == Prev::Exited
            && let Some(task) = prev
        {
            self.forget(task);
        }
        pick
    }

    fn saved(&mut self, cx: &Cx<'_>, task: TaskId) {
        let unit = self.unit_mut(task);
        unit.core.running = false;
        unit.core.entry = now(cx);
        if std::mem::take(&mut unit.core.migrating) {
            let cpu = self.place(cx, task, true);
            self.assign(cx, task, cpu);
        }
    }

    fn timer(&mut self, cx: &Cx<'_>, timer: Timer) {
        match timer {
            Timer::Cpu(cpu, _) => self.tick(cx, cpu),
            _ => self.account(cx),
        }
    }

    fn affinity_changed(&mut self, cx: &Cx<'_>, task: TaskId) {
        let pool = self.pool;
        self.unit_mut(task).core.read_affinity(cx.task(task), &pool);
        self.any_soft |= self.unit(task).core.soft_useful();
        self.leave_forbidden(cx, task);
    }

    fn changed(&mut self, cx: &Cx<'_>, change: Change) {
        match change {
            Change::Created { task, .. } => {
                self.read_domains(cx);
                self.create(cx, task);
            }
            Change::Group(_) => self.read_domains(cx),
            Change::Affinity(task) => self.affinity_changed(cx, task),
            _ => {}
        }
    }

    fn resync(&mut self, cx: &Cx<'_>) {
        (self.crowded, self.urgent) = (CpuSet::EMPTY, CpuSet::EMPTY);
        for cpu in 0..self.pcpus.len() {
            let pcpu = &mut self.pcpus[cpu];
            pcpu.queue.clear();
            pcpu.curr = cx.world.cpus[cpu].current();
            pcpu.nr_runnable = i64::from(pcpu.curr.is_some());
            let idle = pcpu.curr.is_none();
            if idle { self.idlers.insert(cpu.into()) } else { self.idlers.remove(cpu.into()) }
        }
        for (index, view) in cx.world.tasks.iter().enumerate().filter(|(_, view)| view.alive) {
            let task = TaskId::from(index);
            self.create(cx, task);
            let unit = self.unit_mut(task);
            unit.queued = false;
            unit.core.awake = view.runnable() != crate::Runnable::No;
            if unit.runnable() && view.on_cpu().is_none() {
                self.wake(cx, task);
            }
        }
    }

    fn explain(&self, _cx: &Cx<'_>, cpu: CpuId) -> String {
        let pcpu = &self.pcpus[cpu.index()];
        format!(
            "credit {cpu}: curr {:?}, queue {:?}, nr_runnable {}",
            pcpu.curr, pcpu.queue, pcpu.nr_runnable
        )
    }
}
