//! The simulator's side: a machine of this shape under the scheduler that stands for this kernel.

use super::ExperimentError;
use super::watching::Seen;
use crate::LabError;
use crate::compare::recorded_scheduler;
use crate::gallery::Found;
use crate::scenario::{self, Scenario};
use schedlab_host::MachineFacts;
use schedlab_scheduler::SchedulerSpec;
use schedlab_trace::Header;

/// Costs that the gallery's scenarios have: about those of a fast machine of today.
const COSTS: &str = "{ tick_ns = \"750ns\", tick_switch_ns = \"900ns\", wakeup_switch_ns = \"900ns\", \
                     block_switch_ns = \"900ns\", switch_enter_ns = \"600ns\", timer_late_ns = \"1us\" }";

/// The model of this machine.
#[derive(Clone, Debug)]
pub(super) struct Model {
    /// The scheduler, with the knobs that the recorder found.
    pub(super) scheduler: SchedulerSpec,
    /// The `[machine]` section.
    machine: String,
    /// What stands for what, in words.
    pub(super) about: String,
}

impl Model {
    /// Of the machine and kernel of a recording.
    pub(super) fn of(header: &Header, machine: &MachineFacts) -> Result<Model, ExperimentError> {
        let (scheduler, why, _) = recorded_scheduler(header, None)?;
        let about = format!(
            "simulated: {} with the settings of this kernel ({why}), {} CPUs, HZ={}, costs of a fast machine of today \
             (fitted to nothing here)",
            scheduler.name,
            machine.online.count(),
            machine.hz
        );
        let section =
            format!("[machine]\ncpus = {}\nhz = {}\ncost = {COSTS}\n", machine.online.count(), machine.hz);
        Ok(Model { scheduler, machine: section, about })
    }

    /// A scenario of `text` on this machine; `head` are the keys before the sections.
    pub(super) fn scenario(&self, head: &str, text: &str) -> Result<Scenario, ExperimentError> {
        let name = &self.scheduler.name;
        let all =
            format!("title = \"experiment\"\nschedulers = [\"{name}\"]\n{head}\n{}\n{text}", self.machine);
        Ok(scenario::parse("experiment", "experiment", &all).map_err(LabError::from)?)
    }

    /// Runs it, and looks at its events as at a recording.
    pub(super) fn run(&self, head: &str, text: &str) -> Result<Seen, ExperimentError> {
        let scenario = self.scenario(head, text)?;
        let warm_up = scenario.warmup;
        let recording = crate::show::open(Found::Scenario(Box::new(scenario)), Some(&self.scheduler), None)?;
        let end = recording.duration;
        Seen::of(recording, warm_up, end)
    }
}
