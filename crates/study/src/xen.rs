//! A simulated Xen host in the words of Xen's own tools: what `xl sched-credit`, `xl sched-credit2`
//! and `xl vcpu-list` would print at the end of a run, and the run-state summary of each vCPU that
//! `xenalyze --summary` makes of a trace.
//!
//! A domain is a group with vCPUs in it; its ID is the group's number, 0 being the root. Without a
//! `vm` each task is a vCPU; with one its vCPUs are. Times are nanoseconds where xenalyze counts
//! cycles: simulated pCPUs have none.

mod runstates;

pub use runstates::{PcpuRuns, Runstates, Tally};

use crate::StudyError;
use crate::run::RowPlan;
use crate::scenario::Scenario;
use runstates::RunstateListener;
use schedlab_model::{CpuSet, GroupId, Ns, TaskSpec};
use schedlab_scheduler::registry::XenScheduler;
use schedlab_scheduler::xen::PoolParameters;
use schedlab_scheduler::{Knobs, SchedulerSpec, registry};
use schedlab_trace::analysis::Scope;
use schedlab_trace::analysis::follow::Followed;
use schemars::JsonSchema;
use serde::Serialize;

/// Version of the JSON form.
pub const SCHEMA: &str = "schedlab-xen/1";
/// Weight of a domain that was given none.
const WEIGHT: u32 = 256;

/// A host at the end of a run.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct Host {
    /// [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// Name of the scenario.
    pub scenario: String,
    /// The variant that ran.
    pub variant: String,
    /// Its seed.
    pub seed: u64,
    /// How long it ran, virtual.
    pub duration_ns: Ns,
    /// The only pool.
    pub pool: Pool,
    /// By ID; those without vCPUs are left out.
    pub domains: Vec<Domain>,
}

/// A cpupool: its scheduler and parameters.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct Pool {
    /// `Pool-0`.
    pub name: String,
    /// `credit` or `credit2`.
    pub scheduler: String,
    /// Name and settings as schedlab knows them.
    pub spec: String,
    /// Number of pCPUs.
    pub pcpus: usize,
    /// Credit only: the time slice.
    pub tslice_ns: Option<Ns>,
    /// The rate limit of context switches.
    pub ratelimit_ns: Ns,
    /// Credit only: for how long a vCPU counts as cache-hot.
    pub migration_delay_ns: Option<Ns>,
}

/// A domain.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct Domain {
    /// Name: the group's path without the leading `/`.
    pub name: String,
    /// Number of the group.
    pub id: u32,
    /// 1 to 65535.
    pub weight: u32,
    /// Per cent of one pCPU; 0 = none.
    pub cap: u32,
    /// Its vCPUs.
    pub vcpus: Vec<Vcpu>,
}

/// A vCPU at the end of the run, and what it did until then.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct Vcpu {
    /// Number within its domain.
    pub vcpu: u32,
    /// Name of the task or vCPU in the scenario.
    pub name: String,
    /// The pCPU where it runs, waits or ran last.
    pub cpu: u32,
    /// `r` running, `b` blocked, `-` neither (it waits, or its cap holds it back).
    pub state: char,
    /// CPU time.
    pub time_ns: Ns,
    /// Hard affinity: `all`, or a list.
    pub hard: String,
    /// Soft affinity.
    pub soft: String,
    /// Time by run state.
    pub runstates: Runstates,
}

/// Simulates the first seed of `scenario` under `scheduler` (`None`: its first of Xen) with one of
/// its variants (`None`: as its first row has it).
///
/// # Errors
/// A scheduler that is not Xen's, a variant that does not exist, a run that fails.
pub fn observe(
    scenario: &Scenario,
    scheduler: Option<&SchedulerSpec>,
    variant: Option<&str>,
) -> Result<Host, StudyError> {
    let of_xen = |spec: &&SchedulerSpec| kind(spec).is_some();
    let spec = scheduler.or_else(|| scenario.schedulers.iter().find(of_xen));
    let spec = spec.filter(of_xen).ok_or_else(|| {
        StudyError::Option(format!(
            "xl and xenalyze are shown for Xen's Credit and Credit2 only, and {}: give \
             --scheduler xen-credit or xen-credit2",
            scheduler.map_or("this scenario names none".to_owned(), |other| format!(
                "{other} is \
                none"
            ))
        ))
    })?;
    if !spec.pools.is_empty() {
        return Err(StudyError::Option(format!(
            "xl and xenalyze are shown for a host with one pool, and `{spec}` has {}",
            spec.pools.len() + 1
        )));
    }
    let (plan, recording) = crate::show::simulated(scenario, Some(spec), variant, None)?;
    let cpus = recording.header.topology.cpus();
    let watch = RunstateListener::new(recording.header.tasks.len());
    let watch = Followed::over(&recording, &Scope::default(), watch);
    Ok(Host {
        schema: SCHEMA.to_owned(),
        scenario: scenario.name.clone(),
        variant: plan.variant.clone(),
        seed: scenario.seed,
        duration_ns: recording.duration,
        pool: pool(&plan.scheduler, cpus)?,
        domains: domains(&plan, cpus, &watch),
    })
}

/// Returns which of Xen's schedulers it is, of those whose pools and domains have parameters that
/// are shown here.
fn kind(spec: &SchedulerSpec) -> Option<XenScheduler> {
    spec.family().ok()?.xen().filter(|xen| xen.has_shares())
}

fn pool(spec: &SchedulerSpec, pcpus: usize) -> Result<Pool, StudyError> {
    let knobs = Knobs::check(spec, &(registry::find(&spec.name)?.knobs)())?;
    let kind = kind(spec);
    let parameters = match kind {
        Some(XenScheduler::Credit) => PoolParameters::of_credit(&knobs),
        _ => PoolParameters::of_credit2(&knobs),
    };
    Ok(Pool {
        name: "Pool-0".to_owned(),
        scheduler: kind.map_or("", XenScheduler::word).to_owned(),
        spec: spec.to_string(),
        pcpus,
        tslice_ns: parameters.tslice,
        ratelimit_ns: parameters.ratelimit,
        migration_delay_ns: parameters.migration_delay,
    })
}

/// The domains with their vCPUs; the hypervisor's tasks are those outside of virtual machines, then
/// the vCPUs.
fn domains(plan: &RowPlan, cpus: usize, watch: &RunstateListener) -> Vec<Domain> {
    let groups = &plan.workload.groups;
    let mut domains: Vec<Domain> = groups
        .iter()
        .enumerate()
        .map(|(id, group)| Domain {
            name: match group.name.trim_start_matches('/') {
                "" => "Domain-0".to_owned(),
                name => name.to_owned(),
            },
            id: id as u32,
            weight: group.weight.unwrap_or(WEIGHT),
            cap: group.cap_percent,
            vcpus: Vec::new(),
        })
        .collect();
    let bare = |task: &&TaskSpec| plan.vms.iter().all(|vm| vm.group != task.group);
    let allowed = |group: GroupId| groups[group.index()].cpus.unwrap_or(CpuSet::ALL);
    let bare = plan.workload.tasks.iter().filter(bare).map(|task| {
        let hard = task.affinity.and(&allowed(task.group));
        (task.group, task.name.clone(), hard, task.soft_affinity)
    });
    let inside = plan.vms.iter().flat_map(|vm| {
        vm.vcpu_names().map(move |name| (vm.group, name, allowed(vm.group), vm.prefer))
    });
    let words = |set: CpuSet| match set.and(&CpuSet::first(cpus)) {
        all if all == CpuSet::first(cpus) => "all".to_owned(),
        some => some.to_string(),
    };
    for (index, (group, name, hard, soft)) in bare.chain(inside).enumerate() {
        let domain = &mut domains[group.index()];
        let (state, cpu) = watch.last(index);
        let runstates = watch.runstates(index);
        domain.vcpus.push(Vcpu {
            vcpu: domain.vcpus.len() as u32,
            name,
            cpu: cpu.0,
            state,
            time_ns: runstates.running.total_ns,
            hard: words(hard),
            soft: words(soft),
            runstates,
        });
    }
    domains.retain(|domain| !domain.vcpus.is_empty());
    domains
}
