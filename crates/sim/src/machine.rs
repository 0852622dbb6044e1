//! The input of a run besides a workload and a scheduler.

use crate::{Costs, Preemption, SimError, Stop};
use schedlab_model::{CpuRoles, CpuSet, Draw, FULL_SPEED, LEAST_SMT_YIELD, MAX_CPUS, Ns, Topology};

/// The machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Machine {
    /// Where the CPUs sit.
    pub topology: Topology,
    /// Tick frequency in hertz, 1 … 10,000 (Linux: 100, 250, 300 or 1000).
    pub hz: u32,
    /// When the ticks of each CPU come.
    pub ticks: TickSkew,
    /// What the machine's own work costs.
    pub costs: Costs,
    /// Delays that vary from one wakeup to the next.
    pub delays: Delays,
    /// Where in kernel code a wakeup can take effect.
    pub preemption: Preemption,
    /// At what part of its speed a hardware thread runs a task while another thread of its core
    /// runs one, in thousandths, from [`LEAST_SMT_YIELD`] to 1000 (they do not slow each other).
    pub smt_yield: u16,
    /// CPUs that the boot line sets apart.
    pub roles: CpuRoles,
}

/// Measured delays of a real machine, drawn anew each time out of a random stream per CPU. Where
/// one is given, it takes the place of the constant in [`Costs`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Delays {
    /// From a request to the decision on an idle CPU (`idle_decide_ns`), by CPU; a CPU beyond the
    /// list has the constant.
    pub idle: Vec<Option<Draw>>,
    /// From a wakeup that asks for preemption to the decision (`wakeup_decide_ns`), likewise.
    pub wakeup: Vec<Option<Draw>>,
}

/// When the ticks of each CPU come.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum TickSkew {
    /// All CPUs at once, the first edge one period after the start.
    #[default]
    Aligned,
    /// CPU `i` of `n` is `i / n` of half a period later (Linux `skew_tick=1`).
    Staggered,
    /// The first edge of each CPU.
    At(Vec<Ns>),
}

impl Machine {
    /// `cpus` cores below one cache, HZ=250, aligned ticks, no costs.
    pub fn flat(cpus: usize) -> Machine {
        Machine {
            topology: Topology::flat(cpus),
            hz: 250,
            ticks: TickSkew::Aligned,
            costs: Costs::default(),
            delays: Delays::default(),
            preemption: Preemption::default(),
            smt_yield: FULL_SPEED,
            roles: Default::default(),
        }
    }

    /// Returns whether hardware threads of one core slow each other.
    pub(crate) fn slows_siblings(&self) -> bool {
        self.smt_yield < FULL_SPEED && self.topology.has_siblings()
    }

    /// Returns the tick period, rounded to the nanosecond.
    pub fn tick_ns(&self) -> Ns {
        Ns((1_000_000_000 + u64::from(self.hz) / 2) / u64::from(self.hz.max(1)))
    }

    /// Returns whether nothing that it does takes time.
    pub(crate) fn is_free(&self) -> bool {
        self.costs.is_free() && self.delays == Delays::default() && !self.slows_siblings()
    }

    /// Returns the first tick edge of every CPU.
    pub(crate) fn phases(&self) -> Vec<Ns> {
        let (cpus, period) = (self.topology.cpus(), self.tick_ns());
        match &self.ticks {
            TickSkew::Aligned => vec![period; cpus],
            TickSkew::Staggered => {
                (0..cpus as u64).map(|i| period + Ns(period.0 / 2 * i / cpus as u64)).collect()
            }
            TickSkew::At(phases) => phases.clone(),
        }
    }

    /// Refuses hardware threads that slow each other beside work that no task does. `what`: whose.
    pub(crate) fn check_alone(&self, what: &str) -> Result<(), SimError> {
        if !self.slows_siblings() {
            return Ok(());
        }
        Err(SimError::Machine(format!(
            "smt_yield and {what} do not go together yet: only tasks slow the other threads of \
             their core; leave one out"
        )))
    }

    pub(crate) fn check(&self) -> Result<(), SimError> {
        let cpus = self.topology.cpus();
        let refuse = |text: String| Err(SimError::Machine(text));
        if cpus == 0 || cpus > MAX_CPUS {
            return refuse(format!("{cpus} CPUs; allowed are 1 to {MAX_CPUS}"));
        }
        if self.hz == 0 || self.hz > 10_000 {
            return refuse(format!(
                "hz = {}; allowed are 1 to 10000, Linux has 100, 250, 300 or 1000",
                self.hz
            ));
        }
        if let TickSkew::At(phases) = &self.ticks
            && phases.len() != cpus
        {
            return refuse(format!(
                "{} first tick edges for {cpus} CPUs; give one for each",
                phases.len()
            ));
        }
        if self.costs.tick_ns >= self.tick_ns() {
            return refuse(format!(
                "tick_ns = {} leaves nothing of a tick of {}",
                self.costs.tick_ns,
                self.tick_ns()
            ));
        }
        if !(LEAST_SMT_YIELD..=FULL_SPEED).contains(&self.smt_yield) {
            return refuse(format!(
                "smt_yield = {} thousandths; allowed are {LEAST_SMT_YIELD} to {FULL_SPEED}",
                self.smt_yield
            ));
        }
        for (name, set, others) in [
            ("isolcpus", self.roles.isolated, "the tasks that may run everywhere"),
            ("nohz_full", self.roles.nohz_full, "the kernel's own work"),
        ] {
            check_role(name, set, others, cpus).map_err(SimError::Machine)?;
        }
        for (name, _) in Costs::knobs() {
            if self.costs.get(name).is_some_and(|ns| ns > Ns::from_s(1)) {
                return refuse(format!("{name} is longer than 1 s"));
            }
        }
        Ok(())
    }
}

/// Checks that the CPUs of a role exist, and that one is left for `others`.
fn check_role(name: &str, set: CpuSet, others: &str, cpus: usize) -> Result<(), String> {
    if let Some(cpu) = set.iter().find(|cpu| cpu.index() >= cpus) {
        return Err(format!(
            "{name}: {cpu} does not exist; the machine has {cpus} CPUs, from 0 on"
        ));
    }
    if set.count() >= cpus {
        return Err(format!(
            "{name} = \"{set}\" leaves no CPU for {others}; leave at least one out"
        ));
    }
    Ok(())
}

/// The length, the seed and the checks of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunOptions {
    /// Seed of all random streams.
    pub seed: u64,
    /// Length of the run. Events at exactly this time are left out.
    pub duration: Ns,
    /// Metrics start here (events do not). 0 … `duration`.
    pub warmup: Ns,
    /// End before `duration` when every task that does not wait to be spawned has exited.
    pub end_with_tasks: bool,
    /// Deliver every tick edge, also those that the scheduler says cannot matter, and keep the
    /// views of tasks, also for one that says that it does not read them. Slow; must change
    /// nothing.
    pub every_tick: bool,
    /// Take the engine's path for machines with costs on a machine without, too. Slow; must change
    /// nothing.
    pub plain_path: bool,
    /// The run begins in the middle of the machine's life: when each CPU balanced its load last is
    /// drawn from the seed. For recordings, which do not show it.
    pub midway: bool,
    /// Leaves the distributions of tasks empty, and what is counted with them (how often a task was
    /// switched in): for a caller that measures the events. It changes no event.
    pub sums_only: bool,
    /// Ends the run early, with [`SimError::Stopped`]; `None`: nothing does.
    pub stop: Option<Stop>,
}

impl Default for RunOptions {
    fn default() -> RunOptions {
        RunOptions {
            seed: 1,
            duration: Ns::from_s(10),
            warmup: Ns::ZERO,
            end_with_tasks: false,
            every_tick: false,
            plain_path: false,
            midway: false,
            sums_only: false,
            stop: None,
        }
    }
}

impl RunOptions {
    /// `longest`: what the event slots of a workload of this size can hold.
    pub(crate) fn check(&self, longest: Ns) -> Result<(), SimError> {
        if self.duration > longest {
            let text = format!(
                "a run of {} is too long; with so many tasks at most {longest} fit",
                self.duration
            );
            return Err(SimError::Machine(text));
        }
        if self.warmup > self.duration {
            let text = format!(
                "a warm-up of {} does not fit into a run of {}",
                self.warmup, self.duration
            );
            return Err(SimError::Machine(text));
        }
        Ok(())
    }

    /// Returns options for a run of `duration` with seed 1.
    pub fn for_time(duration: Ns) -> RunOptions {
        RunOptions { duration, ..RunOptions::default() }
    }
}
