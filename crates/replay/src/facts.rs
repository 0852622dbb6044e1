//! First stage: what each task did, operation by operation, with the CPU time around each. Nothing
//! is added, and nothing of what the recorded scheduler did to the tasks is left: neither where
//! they ran nor how long they waited for a CPU.

use crate::mailboxes::mailboxes;
use schedlab_model::{
    CpuId, EventKind, Fact, FactKind, Limit, Ns, ObjectId, ObjectInfo, Outcome, PrevState,
    SchedEvent, TaskId, Transfer, Waker,
};
use schedlab_trace::Recording;
use schedlab_trace::replay::RecorderCost;
use schedlab_trace::siblings::{Beside, Speed};
use std::collections::BTreeSet;

/// The operations of a recording.
#[derive(Clone, Debug)]
pub struct Facts {
    /// By task.
    pub tasks: Vec<TaskFacts>,
    /// The objects that their operations name: those of the recording, and behind them those that
    /// are told apart.
    pub objects: Vec<ObjectInfo>,
    /// The length of the recording.
    pub duration: Ns,
}

/// The operations of one task, in order.
#[derive(Clone, Debug, Default)]
pub struct TaskFacts {
    /// What it did.
    pub operations: Vec<Operation>,
    /// CPU time behind its last operation.
    pub rest: Ns,
    /// It slept from then to the end of the recording.
    pub asleep_since: Option<Ns>,
    /// It was stopped then, by a signal or a tracer.
    pub stopped: bool,
    /// CPU time in all.
    pub ran: Ns,
    /// It was created in the recording, then.
    pub created: Option<Ns>,
    /// The task that created it there as one of its operations.
    pub creator: Option<TaskId>,
    /// It ended in the recording, then.
    pub ended_at: Option<Ns>,
    /// Where it was seen first.
    pub first_cpu: Option<CpuId>,
    /// When it was seen running or runnable first.
    pub first_seen: Option<Ns>,
    /// It was asleep when the recording began.
    pub began_asleep: bool,
}

/// One operation of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation {
    /// When it ended.
    pub at: Ns,
    /// When the operation before it ended.
    pub began: Ns,
    /// CPU time since then until it slept; all of it when it did not.
    pub before: Ns,
    /// CPU time behind its sleep.
    pub after: Ns,
    /// How it slept, if it did.
    pub slept: Option<Slept>,
    /// When it woke another task last.
    pub woke: Option<Ns>,
    /// What it was.
    pub kind: Kind,
}

impl Operation {
    /// Returns all its CPU time.
    pub fn cost(&self) -> Ns {
        self.before + self.after
    }
}

/// A sleep inside an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slept {
    /// When it ended: the wakeup.
    pub until: Ns,
    /// How long it was.
    pub length: Ns,
    /// A task ended it, or a softirq inside its system call.
    pub by_task: bool,
    /// It waited for a device (state D).
    pub device: bool,
}

/// What an operation was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Bytes, messages or tokens came out of an object.
    Receive(ObjectId, u64),
    /// It looked at an object, in which nothing was.
    Nothing(ObjectId),
    /// Bytes, messages or tokens went into an object.
    Send(ObjectId, u64),
    /// It looked at several objects.
    Select {
        /// How many had something.
        ready: u32,
        /// It was ready to wait for a limited time only, and that was over.
        timed_out: bool,
    },
    /// It waited at a futex, and was woken there.
    FutexWait {
        /// The futex.
        futex: ObjectId,
        /// The value with which it waited.
        expected: u32,
    },
    /// It woke those that wait at a futex.
    FutexWake(ObjectId, u32),
    /// It slept on a timer until an absolute time, or for a time.
    Sleep(Limit),
    /// It waited for something that has no fact, and no recorded task ended that;
    /// [`Operation::slept`] says how long.
    Unknown,
    /// It waited for something that has no fact, and a task ended that: this is what replaces a
    /// message.
    Woken,
    /// It ended such a wait of another task.
    Wake(TaskId),
    /// It created a task.
    Spawn(TaskId),
    /// It waited for a child that had ended.
    Child(TaskId),
    /// Nothing that others see.
    Silent,
}

/// What is known of a task while the recording is read.
#[derive(Clone, Debug, Default)]
struct Reading {
    facts: TaskFacts,
    running: Option<(CpuId, Ns)>,
    speed: Speed,
    before: Ns,
    after: Ns,
    began: Ns,
    woke: Option<Ns>,
    /// It blocked in the present operation, then, in this state.
    blocked: Option<(Ns, PrevState)>,
    slept: Option<Slept>,
    seen: bool,
    /// Its wakeups of others, with where it was then.
    wakes: Vec<Note>,
}

/// A wakeup by a task.
#[derive(Clone, Copy, Debug)]
struct Note {
    at: Ns,
    wakee: TaskId,
    /// In its operation of this number.
    operation: usize,
    /// After so much CPU time of it; `None`: behind its sleep.
    progress: Option<Ns>,
}

impl Reading {
    /// Adds CPU time up to `now`.
    fn charge(&mut self, now: Ns) {
        if let Some((_, since)) = &mut self.running {
            let ran = self.speed.work(now.saturating_sub(*since));
            *since = (*since).max(now);
            self.facts.ran += ran;
            if self.blocked.is_some() { self.after += ran } else { self.before += ran }
        }
    }

    /// Ends the present operation.
    fn done(&mut self, at: Ns, kind: Kind) {
        self.facts.operations.push(Operation {
            at,
            began: self.began,
            before: std::mem::take(&mut self.before),
            after: std::mem::take(&mut self.after),
            slept: self.slept.take(),
            woke: self.woke.take().filter(|woke| *woke >= self.began),
            kind,
        });
        self.blocked = None;
        self.began = at;
    }

    /// It slept in something that the next operation is not: that was one of its own. What a task
    /// ended is no sleep that would come again by itself.
    fn unknown_sleep(&mut self) {
        let Some(slept) = self.slept else { return };
        let behind = std::mem::take(&mut self.after);
        self.done(slept.until, if slept.by_task { Kind::Woken } else { Kind::Unknown });
        self.before = behind;
    }
}

/// Returns the waits without a fact that a task ended: task and time of the wakeup.
fn unexplained(tasks: &[Reading]) -> BTreeSet<(TaskId, Ns)> {
    let mut all = BTreeSet::new();
    for (number, task) in tasks.iter().enumerate() {
        let woken = task.facts.operations.iter().filter(|operation| operation.kind == Kind::Woken);
        let until = woken.filter_map(|operation| operation.slept).map(|slept| slept.until);
        all.extend(until.map(|until| (TaskId::from(number), until)));
    }
    all
}

impl TaskFacts {
    /// Returns when it came into being; 0 when it was there before the recording.
    pub fn born(&self) -> Ns {
        self.created.unwrap_or_default()
    }

    /// Returns whether it ended in the recording.
    pub fn ended(&self) -> bool {
        self.ended_at.is_some()
    }

    /// Returns how long it lived in a recording of this length.
    pub fn life(&self, duration: Ns) -> Ns {
        self.ended_at.unwrap_or(duration).saturating_sub(self.born())
    }

    /// A task that looks at several objects and takes nothing out of any: its looks are waits
    /// without facts.
    fn select_only(&mut self) {
        if self.operations.iter().any(|operation| matches!(operation.kind, Kind::Receive(..))) {
            return;
        }
        for operation in &mut self.operations {
            if let Kind::Select { timed_out, .. } = operation.kind {
                operation.kind = match operation.slept {
                    Some(_) if timed_out => Kind::Sleep(Limit::Unknown),
                    Some(slept) if slept.by_task => Kind::Woken,
                    Some(_) => Kind::Unknown,
                    None => Kind::Silent,
                };
            }
        }
    }

    /// Waits of `task` that a task ended of which nothing more is known are as those that no task
    /// ended.
    fn forget_wakers(&mut self, task: TaskId, found: &BTreeSet<(TaskId, Ns)>) {
        for operation in
            self.operations.iter_mut().filter(|operation| operation.kind == Kind::Woken)
        {
            if !operation.slept.is_some_and(|slept| found.contains(&(task, slept.until))) {
                operation.kind = Kind::Unknown;
            }
        }
    }
}

impl Reading {
    /// Puts its wakeups that have no fact between its operations, and notes them in `found`.
    fn tell(&mut self, unexplained: &BTreeSet<(TaskId, Ns)>, found: &mut BTreeSet<(TaskId, Ns)>) {
        let notes = std::mem::take(&mut self.wakes);
        let mut told =
            notes.iter().filter(|note| unexplained.contains(&(note.wakee, note.at))).peekable();
        if told.peek().is_none() {
            return;
        }
        let rest = Operation {
            at: Ns(u64::MAX),
            began: self.began,
            before: self.facts.rest,
            after: Ns::ZERO,
            slept: None,
            woke: None,
            kind: Kind::Silent,
        };
        let old = std::mem::take(&mut self.facts.operations);
        let last = old.len();
        for (number, mut operation) in old.into_iter().chain([rest]).enumerate() {
            let mut behind = Vec::new();
            let mut spent = Ns::ZERO;
            while let Some(note) = told.next_if(|note| note.operation <= number) {
                found.insert((note.wakee, note.at));
                let mut wake = Operation { at: note.at, kind: Kind::Wake(note.wakee), ..rest };
                wake.before = Ns::ZERO;
                match note.progress {
                    Some(progress) => {
                        wake.before = progress.saturating_sub(spent).min(operation.before);
                        operation.before -= wake.before;
                        spent = progress.max(spent);
                        self.facts.operations.push(wake);
                    }
                    None => behind.push(wake),
                }
            }
            if number == last {
                self.facts.rest = operation.before;
            } else {
                self.facts.operations.push(operation);
            }
            self.facts.operations.append(&mut behind);
        }
    }
}

/// What reads a recording.
struct Reader {
    tasks: Vec<Reading>,
    /// By CPU: the task that runs there.
    current: Vec<Option<TaskId>>,
    recorder: RecorderCost,
    beside: Beside,
    /// By object: the one that is taken in its place.
    mailboxes: Vec<ObjectId>,
}

impl Facts {
    /// Returns the operations of a recording. `recorder`: its price, which is no demand of the
    /// tasks. `beside`: the speed of a hardware thread beside a busy one of its core.
    pub fn from_recording(recording: &Recording, recorder: RecorderCost, beside: Speed) -> Facts {
        let mut reader = Reader {
            tasks: vec![Reading::default(); recording.header.tasks.len()],
            current: vec![None; recording.header.topology.cpus()],
            recorder,
            beside: Beside::new(&recording.header.topology, beside),
            mailboxes: mailboxes(&recording.facts),
        };
        let mut facts = recording.facts.list.iter().peekable();
        for event in &recording.events {
            // At one moment a task that runs does something before it leaves its CPU, and one that
            // comes does it then.
            while let Some(fact) = facts
                .next_if(|fact| fact.at < event.at || (fact.at == event.at && reader.runs(fact)))
            {
                reader.fact(fact);
            }
            reader.event(event);
        }
        facts.for_each(|fact| reader.fact(fact));
        let duration = recording.duration;
        for task in &mut reader.tasks {
            task.charge(duration);
            if task.slept.is_some() {
                task.unknown_sleep();
            }
            let asleep = task.blocked.filter(|_| task.running.is_none());
            task.facts.asleep_since = asleep.map(|(at, _)| at);
            task.facts.stopped = asleep.is_some_and(|(_, state)| state == PrevState::Stopped);
            task.facts.rest = task.before + task.after;
            task.facts.select_only();
        }
        let unexplained = unexplained(&reader.tasks);
        let mut found = BTreeSet::new();
        for task in &mut reader.tasks {
            task.tell(&unexplained, &mut found);
        }
        for (number, task) in reader.tasks.iter_mut().enumerate() {
            task.facts.forget_wakers(TaskId::from(number), &found);
        }
        let objects = recording.facts.objects.clone();
        let tasks = reader.tasks.into_iter().map(|task| task.facts).collect();
        Facts { tasks, objects, duration }
    }
}

impl Reader {
    /// Returns whether the task of the fact is the one on its CPU.
    fn runs(&self, fact: &Fact) -> bool {
        fact.task.is_some() && self.current[fact.cpu.index()] == fact.task
    }

    fn event(&mut self, event: &SchedEvent) {
        let now = event.at;
        match event.kind {
            EventKind::Switch { prev, prev_state, next } => {
                if let Some(prev) = prev {
                    self.stop(now, event.cpu, prev, prev_state);
                }
                if let Some(next) = next {
                    self.start(now, event.cpu, next);
                }
                self.current[event.cpu.index()] = next;
                self.beside_changes(now, event.cpu, next.is_some());
                self.pay(event.cpu, self.recorder.switch);
            }
            EventKind::Wake { task, waker } => {
                let by = match waker {
                    Waker::Task(by) | Waker::InlineSoftirq(by) => Some(by),
                    _ => None,
                };
                self.wake(now, task, by.is_some_and(|by| by != task));
                if let Some(by) = by.filter(|by| *by != task) {
                    self.tasks[by.index()].wakes_another(now, task);
                }
                self.pay(event.cpu, self.recorder.wake);
            }
            EventKind::New { task, parent } => self.create(now, task, parent),
            EventKind::Exit { task } => self.tasks[task.index()].facts.ended_at = Some(now),
            EventKind::Steal { ns } => {
                if let Some(task) = self.current[event.cpu.index()]
                    && let Some((_, since)) = &mut self.tasks[task.index()].running
                {
                    *since = since.saturating_add(ns).min(now);
                }
            }
            _ => {}
        }
    }

    /// A CPU is busy or idle now: those that run on the other threads of its core have another
    /// speed from now on.
    fn beside_changes(&mut self, now: Ns, cpu: CpuId, busy: bool) {
        for (other, slowed) in self.beside.set(cpu, busy) {
            self.beside.slow(other, slowed);
            if let Some(task) = self.current[other.index()] {
                let task = &mut self.tasks[task.index()];
                task.charge(now);
                task.speed = self.beside.speed(other);
            }
        }
    }

    /// The task that runs on `cpu` pays for a record of the recorder.
    fn pay(&mut self, cpu: CpuId, cost: Ns) {
        if let Some(task) = self.current[cpu.index()]
            && let task = &mut self.tasks[task.index()]
            && let Some((_, since)) = task.running
        {
            task.charge(since);
            task.running = Some((cpu, since.saturating_add(cost)));
        }
    }

    fn stop(&mut self, now: Ns, cpu: CpuId, task: TaskId, state: PrevState) {
        let task = &mut self.tasks[task.index()];
        if !task.seen {
            // It was on its CPU when the recording began.
            task.running = Some((cpu, Ns::ZERO));
            task.facts.first_cpu = Some(cpu);
            task.facts.first_seen = Some(Ns::ZERO);
            task.seen = true;
        }
        task.charge(now);
        task.running = None;
        if state.is_runnable() == Some(true) || state == PrevState::Dead {
            return;
        }
        if task.blocked.is_some() {
            task.unknown_sleep();
        }
        task.blocked = Some((now, state));
        task.slept = None;
    }

    fn start(&mut self, now: Ns, cpu: CpuId, task: TaskId) {
        let task = &mut self.tasks[task.index()];
        task.first(now, cpu);
        task.running = Some((cpu, now));
        task.speed = self.beside.speed(cpu);
        if let Some((since, state)) = task.blocked
            && task.slept.is_none()
        {
            // Its wakeup was not seen.
            task.slept = Some(slept(since, now, state, false));
        }
    }

    fn wake(&mut self, now: Ns, task: TaskId, by_task: bool) {
        let task = &mut self.tasks[task.index()];
        if !task.seen && task.facts.first_seen.is_none() {
            task.facts.first_seen = Some(now);
            task.facts.began_asleep = true;
        }
        if task.running.is_none()
            && task.slept.is_none()
            && let Some((since, state)) = task.blocked
        {
            task.slept = Some(slept(since, now, state, by_task));
        }
    }

    fn create(&mut self, now: Ns, child: TaskId, parent: Option<TaskId>) {
        let task = &mut self.tasks[child.index()];
        if task.seen || task.facts.created.is_some() {
            return;
        }
        task.facts.created = Some(now);
        task.facts.first_seen = Some(now);
        task.began = now;
        let running = |parent: &TaskId| self.tasks[parent.index()].running.is_some();
        if let Some(creator) = parent.filter(running) {
            self.tasks[child.index()].facts.creator = Some(creator);
            let creator = &mut self.tasks[creator.index()];
            creator.charge(now);
            creator.done(now, Kind::Spawn(child));
        }
    }

    fn fact(&mut self, fact: &Fact) {
        let Some(task) = fact.task else { return };
        let Some(mut kind) = kind(fact) else { return };
        if let Kind::Receive(object, _) | Kind::Send(object, _) | Kind::Nothing(object) = &mut kind
        {
            *object = self.mailboxes[object.index()];
        }
        let task = &mut self.tasks[task.index()];
        task.first(fact.at, fact.cpu);
        if task.running.is_none() {
            task.running = Some((fact.cpu, fact.at));
        }
        task.charge(fact.at);
        if task.slept.is_some() && !can_sleep(&kind) {
            task.unknown_sleep();
        }
        task.done(fact.at, kind);
    }
}

impl Reading {
    /// It wakes another task.
    fn wakes_another(&mut self, now: Ns, wakee: TaskId) {
        self.charge(now);
        self.woke = Some(now);
        let progress = self.blocked.is_none().then_some(self.before);
        let operation = self.facts.operations.len();
        self.wakes.push(Note { at: now, wakee, operation, progress });
    }

    /// Notes where and when the task was seen first.
    fn first(&mut self, now: Ns, cpu: CpuId) {
        self.seen = true;
        self.facts.first_cpu.get_or_insert(cpu);
        self.facts.first_seen.get_or_insert(now);
    }
}

fn slept(since: Ns, until: Ns, state: PrevState, by_task: bool) -> Slept {
    let length = until.saturating_sub(since);
    Slept { until, length, by_task, device: state == PrevState::DiskSleep }
}

/// Returns what the fact was as an operation; `None`: it is none of a task's own.
fn kind(fact: &Fact) -> Option<Kind> {
    let moved = |transfer: &Transfer| {
        transfer.outcome == Outcome::Done
            && transfer.bytes > 0
            && !transfer.peek
            && !transfer.by_kernel
    };
    Some(match fact.kind {
        FactKind::Send(sent) if moved(&sent) => Kind::Send(sent.object, sent.bytes.into()),
        FactKind::Receive(got) if moved(&got) => Kind::Receive(got.object, got.bytes.into()),
        FactKind::Receive(got) if got.outcome == Outcome::WouldBlock => Kind::Nothing(got.object),
        FactKind::Select { ready, outcome, .. } => {
            Kind::Select { ready, timed_out: outcome == Outcome::TimedOut }
        }
        FactKind::FutexWait { futex, expected, outcome: Outcome::Done, .. } => {
            Kind::FutexWait { futex, expected }
        }
        FactKind::FutexWait { until, outcome: Outcome::TimedOut, .. } => Kind::Sleep(until),
        FactKind::FutexWake { futex, woken, .. } if woken > 0 => Kind::FutexWake(futex, woken),
        FactKind::Sleep { until, .. } => Kind::Sleep(until),
        FactKind::Child { child: Some(child) } => Kind::Child(child),
        FactKind::Signal { .. } | FactKind::Preempted { .. } | FactKind::Lost { .. } => {
            return None;
        }
        _ => Kind::Silent,
    })
}

/// Returns whether a task can sleep in an operation of this kind until it is done.
fn can_sleep(kind: &Kind) -> bool {
    !matches!(kind, Kind::Nothing(_) | Kind::FutexWake(..) | Kind::Spawn(_) | Kind::Silent)
}
