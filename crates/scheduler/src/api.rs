//! The trait and what passes through it.

use crate::{Cx, World};
use schedlab_model::{CpuId, GroupId, Ns, Policy, TaskId, Waker};

/// Who runs next. Called by a driver; takes `&self` because several CPUs may be inside at once
/// (native benchmark), so a scheduler takes its own [`Lock`](crate::Lock)s.
///
/// Contracts:
/// * The scheduler keeps its own mark of who runs where. The views are a hint in concurrent
///   drivers.
/// * The driver delivers one task's events in order, and absorbs the wakeup of a task that is not
///   descheduled yet (its [`Prev`] then is `Runnable`).
/// * Commands take effect after the call returns, in the order in which they were pushed.
/// * Order of an instant: time, then the driver's tick edges, then arming order (re-arming moves to
///   the back); the instant is drained; then the reschedule requests, first in first out, merged.
pub trait Scheduler {
    /// What the driver must be able to do. A driver that cannot refuses by name.
    fn needs(&self) -> Needs;

    /// Why this scheduler cannot serve tasks of a policy; `None`: it can. A driver refuses such
    /// tasks by name.
    fn refuses(&self, _policy: Policy) -> Option<&'static str> {
        None
    }

    /// What this scheduler, whose real system does not know a policy, treats tasks of that policy
    /// as: a sentence for those who read its results; `None`: it knows the policy.
    fn stands_in(&self, _policy: Policy) -> Option<&'static str> {
        None
    }

    /// What a reader of its results must know about tasks of these policies, one sentence each:
    /// where the published rule and a kernel of its version differ.
    fn remarks(&self, _policies: &[Policy], _cpus: usize) -> Vec<String> {
        Vec::new()
    }

    /// Why it cannot serve the tasks of `world` together (admission control); `None`: it can. Asked
    /// once, before `init`, with the views filled; tasks that are created later are among them.
    fn rejects(&self, _world: &World) -> Option<Rejection> {
        None
    }

    /// The views are filled, nothing runs yet. Every task of [`World::tasks`](crate::World) that is
    /// `alive` then exists (blocked) and is placed here; later ones come through
    /// [`Change::Created`].
    fn init(&self, cx: &Cx<'_>);

    /// `task` became runnable: choose its CPU, enqueue it, ask for preemption ([`Cmd::Resched`]).
    fn wake(&self, cx: &Cx<'_>, task: TaskId, wake: Wake);

    /// A queued task that does not run stopped being runnable (killed, moved away). Idempotent.
    fn leave(&self, cx: &Cx<'_>, task: TaskId);

    /// The running task called `sched_yield`; a `schedule(…, Prev::Runnable)` of its CPU follows at
    /// once.
    fn yielded(&self, cx: &Cx<'_>, task: TaskId);

    /// Takes `prev` (who ran on `cpu` until now, `None` = idle) off or requeues it, according to
    /// `why`, and chooses who runs on `cpu` now, under one lock hold. May pick `prev` again.
    fn schedule(&self, cx: &Cx<'_>, cpu: CpuId, prev: Option<TaskId>, why: Prev) -> Pick;

    /// As [`schedule`](Self::schedule), but `actual` runs on `cpu` afterwards whatever the answer
    /// is, as if it had been chosen: the replay of a recording, and a live agent that learns what
    /// the kernel runs instead. The answer is what the scheduler would have chosen. `actual` =
    /// `prev` means that no switch happens. `None`: this scheduler cannot be forced (the driver
    /// refuses by name).
    fn schedule_forced(
        &self,
        _cx: &Cx<'_>,
        _cpu: CpuId,
        _prev: Option<TaskId>,
        _why: Prev,
        _actual: Option<TaskId>,
    ) -> Option<Pick> {
        None
    }

    /// The task that [`schedule`](Self::schedule) would choose for `cpu` if its running task
    /// blocked or ended at this moment; `None` if it would idle, or if this scheduler cannot tell
    /// without deciding. Read-only; the driver may ignore the answer. A live driver queues that
    /// task behind the running one, so that the CPU does not wait for an agent, and still asks
    /// `schedule`.
    fn ahead(&self, _cx: &Cx<'_>, _cpu: CpuId) -> Option<TaskId> {
        None
    }

    /// `prev`'s context is saved after a switch away from it (`schedule_tail`, `context_saved`).
    /// For those that ask for it ([`Needs::saved`]): a driver may leave it out for others.
    fn saved(&self, _cx: &Cx<'_>, _cpu: CpuId, _prev: TaskId) {}

    /// A tick edge of `cpu`. Charges all tick edges since the last call that touched this CPU (the
    /// driver may have left out those that [`tick_due`](Self::tick_due) said could not matter),
    /// then checks.
    fn tick(&self, _cx: &Cx<'_>, _cpu: CpuId) {}

    /// In how many tick edges from now `tick` could matter (1 = the next one; `u64::MAX` = never).
    /// Asked after each call for the CPU on which the call ran, for the CPU decided for, and for
    /// every CPU that a command of the call names. A scheduler that changed the queue of another
    /// CPU without such a command (a wakeup that does not preempt, a task pulled away) pushes
    /// [`Cmd::TickDue`]. Too small is slow, too large is wrong: with every tick delivered the
    /// schedule must be the same.
    fn tick_due(&self, _cx: &Cx<'_>, _cpu: CpuId) -> u64 {
        1
    }

    /// Whether a CPU of [`CpuRoles::nohz_full`](schedlab_model::CpuRoles) may be without ticks now.
    /// Asked when [`tick_due`](Self::tick_due) is, of those that know such CPUs
    /// ([`Needs::nohz_full`]). Ticks that come all the same must change nothing.
    fn tick_stops(&self, _cx: &Cx<'_>, _cpu: CpuId) -> bool {
        false
    }

    /// A timer that was armed with [`Cmd::Arm`] fired.
    fn timer(&self, _cx: &Cx<'_>, _timer: Timer) {}

    /// Asked for by [`Cmd::Call`]; runs on the CPU named there.
    fn call(&self, _cx: &Cx<'_>, _cookie: u64) {}

    /// Something other than runnability changed. The views already show the new state.
    fn changed(&self, _cx: &Cx<'_>, _change: Change) {}

    /// Events were lost: forget the queues and rebuild them from the views.
    fn resync(&self, cx: &Cx<'_>);

    /// Decides for several CPUs at once (group commit of a global agent).
    fn schedule_group(&self, cx: &Cx<'_>, requests: &[Request], out: &mut [Pick]) {
        for (request, pick) in requests.iter().zip(out) {
            *pick = self.schedule(cx, request.cpu, request.prev, request.why);
        }
    }

    /// The rank of a queued or running task among those it shares its CPU with; `None` when it is
    /// not queued or the scheduler has no such measure. For explanations, and for the margin of a
    /// decision.
    fn standing(&self, _cx: &Cx<'_>, _task: TaskId) -> Option<Standing> {
        None
    }

    /// Constants of the model that were fitted to data and not read or measured, each with what it
    /// was fitted to.
    fn fitted(&self) -> Vec<String> {
        Vec::new()
    }

    /// Why it gave up ([`Cmd::GiveUp`]); `None`: it did not.
    fn gave_up(&self) -> Option<String> {
        None
    }

    /// One line about the state of the run queue of `cpu`, for `--explain` and for failed
    /// assertions.
    fn explain(&self, _cx: &Cx<'_>, _cpu: CpuId) -> String {
        String::new()
    }
}

/// Why a set of tasks is not admitted; see [`Scheduler::rejects`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rejection {
    /// The task that is at fault, if it is a single one.
    pub task: Option<TaskId>,
    /// What is wrong, what is allowed, and what to do.
    pub why: String,
}

/// The rank of a task; see [`Scheduler::standing`]. Virtual time in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing {
    /// How far it is behind the common virtual time (EEVDF: the mean, so this is its lag; CFS:
    /// `min_vruntime`).
    pub behind: i64,
    /// EEVDF: virtual time left to its deadline.
    pub to_deadline: Option<i64>,
}

/// Why `schedule` is called: what became of the task that ran until now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prev {
    /// The CPU was idle.
    Idle,
    /// Still runnable: preempted, it yielded, or a commit is not proven.
    Runnable,
    /// It blocked.
    Blocked,
    /// It ended.
    Exited,
    /// It leaves this CPU because of [`Cmd::Displace`]; `saved` and `wake(Migrated)` follow.
    Migrating,
}

/// The answer of `schedule`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pick {
    /// Who runs; `None` = idle.
    pub task: Option<TaskId>,
    /// Ask again after this much time at the latest (a slice timer of the CPU); `None` = no such
    /// timer. It is cancelled by the next `schedule` of this CPU.
    pub slice_ns: Option<Ns>,
    /// A number for decision logs (Xen: priority or credit of the chosen vCPU).
    pub note: i64,
}

impl Pick {
    /// Runs `task` until something happens.
    pub const fn run(task: TaskId) -> Pick {
        Pick { task: Some(task), slice_ns: None, note: 0 }
    }
    /// Leaves the CPU idle.
    pub const IDLE: Pick = Pick { task: None, slice_ns: None, note: 0 };
}

/// One CPU of a [`Scheduler::schedule_group`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// The CPU decided for.
    pub cpu: CpuId,
    /// Who runs there.
    pub prev: Option<TaskId>,
    /// What became of it.
    pub why: Prev,
}

/// How a task became runnable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wake {
    /// New, woken, or moved.
    pub kind: WakeKind,
    /// The waker is about to block (`WF_SYNC`).
    pub sync: bool,
    /// On whose behalf. `cx.cpu` is the CPU on which the wakeup runs.
    pub waker: Waker,
}

/// How a task became runnable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WakeKind {
    /// For the first time ([`Change::Created`] came before).
    New,
    /// After it had blocked.
    Wake,
    /// After it was displaced from another CPU.
    Migrated,
}

/// A timer slot, declared in [`Needs`]. Arming it again replaces the earlier time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Timer {
    /// Slot `n` of a CPU; fires on that CPU.
    Cpu(CpuId, u8),
    /// The slot of a task.
    Task(TaskId),
    /// Slot `n` of the machine; fires on the CPU that armed it last.
    Global(u8),
}

/// What a scheduler asks of its driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cmd {
    /// Call `schedule` for this CPU soon (need_resched; an IPI when it is another CPU).
    Resched(CpuId),
    /// Fire the timer at this absolute time.
    Arm(Timer, Ns),
    /// Do not fire it.
    Disarm(Timer),
    /// Take the running task off its CPU: `schedule(Migrating)`, `saved`, `wake(Migrated)`.
    Displace(TaskId),
    /// Call `call(cookie)` on that CPU.
    Call(CpuId, u64),
    /// The task is runnable but may not run (bandwidth, cap, RT throttling); it does not count as
    /// waiting.
    Throttled(TaskId),
    /// It may run again, at once too: a decision may pick the task that it lets go.
    Unthrottled(TaskId),
    /// A queued (not running) task was moved to the run queue of `to`. For the event stream only.
    Moved(TaskId, CpuId),
    /// The answer of [`Scheduler::tick_due`] for this CPU may be another one now.
    TickDue(CpuId),
    /// The scheduler cannot go on, for the reason that [`Scheduler::gave_up`] says: the driver
    /// ends.
    GiveUp,
}

/// What changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// A task was created (fork). It is placed now, and wakes next.
    Created {
        /// The new task.
        task: TaskId,
        /// Its parent, where known.
        parent: Option<TaskId>,
    },
    /// A late periodic task begins its next job, which was due before, without blocking in between.
    /// It runs; its view already shows the new `released`. Only schedulers that look at deadlines
    /// of jobs care.
    Released(TaskId),
    /// The running task returns from the kernel to user code. Only for those that ask for it
    /// ([`Needs::user_returns`]), from drivers that know it. A [`Cmd::Resched`] of its CPU is
    /// carried out before user code runs.
    ReturnsToUser(TaskId),
    /// The running task becomes another program (`execve`).
    Executes(TaskId),
    /// Affinity (hard or soft).
    Affinity(TaskId),
    /// Policy, nice value or custom slice.
    Attributes(TaskId),
    /// The task moved to another group.
    Regrouped {
        /// Which task.
        task: TaskId,
        /// Its group until now.
        from: GroupId,
    },
    /// Weight, cap or bandwidth of a group.
    Group(GroupId),
    /// A CPU came (true) or went (false).
    Online(CpuId, bool),
}

/// What a scheduler needs of its driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Needs {
    /// Wakeups are delivered as they happen.
    pub wakeups: bool,
    /// Tick edges are delivered.
    pub ticks: bool,
    /// The identity of the waker.
    pub wakers: bool,
    /// Slices end exactly, by a timer of their own.
    pub exact_slices: bool,
    /// Number of [`Timer::Cpu`] slots of each CPU.
    pub cpu_timers: u8,
    /// Whether [`Timer::Task`] is used.
    pub task_timers: bool,
    /// Number of [`Timer::Global`] slots.
    pub global_timers: u8,
    /// [`Scheduler::saved`] is called.
    pub saved: bool,
    /// [`Change::ReturnsToUser`] is told.
    pub user_returns: bool,
    /// It leaves isolated CPUs ([`World::roles`](crate::World)) out of balancing; a driver refuses
    /// isolated CPUs under a scheduler that does not know them.
    pub isolation: bool,
    /// It says when a CPU of `nohz_full` may be without ticks, likewise.
    pub nohz_full: bool,
    /// One lock guards the decisions of all CPUs; [`Work::Lock`](crate::Work::Lock) counts its
    /// holds.
    pub one_lock: bool,
    /// It counts the instructions and calls of its own code ([`Work::Instruction`],
    /// [`Work::Call`](crate::Work::Call)), which then have a price.
    ///
    /// [`Work::Instruction`]: crate::Work::Instruction
    pub counts_code: bool,
    /// It keeps its own marks of what its tasks do: while they run it does not read what that
    /// changes in their [`TaskView`](crate::TaskView)s (`released`, `runnable`, `on_cpu`,
    /// `last_cpu`, `ran`, `entered`). Read in `init`, in `resync` and of a task that is created it
    /// is right; in between a driver that loses no events may leave it out.
    pub own_marks: bool,
}

impl Needs {
    /// In words: what a driver must deliver.
    pub fn words(&self) -> Vec<&'static str> {
        [
            ("wakeups", self.wakeups),
            ("ticks", self.ticks),
            ("wakers", self.wakers),
            ("exact slices", self.exact_slices),
            ("timers", self.cpu_timers > 0 || self.task_timers || self.global_timers > 0),
        ]
        .into_iter()
        .filter(|(_, is)| *is)
        .map(|(word, _)| word)
        .collect()
    }
}
