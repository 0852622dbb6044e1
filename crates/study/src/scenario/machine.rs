//! The `[machine]` section.

use super::document::{Item, ScenarioError, Section};
use super::group::absent_cpu;
use super::kernel::{self, KernelSpec};
use schedlab_model::text::nearest;
use schedlab_model::{CpuRoles, CpuSet, FULL_SPEED, LEAST_SMT_YIELD, MAX_CPUS, Ns, Topology};
use schedlab_sim::Costs;
use toml::de::DeValue;

/// The machine of a scenario.
#[derive(Clone, PartialEq, Debug)]
pub struct MachineSpec {
    /// CPUs and caches.
    pub topology: Topology,
    /// Tick frequency in hertz.
    pub hz: u32,
    /// When each CPU ticks.
    pub ticks: Ticks,
    /// What the machine's own work costs.
    pub costs: Costs,
    /// Speed of a hardware thread beside a busy one of its core.
    pub smt_yield: SmtYield,
    /// CPUs that the boot line sets apart.
    pub roles: CpuRoles,
    /// Preemption model and interrupt threads.
    pub kernel: KernelSpec,
}

/// When each CPU ticks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ticks {
    /// All CPUs in the same instants.
    Aligned,
    /// Spread evenly over half a tick period (Linux `skew_tick=1`).
    Staggered,
    /// As the local timers of Linux 2.4 on i386: CPU `i` of `n` comes `(i + 1) / (n + 1)` of a
    /// period later.
    Spread,
    /// The first edge of each CPU.
    At(Vec<Ns>),
}

const KEYS: [&str; 15] = [
    "cpus",
    "sockets",
    "llcs",
    "cores",
    "threads",
    "smt_yield",
    "isolcpus",
    "nohz_full",
    "hz",
    "ticks",
    "cost",
    "costs",
    kernel::KEYS[0],
    kernel::KEYS[1],
    kernel::KEYS[2],
];

pub(super) fn read(root: &Section<'_>) -> Result<MachineSpec, ScenarioError> {
    let example = "a [machine] section with cpus = 4 and hz = 250";
    let section = root.need("machine", example)?.section("[machine]", &KEYS)?;
    let topology = topology(&section)?;
    let hz = section.optional("hz", |item| item.integer(10, 10_000))?.unwrap_or(250) as u32;
    let ticks =
        section.optional("ticks", |item| ticks(&item, topology.cpus()))?.unwrap_or(Ticks::Aligned);
    let costs = costs(&section)?;
    let smt_yield = section.optional("smt_yield", |item| smt_yield(&item, &topology))?;
    let role = |role: Role| {
        let set = section.optional(role.name(), |item| {
            role.check(item.parse()?, topology.cpus()).map_err(|message| item.error(message))
        });
        set.map(Option::unwrap_or_default)
    };
    let roles = CpuRoles { isolated: role(Role::Isolated)?, nohz_full: role(Role::NohzFull)? };
    let kernel = kernel::read(&section)?;
    let smt_yield = match smt_yield {
        Some(given) => given,
        None => SmtYield::of(&topology, calibrated(&section)?.unwrap_or(FULL_SPEED)),
    };
    Ok(MachineSpec { topology, hz, ticks, costs, smt_yield, roles, kernel })
}

/// What the boot line may set CPUs apart for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// No load is balanced there.
    Isolated,
    /// No ticks beside a task that is alone, and no work of the kernel's own.
    NohzFull,
}

impl Role {
    /// Returns its option of the boot line, which is the key in `[machine]` and in variants.
    pub fn name(self) -> &'static str {
        match self {
            Role::Isolated => "isolcpus",
            Role::NohzFull => "nohz_full",
        }
    }

    /// Checks that its CPUs exist, and that they are not all of them.
    pub(crate) fn check(self, set: CpuSet, cpus: usize) -> Result<CpuSet, String> {
        let name = self.name();
        if let Some(cpu) = set.iter().find(|cpu| cpu.index() >= cpus) {
            return Err(format!("{name}: {}", absent_cpu(cpu.index(), cpus)));
        }
        let others = match self {
            Role::Isolated => "the tasks that may run everywhere",
            Role::NohzFull => "the kernel's own work",
        };
        match set.count() >= cpus {
            true => Err(format!(
                "{name} = \"{set}\" leaves no CPU for {others}; leave at least one out"
            )),
            false => Ok(set),
        }
    }

    /// What to do at boot for this set.
    pub(crate) fn boot_line(self, set: &CpuSet) -> String {
        match set.is_empty() {
            true => format!("boot without {}", self.name()),
            false => format!("boot with {}={set}", self.name()),
        }
    }

    /// Its CPUs among `roles`.
    pub(crate) fn of(self, roles: &mut CpuRoles) -> &mut CpuSet {
        match self {
            Role::Isolated => &mut roles.isolated,
            Role::NohzFull => &mut roles.nohz_full,
        }
    }
}

/// At what part of its speed a hardware thread runs while another one of its core is busy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SmtYield {
    /// So many thousandths.
    Speed(u16),
    /// No core has several threads.
    OneThread,
    /// The CPU times of a recording hold what its threads took from each other, and how much that
    /// was it does not show.
    Unshown,
}

impl SmtYield {
    /// Returns that of a machine; `given`: in thousandths.
    pub(crate) fn of(topology: &Topology, given: u16) -> SmtYield {
        if topology.has_siblings() { SmtYield::Speed(given) } else { SmtYield::OneThread }
    }

    /// Reads a part of a CPU's speed, such as 0.6, in thousandths.
    pub(crate) fn read(text: &str) -> Result<u16, String> {
        let least = f64::from(LEAST_SMT_YIELD) / f64::from(FULL_SPEED);
        let part = text.parse().ok().filter(|part: &f64| (least..=1.0).contains(part));
        let part = part.ok_or_else(|| {
            format!(
                "`smt_yield` must be a number from {least} to 1.0: at what part of its speed a \
                 hardware thread runs while another one of its core is busy"
            )
        })?;
        Ok((part * f64::from(FULL_SPEED)).round() as u16)
    }

    /// Returns that of the same machine with another value, or why it has none.
    pub(crate) fn set(self, permille: u16) -> Result<SmtYield, String> {
        match self {
            SmtYield::Speed(_) => Ok(SmtYield::Speed(permille)),
            SmtYield::OneThread => Err("`smt_yield` needs cores with several threads: give \
                                        threads = 2 beside cores, or leave it out"
                .to_owned()),
            SmtYield::Unshown => Err("`smt_yield`: the CPU times of this recording hold what its \
                                      hardware threads took from each other, and it does not show \
                                      how much that was (equal work beside a busy and beside an \
                                      idle thread of a core)"
                .to_owned()),
        }
    }

    /// Returns it in thousandths, for the simulator.
    pub(crate) fn speed(self) -> u16 {
        match self {
            SmtYield::Speed(permille) => permille,
            SmtYield::OneThread | SmtYield::Unshown => FULL_SPEED,
        }
    }
}

/// The key `smt_yield`.
fn smt_yield(item: &Item<'_>, topology: &Topology) -> Result<SmtYield, ScenarioError> {
    let text = match item.value {
        DeValue::Float(part) => part.as_str(),
        DeValue::Integer(whole) => whole.as_str(),
        _ => "",
    };
    let set = SmtYield::read(text).and_then(|speed| SmtYield::of(topology, speed).set(speed));
    set.map_err(|message| item.error(message))
}

/// What comes with the cost preset of a section.
fn calibrated(section: &Section<'_>) -> Result<Option<u16>, ScenarioError> {
    let of = |item: Item<'_>| {
        let name = item.text()?;
        crate::preset::smt_yield(name).map_err(|error| item.error(error.to_string()))
    };
    Ok(section.optional("costs", of)?.flatten())
}

/// The costs of a section: the preset of `costs = "NAME"`, and single ones of `cost = {...}` over
/// it.
pub(super) fn costs(section: &Section<'_>) -> Result<Costs, ScenarioError> {
    let mut costs = section.optional("costs", |item| preset(&item))?.unwrap_or_default();
    if let Some(item) = section.get("cost") {
        for value in item.entries()? {
            let time = value.time()?;
            if time > Ns::from_s(1) {
                return Err(value.error(format!(
                    "`{}` is longer than 1s: that is no cost of a machine",
                    value.key
                )));
            }
            if !costs.set(value.key, time) {
                return Err(value.error(unknown_cost(value.key)));
            }
        }
    }
    Ok(costs)
}

fn preset(item: &Item<'_>) -> Result<Costs, ScenarioError> {
    crate::preset::costs(item.text()?).map_err(|error| item.error(error.to_string()))
}

fn unknown_cost(name: &str) -> String {
    let hint = match nearest(name, Costs::knobs().map(|(known, _)| known)) {
        Some(right) => format!(": did you mean `{right}`?"),
        None => {
            let all: Vec<&str> = Costs::knobs().map(|(known, _)| known).collect();
            format!("; it may have: {}", all.join(", "))
        }
    };
    format!("[machine.cost] has no key `{name}`{hint}")
}

fn topology(section: &Section<'_>) -> Result<Topology, ScenarioError> {
    let shaped =
        ["sockets", "llcs", "cores", "threads"].into_iter().find_map(|key| section.get(key));
    if let Some(cpus) = section.get("cpus") {
        if let Some(other) = shaped {
            return Err(other.error(format!(
                "give either `cpus` (all under one cache) or sockets, llcs, cores and threads, \
                 not `{}` too",
                other.key
            )));
        }
        return Ok(Topology::flat(cpus.integer(1, MAX_CPUS as i64)? as usize));
    }
    if shaped.is_none() {
        return Err(section
            .error("[machine] needs `cpus`, such as cpus = 4 (or sockets, llcs, cores, threads)"));
    }
    let count = |key: &'static str| -> Result<usize, ScenarioError> {
        Ok(section.optional(key, |item| item.integer(1, MAX_CPUS as i64))?.unwrap_or(1) as usize)
    };
    let (sockets, llcs, cores, threads) =
        (count("sockets")?, count("llcs")?, count("cores")?, count("threads")?);
    let cpus = sockets * llcs * cores * threads;
    if cpus > MAX_CPUS {
        return Err(section.error(format!(
            "{sockets} sockets x {llcs} llcs x {cores} cores x {threads} threads are {cpus} CPUs; \
             schedlab \
             models at most {MAX_CPUS}"
        )));
    }
    Ok(Topology::regular(sockets, llcs, cores, threads))
}

fn ticks(item: &Item<'_>, cpus: usize) -> Result<Ticks, ScenarioError> {
    match item.value {
        DeValue::Array(_) => {
            let edges = item.list()?.iter().map(Item::time).collect::<Result<Vec<_>, _>>()?;
            if edges.len() != cpus {
                return Err(item.error(format!(
                    "`ticks` lists {} first edges for {cpus} CPUs: give one for each",
                    edges.len()
                )));
            }
            Ok(Ticks::At(edges))
        }
        _ => match item.text()? {
            "aligned" => Ok(Ticks::Aligned),
            "staggered" => Ok(Ticks::Staggered),
            "spread" => Ok(Ticks::Spread),
            other => Err(item.error(format!(
                "`ticks` must be \"aligned\", \"staggered\", \"spread\", or a list with the first \
                 edge of each CPU, not \
                 \"{other}\""
            ))),
        },
    }
}
