//! A scheduler behind live agents, driven by [`Step`]s: what happened, in order, each with its
//! time.
//!
//! The decisions are those of the [`DecisionCore`] and follow from the steps alone, without a clock
//! or a system call. So a log of the steps, played into a new [`LoggedCore`], must give the same
//! decisions: that is what `schedlab verify` checks.

mod step;

use schedlab_model::{CpuId, Ns, TaskId, Topology};
use schedlab_scheduler::decision_core::{AgentDriver, Breach, DecisionCore, Ticks};
use schedlab_scheduler::registry;
use schedlab_scheduler::{
    Change, CpuView, GroupView, KnobError, Prev, Runnable, Scheduler, SchedulerSpec, TaskView,
    Timer, Wake, WakeKind, World,
};
use serde::{Deserialize, Serialize};

pub use step::{Fate, LoggedTimer, Step, StepKind, WokenBy};

/// What the scheduler decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Decision {
    /// The task that runs; `None`: no managed one.
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
    pub timers: Vec<(LoggedTimer, Option<Ns>)>,
}

impl AgentDriver for Answer {
    fn decide(&mut self, cpu: CpuId) {
        if !self.resched.contains(&cpu.0) {
            self.resched.push(cpu.0);
        }
    }
    fn arm(&mut self, timer: Timer, at: Ns) {
        self.timers.push((timer.into(), Some(at)));
    }
    fn disarm(&mut self, timer: Timer) {
        self.timers.push((timer.into(), None));
    }
    /// A throttled thread waits as any other: the scheduler does not pick it. The limit of waiting
    /// (`--starve-after`) holds for it all the same, because it may hold a lock of the kernel.
    fn throttle(&mut self, _: TaskId, _: bool) {}
    /// Live agents deliver every tick of a CPU on which a managed thread runs ([`Ticks::Every`]).
    fn next_tick(&mut self, _: CpuId, _: Option<Ns>) {}
}

/// What a core is made of; the first line of a log. Only managed CPUs count, numbered from 0.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CoreOptions {
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
pub struct LoggedCore {
    core: DecisionCore<Box<dyn Scheduler + Send>>,
    joined: u32,
    /// What the scheduler asked for when it began: part of the first answer.
    begun: Result<Answer, Breach>,
}

impl LoggedCore {
    /// Returns a core without tasks.
    ///
    /// # Errors
    /// When the scheduler or one of its knobs is unknown.
    pub fn new(options: &CoreOptions) -> Result<LoggedCore, KnobError> {
        let spec: SchedulerSpec = options.scheduler.parse()?;
        Ok(LoggedCore::with(registry::build_to_send(&spec, options.cpus)?, options))
    }

    /// As [`LoggedCore::new`], with a scheduler that need not be of the registry.
    pub(crate) fn with(scheduler: Box<dyn Scheduler + Send>, options: &CoreOptions) -> LoggedCore {
        let world = World {
            roles: Default::default(),
            partitions: Vec::new(),
            tasks: (0..options.tasks).map(|_| TaskView::default()).collect(),
            cpus: (0..options.cpus).map(|_| CpuView::new(Ns::ZERO)).collect(),
            groups: vec![GroupView::default()],
            topology: Topology::flat(options.cpus),
            hz: options.hz,
            tick_ns: Ns(1_000_000_000 / u64::from(options.hz.max(1))),
        };
        let mut core = DecisionCore::new(scheduler, world, options.seed, Ticks::Every);
        let mut answer = Answer::default();
        let begun = core.init(&mut answer).map(|()| answer);
        LoggedCore { core, joined: 0, begun }
    }

    /// Returns the scheduler, for its needs and refusals.
    pub fn scheduler(&self) -> &dyn Scheduler {
        self.core.scheduler()
    }

    /// Returns the number that the next task gets; `None`: there is no room for another one.
    pub fn next_task(&self) -> Option<u32> {
        (self.joined < self.core.world().tasks.len() as u32).then_some(self.joined)
    }

    /// Returns the task that was decided to run on a CPU.
    pub fn current(&self, cpu: u32) -> Option<u32> {
        self.core.world().cpus.get(cpu as usize).and_then(CpuView::current).map(|task| task.0)
    }

    /// Returns the CPU on which a task was decided to run.
    pub fn on_cpu(&self, task: u32) -> Option<u32> {
        self.view(task).and_then(TaskView::on_cpu).map(|cpu| cpu.0)
    }

    /// Returns whether a task wants a CPU, as far as the steps say.
    pub fn runnable(&self, task: u32) -> bool {
        self.view(task).is_some_and(|view| view.runnable() == Runnable::Yes)
    }

    /// Returns the task that a `Decide` of this CPU with [`Fate::Blocked`] would give now, where
    /// the scheduler can tell ([`Scheduler::ahead`]). No step: it is not logged, and changes
    /// nothing.
    pub fn ahead(&self, cpu: u32, now: Ns) -> Option<u32> {
        ((cpu as usize) < self.core.world().cpus.len())
            .then(|| self.core.ahead(now, CpuId(cpu)))
            .flatten()
            .map(|task| task.0)
    }

    /// Returns the CPU time that was decided for a task, up to `now`.
    pub fn ran(&self, task: u32, now: Ns) -> Ns {
        let Some(view) = self.view(task) else { return Ns::ZERO };
        let open = view.on_cpu().map_or(Ns::ZERO, |_| now.saturating_sub(view.entered()));
        view.ran() + open
    }

    /// Plays one step. A step that makes no sense (a task that does not exist, a wakeup of a
    /// runnable one) changes nothing and asks for nothing.
    ///
    /// # Errors
    /// When the scheduler breaks its contract: nothing that it says counts any more.
    pub fn step(&mut self, step: &Step) -> Result<Answer, Breach> {
        let mut answer = std::mem::replace(&mut self.begun, Ok(Answer::default()))?;
        let now = step.at;
        match &step.what {
            StepKind::Join { task, policy, nice, affinity, process } => {
                if let Some(view) = self.next_view(*task) {
                    (view.alive, view.policy, view.nice, view.process) =
                        (true, *policy, *nice, *process);
                    view.affinity = *affinity;
                    self.joined += 1;
                    let change = Change::Created { task: TaskId(*task), parent: None };
                    self.core.changed(now, CpuId(0), change, &mut answer)?;
                }
            }
            StepKind::Wake { task, by } => self.wake(now, *task, *by, &mut answer)?,
            StepKind::Policy { task, policy } => {
                self.change(
                    now,
                    *task,
                    Change::Attributes,
                    |view| view.policy = *policy,
                    &mut answer,
                )?;
            }
            StepKind::Nice { task, nice } => {
                self.change(now, *task, Change::Attributes, |view| view.nice = *nice, &mut answer)?;
            }
            StepKind::Affinity { task, affinity } => {
                self.change(
                    now,
                    *task,
                    Change::Affinity,
                    |view| view.affinity = *affinity,
                    &mut answer,
                )?;
            }
            StepKind::Leave { task } => self.leave(now, *task, &mut answer)?,
            StepKind::Yield { cpu } => {
                if (*cpu as usize) < self.core.world().cpus.len() {
                    self.core.note_yield(CpuId(*cpu));
                }
            }
            StepKind::Decide { cpu, prev } => {
                answer.decision = self.decide(now, *cpu, *prev, &mut answer)?;
            }
            StepKind::Tick { cpu } => {
                if (*cpu as usize) < self.core.world().cpus.len() {
                    self.core.tick(now, CpuId(*cpu), &mut answer)?;
                }
            }
            StepKind::Timer { timer } => {
                let timer = Timer::from(*timer);
                if self.core.is_declared(timer) {
                    self.core.timer(now, timer, &mut answer)?;
                }
            }
        }
        self.core.finish_calls(now, &mut answer)?;
        Ok(answer)
    }

    fn view(&self, task: u32) -> Option<&TaskView> {
        self.core.world().tasks.get(task as usize)
    }

    /// The view of the task that joins next, if `task` is its number.
    fn next_view(&mut self, task: u32) -> Option<&mut TaskView> {
        let next = self.joined;
        self.core.world_mut().tasks.get_mut(task as usize).filter(|_| task == next)
    }

    fn living(&mut self, task: u32) -> Option<&mut TaskView> {
        self.core.world_mut().tasks.get_mut(task as usize).filter(|view| view.alive)
    }

    fn wake(&mut self, now: Ns, task: u32, by: WokenBy, answer: &mut Answer) -> Result<(), Breach> {
        let Some(view) = self.living(task).filter(|view| view.runnable() != Runnable::Yes) else {
            return Ok(());
        };
        let is_new = view.ran() == Ns::ZERO && view.entered() == Ns::ZERO;
        let (kind, cpu) = (if is_new { WakeKind::New } else { WakeKind::Wake }, view.last_cpu());
        let wake = Wake { kind, sync: false, waker: by.waker(self.joined) };
        self.core.wake(now, cpu, (TaskId(task), now), wake, answer)
    }

    fn change(
        &mut self,
        now: Ns,
        task: u32,
        what: fn(TaskId) -> Change,
        set: impl FnOnce(&mut TaskView),
        answer: &mut Answer,
    ) -> Result<(), Breach> {
        let Some(view) = self.living(task) else { return Ok(()) };
        set(view);
        self.core.changed(now, CpuId(0), what(TaskId(task)), answer)
    }

    fn leave(&mut self, now: Ns, task: u32, answer: &mut Answer) -> Result<(), Breach> {
        let Some(view) = self.living(task).filter(|view| view.on_cpu().is_none()) else {
            return Ok(());
        };
        view.alive = false;
        self.core.leave(now, CpuId(0), TaskId(task), answer)
    }

    fn decide(
        &mut self,
        now: Ns,
        cpu: u32,
        fate: Fate,
        answer: &mut Answer,
    ) -> Result<Option<Decision>, Breach> {
        if cpu as usize >= self.core.world().cpus.len() {
            return Ok(None);
        }
        let why = match fate {
            Fate::Idle => Prev::Idle,
            Fate::Runnable => Prev::Runnable,
            Fate::Blocked => Prev::Blocked,
            Fate::Exited => Prev::Exited,
        };
        let ran =
            |world: &World, task: TaskId| now.saturating_sub(world.tasks[task.index()].entered());
        let pick = self.core.decide(now, CpuId(cpu), why, ran, answer)?.pick;
        Ok(Some(Decision { task: pick.task.map(|task| task.0), slice: pick.slice_ns }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::{CpuSet, Nice, Policy, Waker};

    fn core(scheduler: &str) -> LoggedCore {
        let options =
            CoreOptions { scheduler: scheduler.to_owned(), cpus: 1, tasks: 8, hz: 250, seed: 1 };
        LoggedCore::new(&options).expect("a scheduler of the registry")
    }

    struct Play {
        core: LoggedCore,
        now: u64,
    }

    impl Play {
        fn new(scheduler: &str, policies: &[&str]) -> Play {
            let mut play = Play { core: core(scheduler), now: 0 };
            for (task, policy) in policies.iter().enumerate() {
                let policy = policy.parse().unwrap();
                let (nice, affinity) = (Nice::ZERO, CpuSet::first(1));
                play.step(
                    0,
                    StepKind::Join { task: task as u32, policy, nice, affinity, process: 1 },
                );
            }
            play
        }
        fn step(&mut self, us: u64, what: StepKind) -> Answer {
            self.now += us * 1_000;
            self.core
                .step(&Step { at: Ns(self.now), what })
                .expect("a scheduler of the registry keeps its contract")
        }
        fn wake(&mut self, task: u32) -> Vec<u32> {
            self.step(0, StepKind::Wake { task, by: WokenBy::Unknown }).resched
        }
        fn decide(&mut self, us: u64, prev: Fate) -> Decision {
            self.step(us, StepKind::Decide { cpu: 0, prev }).decision.expect("a decision")
        }
    }

    #[test]
    fn wakes_decide_in_order() {
        let mut play = Play::new("fifo-centralized", &["other", "other"]);
        assert_eq!(play.wake(0), [0]);
        assert_eq!(play.decide(0, Fate::Idle).task, Some(0));
        assert!(play.wake(1).is_empty(), "a task that runs is not preempted");
        assert!(play.wake(0).is_empty(), "it runs already");
        assert_eq!(play.decide(100, Fate::Blocked).task, Some(1));
        assert_eq!(play.core.ran(0, Ns(play.now)), Ns::from_us(100));
        assert_eq!(play.decide(10, Fate::Exited).task, None);
        assert!(!play.core.runnable(1));
    }

    /// Returns a scheduler on three CPUs whose six tasks, each on its own set of CPUs, joined after
    /// it had begun. `None`: it does not run live.
    fn confined(scheduler: &str) -> Option<LoggedCore> {
        let options =
            CoreOptions { scheduler: scheduler.to_owned(), cpus: 3, tasks: 8, hz: 250, seed: 1 };
        let mut core = LoggedCore::new(&options).ok()?;
        for (task, cpus) in ["0", "1", "2", "0-1", "1-2", "0-2"].into_iter().enumerate() {
            let (policy, nice, affinity) = (Policy::Other, Nice::ZERO, cpus.parse().expect("CPUs"));
            let what = StepKind::Join { task: task as u32, policy, nice, affinity, process: 1 };
            core.step(&Step { at: Ns::ZERO, what }).expect("it keeps its contract");
        }
        Some(core)
    }

    /// Whatever wakes, blocks and moves to other CPUs: no task is picked where it may not run.
    #[test]
    fn a_task_that_joins_with_an_affinity_is_not_chosen_elsewhere() {
        let mut live = 0;
        for entry in schedlab_scheduler::registry::all() {
            let Some(mut core) = confined(entry.name) else { continue };
            live += 1;
            let mut state = 1_u64;
            let mut below = |limit: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) % limit
            };
            for turn in 0..3_000 {
                let (task, cpu) = (below(6) as u32, below(3) as u32);
                let fate = match core.current(cpu) {
                    None => Fate::Idle,
                    Some(_) if below(2) == 0 => Fate::Blocked,
                    Some(_) => Fate::Runnable,
                };
                let what = match below(8) {
                    0..4 => StepKind::Wake { task, by: WokenBy::Unknown },
                    4 => StepKind::Affinity { task, affinity: CpuSet::first(1 + cpu as usize) },
                    _ => StepKind::Decide { cpu, prev: fate },
                };
                let on = core.on_cpu(task);
                // The driver decides anew where a task may run no longer; this test does not play
                // that.
                if matches!(what, StepKind::Affinity { .. }) && on.is_some() {
                    continue;
                }
                let answer = core.step(&Step { at: Ns::from_us(turn * 50), what: what.clone() });
                assert!(
                    answer.is_ok(),
                    "{}, turn {turn}: {what:?}: {}",
                    entry.name,
                    answer.unwrap_err()
                );
            }
        }
        assert!(live >= 6, "{live}");
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
    fn a_task_that_leaves_is_not_chosen() {
        let mut play = Play::new("rr", &["other", "other"]);
        play.wake(0);
        play.wake(1);
        assert_eq!(play.decide(0, Fate::Idle).task, Some(0));
        play.step(1, StepKind::Leave { task: 0 });
        assert_eq!(play.core.current(0), Some(0), "it runs: first it must be off the CPU");
        play.step(1, StepKind::Leave { task: 1 });
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
        assert!(play.wake(1).is_empty(), "tasks of one layer do not preempt each other");
        // The first becomes batch work (another program, say): the second takes its CPU.
        let answer = play.step(1, StepKind::Policy { task: 0, policy: Policy::Batch });
        assert_eq!(answer.resched, [0]);
        assert_eq!(play.decide(0, Fate::Runnable).task, Some(1));
    }

    #[test]
    fn a_waker_is_told_where_it_is_known() {
        assert_eq!(WokenBy::Task(3).waker(4), Waker::Task(TaskId(3)));
        assert_eq!(WokenBy::Task(4).waker(4), Waker::Unknown, "it never joined");
        assert_eq!(WokenBy::HardIrq.waker(4), Waker::HardIrq);
        let old: StepKind =
            serde_json::from_str(r#"{"wake":{"task":2}}"#).expect("a log of an earlier version");
        assert_eq!(old, StepKind::Wake { task: 2, by: WokenBy::Unknown });
    }

    #[test]
    fn nonsense_changes_nothing() {
        let mut play = Play::new("shinjuku", &["other"]);
        for what in [
            StepKind::Wake { task: 7, by: WokenBy::Task(99) },
            StepKind::Nice { task: 3, nice: Nice::ZERO },
            StepKind::Leave { task: 99 },
            StepKind::Tick { cpu: 5 },
            StepKind::Decide { cpu: 3, prev: Fate::Blocked },
            StepKind::Affinity { task: 40, affinity: CpuSet::ALL },
        ] {
            assert_eq!(play.step(1, what), Answer::default());
        }
    }
}
