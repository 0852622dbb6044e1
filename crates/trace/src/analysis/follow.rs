//! Follows every task through its states. The other analyses stand on this: what a wait, a slice or
//! a sleep is, is decided here only.

mod life;

use super::Scope;
use crate::Recording;
use life::{Life, Parts};
use schedlab_model::{CpuId, EventKind, EventSink, Ns, PrevState, SchedEvent, TaskId, Waker};

/// What a thread does, in the words of Perfetto's thread states where it has one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ThreadState {
    /// On a CPU. Time that a hypervisor stole is included: the guest's scheduler sees it as
    /// running.
    Running,
    /// Woken or created, and waiting for a CPU.
    Runnable,
    /// Taken off its CPU although it could go on (a yield included), and waiting for a CPU.
    Preempted,
    /// Runnable, but held back by a bandwidth limit or cap.
    Throttled,
    /// Waiting for an event (`S`).
    Sleeping,
    /// Waiting for a device or a kernel lock (`D`).
    DiskSleep,
    /// Stopped or traced (`T`, `t`).
    Stopped,
    /// Not runnable; the recorder does not know more.
    Blocked,
    /// Ended.
    Dead,
    /// Not seen yet, or events were lost.
    Unknown,
}

impl ThreadState {
    /// All of them, in the order of the columns.
    pub const ALL: [ThreadState; 10] = [
        ThreadState::Running,
        ThreadState::Runnable,
        ThreadState::Preempted,
        ThreadState::Throttled,
        ThreadState::Sleeping,
        ThreadState::DiskSleep,
        ThreadState::Stopped,
        ThreadState::Blocked,
        ThreadState::Dead,
        ThreadState::Unknown,
    ];

    /// The name; Perfetto's where Perfetto has the state.
    pub const fn words(self) -> &'static str {
        match self {
            ThreadState::Running => "Running",
            ThreadState::Runnable => "Runnable",
            ThreadState::Preempted => "Runnable (Preempted)",
            ThreadState::Throttled => "Throttled",
            ThreadState::Sleeping => "Sleeping",
            ThreadState::DiskSleep => "Uninterruptible Sleep",
            ThreadState::Stopped => "Stopped",
            ThreadState::Blocked => "Blocked",
            ThreadState::Dead => "Exit (Dead)",
            ThreadState::Unknown => "Unknown",
        }
    }

    /// Waiting for a CPU, throttled or not.
    pub const fn waits(self) -> bool {
        matches!(self, ThreadState::Runnable | ThreadState::Preempted | ThreadState::Throttled)
    }

    /// Waiting for a CPU that it could get.
    pub const fn queued(self) -> bool {
        matches!(self, ThreadState::Runnable | ThreadState::Preempted)
    }

    /// The state after a switch away from the task.
    const fn after(state: PrevState) -> ThreadState {
        match state {
            PrevState::Runnable | PrevState::RunnableInKernel => ThreadState::Preempted,
            PrevState::Sleeping => ThreadState::Sleeping,
            PrevState::DiskSleep => ThreadState::DiskSleep,
            PrevState::Stopped => ThreadState::Stopped,
            PrevState::Dead => ThreadState::Dead,
            PrevState::Blocked => ThreadState::Blocked,
            PrevState::Unknown => ThreadState::Unknown,
        }
    }
}

/// A task was in one state without a break.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Who.
    pub task: TaskId,
    /// In which state.
    pub state: ThreadState,
    /// Since when.
    pub from: Ns,
    /// Until when.
    pub to: Ns,
    /// Where it ran, or to whose run queue it belonged.
    pub cpu: CpuId,
    /// The state from now on; the same state when the stream ended.
    pub next: ThreadState,
}

impl Span {
    /// Its length.
    pub fn length(&self) -> Ns {
        self.to.saturating_sub(self.from)
    }
}

/// A task wanted a CPU, and got it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait<'a> {
    /// Who waited.
    pub task: TaskId,
    /// Since it was woken or created, or lost the CPU.
    pub from: Ns,
    /// When it ran.
    pub to: Ns,
    /// Where it ran.
    pub cpu: CpuId,
    /// How the wait began.
    pub began: Began,
    /// For how long of it the task was throttled.
    pub throttled: Ns,
    /// The parts of the wait, the first since `from`.
    pub parts: &'a [Part],
}

/// A part of a wait: on one run queue, throttled or not. Without recorded migrations a wait that is
/// not throttled has one part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// Since when; until the next part begins or the wait ends.
    pub since: Ns,
    /// To whose run queue the task belonged.
    pub cpu: CpuId,
    /// Whether a limit held it back.
    pub throttled: bool,
}

/// How a wait began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Began {
    /// With a wakeup, or with the task's creation.
    Woken {
        /// Where the waker ran.
        on: CpuId,
        /// On whose behalf.
        by: Waker,
    },
    /// The CPU was given to another task (`None`: to idle).
    Preempted {
        /// Who ran next.
        by: Option<TaskId>,
    },
}

impl Wait<'_> {
    /// All of it, the throttled part included.
    pub fn total(&self) -> Ns {
        self.to.saturating_sub(self.from)
    }
    /// What counts as `latency` after a wakeup, all of it, and as `wait` after a preemption, the
    /// part in which a CPU could have been given.
    pub fn counted(&self) -> Ns {
        if self.preempted() { self.total().saturating_sub(self.throttled) } else { self.total() }
    }
    /// Calls `each` with every part and its end.
    pub fn each_part(&self, mut each: impl FnMut(&Part, Ns)) {
        for (i, part) in self.parts.iter().enumerate() {
            each(part, self.parts.get(i + 1).map_or(self.to, |next| next.since));
        }
    }
    /// Whether it began with losing the CPU.
    pub const fn preempted(&self) -> bool {
        matches!(self.began, Began::Preempted { .. })
    }
}

/// Who was on a CPU.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Occupant {
    /// A task.
    Task(TaskId),
    /// No task.
    Idle,
    /// Not known: before the CPU's first switch, or after lost events.
    Unknown,
}

impl From<Option<TaskId>> for Occupant {
    fn from(task: Option<TaskId>) -> Occupant {
        task.map_or(Occupant::Idle, Occupant::Task)
    }
}

/// Hears what a [`Follower`] finds.
pub trait Listener {
    /// A span ended. Those without length are not reported.
    fn span(&mut self, _span: &Span) {}
    /// A wait ended with the CPU. Comes after its last span.
    fn wait(&mut self, _wait: &Wait<'_>) {}
    /// From `at` on `who` is on `cpu`. Comes before the spans of the same switch. May name a moment
    /// in the past once for each CPU: who leaves it at its first switch was there from the start.
    fn occupied(&mut self, _cpu: CpuId, _at: Ns, _who: Occupant) {}
    /// The task ran after it had blocked, and no wakeup was seen: no wait is reported.
    fn unknown_wake(&mut self, _task: TaskId, _at: Ns) {}
    /// An event, before it has an effect.
    fn before(&mut self, _follower: &Follower, _event: &SchedEvent) {}
    /// An event, after it had its effect.
    fn after(&mut self, _follower: &Follower, _event: &SchedEvent) {}
    /// The stream ended; the last spans were reported.
    fn finished(&mut self, _follower: &Follower) {}
}

/// A listener with the follower to which it listens: an [`EventSink`].
#[derive(Clone, Debug)]
pub struct Followed<L> {
    follower: Follower,
    /// What was found so far.
    pub listener: L,
}

impl<L: Listener> Followed<L> {
    /// For `tasks` tasks and `cpus` CPUs; the follower grows as needed.
    pub fn new(tasks: usize, cpus: usize, listener: L) -> Followed<L> {
        Followed { follower: Follower::new(tasks, cpus), listener }
    }

    /// The state of every task and CPU now.
    pub fn follower(&self) -> &Follower {
        &self.follower
    }

    /// Forgets a task that has ended; see [`Follower::forget`].
    pub fn forget(&mut self, task: TaskId) {
        self.follower.forget(task);
    }

    /// The end of the stream: closes what is open.
    pub fn finish(mut self, end: Ns) -> L {
        self.follower.finish(end, &mut self.listener);
        self.listener.finished(&self.follower);
        self.listener
    }

    /// A whole recording, or the part that `scope` shows.
    pub fn over(recording: &Recording, scope: &Scope, listener: L) -> L {
        let header = &recording.header;
        let mut followed = Followed::new(header.tasks.len(), header.topology.cpus(), listener);
        scope.feed(recording, &mut followed);
        followed.finish(scope.end(recording))
    }
}

impl<L: Listener> EventSink for Followed<L> {
    #[inline]
    fn event(&mut self, event: &SchedEvent) {
        self.listener.before(&self.follower, event);
        self.follower.event(event, &mut self.listener);
        self.listener.after(&self.follower, event);
    }
}

/// The state of every task and CPU. A task's life begins with its creation where that was seen,
/// else with the stream, in state [`ThreadState::Unknown`]; it ends with its last switch, or with
/// the stream.
#[derive(Clone, Debug)]
pub struct Follower {
    tasks: Vec<Life>,
    cpus: Vec<Option<Occupant>>,
    now: Ns,
}

impl Follower {
    /// For `tasks` tasks and `cpus` CPUs; both grow as needed.
    pub fn new(tasks: usize, cpus: usize) -> Follower {
        Follower { tasks: vec![Life::new(); tasks], cpus: vec![None; cpus], now: Ns::ZERO }
    }

    /// The time of the last event.
    pub fn now(&self) -> Ns {
        self.now
    }

    /// The state of a task and since when.
    pub fn state(&self, task: TaskId) -> (ThreadState, Ns) {
        self.tasks
            .get(task.index())
            .map_or((ThreadState::Unknown, Ns::ZERO), |l| (l.shown(), l.since))
    }

    /// Where a task runs, or to whose run queue it belongs.
    pub fn cpu_of(&self, task: TaskId) -> CpuId {
        self.tasks.get(task.index()).map_or(CpuId(0), |life| life.cpu)
    }

    /// Who is on a CPU.
    pub fn occupant(&self, cpu: CpuId) -> Occupant {
        self.cpus.get(cpu.index()).copied().flatten().unwrap_or(Occupant::Unknown)
    }

    /// Returns for how many tasks there is a place.
    pub fn places(&self) -> usize {
        self.tasks.len()
    }

    /// Forgets a task that has ended: its number may be another task's from now on.
    pub fn forget(&mut self, task: TaskId) {
        if let Some(life) = self.tasks.get_mut(task.index()) {
            *life = Life::new();
        }
    }

    /// The tasks that wait for a CPU, each with the beginning of its wait.
    pub fn waiting(&self) -> impl Iterator<Item = (TaskId, Ns)> + '_ {
        let waits = |(_, life): &(usize, &Life)| life.state.waits();
        self.tasks
            .iter()
            .enumerate()
            .filter(waits)
            .map(|(i, life)| (TaskId::from(i), life.waits_from()))
    }

    /// One event. What ends with it goes to `out`.
    pub fn event(&mut self, event: &SchedEvent, out: &mut impl Listener) {
        self.now = self.now.max(event.at);
        self.grow(event);
        match event.kind {
            EventKind::Switch { prev, prev_state, next } => {
                self.switch(event.cpu, prev, prev_state, next, out);
            }
            EventKind::Wake { task, waker } => self.woke(task, event.cpu, waker, out),
            EventKind::New { task, parent } => {
                let life = &mut self.tasks[task.index()];
                if !life.seen {
                    // It did not exist before.
                    life.since = self.now;
                    life.cpu = event.cpu;
                }
                self.woke(task, event.cpu, parent.map_or(Waker::Unknown, Waker::Task), out);
            }
            EventKind::Migrate { task, to, .. } => self.migrate(task, to, out),
            EventKind::Throttle { task } => self.throttle(task, true, out),
            EventKind::Unthrottle { task } => self.throttle(task, false, out),
            EventKind::Lost { .. } => self.lost(event.cpu, out),
            _ => {}
        }
    }

    /// Ends every span that is still open, at `end`.
    pub fn finish(&mut self, end: Ns, out: &mut impl Listener) {
        self.now = self.now.max(end);
        for index in 0..self.tasks.len() {
            let state = self.tasks[index].state;
            if self.tasks[index].seen && state != ThreadState::Dead {
                self.enter(index, state, out);
            }
        }
    }

    fn grow(&mut self, event: &SchedEvent) {
        if event.cpu.index() >= self.cpus.len() {
            self.cpus.resize(event.cpu.index() + 1, None);
        }
        for task in crate::format::tasks_of(&event.kind).into_iter().flatten() {
            if task.index() >= self.tasks.len() {
                self.tasks.resize_with(task.index() + 1, Life::new);
            }
        }
    }

    /// The task's state is `state` from now on.
    fn enter(&mut self, index: usize, state: ThreadState, out: &mut impl Listener) {
        let life = &mut self.tasks[index];
        let (before, from) = (life.shown(), life.since);
        life.state = state;
        life.since = self.now;
        life.seen = true;
        if from < self.now && before != ThreadState::Dead {
            let task = TaskId::from(index);
            out.span(&Span {
                task,
                state: before,
                from,
                to: self.now,
                cpu: life.cpu,
                next: life.shown(),
            });
        }
    }

    fn begin_wait(&mut self, index: usize, began: Began) {
        let life = &mut self.tasks[index];
        life.excused = Ns::ZERO;
        life.began = began;
        let part = Part { since: self.now, cpu: life.cpu, throttled: life.throttled };
        life.parts = Parts::One([part]);
    }

    /// A wait goes on in another way.
    fn next_part(&mut self, index: usize, cpu: CpuId, throttled: bool, out: &mut impl Listener) {
        let life = &mut self.tasks[index];
        let (task, before, from) = (TaskId::from(index), life.shown(), life.since);
        if life.throttled {
            life.excused += self.now.saturating_sub(from);
        }
        let old = life.cpu;
        (life.throttled, life.cpu, life.since) = (throttled, cpu, self.now);
        life.parts.push(Part { since: self.now, cpu, throttled });
        if from < self.now {
            out.span(&Span {
                task,
                state: before,
                from,
                to: self.now,
                cpu: old,
                next: life.shown(),
            });
        }
    }

    fn migrate(&mut self, task: TaskId, to: CpuId, out: &mut impl Listener) {
        let life = &mut self.tasks[task.index()];
        if life.state.waits() {
            let throttled = life.throttled;
            self.next_part(task.index(), to, throttled, out);
        } else if life.state != ThreadState::Running {
            life.cpu = to;
        }
    }

    fn woke(&mut self, task: TaskId, on: CpuId, by: Waker, out: &mut impl Listener) {
        let index = task.index();
        // A wakeup of a task that did not block yet changes nothing.
        if self.tasks[index].state == ThreadState::Running || self.tasks[index].state.waits() {
            return;
        }
        self.enter(index, ThreadState::Runnable, out);
        self.begin_wait(index, Began::Woken { on, by });
    }

    fn switch(
        &mut self,
        cpu: CpuId,
        prev: Option<TaskId>,
        prev_state: PrevState,
        next: Option<TaskId>,
        out: &mut impl Listener,
    ) {
        if self.cpus[cpu.index()].is_none() {
            // A task that leaves a CPU at its first switch was on it: any earlier switch would be
            // recorded.
            let unseen = prev.is_none_or(|prev| !self.tasks[prev.index()].seen);
            let since = if unseen {
                Ns::ZERO
            } else {
                prev.map_or(Ns::ZERO, |p| self.tasks[p.index()].since)
            };
            out.occupied(cpu, since, prev.into());
            if let (Some(prev), true) = (prev, unseen) {
                let life = &mut self.tasks[prev.index()];
                (life.state, life.cpu) = (ThreadState::Running, cpu);
            }
        }
        if let Some(Occupant::Task(there)) = self.cpus[cpu.index()]
            && Some(there) != prev
        {
            self.left_unseen(there, cpu);
        }
        self.cpus[cpu.index()] = Some(next.into());
        out.occupied(cpu, self.now, next.into());
        if let Some(prev) = prev {
            let index = prev.index();
            let state = ThreadState::after(prev_state);
            self.tasks[index].cpu = cpu;
            self.enter(index, state, out);
            if state == ThreadState::Preempted {
                self.begin_wait(index, Began::Preempted { by: next });
            }
        }
        if let Some(next) = next {
            self.start(next, cpu, out);
        }
    }

    /// Another task leaves the CPU on which this one was: its own switch was not seen, and for how
    /// long it ran is not known. (In a file such gaps are repaired when it is read; a stream has no
    /// file, and a task left running would have all time from then on.)
    fn left_unseen(&mut self, task: TaskId, cpu: CpuId) {
        let life = &mut self.tasks[task.index()];
        if life.state == ThreadState::Running && life.cpu == cpu {
            (life.state, life.since) = (ThreadState::Unknown, self.now);
        }
    }

    fn start(&mut self, task: TaskId, cpu: CpuId, out: &mut impl Listener) {
        let index = task.index();
        let life = &mut self.tasks[index];
        let (state, seen) = (life.state, life.seen);
        if life.shown() == ThreadState::Throttled {
            life.excused += self.now.saturating_sub(life.since);
        }
        // Where it runs it waited last, whatever migrations were seen.
        life.cpu = cpu;
        if let Some(last) = life.parts.last_mut() {
            last.cpu = cpu;
        }
        self.enter(index, ThreadState::Running, out);
        let life = &self.tasks[index];
        if state.waits() {
            out.wait(&Wait {
                task,
                from: life.waits_from(),
                to: self.now,
                cpu,
                began: life.began,
                throttled: life.excused,
                parts: life.parts.list(),
            });
        } else if seen && !matches!(state, ThreadState::Unknown | ThreadState::Running) {
            out.unknown_wake(task, self.now);
        }
    }

    fn throttle(&mut self, task: TaskId, begins: bool, out: &mut impl Listener) {
        let life = &mut self.tasks[task.index()];
        if life.throttled == begins {
            return;
        }
        if life.state.waits() {
            let cpu = life.cpu;
            self.next_part(task.index(), cpu, begins, out);
        } else {
            life.throttled = begins;
        }
    }

    /// Any task's wakeup may be among the lost events, but only this CPU's switches are.
    fn lost(&mut self, cpu: CpuId, out: &mut impl Listener) {
        self.cpus[cpu.index()] = Some(Occupant::Unknown);
        out.occupied(cpu, self.now, Occupant::Unknown);
        for index in 0..self.tasks.len() {
            let life = &self.tasks[index];
            let elsewhere = life.state == ThreadState::Running && life.cpu != cpu;
            if life.seen && !elsewhere && life.state != ThreadState::Dead {
                self.enter(index, ThreadState::Unknown, out);
            }
        }
    }
}
