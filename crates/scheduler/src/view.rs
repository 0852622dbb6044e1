//! What a scheduler sees of the machine. Filled by the driver; the fields that change while CPUs
//! run are relaxed atomics, because the native benchmark reads them from several threads without a
//! lock.

use schedlab_model::{
    Bandwidth, CpuId, CpuRoles, CpuSet, GroupId, Nice, Ns, Policy, TaskId, Topology,
};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

const NONE: u32 = u32::MAX;

/// Everything visible.
#[derive(Debug)]
pub struct World {
    /// By [`TaskId`].
    pub tasks: Vec<TaskView>,
    /// By [`CpuId`].
    pub cpus: Vec<CpuView>,
    /// By [`GroupId`]; the root is always there.
    pub groups: Vec<GroupView>,
    /// Where the CPUs sit.
    pub topology: Topology,
    /// Tick frequency in hertz.
    pub hz: u32,
    /// Tick period, `1 s / hz` (rounded to the nanosecond).
    pub tick_ns: Ns,
    /// CPUs that the boot line, or a cpuset partition, sets apart.
    pub roles: CpuRoles,
    /// CPUs that cpuset partitions have to themselves, and among which the load is balanced.
    pub partitions: Vec<CpuSet>,
}

impl World {
    /// Tick edges of `cpu` up to and including `at`.
    #[inline]
    pub fn ticks_until(&self, cpu: CpuId, at: Ns) -> u64 {
        match at.checked_sub(self.cpus[cpu.index()].tick_phase) {
            Some(since) => since.0 / self.tick_ns.0 + 1,
            None => 0,
        }
    }
    /// The time of tick edge number `k` (from 1) of `cpu`.
    #[inline]
    pub fn tick_edge(&self, cpu: CpuId, k: u64) -> Ns {
        self.cpus[cpu.index()].tick_phase + self.tick_ns * (k - 1)
    }
    /// The time of the first tick edge of `cpu` after `at`.
    #[inline]
    pub fn next_edge(&self, cpu: CpuId, at: Ns) -> Ns {
        self.tick_edge(cpu, self.ticks_until(cpu, at) + 1)
    }
    /// All CPUs of the machine.
    pub fn all_cpus(&self) -> CpuSet {
        CpuSet::first(self.cpus.len())
    }
}

/// Whether a task wants the CPU, as far as the driver knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Runnable {
    /// Blocked, not started, or gone.
    #[default]
    No,
    /// Runnable or running.
    Yes,
    /// The driver cannot tell. Assume runnable; the commit corrects it.
    Unknown,
}

/// What can be seen of one task. What changes at every switch and wakeup shares the first cache
/// line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct TaskView {
    /// When the present activation was due: arrival of the job of a periodic task, else the wakeup.
    pub released: Relaxed64,
    ran: Relaxed64,
    entered: Relaxed64,
    on_cpu: AtomicU32,
    last_cpu: AtomicU32,
    runnable: AtomicU8,
    in_kernel: AtomicBool,
    /// It exists (created, not exited).
    pub alive: bool,
    /// It existed and slept long before time 0 (as against: created at or after time 0).
    pub old_sleeper: bool,
    /// The CPU that it was on when the run began, if it existed then and that is known: its first
    /// placement.
    pub began_on: Option<CpuId>,
    /// Nice value.
    pub nice: Nice,
    /// Its group.
    pub group: GroupId,
    /// Policy.
    pub policy: Policy,
    /// Hard affinity (already cut to the machine and to the group's cpuset).
    pub affinity: CpuSet,
    /// Soft affinity.
    pub soft_affinity: CpuSet,
    /// Address space.
    pub process: u32,
    /// Custom slice request.
    pub slice: Option<Ns>,
    /// Its name, where the driver knows it.
    pub name: Box<str>,
}

/// A `u64` of nanoseconds that may be read while another thread writes it.
#[derive(Debug, Default)]
pub struct Relaxed64(AtomicU64);

impl Relaxed64 {
    /// Reads.
    #[inline]
    pub fn get(&self) -> Ns {
        Ns(self.0.load(Relaxed))
    }
    /// Writes.
    #[inline]
    pub fn set(&self, value: Ns) {
        self.0.store(value.0, Relaxed);
    }
}

impl Default for TaskView {
    fn default() -> TaskView {
        TaskView {
            alive: false,
            old_sleeper: false,
            began_on: None,
            policy: Policy::Other,
            nice: Nice::ZERO,
            group: GroupId::ROOT,
            process: 0,
            slice: None,
            name: Box::default(),
            affinity: CpuSet::ALL,
            soft_affinity: CpuSet::ALL,
            released: Relaxed64::default(),
            runnable: AtomicU8::new(0),
            in_kernel: AtomicBool::new(false),
            on_cpu: AtomicU32::new(NONE),
            last_cpu: AtomicU32::new(0),
            ran: Relaxed64::default(),
            entered: Relaxed64::default(),
        }
    }
}

impl TaskView {
    /// Whether it wants the CPU.
    #[inline]
    pub fn runnable(&self) -> Runnable {
        match self.runnable.load(Relaxed) {
            0 => Runnable::No,
            1 => Runnable::Yes,
            _ => Runnable::Unknown,
        }
    }
    /// The CPU on which it runs now.
    #[inline]
    pub fn on_cpu(&self) -> Option<CpuId> {
        let cpu = self.on_cpu.load(Relaxed);
        (cpu != NONE).then_some(CpuId(cpu))
    }
    /// The CPU on which it ran last (or was placed first).
    #[inline]
    pub fn last_cpu(&self) -> CpuId {
        CpuId(self.last_cpu.load(Relaxed))
    }
    /// CPU time so far, up to its last switch-out (add `now - entered` while it runs).
    #[inline]
    pub fn ran(&self) -> Ns {
        self.ran.get()
    }
    /// When it was switched in last or its context was saved, whichever is later.
    #[inline]
    pub fn entered(&self) -> Ns {
        self.entered.get()
    }
    /// Whether its program is inside the kernel, also while it waits or is off its CPU; `false`
    /// where the driver does not know.
    #[inline]
    pub fn in_kernel(&self) -> bool {
        self.in_kernel.load(Relaxed)
    }
    /// For drivers: its program enters or leaves the kernel.
    #[inline]
    pub fn set_in_kernel(&self, inside: bool) {
        self.in_kernel.store(inside, Relaxed);
    }
    /// For drivers: sets runnability.
    #[inline]
    pub fn set_runnable(&self, runnable: Runnable) {
        self.runnable.store(runnable as u8, Relaxed);
    }
    /// For drivers: it runs on `cpu` from `now` on.
    #[inline]
    pub fn switched_in(&self, cpu: CpuId, now: Ns) {
        self.on_cpu.store(cpu.0, Relaxed);
        self.last_cpu.store(cpu.0, Relaxed);
        self.entered.set(now);
    }
    /// For drivers: its context was saved at `now` after `ran` more nanoseconds of CPU time.
    #[inline]
    pub fn switched_out(&self, now: Ns, ran: Ns) {
        self.on_cpu.store(NONE, Relaxed);
        self.ran.set(self.ran.get() + ran);
        self.entered.set(now);
    }
    /// For drivers: where it was placed without having run there.
    #[inline]
    pub fn set_last_cpu(&self, cpu: CpuId) {
        self.last_cpu.store(cpu.0, Relaxed);
    }
}

/// What can be seen of one CPU.
#[derive(Debug)]
pub struct CpuView {
    /// Usable.
    pub online: bool,
    /// Time of its first tick edge.
    pub tick_phase: Ns,
    /// A random number from which a scheduler draws how long ago it balanced this CPU's load before
    /// the start; 0: just then.
    pub balance_phase: u64,
    /// Time stolen by the hypervisor so far.
    pub steal: Relaxed64,
    current: AtomicU32,
}

impl CpuView {
    /// An online, idle CPU whose first tick edge is at `tick_phase`.
    pub fn new(tick_phase: Ns) -> CpuView {
        CpuView {
            online: true,
            tick_phase,
            balance_phase: 0,
            steal: Relaxed64::default(),
            current: AtomicU32::new(NONE),
        }
    }
    /// Who runs there; `None` = idle.
    #[inline]
    pub fn current(&self) -> Option<TaskId> {
        let task = self.current.load(Relaxed);
        (task != NONE).then_some(TaskId(task))
    }
    /// For drivers: sets who runs there.
    #[inline]
    pub fn set_current(&self, task: Option<TaskId>) {
        self.current.store(task.map_or(NONE, |t| t.0), Relaxed);
    }
}

/// What can be seen of one group. Units as in [`GroupSpec`](schedlab_model::GroupSpec).
#[derive(Clone, Debug, Default)]
pub struct GroupView {
    /// The parent; `None` for the root.
    pub parent: Option<GroupId>,
    /// Weight in the unit of the scheduler's family; `None` = its default.
    pub weight: Option<u32>,
    /// Linux `cpu.idle`.
    pub idle: bool,
    /// Linux `cpu.max`.
    pub bandwidth: Option<Bandwidth>,
    /// Linux autogroup: a session; it exists only while `sched_autogroup_enabled` is on.
    pub autogroup: bool,
    /// Xen cap in per cent of one pCPU, 0 = none.
    pub cap_percent: u32,
}
