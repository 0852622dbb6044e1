//! Delegation in scenarios and variants: where the scheduler runs, and what that costs.
//!
//! One list of settings serves the `[delegation]` section of a scenario (`mode = "global"`) and the
//! target `delegation` of a variant (`delegation mode=global group=1`): [`DelegationSpec::set`].

use crate::preset::{self, THIS_MACHINE};
use schedlab_model::text::nearest;
use schedlab_model::{CpuId, EventSink, Ns, Workload};
use schedlab_scheduler::linux::KernelRelease;
use schedlab_scheduler::{KnobError, Scheduler, SchedulerSpec, registry};
use schedlab_sim::{
    Delegation, DelegationCosts, DelegationMetrics, Failed, Failure, Machine, Mode, Outcome,
    RunOptions, SimError, run_delegated,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::LazyLock;

/// What the kernel runs when the agents are gone, and beside them.
const FALLBACK: &str = "linux-6.1";
/// Most transactions of one commit unless a scenario says otherwise.
const GROUP: u32 = 64;
/// The largest file of costs that is read.
const COSTS_MAX: u64 = 1 << 20;
/// The largest cost of a step.
const COST_MAX: Ns = Ns::from_ms(10);

/// A recording was made in the kernel.
pub(crate) static IN_KERNEL: LazyLock<DelegationSpec> = LazyLock::new(DelegationSpec::default);

/// Settings that are not costs.
const KEYS: [&str; 9] =
    ["mode", "agent", "costs", "group", "fallback", "outside", "die", "hang", "runnable_timeout"];

/// Where the scheduler runs, in words.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SchedulerPlace {
    /// In the kernel: no agents.
    #[default]
    Kernel,
    /// An agent on each CPU.
    PerCpu,
    /// One spinning agent.
    Global,
}

/// How a scenario or a variant delegates.
#[derive(Clone, PartialEq, Debug)]
pub struct DelegationSpec {
    /// Where the scheduler runs.
    pub place: SchedulerPlace,
    /// The CPU of a global agent.
    pub agent: CpuId,
    /// Whether that CPU was named; otherwise a recording's row takes the one to which the fewest
    /// tasks are bound.
    pub agent_named: bool,
    /// What the steps cost.
    pub costs: DelegationCosts,
    /// Where the costs come from: a preset, or a file.
    pub source: String,
    /// Most transactions of one commit.
    pub group: u32,
    /// The kernel's own scheduler.
    pub fallback: SchedulerSpec,
    /// Tasks outside of the enclave: names, classes or globs.
    pub outside: Vec<String>,
    /// What happens to the agents, and when.
    pub failure: Option<(Ns, Failure)>,
    /// The watchdog's limit.
    pub runnable_timeout: Option<Ns>,
}

impl Default for DelegationSpec {
    fn default() -> DelegationSpec {
        DelegationSpec {
            place: SchedulerPlace::Kernel,
            agent: CpuId(0),
            agent_named: false,
            costs: DelegationCosts::ghost_2021(),
            source: "ghost-2021".to_owned(),
            group: GROUP,
            fallback: SchedulerSpec::named(FALLBACK),
            outside: Vec::new(),
            failure: None,
            runnable_timeout: None,
        }
    }
}

impl DelegationSpec {
    /// Sets one thing by name. `cpus`: those of the machine.
    ///
    /// # Errors
    /// What is allowed, in words.
    pub fn set(&mut self, key: &str, value: &str, cpus: usize) -> Result<(), String> {
        let time = || value.parse::<Ns>().map_err(|error| format!("{key}={value}: {error}"));
        match key {
            "mode" => self.place = place(value)?,
            "agent" => {
                let cpu = value.parse().ok().filter(|cpu| (*cpu as usize) < cpus);
                let wanted =
                    || format!("agent={value}: must be a CPU of the machine, 0 to {}", cpus - 1);
                self.agent = CpuId(cpu.ok_or_else(wanted)?);
                self.agent_named = true;
            }
            "costs" => {
                self.costs = costs(value)?;
                self.source = value.to_owned();
            }
            "group" => {
                let group = value.parse().ok().filter(|group| (1..=1024).contains(group));
                self.group = group.ok_or_else(|| {
                    format!("group={value}: must be from 1 (no group commit) to 1024 transactions")
                })?;
            }
            "fallback" => self.fallback = fallback(value)?,
            "outside" => {
                self.outside = value.split(',').map(|name| name.trim().to_owned()).collect()
            }
            "die" => self.failure = Some((time()?, Failure::Die)),
            "hang" => self.failure = Some((time()?, Failure::Hang)),
            "runnable_timeout" => self.runnable_timeout = Some(time()?),
            _ => {
                let names = DelegationCosts::NAMES.iter().map(|(name, _)| *name);
                if !names.clone().any(|name| name == key) {
                    return Err(unknown(key));
                }
                let cost = time()?;
                if cost > COST_MAX {
                    return Err(format!(
                        "{key}={value}: longer than {COST_MAX}, that is no step of an agent"
                    ));
                }
                self.costs.set(key, cost);
            }
        }
        Ok(())
    }

    /// Every setting's name.
    pub fn keys() -> impl Iterator<Item = &'static str> {
        KEYS.into_iter().chain(DelegationCosts::NAMES.iter().map(|(name, _)| *name))
    }

    /// The mode for the simulator; `None`: the kernel decides.
    pub fn mode(&self) -> Option<Mode> {
        match self.place {
            SchedulerPlace::Kernel => None,
            SchedulerPlace::PerCpu => Some(Mode::PerCpu),
            SchedulerPlace::Global => Some(Mode::Global(self.agent)),
        }
    }

    /// How many CPUs the scheduler is made for.
    pub(crate) fn cpus(&self, cpus: usize) -> usize {
        self.mode().map_or(cpus, |mode| mode.cpus(cpus))
    }

    /// Where a number comes from that was not published.
    pub fn provenance(&self) -> &'static str {
        match self.source.as_str() {
            "ghost-2021" => {
                "ghost-2021: two Xeon 8173M, SOSP'21 Table 3. Published: syscall, ctx_switch, \
                 cfs_switch. Remainders of \
                 published sums: agent_wake, txn_local, txn_target, ipi_flight. Fitted: \
                 txn_remote and ipi_send (to 668 \
                 and 3964 ns), txn_target_group (to 5688 ns), the halves of a message (265 ns). \
                 Chosen: txn_node, smt."
            }
            "elevation-vm" => {
                "elevation-vm: measured on a VM (AMD EPYC, Linux 6.18); the switch and the halves \
                 of a message are split \
                 by hand; timers are exact, because the published experiment ran on bare metal."
            }
            "free" => "free: nothing costs anything.",
            _ => "from a file of measured costs: see there.",
        }
    }
}

fn place(text: &str) -> Result<SchedulerPlace, String> {
    match text {
        "kernel" => Ok(SchedulerPlace::Kernel),
        "per-cpu" => Ok(SchedulerPlace::PerCpu),
        "global" => Ok(SchedulerPlace::Global),
        _ => Err(format!(
            "mode={text}: must be kernel (no agents), per-cpu (an agent on each CPU) or global \
             (one spinning agent)"
        )),
    }
}

/// Returns whether the kernel beneath agents can have this scheduler: Linux 6.1 or later.
pub fn can_be_fallback(spec: &SchedulerSpec) -> bool {
    let oldest = KernelRelease::new(6, 1, 0);
    spec.family().is_ok_and(|family| family.linux().is_some_and(|release| release >= oldest))
}

fn fallback(text: &str) -> Result<SchedulerSpec, String> {
    let spec: SchedulerSpec = text.parse().map_err(|error| format!("fallback={text}: {error}"))?;
    registry::check(&spec).map_err(|error| error.to_string())?;
    match can_be_fallback(&spec) {
        true => Ok(spec),
        false => Err(format!("fallback={text}: the kernel's own scheduler is linux-6.1 or later")),
    }
}

fn unknown(key: &str) -> String {
    let hint = match nearest(key, DelegationSpec::keys()) {
        Some(right) => format!(": did you mean `{right}`?"),
        None => format!("; it has: {}", DelegationSpec::keys().collect::<Vec<_>>().join(", ")),
    };
    format!("delegation has no setting `{key}`{hint}")
}

/// A preset by name, or a file of named costs.
fn costs(name: &str) -> Result<DelegationCosts, String> {
    if let Some(costs) = DelegationCosts::preset(name) {
        return Ok(costs);
    }
    if name == THIS_MACHINE {
        let path =
            preset::path().ok_or("costs=this-machine: neither XDG_DATA_HOME nor HOME is set")?;
        if !path.exists() {
            return Err(format!(
                "costs=this-machine: there is no {}; `schedlab calibrate` measures this machine \
                 and writes it",
                path.display()
            ));
        }
        return read_costs(&path);
    }
    if name.contains(['/', '.']) {
        return read_costs(Path::new(name));
    }
    let known = DelegationCosts::presets().chain([THIS_MACHINE]);
    let hint = nearest(name, known.clone())
        .map(|right| format!(" (did you mean `{right}`?)"))
        .unwrap_or_default();
    let known: Vec<&str> = known.collect();
    Err(format!(
        "no cost preset `{name}`{hint}: there are {}, or a file such as ./costs.toml",
        known.join(", ")
    ))
}

/// Reads a file of named costs: whole nanoseconds under the names of [`DelegationCosts`], in a
/// table `delegation` or at the top, as TOML or JSON. What has another name belongs to other parts
/// of the machine and is left alone.
fn read_costs(path: &Path) -> Result<DelegationCosts, String> {
    let fail = |what: String| format!("costs={}: {what}", path.display());
    let text = schedlab_files::read_to_string(path, COSTS_MAX)
        .map_err(|error| fail(format!("cannot be read: {error}")))?;
    costs_of(&text).map_err(fail)
}

/// Delegation on a stock kernel by priority elevation, from what `schedlab calibrate` measured
/// (docs/calibration.md): a message is a record of the recorder, a transaction a change of a parked
/// task's priority. What was not measured costs nothing.
fn calibrated(table: &serde_json::Value) -> DelegationCosts {
    let ns = |name: &str| {
        table
            .get(name)
            .and_then(serde_json::Value::as_f64)
            .map_or(0, |ns| ns.max(0.0).round() as u64)
    };
    let less = |name: &str, parts: &[u64]| {
        Ns(parts.iter().fold(ns(name), |rest, part| rest.saturating_sub(*part)))
    };
    let switch = less("switch_yield_ns", &[ns("yield_ns")]);
    let call = less("wake_call_ns", &[ns("wake_nobody_ns")]);
    DelegationCosts {
        syscall_ns: Ns(ns("syscall_ns")),
        ctx_switch_ns: switch,
        cfs_switch_ns: switch,
        msg_produce_ns: Ns(ns("recorder_switch_ns")),
        msg_consume_ns: Ns(ns("line_ns")),
        agent_wake_ns: call,
        txn_local_ns: less("setattr_sleeping_ns", &[ns("syscall_ns")]),
        txn_remote_ns: less("setattr_remote_ns", &[ns("syscall_ns")]),
        ipi_flight_ns: less("wakeup_busy_cpu_ns", &[ns("wake_call_ns"), switch.0]),
        timer_late_ns: Ns(ns("timer_fifo_ns")),
        ..DelegationCosts::default()
    }
}

fn costs_of(text: &str) -> Result<DelegationCosts, String> {
    let value: serde_json::Value = match text.trim_start().starts_with('{') {
        true => serde_json::from_str(text).map_err(|error| format!("not valid JSON: {error}"))?,
        false => {
            toml::from_str(text).map_err(|error| format!("not valid TOML: {}", error.message()))?
        }
    };
    let table = ["delegation", "costs"].iter().find_map(|key| value.get(key)).unwrap_or(&value);
    if table.get("switch_yield_ns").is_some() {
        return Ok(calibrated(table));
    }
    let mut costs = DelegationCosts::default();
    for (name, _) in DelegationCosts::NAMES {
        let Some(found) = table.get(name) else { continue };
        let ns = found
            .as_u64()
            .or_else(|| found.as_f64().filter(|ns| *ns >= 0.0).map(|ns| ns.round() as u64));
        let ns = ns.map(Ns).filter(|ns| *ns <= COST_MAX);
        let wanted =
            || format!("`{name}` must be nanoseconds from 0 to {}, not {found}", COST_MAX.0);
        costs.set(name, ns.ok_or_else(wanted)?);
    }
    for name in ["syscall_ns", "ctx_switch_ns"] {
        if table.get(name).is_none() {
            return Err(format!(
                "has no `{name}`: is it a file of delegation costs (docs/scenario-format.md)?"
            ));
        }
    }
    Ok(costs)
}

/// What is ready to run: the settings, and which tasks are outside.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Delegated {
    pub(crate) spec: DelegationSpec,
    pub(crate) outside: Vec<bool>,
}

impl Delegated {
    /// Runs behind agents.
    pub(crate) fn run(
        &self,
        machine: &Machine,
        workload: &Workload,
        scheduler: &dyn Scheduler,
        options: &RunOptions,
        sink: &mut dyn EventSink,
    ) -> Result<Result<Outcome, SimError>, KnobError> {
        let own = registry::build(&self.spec.fallback, machine.topology.cpus())?;
        let delegation = Delegation {
            mode: self.spec.mode().unwrap_or(Mode::PerCpu),
            costs: self.spec.costs,
            group: self.spec.group,
            own: &*own,
            outside: self.outside.clone(),
            failure: self.spec.failure,
            runnable_timeout: self.spec.runnable_timeout,
        };
        Ok(run_delegated(machine, workload, scheduler, &delegation, options, sink))
    }
}

/// What delegation did in a row, for its first seed. `docs/result-schema.md` describes the fields.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct DelegationResult {
    /// `per-cpu` or `global`.
    pub mode: String,
    /// Preset or file of the costs.
    pub costs_from: String,
    /// Where the numbers come from; what is fitted.
    pub provenance: String,
    /// The costs that are not zero, in nanoseconds.
    pub costs: Vec<(String, u64)>,
    /// What they come to, under the names of ghOSt's Table 3.
    pub sums: Vec<(String, u64)>,
    /// Messages read.
    pub messages: u64,
    /// Transactions, failed ones included.
    pub transactions: u64,
    /// Failed ones by reason.
    pub failed: Vec<(String, u64)>,
    /// Commits.
    pub commits: u64,
    /// The agents.
    pub agents: Vec<AgentResult>,
    /// When agents died or hung.
    pub agents_lost_at_ns: Option<u64>,
    /// When the kernel's own scheduler took over.
    pub fell_back_at_ns: Option<u64>,
}

/// One agent.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct AgentResult {
    /// Where it runs.
    pub cpu: u32,
    /// CPU time in the measured time.
    pub cpu_ns: u64,
    /// The part in which it did something.
    pub busy_ns: u64,
    /// Times it was woken.
    pub activations: u64,
}

impl DelegationResult {
    pub(crate) fn from_metrics(
        spec: &DelegationSpec,
        metrics: &DelegationMetrics,
    ) -> DelegationResult {
        let named = |(name, ns): (&str, Ns)| (name.to_owned(), ns.0);
        let costs = DelegationCosts::NAMES
            .iter()
            .map(|(name, _)| (*name, spec.costs.get(name).unwrap_or_default()));
        let agent = |agent: &schedlab_sim::AgentMetrics| AgentResult {
            cpu: agent.cpu.0,
            cpu_ns: agent.cpu_ns.0,
            busy_ns: agent.busy_ns.0,
            activations: agent.activations,
        };
        DelegationResult {
            mode: if spec.place == SchedulerPlace::Global { "global" } else { "per-cpu" }
                .to_owned(),
            costs_from: spec.source.clone(),
            provenance: spec.provenance().to_owned(),
            costs: costs.filter(|(_, ns)| *ns > Ns::ZERO).map(named).collect(),
            sums: spec.costs.sums().into_iter().map(named).collect(),
            messages: metrics.messages,
            transactions: metrics.transactions,
            failed: Failed::ALL
                .iter()
                .map(|(why, name)| ((*name).to_owned(), metrics.failed[*why as usize]))
                .collect(),
            commits: metrics.commits,
            agents: metrics.agents.iter().map(agent).collect(),
            agents_lost_at_ns: metrics.agents_lost_at.map(|at| at.0),
            fell_back_at_ns: metrics.fell_back_at.map(|at| at.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_by_name() {
        let mut spec = DelegationSpec::default();
        for (key, value) in
            [("mode", "global"), ("agent", "3"), ("group", "1"), ("txn_remote_ns", "1us")]
        {
            spec.set(key, value, 4).unwrap();
        }
        assert_eq!(spec.mode(), Some(Mode::Global(CpuId(3))));
        assert_eq!((spec.cpus(4), spec.costs.txn_remote_ns), (3, Ns(1_000)));
        for (key, value, part) in [
            ("mode", "agent", "per-cpu"),
            ("agent", "4", "0 to 3"),
            ("group", "0", "from 1"),
            ("txn_remot_ns", "1us", "did you mean `txn_remote_ns`"),
            ("txn_remote_ns", "5", "unit"),
            ("txn_remote_ns", "1s", "no step of an agent"),
            ("costs", "ghost-2020", "did you mean `ghost-2021`"),
            ("costs", "./no-such-file.toml", "cannot be read"),
            ("fallback", "xen-credit", "linux-6.1 or later"),
            ("die", "soon", "die=soon"),
        ] {
            let error = spec.set(key, value, 4).unwrap_err();
            assert!(error.contains(part), "{key}={value}: {error}");
        }
    }

    #[test]
    fn a_file_of_costs() {
        let toml = "kernel = \"6.18\"\n[delegation]\nsyscall_ns = 140\nctx_switch_ns = 680.4\n\
                    other_ns = 1\n";
        let costs = costs_of(toml).unwrap();
        assert_eq!(
            (costs.syscall_ns, costs.ctx_switch_ns, costs.ipi_send_ns),
            (Ns(140), Ns(680), Ns(0))
        );
        let measured = "[costs]\nsyscall_ns = 140.0\nswitch_yield_ns = 800.5\nyield_ns = 200\n\
                        setattr_sleeping_ns = 531\n";
        let costs = costs_of(measured).unwrap();
        assert_eq!(
            (costs.ctx_switch_ns, costs.txn_local_ns, costs.ipi_flight_ns),
            (Ns(601), Ns(391), Ns(0))
        );
        assert_eq!(
            costs_of("{\"syscall_ns\": 1, \"ctx_switch_ns\": 2}").unwrap().ctx_switch_ns,
            Ns(2)
        );
        for (text, part) in [
            ("syscall_ns = 1", "has no `ctx_switch_ns`"),
            ("syscall_ns = -1\nctx_switch_ns = 1", "from 0 to"),
            ("syscall_ns = ", "not valid TOML"),
            ("{", "not valid JSON"),
        ] {
            assert!(costs_of(text).unwrap_err().contains(part), "{text}: {:?}", costs_of(text));
        }
    }
}
