//! Replay: feeds a scheduler the recorded wakeups and switches, compares each choice with the
//! recorded one, and then goes on with the recorded one. It needs no simulator: nothing that
//! depends on a choice is computed.

use super::data::{Record, Switch};
use super::preset::Preset;
use anyhow::{Result, ensure};
use schedlab_model::{CpuId, Ns, Policy, TaskId, Topology, Waker};
use schedlab_scheduler::{
    Cmd, CpuView, Cx, GroupView, Out, Prev, Runnable, Scheduler, TaskView, Timer, Wake, WakeKind,
    World,
};
use std::collections::BTreeMap;

const CPU: CpuId = CpuId(0);

/// When the kernel brings its accounts up to date, relative to what the tracer writes, in ns. Read
/// off the data (docs/sources/linux-facts.md, section 4); the accuracy of the files is 0.1 us.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offsets {
    /// From a wakeup's record.
    pub(crate) wakeup: i64,
    /// From the record of a switch away from a task that blocks.
    pub(crate) blocking: i64,
    /// From the record of any other switch.
    pub(crate) switch: i64,
    /// From the nominal tick edge.
    pub(crate) tick: i64,
    /// From the time that the model sets HRTICK to.
    pub(crate) hrtick: i64,
    /// From the record of the switch that HRTICK led to.
    pub(crate) hrtick_switch: i64,
}

impl Offsets {
    /// For this family of kernels.
    pub(crate) fn for_preset(preset: &Preset) -> Offsets {
        let six = Offsets {
            wakeup: 100,
            blocking: -600,
            switch: -500,
            tick: 4_000,
            // Of 7.2: a fresh slice of 700 us lasts 704.5 from record to record, one that follows
            // another 703.4, so HRTICK is accounted for 1.1 before the decision, 3.4 after the end
            // of the slice (1 in the model).
            hrtick: 2_400,
            hrtick_switch: -1_900,
        };
        if preset.eevdf {
            return six;
        }
        Offsets { wakeup: -400, blocking: -800, switch: -600, tick: 1_000, ..six }
    }
}

/// A switch that is asked for and does not come within this time does not come at all: the kernel
/// chose the running task again.
const PATIENCE: Ns = Ns(6_000);

/// The scheduler's slot for HRTICK.
const HRTICK: Timer = Timer::Cpu(CPU, 1);

/// How far a switch may be from where HRTICK should have led to it.
const NEAR: Ns = Ns(3_000);

/// One choice that differs from the recorded one.
#[derive(Clone, Debug)]
pub(crate) struct Difference {
    /// When, in the recording.
    pub(crate) at: Ns,
    /// What was recorded and what was chosen.
    pub(crate) text: String,
    /// By how much virtual time (ns) the choice was made; `None` when another class was chosen.
    pub(crate) margin: Option<u64>,
}

/// The result of one scenario.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replayed {
    /// Recorded switches, each compared.
    pub(crate) switches: u64,
    /// Differences among them.
    pub(crate) different: Vec<Difference>,
    /// Reschedules that the model asked for, chose another task, and the recording has no switch
    /// there.
    pub(crate) uncalled: Vec<Difference>,
    /// By what led to the switch: switches, differences, uncalled.
    pub(crate) by: BTreeMap<&'static str, [u64; 3]>,
}

impl Replayed {
    /// Part of equal choices.
    pub(crate) fn equal(&self) -> f64 {
        1.0 - self.different.len() as f64 / self.switches.max(1) as f64
    }
}

impl Replayed {
    /// Differences of more than `margin` virtual ns, or of class.
    pub(crate) fn beyond(&self, margin: u64) -> usize {
        self.different.iter().filter(|d| d.margin.is_none_or(|m| m > margin)).count()
    }
    /// The median of the margins that are known.
    pub(crate) fn median_margin(&self) -> Option<u64> {
        let mut margins: Vec<u64> = self.different.iter().filter_map(|d| d.margin).collect();
        margins.sort_unstable();
        margins.get(margins.len() / 2).copied()
    }
    /// Adds another scenario.
    pub(crate) fn add(&mut self, other: Replayed) {
        self.switches += other.switches;
        self.different.extend(other.different);
        self.uncalled.extend(other.uncalled);
        for (what, counts) in other.by {
            let sum = self.by.entry(what).or_default();
            (0..3).for_each(|i| sum[i] += counts[i]);
        }
    }
}

enum Event<'a> {
    Wakeup(&'a str),
    Tick,
    Timer(Timer),
    Switch(&'a Switch),
}

/// Replays one scenario.
pub(crate) fn replay(
    record: &Record,
    scheduler: &dyn Scheduler,
    offsets: Offsets,
) -> Result<Replayed> {
    let mut driver = Driver::new(record, scheduler, offsets);
    scheduler.init(&driver.cx(Ns::ZERO));
    driver.commands(Ns::ZERO);
    let (mut wakeups, mut switches) =
        (record.wakeups.iter().peekable(), record.switches.iter().peekable());
    while wakeups.peek().is_some() || switches.peek().is_some() {
        let wakeup = wakeups.peek().map_or(Ns::MAX, |w| shift(w.0, offsets.wakeup));
        let switch = switches.peek().map_or(Ns::MAX, |s| driver.accounted(s));
        let (timer_at, timer) = driver.next_timer(switches.peek().copied());
        // A tick that leads to a switch is accounted for before it, whatever the 0.1 us of the
        // files say.
        let ticks_first = switches.peek().is_some_and(|s| s.runnable && driver.next_tick <= s.at);
        let switch = if ticks_first { switch.max(driver.next_tick) } else { switch };
        let at = wakeup.min(switch).min(driver.next_tick).min(timer_at);
        let event = if at == wakeup {
            Event::Wakeup(&wakeups.next().expect("peeked").1)
        } else if at == driver.next_tick {
            Event::Tick
        } else if at == timer_at {
            Event::Timer(timer.expect("a timer that is due"))
        } else {
            Event::Switch(switches.next().expect("peeked"))
        };
        driver.event(at.max(driver.now), event)?;
    }
    Ok(driver.result)
}

struct Driver<'a> {
    scheduler: &'a dyn Scheduler,
    offsets: Offsets,
    world: World,
    out: Out,
    names: Vec<String>,
    now: Ns,
    next_tick: Ns,
    timers: BTreeMap<Timer, Ns>,
    /// When the scheduler asked for a reschedule that has not come.
    pending: Option<Ns>,
    /// What happened last that may lead to a switch, and when.
    last: (Ns, &'static str),
    /// What led to the reschedule that was asked for last.
    last_asked: &'static str,
    result: Replayed,
}

impl<'a> Driver<'a> {
    fn new(record: &Record, scheduler: &'a dyn Scheduler, offsets: Offsets) -> Driver<'a> {
        let mut names: Vec<String> = record.tasks.iter().map(|t| t.name.clone()).collect();
        let switched =
            record.switches.iter().flat_map(|s| [s.prev.as_ref(), s.next.as_ref()]).flatten();
        for name in record.wakeups.iter().map(|w| &w.1).chain(switched) {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        let views = names.iter().enumerate().map(|(index, name)| {
            let mut view = TaskView::default();
            (view.alive, view.old_sleeper) = (true, true);
            match record.tasks.get(index) {
                Some(task) => (view.policy, view.nice) = (task.policy, task.nice),
                // The migration thread is of the stop class, above all others.
                None if name.starts_with("migration/") => view.policy = Policy::Fifo(99),
                None => {}
            }
            view
        });
        let tick_ns = Ns(1_000_000_000 / u64::from(record.knobs.hz));
        let next_tick = shift(record.first_tick, offsets.tick);
        let world = World {
            roles: Default::default(),
            partitions: Vec::new(),
            tasks: views.collect(),
            cpus: vec![CpuView::new(next_tick)],
            groups: vec![GroupView::default()],
            topology: Topology::flat(1),
            hz: record.knobs.hz,
            tick_ns,
        };
        Driver {
            scheduler,
            offsets,
            world,
            out: Out::new(0),
            names,
            now: Ns::ZERO,
            next_tick,
            timers: BTreeMap::new(),
            pending: None,
            last: (Ns::ZERO, "unasked"),
            last_asked: "unasked",
            result: Replayed::default(),
        }
    }

    fn cx(&self, now: Ns) -> Cx<'_> {
        Cx { now, cpu: CPU, world: &self.world, out: &self.out }
    }

    /// When a recorded switch is accounted for.
    fn accounted(&self, switch: &Switch) -> Ns {
        let blocks = switch.prev.is_some() && !switch.runnable;
        shift(switch.at, if blocks { self.offsets.blocking } else { self.offsets.switch })
    }

    /// The timer that fires next. `switch` is the next recorded one: when it came about when HRTICK
    /// is due, HRTICK was its cause, and comes before it whatever the 0.1 us of the files say.
    fn next_timer(&self, switch: Option<&Switch>) -> (Ns, Option<Timer>) {
        let due = |(timer, at): (&Timer, &Ns)| {
            if *timer != HRTICK {
                return (*at, *timer);
            }
            let at = shift(*at, self.offsets.hrtick);
            let caused =
                switch.filter(|s| s.runnable).map(|s| shift(s.at, self.offsets.hrtick_switch));
            (caused.filter(|caused| caused.0.abs_diff(at.0) <= NEAR.0).unwrap_or(at), *timer)
        };
        let first = self.timers.iter().map(due).min_by_key(|(at, _)| *at);
        first.map_or((Ns::MAX, None), |(at, timer)| (at, Some(timer)))
    }

    fn event(&mut self, at: Ns, event: Event<'_>) -> Result<()> {
        self.now = at;
        if let Some(asked) = self.pending {
            let answers = match &event {
                Event::Switch(switch) => {
                    at.saturating_sub(asked) <= PATIENCE || switch.prev.is_none()
                }
                _ => at.saturating_sub(asked) <= PATIENCE,
            };
            if !answers {
                self.again(asked);
            }
        }
        match &event {
            Event::Wakeup(_) => self.last = (at, "wakeup"),
            Event::Tick => self.last = (at, "tick"),
            Event::Timer(timer) => {
                self.last = (at, if *timer == HRTICK { "hrtick" } else { "timer" })
            }
            Event::Switch(_) => {}
        }
        match event {
            Event::Wakeup(name) => {
                let task = self.task(name);
                if self.world.tasks[task.index()].runnable() == Runnable::No {
                    self.world.tasks[task.index()].set_runnable(Runnable::Yes);
                    let wake = Wake { kind: WakeKind::Wake, sync: false, waker: Waker::HardIrq };
                    self.scheduler.wake(&self.cx(at), task, wake);
                }
            }
            Event::Tick => {
                self.scheduler.tick(&self.cx(at), CPU);
                self.next_tick += self.world.tick_ns;
            }
            Event::Timer(timer) => {
                self.timers.remove(&timer);
                self.scheduler.timer(&self.cx(at), timer);
            }
            Event::Switch(switch) => self.switch(at, switch)?,
        }
        self.commands(at);
        Ok(())
    }

    /// Carries out what the scheduler asked for.
    fn commands(&mut self, now: Ns) {
        let mut cmds = Vec::new();
        self.out.take_cmds(&mut cmds);
        for cmd in cmds {
            match cmd {
                Cmd::Resched(_) if self.pending.is_none() => {
                    (self.pending, self.last_asked) = (Some(now), self.last.1);
                }
                Cmd::Resched(_) => {}
                Cmd::Arm(timer, at) => {
                    self.timers.insert(timer, at);
                }
                Cmd::Disarm(timer) => {
                    self.timers.remove(&timer);
                }
                _ => {}
            }
        }
    }

    fn task(&self, name: &str) -> TaskId {
        TaskId::from(self.names.iter().position(|n| n == name).expect("every name was collected"))
    }

    /// The reschedule asked for at `asked` ended with the same task: no switch was recorded.
    fn again(&mut self, asked: Ns) {
        self.pending = None;
        let Some(prev) = self.world.cpus[0].current() else { return };
        let at = asked.max(Ns(self.now.0.min(asked.0 + 2_000)));
        let pick = self.scheduler.schedule_forced(
            &self.cx(at),
            CPU,
            Some(prev),
            Prev::Runnable,
            Some(prev),
        );
        let picked = pick.and_then(|pick| pick.task);
        if picked != Some(prev) {
            let difference = self.difference(asked, Some(prev), Some(prev), picked);
            self.result.uncalled.push(difference);
            let cause = self.last_asked;
            self.result.by.entry(cause).or_default()[2] += 1;
        }
        self.commands(at);
    }

    fn switch(&mut self, now: Ns, switch: &Switch) -> Result<()> {
        self.pending = None;
        let prev = switch.prev.as_deref().map(|name| self.task(name));
        let next = switch.next.as_deref().map(|name| self.task(name));
        ensure!(
            prev == self.world.cpus[0].current(),
            "the switch at {} us leaves {}, but {} was running: the recording has a hole",
            switch.at.0 as f64 / 1e3,
            self.name(prev),
            self.name(self.world.cpus[0].current())
        );
        let why = match prev {
            None => Prev::Idle,
            Some(_) if switch.runnable => Prev::Runnable,
            Some(_) => Prev::Blocked,
        };
        if let Some(prev) = prev {
            let view = &self.world.tasks[prev.index()];
            if why == Prev::Blocked {
                view.set_runnable(Runnable::No);
            }
        }
        let pick = self.scheduler.schedule_forced(&self.cx(now), CPU, prev, why, next);
        ensure!(pick.is_some(), "this scheduler cannot be forced, so it cannot replay");
        let picked = pick.and_then(|pick| pick.task);
        self.result.switches += 1;
        let near = now.saturating_sub(self.last.0) <= PATIENCE;
        let cause = match why {
            Prev::Idle => "idle",
            Prev::Blocked => "blocks",
            _ if near => self.last.1,
            _ => "unasked",
        };
        let counts = self.result.by.entry(cause).or_default();
        counts[0] += 1;
        counts[1] += u64::from(picked != next);
        if picked != next {
            let difference = self.difference(switch.at, prev, next, picked);
            self.result.different.push(difference);
        }
        if let Some(prev) = prev {
            let view = &self.world.tasks[prev.index()];
            view.switched_out(now, now.saturating_sub(view.entered()));
        }
        if let Some(next) = next {
            self.world.tasks[next.index()].switched_in(CPU, now);
        }
        self.world.cpus[0].set_current(next);
        if let Some(prev) = prev {
            self.scheduler.saved(&self.cx(now), CPU, prev);
        }
        Ok(())
    }

    fn name(&self, task: Option<TaskId>) -> &str {
        task.map_or("idle", |task| &self.names[task.index()])
    }

    fn difference(
        &self,
        at: Ns,
        prev: Option<TaskId>,
        recorded: Option<TaskId>,
        picked: Option<TaskId>,
    ) -> Difference {
        let cx = self.cx(self.now);
        let (recorded_name, picked_name) = (self.name(recorded), self.name(picked));
        let text = format!(
            "after {}: {} -> {recorded_name}, model {picked_name} [{}]",
            self.last.1,
            self.name(prev),
            self.scheduler.explain(&cx, CPU)
        );
        let standing = |task: Option<TaskId>| self.scheduler.standing(&cx, task?);
        let margin = match (standing(recorded), standing(picked)) {
            (Some(recorded), Some(picked)) => Some(margin(recorded, picked)),
            _ => None,
        };
        Difference { at, text, margin }
    }
}

/// How far the recorded task was from being the choice, in virtual ns.
fn margin(recorded: schedlab_scheduler::Standing, picked: schedlab_scheduler::Standing) -> u64 {
    let (Some(left_r), Some(left_p)) = (recorded.to_deadline, picked.to_deadline) else {
        return recorded.behind.abs_diff(picked.behind);
    };
    if recorded.behind < 0 {
        return recorded.behind.unsigned_abs();
    }
    // Both are eligible: either the order of the deadlines or the eligibility of the choice
    // decides.
    let deadlines = (left_r - recorded.behind) - (left_p - picked.behind);
    deadlines.unsigned_abs().min(picked.behind.unsigned_abs())
}

/// `at` moved by `by` ns.
fn shift(at: Ns, by: i64) -> Ns {
    Ns(at.0.saturating_add_signed(by))
}
