//! A tiny driver for the tests of this family: closed-loop tasks on a few CPUs, no costs. The real
//! driver is the simulator; this one exists so that the scheduler's own tests stand on nothing
//! else.

use crate::{
    Cmd, CpuView, Cx, Out, Prev, Runnable, Scheduler, TaskView, Timer, Wake, WakeKind, World,
};
use schedlab_model::{CpuId, CpuSet, Nice, Ns, Policy, Topology, Waker};

/// Works for `work`, sleeps for `sleep` (0 = never), for ever.
#[derive(Clone, Copy, Debug)]
pub(in crate::linux) struct Closed {
    pub(in crate::linux) policy: Policy,
    pub(in crate::linux) nice: i8,
    pub(in crate::linux) work: u64,
    pub(in crate::linux) sleep: u64,
    /// The only CPU where it may run.
    pub(in crate::linux) cpu: Option<u32>,
}

impl Closed {
    pub(in crate::linux) fn hog(nice: i8) -> Closed {
        Closed { policy: Policy::Other, nice, work: u64::MAX / 4, sleep: 0, cpu: None }
    }
    pub(in crate::linux) fn with(self, policy: Policy) -> Closed {
        Closed { policy, ..self }
    }
}

/// One run of one task: from, to, CPU, task.
pub(in crate::linux) type Run = (u64, u64, usize, usize);

pub(in crate::linux) struct Driver {
    scheduler: Box<dyn Scheduler>,
    world: World,
    out: Out,
    tasks: Vec<Closed>,
    left: Vec<u64>,
    wake_at: Vec<u64>,
    /// Armed timers, in arming order.
    timers: Vec<(u64, Timer)>,
    /// Index of the next tick edge to deliver, by CPU.
    tick: Vec<u64>,
    due: Vec<u64>,
    started: Vec<u64>,
    resched: Vec<CpuId>,
    every_tick: bool,
    /// Everything that ran.
    pub(in crate::linux) runs: Vec<Run>,
    woken: Vec<Option<u64>>,
    /// Task and time from wakeup to running, ns.
    pub(in crate::linux) waits: Vec<(usize, u64)>,
    /// How often a CPU was left idle with a runnable task on a one-CPU machine.
    pub(in crate::linux) idle_while_waiting: u32,
}

impl Driver {
    /// All tasks wake at time 0, as old sleepers, in order. Ticks: first edge at one period.
    pub(in crate::linux) fn new(
        scheduler: Box<dyn Scheduler>,
        cpus: usize,
        hz: u32,
        tasks: &[Closed],
    ) -> Driver {
        let tick_ns = Ns(1_000_000_000 / u64::from(hz));
        let views = tasks.iter().map(|task| {
            let mut view = TaskView::default();
            (view.alive, view.old_sleeper) = (true, true);
            view.policy = task.policy;
            view.affinity = task.cpu.map_or(CpuSet::ALL, |cpu| CpuSet::single(CpuId(cpu)));
            view.nice = Nice::new(task.nice).expect("in range");
            view
        });
        let world = World {
            roles: Default::default(),
            partitions: Vec::new(),
            tasks: views.collect(),
            cpus: (0..cpus).map(|_| CpuView::new(tick_ns)).collect(),
            groups: vec![crate::GroupView::default()],
            topology: Topology::flat(cpus),
            hz,
            tick_ns,
        };
        let driver = Driver {
            scheduler,
            world,
            out: Out::new(1),
            tasks: tasks.to_vec(),
            left: tasks.iter().map(|t| t.work).collect(),
            wake_at: vec![0; tasks.len()],
            timers: Vec::new(),
            tick: vec![1; cpus],
            due: vec![u64::MAX; cpus],
            started: vec![0; cpus],
            resched: Vec::new(),
            every_tick: true,
            runs: Vec::new(),
            woken: vec![None; tasks.len()],
            waits: Vec::new(),
            idle_while_waiting: 0,
        };
        driver.scheduler.init(&driver.cx(0, CpuId(0)));
        driver
    }

    /// Leaves out ticks that the scheduler says cannot matter.
    pub(in crate::linux) fn eliding(mut self) -> Driver {
        self.every_tick = false;
        self
    }

    fn cx(&self, now: u64, cpu: CpuId) -> Cx<'_> {
        Cx { now: Ns(now), cpu, world: &self.world, out: &self.out }
    }

    /// Runs until `end` (ns).
    pub(in crate::linux) fn run(&mut self, end: u64) {
        while let Some(now) = self.next_time().filter(|&now| now < end) {
            self.instant(now);
        }
        for cpu in 0..self.world.cpus.len() {
            self.charge(cpu, end);
        }
    }

    fn edge(&self, cpu: usize) -> u64 {
        let next = if self.every_tick { self.tick[cpu] } else { self.tick[cpu].max(self.due[cpu]) };
        next.saturating_mul(self.world.tick_ns.0)
    }

    fn ends_at(&self, cpu: usize) -> Option<u64> {
        let task = self.world.cpus[cpu].current()?;
        Some(self.started[cpu] + self.left[task.index()])
    }

    fn next_time(&self) -> Option<u64> {
        let cpus = 0..self.world.cpus.len();
        let ticks = cpus.clone().map(|cpu| self.edge(cpu));
        let ends = cpus.filter_map(|cpu| self.ends_at(cpu));
        ticks
            .chain(ends)
            .chain(self.timers.iter().map(|t| t.0))
            .chain(self.wake_at.iter().copied())
            .min()
    }

    fn instant(&mut self, now: u64) {
        for cpu in 0..self.world.cpus.len() {
            while self.tick[cpu] * self.world.tick_ns.0 <= now {
                let edge = self.tick[cpu];
                self.tick[cpu] += 1;
                if (self.every_tick || self.due[cpu] <= edge) && edge * self.world.tick_ns.0 == now
                {
                    self.scheduler.tick(&self.cx(now, CpuId::from(cpu)), cpu.into());
                    self.after(now);
                }
            }
        }
        for cpu in 0..self.world.cpus.len() {
            if self.ends_at(cpu) == Some(now) {
                let task = self.world.cpus[cpu].current().expect("it ends").index();
                self.wake_at[task] = now + self.tasks[task].sleep;
                self.world.tasks[task].set_runnable(Runnable::No);
                self.schedule(now, cpu.into(), Prev::Blocked);
                self.left[task] = self.tasks[task].work;
            }
        }
        while let Some(at) = self.timers.iter().position(|t| t.0 <= now) {
            let timer = self.timers.remove(at).1;
            let cpu = if let Timer::Cpu(cpu, _) = timer { cpu } else { CpuId(0) };
            self.scheduler.timer(&self.cx(now, cpu), timer);
            self.after(now);
        }
        for task in 0..self.tasks.len() {
            if self.wake_at[task] == now {
                self.wake_at[task] = u64::MAX;
                self.woken[task] = Some(now);
                self.world.tasks[task].set_runnable(Runnable::Yes);
                let wake = Wake { kind: WakeKind::Wake, sync: false, waker: Waker::HardIrq };
                self.scheduler.wake(&self.cx(now, CpuId(0)), task.into(), wake);
                self.after(now);
            }
        }
        while !self.resched.is_empty() {
            let cpu = self.resched.remove(0);
            self.schedule(now, cpu, Prev::Runnable);
        }
        let waiting =
            self.world.tasks.iter().any(|t| t.runnable() == Runnable::Yes && t.on_cpu().is_none());
        if waiting && self.world.cpus.len() == 1 && self.world.cpus[0].current().is_none() {
            self.idle_while_waiting += 1;
        }
    }

    fn charge(&mut self, cpu: usize, now: u64) -> u64 {
        let started = std::mem::replace(&mut self.started[cpu], now);
        if let Some(task) = self.world.cpus[cpu].current() {
            self.left[task.index()] -= now - started;
            self.runs.push((started, now, cpu, task.index()));
        }
        now - started
    }

    fn schedule(&mut self, now: u64, cpu: CpuId, why: Prev) {
        let prev = self.world.cpus[cpu.index()].current();
        let why = if prev.is_none() { Prev::Idle } else { why };
        let pick = self.scheduler.schedule(&self.cx(now, cpu), cpu, prev, why);
        if pick.task != prev {
            let ran = self.charge(cpu.index(), now);
            if let Some(prev) = prev {
                self.world.tasks[prev.index()].switched_out(Ns(now), Ns(ran));
            }
            if let Some(next) = pick.task {
                assert_eq!(self.world.tasks[next.index()].on_cpu(), None, "{next} would run twice");
                assert_eq!(
                    self.world.tasks[next.index()].runnable(),
                    Runnable::Yes,
                    "{next} sleeps"
                );
                self.world.tasks[next.index()].switched_in(cpu, Ns(now));
                if let Some(woken) = self.woken[next.index()].take() {
                    self.waits.push((next.index(), now - woken));
                }
            }
            self.world.cpus[cpu.index()].set_current(pick.task);
        }
        self.after(now);
    }

    fn after(&mut self, now: u64) {
        let mut cmds = Vec::new();
        self.out.take_cmds(&mut cmds);
        for cmd in cmds {
            match cmd {
                Cmd::Resched(cpu) if !self.resched.contains(&cpu) => self.resched.push(cpu),
                Cmd::Arm(timer, at) => {
                    self.timers.retain(|t| t.1 != timer);
                    self.timers.push((at.0, timer));
                }
                Cmd::Disarm(timer) => self.timers.retain(|t| t.1 != timer),
                _ => {}
            }
        }
        for cpu in 0..self.due.len() {
            let due = self.scheduler.tick_due(&self.cx(now, cpu.into()), cpu.into());
            // Counted from the edges that were delivered: at an edge, other CPUs' ticks may come
            // first.
            self.due[cpu] = (self.tick[cpu] - 1).saturating_add(due);
        }
    }

    /// Part of the time from `from` to `to` that a task ran, in 10^-4.
    pub(in crate::linux) fn share(&self, task: usize, from: u64, to: u64) -> u64 {
        let ran: u64 = self
            .runs
            .iter()
            .filter(|r| r.3 == task)
            .map(|r| r.1.min(to).saturating_sub(r.0.max(from)))
            .sum();
        ran * 10_000 / (to - from)
    }

    /// Lengths of the runs of a task that start at `from` or later and are over, ns; neighbours are
    /// merged.
    pub(in crate::linux) fn run_lengths(&self, task: usize, from: u64) -> Vec<u64> {
        let mut runs: Vec<Run> = Vec::new();
        for &run in &self.runs {
            match runs.last_mut() {
                Some(last) if last.3 == run.3 && last.2 == run.2 && last.1 == run.0 => {
                    last.1 = run.1
                }
                _ => runs.push(run),
            }
        }
        runs.pop();
        runs.iter().filter(|r| r.3 == task && r.0 >= from).map(|r| r.1 - r.0).collect()
    }
}
