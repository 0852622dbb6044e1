//! A scenario as the simulator and the analyses see it: machine, header of its events, names that
//! variants may change.

use super::{Scenario, Ticks};
use crate::variant::Subject;
use schedlab_model::{Ns, TaskSpec};
use schedlab_sim::{Delays, Machine, TickSkew};
use schedlab_trace::{Capabilities, GroupInfo, Header, TaskInfo};

impl Scenario {
    /// Returns what variants are applied to.
    pub fn subject(&self) -> Subject<'_> {
        Subject {
            workload: &self.workload,
            classes: &self.classes,
            threads: &[],
            kernel_threads: &[],
            guests: None,
            cpus: self.machine.topology.cpus(),
            vms: &self.vms,
            delegation: &self.delegation,
            kernel: Some(&self.machine.kernel),
            roles: self.machine.roles,
            smt_yield: self.machine.smt_yield,
        }
    }

    /// Returns the machine for the simulator.
    pub(crate) fn simulated_machine(&self) -> Machine {
        let spec = &self.machine;
        let ticks = match &spec.ticks {
            Ticks::Aligned => TickSkew::Aligned,
            Ticks::Staggered => TickSkew::Staggered,
            Ticks::Spread => TickSkew::At(spread(spec.topology.cpus(), spec.hz)),
            Ticks::At(edges) => TickSkew::At(edges.clone()),
        };
        Machine {
            topology: spec.topology.clone(),
            hz: spec.hz,
            ticks,
            costs: spec.costs,
            delays: Delays::default(),
            preemption: spec.kernel.preemption(&self.workload),
            smt_yield: spec.smt_yield.speed(),
            roles: spec.roles,
        }
    }

    /// Returns what is known of every simulation of the scenario: machine, tasks, groups.
    pub(crate) fn header(&self, machine: &Machine) -> Header {
        let workload = &self.workload;
        Header {
            backend: "simulator".to_owned(),
            hz: machine.hz,
            topology: machine.topology.clone(),
            capabilities: Capabilities::simulator(),
            tasks: workload
                .tasks
                .iter()
                .enumerate()
                .map(|(index, task)| task_info(index, task))
                .collect(),
            groups: workload.groups.iter().cloned().map(GroupInfo::from).collect(),
            ..Header::default()
        }
    }
}

/// First tick edges, spread evenly over one period.
fn spread(cpus: usize, hz: u32) -> Vec<Ns> {
    let period = Machine { hz, ..Machine::flat(1) }.tick_ns();
    (0..cpus as u64).map(|cpu| Ns(period.0 * (cpus as u64 + 1 + cpu) / (cpus as u64 + 1))).collect()
}

/// Returns a simulated task as the header of a recording has it.
pub(crate) fn task_info(index: usize, task: &TaskSpec) -> TaskInfo {
    let number = index as u32 + 1;
    TaskInfo {
        policy: task.policy,
        nice: task.nice,
        affinity: task.affinity,
        group: task.group,
        known: true,
        ..TaskInfo::unknown(number, number, task.name.clone())
    }
}
