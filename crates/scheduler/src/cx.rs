//! The context of one call: where and when it runs, what can be seen, what can be asked for.

use crate::{Cmd, CpuView, GroupView, TaskView, World};
use schedlab_model::{CpuId, GroupId, Ns, TaskId, random};
use std::cell::{Cell, RefCell};

/// One per call. `cpu` is where the code runs, which under delegation is not the CPU decided for.
#[derive(Clone, Copy)]
pub struct Cx<'a> {
    /// The time of the call.
    pub now: Ns,
    /// The CPU on which the call runs.
    pub cpu: CpuId,
    /// Tasks, CPUs, groups and the machine.
    pub world: &'a World,
    /// Where commands and counts go.
    pub out: &'a Out,
}

impl<'a> Cx<'a> {
    /// What can be seen of a task.
    #[inline]
    pub fn task(&self, task: TaskId) -> &'a TaskView {
        &self.world.tasks[task.index()]
    }
    /// What can be seen of a CPU.
    #[inline]
    pub fn cpu(&self, cpu: CpuId) -> &'a CpuView {
        &self.world.cpus[cpu.index()]
    }
    /// What can be seen of a group.
    #[inline]
    pub fn group(&self, group: GroupId) -> &'a GroupView {
        &self.world.groups[group.index()]
    }
    /// Number of tick edges of `cpu` up to and including now. The `k`-th edge (from 1) is at
    /// `tick_phase + (k - 1) * tick_ns`.
    #[inline]
    pub fn ticks(&self, cpu: CpuId) -> u64 {
        self.world.ticks_until(cpu, self.now)
    }
    /// Asks the driver for something; it happens after the call returns, in order.
    #[inline]
    pub fn push(&self, cmd: Cmd) {
        self.out.cmds.borrow_mut().push(cmd);
        self.out.waits.set(true);
    }
    /// Counts work that was done; the cost model prices it.
    #[inline]
    pub fn did(&self, work: Work, times: u32) {
        let counter = &self.out.work[work as usize];
        counter.set(counter.get() + u64::from(times));
    }
    /// The cache line of `task`'s scheduling state was read (or written).
    #[inline]
    pub fn touch(&self, task: TaskId, write: bool) {
        if let Some(touched) = &self.out.touched {
            touched.borrow_mut().push((self.cpu, task, write));
        }
    }
    /// The next number of the run's seeded stream (SplitMix64).
    pub fn rand(&self) -> u64 {
        let state = self.out.rng.get().wrapping_add(random::GOLDEN);
        self.out.rng.set(state);
        random::mix(state)
    }
}

/// Countable units of a scheduler's work: schedulers count, the cost model of the simulator prices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Work {
    /// Run-queue entries looked at one by one.
    Scan,
    /// Steps in a tree.
    TreeStep,
    /// Locks of the deciding CPU taken.
    Lock,
    /// Locks of other CPUs taken.
    RemoteLock,
    /// Try-locks that failed.
    TryLockMiss,
    /// Cache lines of other CPUs read.
    RemoteLine,
    /// Tasks whose accounts were brought up to date.
    Account,
    /// Tasks moved between run queues.
    Move,
    /// Instructions of a scheduler in BPF.
    Instruction,
    /// Kernel functions and helpers that it called.
    Call,
}

impl Work {
    /// Number of kinds.
    pub const COUNT: usize = 10;
    /// All of them.
    pub const ALL: [Work; Work::COUNT] = [
        Work::Scan,
        Work::TreeStep,
        Work::Lock,
        Work::RemoteLock,
        Work::TryLockMiss,
        Work::RemoteLine,
        Work::Account,
        Work::Move,
        Work::Instruction,
        Work::Call,
    ];
}

/// What one driver thread collects from the calls it makes.
#[derive(Debug, Default)]
pub struct Out {
    cmds: RefCell<Vec<Cmd>>,
    /// Some are there. Asked after every call, and most give none.
    waits: Cell<bool>,
    work: [Cell<u64>; Work::COUNT],
    touched: Option<RefCell<Vec<(CpuId, TaskId, bool)>>>,
    rng: Cell<u64>,
    alone: Cell<bool>,
}

impl Out {
    /// An empty one whose random stream starts from `seed`.
    pub fn new(seed: u64) -> Out {
        Out { rng: Cell::new(seed), ..Out::default() }
    }
    /// For drivers that know: whether no other CPU has a decision to make in this instant.
    #[inline]
    pub fn set_alone(&self, alone: bool) {
        self.alone.set(alone);
    }
    /// Other CPUs may be about to decide in the instant of this decision, because their tasks have
    /// just stopped or a task has just come.
    #[inline]
    pub fn others_may_decide(&self) -> bool {
        !self.alone.get()
    }
    /// Also keeps the line identities of [`Cx::touch`].
    pub fn with_touches(mut self) -> Out {
        self.touched = Some(RefCell::default());
        self
    }
    /// Moves the commands so far to the end of `into`.
    #[inline]
    pub fn take_cmds(&self, into: &mut Vec<Cmd>) {
        let mut cmds = self.cmds.borrow_mut();
        self.waits.set(false);
        if into.is_empty() { std::mem::swap(into, &mut cmds) } else { into.append(&mut cmds) }
    }
    /// Takes the only command: the first, if no other one waits.
    #[inline]
    pub fn take_only_cmd(&self) -> Option<Cmd> {
        let mut cmds = self.cmds.borrow_mut();
        if cmds.len() != 1 {
            return None;
        }
        self.waits.set(false);
        cmds.pop()
    }
    /// Whether all commands that wait set timers.
    #[inline]
    pub fn only_timers(&self) -> bool {
        self.cmds.borrow().iter().all(|cmd| matches!(cmd, Cmd::Arm(..) | Cmd::Disarm(_)))
    }
    /// Whether the waiting commands let `task` go, which was throttled.
    pub fn unthrottles(&self, task: TaskId) -> bool {
        let last = self.cmds.borrow().iter().rev().copied().find(
            |cmd| matches!(cmd, Cmd::Throttled(about) | Cmd::Unthrottled(about) if *about == task),
        );
        matches!(last, Some(Cmd::Unthrottled(_)))
    }
    /// Whether a command waits.
    #[inline]
    pub fn has_cmds(&self) -> bool {
        self.waits.get()
    }
    /// How often a kind of work was done so far.
    pub fn work(&self, work: Work) -> u64 {
        self.work[work as usize].get()
    }
    /// How much was asked for and touched so far.
    pub(crate) fn mark(&self) -> (usize, usize) {
        (
            self.cmds.borrow().len(),
            self.touched.as_ref().map_or(0, |touched| touched.borrow().len()),
        )
    }
    /// Writes what was asked for and touched since `mark` in other numbers of CPUs.
    pub(crate) fn renumber(
        &self,
        mark: (usize, usize),
        cpu: impl Fn(CpuId) -> CpuId,
        cmd: impl Fn(Cmd) -> Cmd,
    ) {
        self.cmds.borrow_mut()[mark.0..].iter_mut().for_each(|one| *one = cmd(*one));
        if let Some(touched) = &self.touched {
            touched.borrow_mut()[mark.1..].iter_mut().for_each(|one| one.0 = cpu(one.0));
        }
    }
    /// Moves the touched lines so far to the end of `into`.
    pub fn take_touches(&self, into: &mut Vec<(CpuId, TaskId, bool)>) {
        if let Some(touched) = &self.touched {
            into.append(&mut touched.borrow_mut());
        }
    }
}
