//! Which slot belongs to which entity.

use super::slots::PER_CPU;
use schedlab_scheduler::Needs;

/// What a slot fires.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fires {
    /// A CPU's work, or its switch, is finished.
    Work(usize),
    Slice(usize),
    Resched(usize),
    Tick(usize),
    Task(usize),
    CpuTimer(usize, u8),
    TaskTimer(usize),
    Global(u8),
    Source(usize),
    Client(usize),
    /// A thread has waited for its CPU for so long that its work goes on elsewhere; by its number
    /// among such threads.
    Handoff(usize),
    /// The timer of an executor.
    Executor(usize),
    /// Something comes from outside into an object.
    Arrival,
    Warmup,
}

/// First slot of every kind, in the order of [`Fires`].
#[derive(Debug)]
pub(crate) struct Layout {
    cpus: usize,
    timers_per_cpu: usize,
    tasks_at: usize,
    cpu_timers_at: usize,
    task_timers_at: usize,
    globals_at: usize,
    sources_at: usize,
    clients_at: usize,
    handoffs_at: usize,
    executors_at: usize,
    arrival_at: usize,
    warmup_at: usize,
}

impl Layout {
    /// `handoffs`: threads that may hand their work over; `executors`: each has a timer.
    pub(crate) fn new(
        cpus: usize,
        tasks: usize,
        (sources, clients): (usize, usize),
        (handoffs, executors): (usize, usize),
        needs: &Needs,
    ) -> Layout {
        let timers_per_cpu = usize::from(needs.cpu_timers);
        let tasks_at = PER_CPU * cpus;
        let cpu_timers_at = tasks_at + tasks;
        let task_timers_at = cpu_timers_at + timers_per_cpu * cpus;
        let globals_at = task_timers_at + if needs.task_timers { tasks } else { 0 };
        let sources_at = globals_at + usize::from(needs.global_timers);
        let clients_at = sources_at + sources;
        let handoffs_at = clients_at + clients;
        let executors_at = handoffs_at + handoffs;
        let arrival_at = executors_at + executors;
        let warmup_at = arrival_at + 1;
        Layout {
            cpus,
            timers_per_cpu,
            tasks_at,
            cpu_timers_at,
            task_timers_at,
            globals_at,
            sources_at,
            clients_at,
            handoffs_at,
            executors_at,
            arrival_at,
            warmup_at,
        }
    }
    /// Returns the number of slots but those of CPUs and tasks.
    pub(crate) fn others(&self) -> usize {
        self.warmup_at + 1 - self.cpu_timers_at
    }
    #[inline]
    pub(crate) fn tick(&self, cpu: usize) -> usize {
        cpu * PER_CPU + 3
    }
    #[inline]
    pub(crate) fn task(&self, task: usize) -> usize {
        self.tasks_at + task
    }
    pub(crate) fn cpu_timer(&self, cpu: usize, slot: u8) -> Option<usize> {
        let inside = usize::from(slot) < self.timers_per_cpu && cpu < self.cpus;
        inside.then_some(self.cpu_timers_at + cpu * self.timers_per_cpu + usize::from(slot))
    }
    pub(crate) fn task_timer(&self, task: usize) -> Option<usize> {
        let slot = self.task_timers_at + task;
        (slot < self.globals_at).then_some(slot)
    }
    pub(crate) fn global(&self, slot: u8) -> Option<usize> {
        let slot = self.globals_at + usize::from(slot);
        (slot < self.sources_at).then_some(slot)
    }
    pub(crate) fn source(&self, source: usize) -> usize {
        self.sources_at + source
    }
    pub(crate) fn client(&self, client: usize) -> usize {
        self.clients_at + client
    }
    pub(crate) fn handoff(&self, thread: usize) -> usize {
        self.handoffs_at + thread
    }
    pub(crate) fn executor(&self, executor: usize) -> usize {
        self.executors_at + executor
    }
    pub(crate) fn arrival(&self) -> usize {
        self.arrival_at
    }
    pub(crate) fn warmup(&self) -> usize {
        self.warmup_at
    }
    /// Returns the slots of tasks, sources, clients and executors: what can still wake a task
    /// without the scheduler.
    pub(crate) fn outside(&self) -> impl Iterator<Item = usize> + use<> {
        let timers = self.executors_at..self.warmup_at;
        (self.tasks_at..self.cpu_timers_at).chain(self.sources_at..self.handoffs_at).chain(timers)
    }
    #[inline]
    pub(crate) fn fires(&self, slot: usize) -> Fires {
        if slot < self.tasks_at {
            let (cpu, kind) = (slot / PER_CPU, slot % PER_CPU);
            return match kind {
                0 => Fires::Work(cpu),
                1 => Fires::Slice(cpu),
                2 => Fires::Resched(cpu),
                _ => Fires::Tick(cpu),
            };
        }
        if slot < self.cpu_timers_at {
            Fires::Task(slot - self.tasks_at)
        } else if slot < self.task_timers_at {
            let at = slot - self.cpu_timers_at;
            Fires::CpuTimer(at / self.timers_per_cpu, (at % self.timers_per_cpu) as u8)
        } else if slot < self.globals_at {
            Fires::TaskTimer(slot - self.task_timers_at)
        } else if slot < self.sources_at {
            Fires::Global((slot - self.globals_at) as u8)
        } else if slot < self.clients_at {
            Fires::Source(slot - self.sources_at)
        } else if slot < self.handoffs_at {
            Fires::Client(slot - self.clients_at)
        } else if slot < self.executors_at {
            Fires::Handoff(slot - self.handoffs_at)
        } else if slot < self.arrival_at {
            Fires::Executor(slot - self.executors_at)
        } else if slot < self.warmup_at {
            Fires::Arrival
        } else {
            Fires::Warmup
        }
    }
}
