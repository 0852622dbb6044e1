//! Delegation: the scheduler runs behind agents in user space, as in ghOSt. Which scheduler is a
//! separate matter: any runs here, and hears of the world by messages only.
//!
//! * The kernel's end (`kernel`) writes a message with a sequence number for every task that wakes,
//!   blocks, yields, is preempted or ends, and runs what a transaction latched for a CPU.
//! * The agents (`agents`) read messages, call the scheduler and commit its decisions, each step at
//!   its price ([`DelegationCosts`]). With [`Mode::PerCpu`] every CPU has an agent that sleeps
//!   until there is a message for it and then takes its CPU; with [`Mode::Global`] one agent spins
//!   on a CPU of its own and commits for all others, several transactions at a time.
//! * The scheduler (`agent_view`) sees the world as its agents know it, which may be out of date. A
//!   transaction names the last message read about its task; the kernel checks it when it is
//!   committed, and what fails is decided again.
//! * Tasks outside of the enclave belong to the kernel's own scheduler, which goes before it. It
//!   takes over all tasks when the agents die.
//!
//! The machine's own prices of decisions and switches ([`Costs`](crate::Costs): `*_decide_ns`,
//! `*_switch_ns`, `ipi_*`) do not apply here: those of the delegation take their place. Ticks,
//! timers, caches and interrupts cost what they do.
//!
//! Worked example (`a_wakeup_behind_a_global_agent`, `tests/it/delegation.rs`): with `ghost-2021` a
//! task that wakes on an idle machine runs 265 ns (message) + 1772 ns (remote transaction, end to
//! end) later.
//!
//! # Fidelity
//! | rule | ghOSt (userspace 9ca0a1fb, kernel 5.11) | here | test |
//! |---|---|---|---|
//! | messages with sequence numbers, per task; queue per agent | status-word barrier, ring | modelled; queues do not overflow | `tests/it/delegation.rs` |
//! | TARGET_STALE, AGENT_STALE (local only), CPU_UNAVAIL, NOT_FOUND, ONCPU, affinity | `ghost_txn` states | modelled | the same |
//! | group commit: one system call, one batch of interrupts | COMMIT_TXN | modelled | the same |
//! | sync-group commit, BPF hooks, run flags, hints table, hot upgrade | | omitted | |
//! | agents before everything; enclave below the kernel's own scheduler | `ghost_can_schedule`, CPU_UNAVAIL | modelled | the same |
//! | the global agent leaves a CPU that a higher class wants | `PickNextGlobalCPU` | simplified: tasks outside of the enclave keep off its CPU | |
//! | agents die: the enclave is destroyed, its tasks go to CFS; watchdog (`runnable_timeout`, checked at ticks) | | modelled | the same |
//! | CPU_BUSY and CPU_AVAILABLE | messages; policies avoid the CPU | simplified: no decision for that CPU is committed, but the scheduler does not know; what it has on or behind it waits | |
//! | ticks as messages | `deliver_ticks` | modelled; only those that the scheduler asked for | |
//! | an agent's work beside a task on the same CPU | agent threads | simplified: overhead of the CPU, no task of its own in the event stream | |
//! | agents of several CPUs in one process share the scheduler | locks | simplified: they never wait for each other | |

mod agent_view;
mod agents;
mod costs;
mod kernel;
mod metrics;

pub use costs::DelegationCosts;
pub use metrics::{AgentMetrics, DelegationMetrics, Failed};

use crate::engine::{Engine, Step};
use crate::stop::Watch;
use crate::{Costs, Machine, Outcome, RunOptions, SimError, TickSkew};
use agent_view::AgentView;
use agents::Agents;
use kernel::Kernel;
use schedlab_model::{CpuId, CpuSet, EventSink, Ns, Op, Topology, Workload};
use schedlab_scheduler::Scheduler;

/// Where the scheduler runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// An agent on each CPU, which sleeps until there is something to do.
    PerCpu,
    /// One agent, which spins on this CPU.
    Global(CpuId),
}

impl Mode {
    /// Returns how many of `cpus` CPUs the scheduler decides for.
    pub fn cpus(self, cpus: usize) -> usize {
        match self {
            Mode::PerCpu => cpus,
            Mode::Global(_) => cpus.saturating_sub(1),
        }
    }
}

/// A failure of the agents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// They die: the kernel notices at once.
    Die,
    /// They hang: the watchdog notices.
    Hang,
}

/// How a machine delegates.
pub struct Delegation<'a> {
    /// Where the scheduler runs.
    pub mode: Mode,
    /// What the steps cost.
    pub costs: DelegationCosts,
    /// Most transactions of one commit, from 1 on; 1: no group commit.
    pub group: u32,
    /// The kernel's own scheduler: for tasks outside of the enclave, and for all when the agents
    /// are gone.
    pub own: &'a dyn Scheduler,
    /// By task: it is outside of the enclave. Empty: none is.
    pub outside: Vec<bool>,
    /// When something happens to the agents, and what.
    pub failure: Option<(Ns, Failure)>,
    /// How long a runnable task may wait before the watchdog destroys the enclave; checked at
    /// ticks.
    pub runnable_timeout: Option<Ns>,
}

/// Runs `workload` on `machine` under `scheduler`, behind agents. The scheduler is made for
/// [`Mode::cpus`] CPUs. [`Metrics::delegation`](crate::Metrics::delegation) says what the agents
/// did.
///
/// # Errors
/// As [`run`](crate::run); and a task of the enclave that may run on the spinning agent's CPU only.
pub fn run_delegated(
    machine: &Machine,
    workload: &Workload,
    scheduler: &dyn Scheduler,
    delegation: &Delegation<'_>,
    options: &RunOptions,
    mut sink: &mut dyn EventSink,
) -> Result<Outcome, SimError> {
    machine.check()?;
    machine.check_alone("delegation")?;
    let cpus = machine.topology.cpus();
    workload.check(cpus)?;
    keeps_attributes(workload)?;
    let mut outside = delegation.outside.clone();
    outside.resize(workload.tasks.len(), false);
    let machine = own_costs(machine);
    let workload = off_agents_cpu(workload, delegation.mode, &outside, cpus)?;
    let enclave: Vec<CpuId> =
        (0..cpus as u32).map(CpuId).filter(|cpu| delegation.mode != Mode::Global(*cpu)).collect();
    let inside = (inner_machine(&machine, &enclave), inner_workload(&workload, &enclave));
    let numbers = inner_numbers(&enclave, cpus);
    let late = delegation.costs.timer_late_ns.0;
    let view = AgentView::new(scheduler, &inside.0, &inside.1, enclave, cpus, options.seed, late)?;
    let kernel = Kernel::new(scheduler, delegation.own, delegation.costs, numbers, &outside);
    let mut engine = Engine::<_, false>::new(&machine, &workload, &kernel, options, &mut sink)?;
    engine.set_call_cost(kernel.call_cost());
    let agents =
        Agents::new(delegation.mode, delegation.costs, delegation.group, &machine.topology, view);
    let end = options.duration.0;
    let warmup = (options.warmup > Ns::ZERO).then_some(options.warmup.0);
    let watchdog = delegation.runnable_timeout.map(|limit| (machine.tick_ns().0, limit.0));
    let failure = delegation.failure.map(|(at, what)| (at.0, what));
    let run = Run {
        engine,
        kernel: &kernel,
        agents,
        failure,
        watchdog,
        warmup,
        end,
        steps: 0,
        checked: 0,
        watch_stop: Watch::new(options),
    };
    run.run(delegation.mode, &outside, machine.tick_ns().0).map_err(|error| *error)
}

/// Returns the machine without the prices that delegation has its own of.
fn own_costs(machine: &Machine) -> Machine {
    let mut machine = machine.clone();
    for (name, _) in Costs::knobs() {
        let decides = name.ends_with("_decide_ns") || name.ends_with("_switch_ns");
        if decides || name.starts_with("ipi_") || name == "switch_enter_ns" {
            machine.costs.set(name, Ns::ZERO);
        }
    }
    machine.delays = Default::default();
    machine
}

/// Agents are not told of tasks that change their nice value or CPUs while they run.
fn keeps_attributes(workload: &Workload) -> Result<(), SimError> {
    let changes = |op: &Op| matches!(op, Op::SetNice(_) | Op::SetCpus { .. });
    match workload.tasks.iter().find(|task| task.program.ops.iter().any(changes)) {
        None => Ok(()),
        Some(task) => Err(SimError::Machine(format!(
            "task `{}` changes its nice value or its CPUs while it runs (steps `nice` and `cpus`), \
             of which agents are not told: compare the scheduler without delegation, or leave \
             these steps out",
            task.name
        ))),
    }
}

/// Tasks outside of the enclave keep off a spinning agent's CPU; those inside need another one.
fn off_agents_cpu(
    workload: &Workload,
    mode: Mode,
    outside: &[bool],
    cpus: usize,
) -> Result<Workload, SimError> {
    let mut workload = workload.clone();
    let Mode::Global(spins) = mode else { return Ok(workload) };
    if spins.index() >= cpus || cpus < 2 {
        return Err(SimError::Machine(format!(
            "a global agent on {spins} of {cpus} CPUs: it needs a CPU of the machine, and another \
             for the tasks"
        )));
    }
    let rest = CpuSet::first(cpus).without(&CpuSet::single(spins));
    for (task, outside) in workload.tasks.iter_mut().zip(outside) {
        let left = task.affinity.and(&rest);
        if left.is_empty() {
            return Err(SimError::Machine(format!(
                "task `{}` may run on CPUs {} only, where the global agent spins: put the agent \
                 elsewhere",
                task.name, task.affinity
            )));
        }
        if *outside {
            task.affinity = left;
        }
    }
    Ok(workload)
}

/// Returns the enclave's number of each of a machine's `cpus` CPUs.
fn inner_numbers(enclave: &[CpuId], cpus: usize) -> Vec<Option<usize>> {
    let mut inner = vec![None; cpus];
    enclave.iter().enumerate().for_each(|(i, cpu)| inner[cpu.index()] = Some(i));
    inner
}

fn inner_machine(machine: &Machine, enclave: &[CpuId]) -> Machine {
    let phases = machine.phases();
    Machine {
        topology: Topology::from_places(
            enclave.iter().map(|cpu| machine.topology.places()[cpu.index()]).collect(),
        ),
        ticks: TickSkew::At(enclave.iter().map(|cpu| phases[cpu.index()]).collect()),
        ..machine.clone()
    }
}

/// Returns the workload with the enclave's numbers of CPUs.
fn inner_workload(workload: &Workload, enclave: &[CpuId]) -> Workload {
    let map = |set: &CpuSet| -> CpuSet {
        let inside = enclave.iter().enumerate().filter(|(_, cpu)| set.contains(**cpu));
        inside.map(|(i, _)| CpuId(i as u32)).collect()
    };
    let mut inner = workload.clone();
    for task in &mut inner.tasks {
        task.affinity = map(&task.affinity);
        task.soft_affinity = map(&task.soft_affinity);
    }
    for group in &mut inner.groups {
        group.cpus = group.cpus.as_ref().map(map);
    }
    inner
}

/// A run: the engine with the kernel's end inside, and the agents beside it, on one clock.
struct Run<'a, 'k, S> {
    engine: Engine<'k, S, false>,
    kernel: &'k Kernel<'a>,
    agents: Agents<'a>,
    failure: Option<(u64, Failure)>,
    /// Next check of the watchdog, and its limit.
    watchdog: Option<(u64, u64)>,
    warmup: Option<u64>,
    end: u64,
    /// Steps of agents since time passed last.
    steps: u64,
    /// Moments so far in which nothing was under way.
    checked: u64,
    /// Whether the caller ends it.
    watch_stop: Watch<'a>,
}

/// More steps than this without time passing are a circle.
const STEPS_MAX: u64 = 1_000_000;
/// One in so many of those is checked for agreement between kernel and agents.
const CHECK_EVERY: u64 = 64;

impl<S: EventSink> Run<'_, '_, S> {
    fn run(mut self, mode: Mode, outside: &[bool], tick_ns: u64) -> Step<Outcome> {
        self.engine.start()?;
        self.agents.view.start(outside)?;
        if let Mode::Global(cpu) = mode {
            self.engine.spin(cpu.index(), true);
        }
        loop {
            let at = self.next_at();
            if at >= self.end {
                break;
            }
            self.watch_stop.instant()?;
            if at > self.engine.time() {
                self.steps = 0;
            }
            self.engine.advance_to(at);
            // Tick edges come first in an instant, and the watchdog looks at ticks: what it asks of
            // the kernel must not put them off.
            if self.engine.is_due() {
                self.engine.serve_instant()?;
            }
            self.timed(mode, tick_ns)?;
            self.instant()?;
        }
        self.engine.advance_to(self.end);
        self.check()?;
        self.settle();
        let delegation = self.kernel.measure(std::mem::take);
        let mut outcome = self.engine.finish()?;
        outcome.metrics.delegation = Some(Box::new(delegation));
        Ok(outcome)
    }

    fn next_at(&mut self) -> u64 {
        let now = self.engine.time();
        let never = u64::MAX;
        let watch = self.watchdog.map_or(never, |(at, _)| at);
        let fails = self.failure.map_or(never, |(at, _)| at);
        let warm = self.warmup.unwrap_or(never);
        self.engine.next_at().min(self.agents.next_at(now)).min(watch).min(fails).min(warm).max(now)
    }

    /// What has a time of its own: the end of the warm-up, the failure, the watchdog.
    fn timed(&mut self, mode: Mode, tick_ns: u64) -> Step {
        let now = self.engine.time();
        if self.warmup.is_some_and(|at| at <= now) {
            self.warmup = None;
            self.settle();
            self.kernel.measure(DelegationMetrics::restart);
        }
        if let Some((_, what)) = self.failure.filter(|(at, _)| *at <= now) {
            self.failure = None;
            self.settle();
            self.agents.stop();
            self.kernel.measure(|metrics| metrics.agents_lost_at = Some(Ns(now)));
            if what == Failure::Die {
                self.fall_back(mode)?;
            }
        }
        if let Some((_, limit)) = self.watchdog.filter(|(at, _)| *at <= now) {
            self.watchdog = Some((now + tick_ns, limit));
            if self.kernel.starves(now, limit) {
                self.settle();
                self.agents.stop();
                self.fall_back(mode)?;
            }
        }
        Ok(())
    }

    /// The enclave is destroyed.
    fn fall_back(&mut self, mode: Mode) -> Step {
        self.watchdog = None;
        if let Mode::Global(cpu) = mode {
            self.engine.spin(cpu.index(), false);
        }
        self.engine.let_all_go()?;
        let kernel = self.kernel;
        self.engine.call_scheduler(0, |cx| kernel.destroy(cx))?;
        self.engine.ask_all();
        Ok(())
    }

    /// Everything that happens now: the kernel first, then the agents, one thing at a time.
    fn instant(&mut self) -> Step {
        let mut messages = Vec::new();
        loop {
            if self.engine.is_due() {
                self.engine.serve_instant()?;
            }
            self.kernel.take_posted(&mut messages);
            self.agents.deliver(&mut messages);
            self.steps += 1;
            if self.steps > STEPS_MAX {
                let at = Ns(self.engine.time());
                return Err(Box::new(SimError::Restless { at, steps: STEPS_MAX }));
            }
            if !self.agents.step(&mut self.engine, self.kernel)? && !self.engine.is_due() {
                break;
            }
        }
        self.engine.throttle_again()?;
        if !self.agents.stopped && self.agents.is_quiet() {
            self.checked += 1;
            if self.checked.is_multiple_of(CHECK_EVERY) {
                return self.check();
            }
        }
        Ok(())
    }

    /// No message was lost: where nothing is under way, kernel and agents agree.
    fn check(&mut self) -> Step {
        if self.agents.stopped || !self.agents.is_quiet() {
            return Ok(());
        }
        let view = &self.agents.view;
        match self.kernel.agrees(|task| view.sees(task)) {
            Ok(()) => Ok(()),
            Err(what) => self.engine.broken(what),
        }
    }

    fn settle(&mut self) {
        let (agents, now) = (&mut self.agents, self.engine.time());
        self.kernel.measure(|metrics| agents.settle(now, &mut metrics.agents));
    }
}
