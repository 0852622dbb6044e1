//! Xen's cpupools: parts of the host's pCPUs, each with a scheduler of its own.
//!
//! Written behind the scheduler of Pool-0: `xen-credit:tslice=5ms/2-3:xen-null` gives pCPUs 2 and 3
//! to a pool under null, and leaves the others to Credit. Each pool's scheduler sees a host of its
//! own: its pCPUs, numbered from 0, and its vCPUs.
//!
//! # Example
//! `xen-credit/2-3:xen-null` on four pCPUs: two domains with `cpus = "2-3"` have a pCPU each to
//! themselves, whatever the other domains do on 0 and 1 (test `a_pool_is_a_host_of_its_own`).
//!
//! # Fidelity
//! Read in `xen/common/sched/cpupool.c` and `core.c` of RELEASE-4.20.0.
//!
//! | rule | real place | here | test |
//! |---|---|---|---|
//! | a pCPU is in one pool, a pool has one scheduler with parameters of its own | `cpupool_create`, `schedule_cpu_add` | modelled | `a_pool_is_a_host_of_its_own` |
//! | a domain is in one pool | `sched_init_domain` | modelled: the pool that holds all pCPUs which its vCPUs may use; else Pool-0. Vcpus of one domain in two pools are refused | `a_domain_is_in_one_pool` |
//! | a wakeup from a pCPU of another pool works with the data of the vCPU's own scheduler | `vcpu_wake` | modelled; the waker's place among the pool's pCPUs, from which Credit counts on in turn, is its first | |
//! | `xl cpupool-migrate`, adding and removing pCPUs | `cpupool_move_domain`, `cpupool_assign_cpu_locked` | omitted: pools stay as they are | |

use crate::registry::Family;
use crate::{
    Change, Cmd, CpuView, Cx, KnobError, Needs, Pick, Prev, Rejection, Scheduler, SchedulerSpec,
    Standing, TaskView, Timer, Wake, World, registry,
};
use schedlab_model::{CpuId, CpuSet, GroupId, Ns, Policy, TaskId, Topology};
use std::cell::RefCell;

/// One pool.
struct Pool {
    cpus: CpuSet,
    scheduler: Box<dyn Scheduler + Send>,
    /// Its first slot among the machine's global timers.
    timers: u8,
    /// The host as its scheduler sees it.
    world: RefCell<World>,
}

/// See the module.
struct CpuPools {
    /// Pool-0 first.
    pools: Vec<Pool>,
    /// By task.
    of_task: RefCell<Vec<usize>>,
}

/// Checks what can be checked without the host: pools of Xen's schedulers, which share no pCPU.
pub(crate) fn check(spec: &SchedulerSpec) -> Result<(), KnobError> {
    if spec.pools.is_empty() {
        return Ok(());
    }
    let wrong = |why: String| Err(KnobError::Pool { spec: spec.to_string(), why });
    let mut taken = CpuSet::EMPTY;
    for (cpus, one) in &spec.pools {
        if !taken.and(cpus).is_empty() {
            return wrong(format!("CPUs {} are in two pools", taken.and(cpus)));
        }
        taken = taken.or(cpus);
        registry::check(one)?;
    }
    let mut all = spec.pools.iter().map(|(_, one)| one).chain([spec]);
    match all.find(|one| !one.family().is_ok_and(Family::is_xen)) {
        Some(other) => wrong(format!("pools are Xen's, and {} is not", other.name)),
        None => Ok(()),
    }
}

/// Makes the scheduler of Pool-0 and those of the pools behind it, for a host with `cpus` pCPUs.
pub(crate) fn build(
    spec: &SchedulerSpec,
    cpus: usize,
) -> Result<Box<dyn Scheduler + Send>, KnobError> {
    check(spec)?;
    let wrong = |why: String| KnobError::Pool { spec: spec.to_string(), why };
    let host = CpuSet::first(cpus);
    let mut left = host;
    for (set, _) in &spec.pools {
        if set.is_empty() || !set.without(&host).is_empty() {
            return Err(wrong(format!("a pool has CPUs {set}, and this machine has {host}")));
        }
        left = left.without(set);
    }
    if left.is_empty() {
        return Err(wrong(format!("no CPU of {host} is left to Pool-0")));
    }
    let first = SchedulerSpec { pools: Vec::new(), ..spec.clone() };
    let mut timers = 0;
    let pools =
        [(left, first)].into_iter().chain(spec.pools.iter().cloned()).map(|(cpus, spec)| {
            let scheduler = registry::build_to_send(&spec, cpus.count())?;
            let (first, needs) = (timers, scheduler.needs());
            if !needs.own_marks {
                return Err(wrong(format!(
                    "{} looks at its tasks while they run, which a pool does not show",
                    spec.name
                )));
            }
            timers += needs.global_timers;
            let world = World {
                roles: Default::default(),
                partitions: Vec::new(),
                tasks: Vec::new(),
                cpus: Vec::new(),
                groups: Vec::new(),
                topology: Topology::flat(1),
                hz: 1,
                tick_ns: Ns::from_ms(1000),
            };
            Ok(Pool { cpus, scheduler, timers: first, world: RefCell::new(world) })
        });
    Ok(Box::new(CpuPools {
        pools: pools.collect::<Result<_, KnobError>>()?,
        of_task: RefCell::default(),
    }))
}

impl Pool {
    /// The pool's number of one of the host's pCPUs; its first for one of another pool, on which a
    /// waker may run.
    fn local(&self, cpu: CpuId) -> CpuId {
        if self.cpus.contains(cpu) { CpuId(self.cpus.count_below(cpu.0) as u32) } else { CpuId(0) }
    }

    /// The host's number of one of the pool's pCPUs.
    fn global(&self, cpu: CpuId) -> CpuId {
        self.cpus.iter().nth(cpu.index()).expect("a pCPU of the pool")
    }

    fn local_set(&self, set: &CpuSet) -> CpuSet {
        set.and(&self.cpus).iter().map(|cpu| self.local(cpu)).collect()
    }

    /// Calls its scheduler, and asks the driver for what that asks for, in the host's numbers.
    fn call<R>(&self, cx: &Cx<'_>, call: impl FnOnce(&dyn Scheduler, &Cx<'_>) -> R) -> R {
        let world = self.world.borrow();
        let inner = Cx { now: cx.now, cpu: self.local(cx.cpu), world: &world, out: cx.out };
        let before = cx.out.mark();
        let result = call(&*self.scheduler, &inner);
        cx.out.renumber(before, |cpu| self.global(cpu), |cmd| self.outwards(cmd));
        result
    }

    fn outwards(&self, cmd: Cmd) -> Cmd {
        let timer = |timer| match timer {
            Timer::Cpu(cpu, slot) => Timer::Cpu(self.global(cpu), slot),
            Timer::Task(task) => Timer::Task(task),
            Timer::Global(slot) => Timer::Global(self.timers + slot),
        };
        match cmd {
            Cmd::Resched(cpu) => Cmd::Resched(self.global(cpu)),
            Cmd::Arm(which, at) => Cmd::Arm(timer(which), at),
            Cmd::Disarm(which) => Cmd::Disarm(timer(which)),
            Cmd::Call(cpu, cookie) => Cmd::Call(self.global(cpu), cookie),
            Cmd::Moved(task, cpu) => Cmd::Moved(task, self.global(cpu)),
            Cmd::TickDue(cpu) => Cmd::TickDue(self.global(cpu)),
            Cmd::GiveUp => Cmd::GiveUp,
            Cmd::Displace(_) | Cmd::Throttled(_) | Cmd::Unthrottled(_) => cmd,
        }
    }

    /// The task as its scheduler sees it; one of another pool is not alive and may run nowhere.
    fn view(&self, view: &TaskView, is_its: bool) -> TaskView {
        let mut seen = TaskView::default();
        seen.alive = view.alive && is_its;
        seen.old_sleeper = view.old_sleeper;
        seen.began_on =
            view.began_on.filter(|cpu| self.cpus.contains(*cpu)).map(|cpu| self.local(cpu));
        seen.nice = view.nice;
        seen.group = view.group;
        seen.policy = view.policy;
        seen.affinity = if is_its { self.local_set(&view.affinity) } else { CpuSet::EMPTY };
        seen.soft_affinity = self.local_set(&view.soft_affinity);
        seen.process = view.process;
        seen.slice = view.slice;
        seen.released.set(view.released.get());
        seen.set_last_cpu(self.local(view.last_cpu()));
        // What it ran, and since when it has run or been saved.
        seen.switched_out(view.entered(), view.ran());
        if let Some(cpu) = view.on_cpu() {
            seen.switched_in(self.local(cpu), view.entered());
        }
        seen.set_runnable(view.runnable());
        seen
    }

    /// Takes everything from the host's world; `is_its` says of a task whether it is in this pool.
    fn look(&self, world: &World, is_its: impl Fn(usize) -> bool) {
        let tasks = world.tasks.iter().enumerate();
        let cpus = self.cpus.iter().map(|cpu| {
            let view = &world.cpus[cpu.index()];
            let mut seen = CpuView::new(view.tick_phase);
            (seen.online, seen.balance_phase) = (view.online, view.balance_phase);
            seen.steal.set(view.steal.get());
            seen.set_current(view.current());
            seen
        });
        let places = self.cpus.iter().map(|cpu| world.topology.places()[cpu.index()]);
        *self.world.borrow_mut() = World {
            roles: Default::default(),
            partitions: Vec::new(),
            tasks: tasks.map(|(index, view)| self.view(view, is_its(index))).collect(),
            cpus: cpus.collect(),
            groups: world.groups.clone(),
            topology: Topology::from_places(places.collect()),
            hz: world.hz,
            tick_ns: world.tick_ns,
        };
    }
}

impl CpuPools {
    /// The pool that holds all pCPUs that the task may use; else Pool-0.
    fn choose(&self, view: &TaskView) -> usize {
        let holds =
            |pool: &Pool| !view.affinity.is_empty() && view.affinity.without(&pool.cpus).is_empty();
        self.pools.iter().position(holds).unwrap_or(0)
    }

    fn pool_of(&self, task: TaskId) -> &Pool {
        &self.pools[self.of_task.borrow().get(task.index()).copied().unwrap_or(0)]
    }

    fn with(&self, cpu: CpuId) -> &Pool {
        self.pools.iter().find(|pool| pool.cpus.contains(cpu)).expect("each pCPU is in a pool")
    }

    /// Every pool looks at the host anew; who was in a pool before stays there.
    fn look(&self, world: &World) {
        let mut of_task = self.of_task.borrow_mut();
        let new = of_task.len()..world.tasks.len();
        of_task.extend(world.tasks[new].iter().map(|view| self.choose(view)));
        for (place, pool) in self.pools.iter().enumerate() {
            pool.look(world, |task| of_task[task] == place);
        }
    }

    /// One task has changed.
    fn look_at(&self, cx: &Cx<'_>, task: TaskId) -> &Pool {
        if task.index() >= self.of_task.borrow().len() {
            self.look(cx.world);
        }
        let pool = self.pool_of(task);
        pool.world.borrow_mut().tasks[task.index()] = pool.view(cx.task(task), true);
        pool
    }
}

impl Scheduler for CpuPools {
    fn needs(&self) -> Needs {
        let all = self.pools.iter().map(|pool| pool.scheduler.needs());
        all.reduce(|a, b| Needs {
            wakeups: a.wakeups || b.wakeups,
            ticks: a.ticks || b.ticks,
            wakers: a.wakers || b.wakers,
            exact_slices: a.exact_slices || b.exact_slices,
            cpu_timers: a.cpu_timers.max(b.cpu_timers),
            task_timers: a.task_timers || b.task_timers,
            global_timers: a.global_timers + b.global_timers,
            user_returns: a.user_returns | b.user_returns,
            isolation: a.isolation & b.isolation,
            nohz_full: false,
            saved: a.saved || b.saved,
            one_lock: a.one_lock && b.one_lock,
            counts_code: a.counts_code && b.counts_code,
            own_marks: a.own_marks && b.own_marks,
        })
        .unwrap_or_default()
    }

    fn refuses(&self, policy: Policy) -> Option<&'static str> {
        self.pools.iter().find_map(|pool| pool.scheduler.refuses(policy))
    }

    fn stands_in(&self, policy: Policy) -> Option<&'static str> {
        self.pools.iter().find_map(|pool| pool.scheduler.stands_in(policy))
    }

    fn rejects(&self, world: &World) -> Option<Rejection> {
        let mut of_group: Vec<Option<usize>> = vec![None; world.groups.len()];
        for (index, view) in
            world.tasks.iter().enumerate().filter(|(_, view)| view.group != GroupId::ROOT)
        {
            let pool = self.choose(view);
            let first = of_group[view.group.index()].get_or_insert(pool);
            if *first != pool {
                let why = format!(
                    "the vCPUs of a domain are in one cpupool: give all tasks of the group CPUs \
                     of one of {}",
                    self.pools
                        .iter()
                        .map(|pool| pool.cpus.to_string())
                        .collect::<Vec<_>>()
                        .join(" or ")
                );
                return Some(Rejection { task: Some(TaskId::from(index)), why });
            }
        }
        self.pools.iter().enumerate().find_map(|(place, pool)| {
            pool.look(world, |task| self.choose(&world.tasks[task]) == place);
            pool.scheduler.rejects(&pool.world.borrow())
        })
    }

    fn init(&self, cx: &Cx<'_>) {
        self.look(cx.world);
        self.pools.iter().for_each(|pool| pool.call(cx, |scheduler, cx| scheduler.init(cx)));
    }

    fn wake(&self, cx: &Cx<'_>, task: TaskId, wake: Wake) {
        self.pool_of(task).call(cx, |scheduler, cx| scheduler.wake(cx, task, wake));
    }

    fn leave(&self, cx: &Cx<'_>, task: TaskId) {
        self.pool_of(task).call(cx, |scheduler, cx| scheduler.leave(cx, task));
    }

    fn yielded(&self, cx: &Cx<'_>, task: TaskId) {
        self.pool_of(task).call(cx, |scheduler, cx| scheduler.yielded(cx, task));
    }

    fn schedule(&self, cx: &Cx<'_>, cpu: CpuId, prev: Option<TaskId>, why: Prev) -> Pick {
        let pool = self.with(cpu);
        pool.call(cx, |scheduler, cx| scheduler.schedule(cx, pool.local(cpu), prev, why))
    }

    fn saved(&self, cx: &Cx<'_>, cpu: CpuId, prev: TaskId) {
        let pool = self.with(cpu);
        pool.call(cx, |scheduler, cx| scheduler.saved(cx, pool.local(cpu), prev));
    }

    fn tick(&self, cx: &Cx<'_>, cpu: CpuId) {
        let pool = self.with(cpu);
        pool.call(cx, |scheduler, cx| scheduler.tick(cx, pool.local(cpu)));
    }

    fn tick_due(&self, cx: &Cx<'_>, cpu: CpuId) -> u64 {
        let pool = self.with(cpu);
        pool.call(cx, |scheduler, cx| scheduler.tick_due(cx, pool.local(cpu)))
    }

    fn timer(&self, cx: &Cx<'_>, timer: Timer) {
        let (pool, timer) = match timer {
            Timer::Cpu(cpu, slot) => {
                let pool = self.with(cpu);
                (pool, Timer::Cpu(pool.local(cpu), slot))
            }
            Timer::Task(task) => (self.pool_of(task), timer),
            Timer::Global(slot) => {
                // A pool without such timers begins where the one behind it does.
                let pool =
                    self.pools.iter().rfind(|pool| pool.timers <= slot).expect("a pool armed it");
                (pool, Timer::Global(slot - pool.timers))
            }
        };
        pool.call(cx, |scheduler, cx| scheduler.timer(cx, timer));
    }

    fn call(&self, cx: &Cx<'_>, cookie: u64) {
        self.with(cx.cpu).call(cx, |scheduler, cx| scheduler.call(cx, cookie));
    }

    fn changed(&self, cx: &Cx<'_>, change: Change) {
        match change {
            Change::Created { task, .. } => {
                let chosen = self.choose(cx.task(task));
                if let Some(pool) = self.of_task.borrow_mut().get_mut(task.index()) {
                    *pool = chosen;
                }
                self.look_at(cx, task).call(cx, |scheduler, cx| scheduler.changed(cx, change));
            }
            Change::Released(task)
            | Change::ReturnsToUser(task)
            | Change::Executes(task)
            | Change::Affinity(task)
            | Change::Attributes(task)
            | Change::Regrouped { task, .. } => {
                self.look_at(cx, task).call(cx, |scheduler, cx| scheduler.changed(cx, change));
            }
            Change::Group(group) => {
                for pool in &self.pools {
                    pool.world.borrow_mut().groups[group.index()] = cx.group(group).clone();
                    pool.call(cx, |scheduler, cx| scheduler.changed(cx, change));
                }
            }
            Change::Online(cpu, online) => {
                let pool = self.with(cpu);
                pool.world.borrow_mut().cpus[pool.local(cpu).index()].online = online;
                let change = Change::Online(pool.local(cpu), online);
                pool.call(cx, |scheduler, cx| scheduler.changed(cx, change));
            }
        }
    }

    fn resync(&self, cx: &Cx<'_>) {
        self.look(cx.world);
        self.pools.iter().for_each(|pool| pool.call(cx, |scheduler, cx| scheduler.resync(cx)));
    }

    fn standing(&self, cx: &Cx<'_>, task: TaskId) -> Option<Standing> {
        self.pool_of(task).call(cx, |scheduler, cx| scheduler.standing(cx, task))
    }

    fn fitted(&self) -> Vec<String> {
        self.pools.iter().flat_map(|pool| pool.scheduler.fitted()).collect()
    }

    fn explain(&self, cx: &Cx<'_>, cpu: CpuId) -> String {
        let pool = self.with(cpu);
        let line = pool.call(cx, |scheduler, cx| scheduler.explain(cx, pool.local(cpu)));
        format!("pool of {}, numbered from 0: {line}", pool.cpus)
    }
}
