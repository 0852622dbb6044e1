//! `vm = {...}` of a `[[group]]`: a domain with a kernel of its own, whose tasks run on vCPUs.

use super::document::{ScenarioError, Section};
use super::group::cpu_list;
use super::kernel::model;
use super::machine::costs;
use schedlab_model::{CpuSet, GroupId, GroupSpec};
use schedlab_scheduler::{SchedulerSpec, registry};
use schedlab_sim::{Costs, Machine, PreemptModel, Preemption};

/// A domain with a kernel of its own.
#[derive(Clone, PartialEq, Debug)]
pub struct VmSpec {
    /// Name: the group's path without the leading `/`.
    pub name: String,
    /// The group: weight, cap, hard affinity, and whose tasks are inside.
    pub group: GroupId,
    /// Number of vCPUs.
    pub vcpus: usize,
    /// The scheduler of the guest.
    pub guest: SchedulerSpec,
    /// Its tick frequency in hertz.
    pub hz: u32,
    /// What its kernel's own work costs, beside the hypervisor's.
    pub costs: Costs,
    /// The preemption model of its kernel.
    pub preempt: PreemptModel,
    /// Where its vCPUs prefer to run.
    pub prefer: CpuSet,
}

const KEYS: [&str; 6] = ["vcpus", "guest", "hz", "prefer", "cost", "preempt"];
/// What Xen allows a PV guest.
const MAX_VCPUS: i64 = 512;

/// The domains among the groups, in their order.
pub(super) fn read(
    root: &Section<'_>,
    groups: &[GroupSpec],
    cpus: usize,
) -> Result<Vec<VmSpec>, ScenarioError> {
    let mut vms = Vec::new();
    for (index, section) in
        root.sections("group", "[[group]]", &super::group::KEYS)?.iter().enumerate()
    {
        let Some(item) = section.get("vm") else { continue };
        let vm = item.section("`vm`", &KEYS)?;
        // The root comes before the groups of the file.
        let group = &groups[index + 1];
        if group.parent != Some(GroupId::ROOT) {
            return Err(
                item.error(format!("a domain is a group below the root, not `{}`", group.name))
            );
        }
        let guest =
            vm.need("guest", "guest = \"linux-6.18\" (without a kernel, leave `vm` out)")?;
        let spec: SchedulerSpec = guest.parse()?;
        registry::check(&spec).map_err(|error| guest.error(error.to_string()))?;
        vms.push(VmSpec {
            name: group.name.trim_start_matches('/').to_owned(),
            group: GroupId::from(index + 1),
            vcpus: vm.need("vcpus", "vcpus = 2")?.integer(1, MAX_VCPUS)? as usize,
            guest: spec,
            hz: vm.optional("hz", |item| item.integer(10, 10_000))?.unwrap_or(250) as u32,
            costs: costs(&vm)?,
            preempt: vm.optional("preempt", |item| model(&item))?.unwrap_or_default(),
            prefer: vm.optional("prefer", |item| cpu_list(&item, cpus))?.unwrap_or(CpuSet::ALL),
        });
    }
    Ok(vms)
}

impl VmSpec {
    /// What the guest takes for its machine.
    pub(crate) fn machine(&self) -> Machine {
        Machine {
            hz: self.hz,
            costs: self.costs,
            preemption: Preemption { model: self.preempt, irq_threads: Vec::new() },
            ..Machine::flat(self.vcpus)
        }
    }

    /// The class of its vCPUs in tables and expectations.
    pub fn class(&self) -> String {
        format!("{}:vcpu", self.name)
    }

    /// The names of its vCPUs.
    pub fn vcpu_names(&self) -> impl Iterator<Item = String> + '_ {
        (0..self.vcpus).map(|cpu| format!("{}:vcpu{cpu}", self.name))
    }
}
