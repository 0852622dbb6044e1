//! A scheduler with its world: everything that a live driver decides, without a clock or a system call.
//!
//! What happens reaches the desk as [`Step`]s, in order, each with its time. The answers follow from the steps alone, so a
//! log of the steps, played into a new desk, must give the same answers: that is what `schedlab verify` checks.

use schedlab_model::{CpuId, CpuSet, Nice, Ns, Policy, TaskId, Topology, Waker};
use schedlab_scheduler::registry;
use schedlab_scheduler::{
    Change, Cmd, CpuView, Cx, GroupView, KnobError, Out, Prev, Runnable, Scheduler, SchedulerSpec, TaskView,
    Timer, Wake, WakeKind, World,
};
use serde::{Deserialize, Serialize};

/// One thing that happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Step {
    /// When, on the monotonic clock since the start of the run.
    pub at: Ns,
    /// What.
    pub what: What,
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// A thread came under management; it sleeps until its first `Wake`.
    Join {
        /// Its number at the desk: the next free one.
        task: u32,
        /// What the scheduler takes its policy for.
        policy: Policy,
        /// Its nice value.
        nice: Nice,
        /// Where it may run, of the managed CPUs.
        affinity: CpuSet,
        /// Its process.
        process: u32,
    },
    /// It became runnable.
    Wake {
        /// Which task.
        task: u32,
        /// On whose behalf.
        #[serde(default, skip_serializing_if = "By::is_unknown")]
        by: By,
    },
    /// The scheduler shall take its policy for another one.
    Policy {
        /// Which task.
        task: u32,
        /// What it is taken for now.
        policy: Policy,
    },
    /// Its nice value changed.
    Nice {
        /// Which task.
        task: u32,
        /// Its nice value now.
        nice: Nice,
    },
    /// Its affinity changed.
    Affinity {
        /// Which task.
        task: u32,
        /// Where it may run now.
        affinity: CpuSet,
    },
    /// A task that does not run left: it ended, or was released.
    Leave {
        /// Which task.
        task: u32,
    },
    /// A CPU must decide; this became of the task that ran there.
    Decide {
        /// Which CPU.
        cpu: u32,
        /// What became of it. `Idle` when nobody ran.
        prev: Fate,
    },
    /// A tick of a CPU.
    Tick {
        /// Which CPU.
        cpu: u32,
    },
    /// A timer that the scheduler armed.
    Timer {
        /// Which.
        timer: Slot,
    },
}

/// On whose behalf a task was woken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// Nobody can tell, or a thread that is not managed.
    #[default]
    Unknown,
    /// A managed task, in its own context.
    Task(u32),
    /// A softirq.
    SoftIrq,
    /// A hardware interrupt.
    HardIrq,
}

impl By {
    /// Whether nothing is known.
    pub fn is_unknown(&self) -> bool {
        *self == By::Unknown
    }

    fn waker(self, tasks: u32) -> Waker {
        match self {
            By::Task(task) if task < tasks => Waker::Task(TaskId(task)),
            By::SoftIrq => Waker::SoftIrq,
            By::HardIrq => Waker::HardIrq,
            By::Task(_) | By::Unknown => Waker::Unknown,
        }
    }
}

/// What became of the task that ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// Nobody ran.
    Idle,
    /// It wants to go on.
    Runnable,
    /// It sleeps.
    Blocked,
    /// It is gone.
    Exited,
}

/// A timer, as the log writes it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Slot {
    /// Of a CPU.
    Cpu(u32, u8),
    /// Of a task.
    Task(u32),
    /// Of the machine.
    Global(u8),
}

impl From<Timer> for Slot {
    fn from(timer: Timer) -> Slot {
        match timer {
            Timer::Cpu(cpu, slot) => Slot::Cpu(cpu.0, slot),
            Timer::Task(task) => Slot::Task(task.0),
            Timer::Global(slot) => Slot::Global(slot),
        }
    }
}

impl From<Slot> for Timer {
    fn from(slot: Slot) -> Timer {
        match slot {
            Slot::Cpu(cpu, slot) => Timer::Cpu(CpuId(cpu), slot),
            Slot::Task(task) => Timer::Task(TaskId(task)),
            Slot::Global(slot) => Timer::Global(slot),
        }
    }
}

/// What the scheduler decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Decision {
    /// Who runs; `None`: nobody of ours.
    pub task: Option<u32>,
    /// Decide again after this time.
    pub slice: Option<Ns>,
}

/// What a step asks of the driver.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Answer {
    /// For a `Decide`: the decision.
    pub decision: Option<Decision>,
    /// CPUs that must decide now, in order, each once.
    pub resched: Vec<u32>,
    /// Timers to set (time since the start) or to stop (`None`).
    pub timers: Vec<(Slot, Option<Ns>)>,
}

/// The shape of the machine as the desk sees it: only managed CPUs, numbered from 0.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DeskOptions {
    /// The scheduler, such as `shinjuku:quantum=200us`.
    pub scheduler: String,
    /// Number of managed CPUs.
    pub cpus: usize,
    /// How many threads can join over the run.
    pub tasks: usize,
    /// Ticks a second.
    pub hz: u32,
    /// Seed of the scheduler's random numbers.
    pub seed: u64,
}

/// See the module.
pub struct Desk {
    scheduler: Box<dyn Scheduler + Send>,
    world: World,
    out: Out,
    joined: u32,
    commands: Vec<Cmd>,
}

impl Desk {
    /// A desk without tasks.
    ///
    /// # Errors
    /// When the scheduler or one of its knobs is unknown.
    pub fn new(options: &DeskOptions) -> Result<Desk, KnobError> {
        let spec: SchedulerSpec = options.scheduler.parse()?;
        let scheduler = registry::build_to_send(&spec, options.cpus)?;
        let tick_ns = Ns(1_000_000_000 / u64::from(options.hz.max(1)));
        let world = World {
            tasks: (0..options.tasks).map(|_| TaskView::default()).collect(),
            cpus: (0..options.cpus).map(|_| CpuView::new(Ns::ZERO)).collect(),
            groups: vec![GroupView::default()],
            topology: Topology::flat(options.cpus),
            hz: options.hz,
            tick_ns,
        };
        let desk = Desk {
            scheduler,
            world,
            out: Out::new(options.seed),
            joined: 0,
            commands: Vec::with_capacity(64),
        };
        desk.scheduler.init(&Cx { now: Ns::ZERO, cpu: CpuId(0), world: &desk.world, out: &desk.out });
        Ok(desk)
    }

    /// The scheduler, for its needs and refusals.
    pub fn scheduler(&self) -> &dyn Scheduler {
        &*self.scheduler
    }

    /// The number that the next task gets; `None`: the desk is full.
    pub fn next_task(&self) -> Option<u32> {
        (self.joined < self.world.tasks.len() as u32).then_some(self.joined)
    }

    /// Who runs on a CPU, as the desk knows it.
    pub fn current(&self, cpu: u32) -> Option<u32> {
        self.world.cpus.get(cpu as usize).and_then(CpuView::current).map(|task| task.0)
    }

    /// On which CPU a task runs, as the desk knows it.
    pub fn on_cpu(&self, task: u32) -> Option<u32> {
        self.world.tasks.get(task as usize).and_then(TaskView::on_cpu).map(|cpu| cpu.0)
    }

    /// Whether a task wants a CPU, as the desk knows it.
    pub fn runnable(&self, task: u32) -> bool {
        self.world.tasks.get(task as usize).is_some_and(|view| view.runnable() == Runnable::Yes)
    }

    /// CPU time that the desk gave to a task, up to `now`.
    pub fn ran(&self, task: u32, now: Ns) -> Ns {
        let Some(view) = self.world.tasks.get(task as usize) else { return Ns::ZERO };
        let open = view.on_cpu().map_or(Ns::ZERO, |_| now.saturating_sub(view.entered()));
        view.ran() + open
    }

    /// Plays one step. A step that makes no sense (a task that does not exist, a wakeup of a runnable one) changes
    /// nothing and asks for nothing.
    pub fn step(&mut self, step: &Step) -> Answer {
        let mut answer = Answer::default();
        let now = step.at;
        match &step.what {
            What::Join { task, policy, nice, affinity, process } => {
                self.join(now, *task, *policy, *nice, *affinity, *process);
            }
            What::Wake { task, by } => self.wake(now, *task, *by),
            What::Policy { task, policy } => {
                self.change(now, *task, Change::Attributes, |view| view.policy = *policy)
            }
            What::Nice { task, nice } => {
                self.change(now, *task, Change::Attributes, |view| view.nice = *nice);
            }
            What::Affinity { task, affinity } => {
                self.change(now, *task, Change::Affinity, |view| view.affinity = *affinity);
            }
            What::Leave { task } => self.leave(now, *task),
            What::Decide { cpu, prev } => answer.decision = self.decide(now, *cpu, *prev),
            What::Tick { cpu } => self.call(now, *cpu, |scheduler, cx| scheduler.tick(cx, cx.cpu)),
            What::Timer { timer } => {
                // Timers of tasks and of the machine belong to no CPU: the first one stands for all.
                let cpu = if let Slot::Cpu(cpu, _) = timer { *cpu } else { 0 };
                self.call(now, cpu, |scheduler, cx| scheduler.timer(cx, (*timer).into()));
            }
        }
        self.collect(now, &mut answer);
        answer
    }

    fn call(&self, now: Ns, cpu: u32, call: impl FnOnce(&dyn Scheduler, &Cx<'_>)) {
        if (cpu as usize) < self.world.cpus.len() {
            call(&*self.scheduler, &Cx { now, cpu: CpuId(cpu), world: &self.world, out: &self.out });
        }
    }

    fn join(&mut self, now: Ns, task: u32, policy: Policy, nice: Nice, affinity: CpuSet, process: u32) {
        let Some(view) = self.world.tasks.get_mut(task as usize).filter(|_| task == self.joined) else {
            return;
        };
        (view.alive, view.policy, view.nice, view.process) = (true, policy, nice, process);
        view.affinity = affinity;
        self.joined += 1;
        let change = Change::Created { task: TaskId(task), parent: None };
        self.call(now, 0, |scheduler, cx| scheduler.changed(cx, change));
    }

    fn wake(&mut self, now: Ns, task: u32, by: By) {
        let Some(view) = self.world.tasks.get(task as usize).filter(|view| view.alive) else { return };
        if view.runnable() == Runnable::Yes {
            return;
        }
        let kind =
            if view.ran() == Ns::ZERO && view.entered() == Ns::ZERO { WakeKind::New } else { WakeKind::Wake };
        view.set_runnable(Runnable::Yes);
        view.released.set(now);
        let wake = Wake { kind, sync: false, waker: by.waker(self.joined) };
        let cpu = view.last_cpu().0;
        self.call(now, cpu, |scheduler, cx| scheduler.wake(cx, TaskId(task), wake));
    }

    fn change(&mut self, now: Ns, task: u32, what: fn(TaskId) -> Change, set: impl FnOnce(&mut TaskView)) {
        let Some(view) = self.world.tasks.get_mut(task as usize).filter(|view| view.alive) else { return };
        set(view);
        self.call(now, 0, |scheduler, cx| scheduler.changed(cx, what(TaskId(task))));
    }

    fn leave(&mut self, now: Ns, task: u32) {
        let Some(view) = self.world.tasks.get_mut(task as usize).filter(|view| view.alive) else { return };
        if view.on_cpu().is_some() {
            return;
        }
        view.alive = false;
        view.set_runnable(Runnable::No);
        self.call(now, 0, |scheduler, cx| scheduler.leave(cx, TaskId(task)));
    }

    fn decide(&mut self, now: Ns, cpu: u32, fate: Fate) -> Option<Decision> {
        let view = self.world.cpus.get(cpu as usize)?;
        let prev = view.current();
        let why = match (prev, fate) {
            (None, _) | (_, Fate::Idle) => Prev::Idle,
            (_, Fate::Runnable) => Prev::Runnable,
            (_, Fate::Blocked) => Prev::Blocked,
            (_, Fate::Exited) => Prev::Exited,
        };
        if let Some(task) = prev {
            let task = &mut self.world.tasks[task.index()];
            task.switched_out(now, now.saturating_sub(task.entered()));
            if matches!(why, Prev::Blocked | Prev::Exited) {
                task.set_runnable(Runnable::No);
            }
            task.alive = why != Prev::Exited;
        }
        let cx = Cx { now, cpu: CpuId(cpu), world: &self.world, out: &self.out };
        let pick = self.scheduler.schedule(&cx, CpuId(cpu), prev, why);
        self.world.cpus[cpu as usize].set_current(pick.task);
        if let Some(next) = pick.task {
            self.world.tasks[next.index()].switched_in(CpuId(cpu), now);
        }
        if let Some(prev) = prev.filter(|prev| pick.task != Some(*prev)) {
            self.call(now, cpu, |scheduler, cx| scheduler.saved(cx, cx.cpu, prev));
        }
        Some(Decision { task: pick.task.map(|task| task.0), slice: pick.slice_ns })
    }

    /// Carries out what the scheduler asked for, as far as it concerns the desk itself.
    fn collect(&mut self, now: Ns, answer: &mut Answer) {
        // A call may ask for calls; a scheduler that never stops asking is cut off.
        for _ in 0..8 {
            let mut commands = std::mem::take(&mut self.commands);
            self.out.take_cmds(&mut commands);
            for command in &commands {
                match *command {
                    Cmd::Resched(cpu) if !answer.resched.contains(&cpu.0) => answer.resched.push(cpu.0),
                    Cmd::Arm(timer, at) => answer.timers.push((timer.into(), Some(at))),
                    Cmd::Disarm(timer) => answer.timers.push((timer.into(), None)),
                    Cmd::Call(cpu, cookie) => {
                        self.call(now, cpu.0, |scheduler, cx| scheduler.call(cx, cookie))
                    }
                    // A running task that must leave its CPU: that CPU decides, and the task finds its place by the
                    // scheduler's own rules.
                    Cmd::Displace(task) => {
                        let on = self.world.tasks[task.index()].on_cpu();
                        answer.resched.extend(on.map(|cpu| cpu.0));
                    }
                    _ => {}
                }
            }
            let more = !commands.is_empty();
            commands.clear();
            self.commands = commands;
            if !more {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desk(scheduler: &str) -> Desk {
        let options = DeskOptions { scheduler: scheduler.to_owned(), cpus: 1, tasks: 8, hz: 250, seed: 1 };
        Desk::new(&options).expect("a scheduler of the registry")
    }

    struct Play {
        desk: Desk,
        now: u64,
    }

    impl Play {
        fn new(scheduler: &str, policies: &[&str]) -> Play {
            let mut play = Play { desk: desk(scheduler), now: 0 };
            for (task, policy) in policies.iter().enumerate() {
                let policy = policy.parse().unwrap();
                let (nice, affinity) = (Nice::ZERO, CpuSet::first(1));
                play.step(0, What::Join { task: task as u32, policy, nice, affinity, process: 1 });
            }
            play
        }
        fn step(&mut self, us: u64, what: What) -> Answer {
            self.now += us * 1_000;
            self.desk.step(&Step { at: Ns(self.now), what })
        }
        fn wake(&mut self, task: u32) -> Vec<u32> {
            self.step(0, What::Wake { task, by: By::Unknown }).resched
        }
        fn decide(&mut self, us: u64, prev: Fate) -> Decision {
            self.step(us, What::Decide { cpu: 0, prev }).decision.expect("a decision")
        }
    }

    #[test]
    fn wakes_decide_in_order() {
        let mut play = Play::new("fifo-centralized", &["other", "other"]);
        assert_eq!(play.wake(0), [0]);
        assert_eq!(play.decide(0, Fate::Idle).task, Some(0));
        assert!(play.wake(1).is_empty(), "nobody is preempted");
        assert!(play.wake(0).is_empty(), "it runs already");
        assert_eq!(play.decide(100, Fate::Blocked).task, Some(1));
        assert_eq!(play.desk.ran(0, Ns(play.now)), Ns::from_us(100));
        assert_eq!(play.decide(10, Fate::Exited).task, None);
        assert!(!play.desk.runnable(1));
    }

    #[test]
    fn a_latency_task_preempts_batch() {
        let mut play = Play::new("layers", &["idle", "other"]);
        play.wake(0);
        assert_eq!(play.decide(0, Fate::Idle).task, Some(0));
        assert_eq!(play.wake(1), [0]);
        assert_eq!(play.decide(5, Fate::Runnable).task, Some(1));
        assert_eq!(play.decide(5, Fate::Blocked).task, Some(0));
    }

    #[test]
    fn who_leaves_is_not_chosen() {
        let mut play = Play::new("rr", &["other", "other"]);
        play.wake(0);
        play.wake(1);
        assert_eq!(play.decide(0, Fate::Idle).task, Some(0));
        play.step(1, What::Leave { task: 0 });
        assert_eq!(play.desk.current(0), Some(0), "it runs: first it must be off the CPU");
        play.step(1, What::Leave { task: 1 });
        assert_eq!(
            play.decide(4_000, Fate::Runnable),
            Decision { task: Some(0), slice: Some(Ns::from_ms(4)) }
        );
    }

    #[test]
    fn another_policy_is_another_layer() {
        let mut play = Play::new("layers", &["other", "other"]);
        play.wake(0);
        assert_eq!(play.decide(0, Fate::Idle).task, Some(0));
        assert!(play.wake(1).is_empty(), "of one layer: nobody is preempted");
        // The first becomes batch work (another program, say): the second takes its CPU.
        let answer = play.step(1, What::Policy { task: 0, policy: Policy::Batch });
        assert_eq!(answer.resched, [0]);
        assert_eq!(play.decide(0, Fate::Runnable).task, Some(1));
    }

    #[test]
    fn a_waker_is_told_where_it_is_known() {
        assert_eq!(By::Task(3).waker(4), Waker::Task(TaskId(3)));
        assert_eq!(By::Task(4).waker(4), Waker::Unknown, "it never joined");
        assert_eq!(By::HardIrq.waker(4), Waker::HardIrq);
        let old: What = serde_json::from_str(r#"{"wake":{"task":2}}"#).expect("a log of an earlier version");
        assert_eq!(old, What::Wake { task: 2, by: By::Unknown });
    }

    #[test]
    fn nonsense_changes_nothing() {
        let mut play = Play::new("shinjuku", &["other"]);
        for what in [
            What::Wake { task: 7, by: By::Task(99) },
            What::Nice { task: 3, nice: Nice::ZERO },
            What::Leave { task: 99 },
            What::Tick { cpu: 5 },
            What::Decide { cpu: 3, prev: Fate::Blocked },
            What::Affinity { task: 40, affinity: CpuSet::ALL },
        ] {
            assert_eq!(play.step(1, what), Answer::default());
        }
    }
}
