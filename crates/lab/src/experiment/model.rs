//! The simulator's side: a machine of this shape under the scheduler that represents this kernel.

use super::plan::ExperimentError;
use super::prices::Prices;
use super::window::RecordedWindow;
use schedlab_host::MachineFacts;
use schedlab_scheduler::SchedulerSpec;
use schedlab_study::StudyError;
use schedlab_study::compare::recorded_scheduler;
use schedlab_study::gallery::Found;
use schedlab_study::scenario::{self, Scenario};
use schedlab_trace::Header;

/// The model of this machine.
#[derive(Clone, Debug)]
pub(super) struct MachineModel {
    /// The scheduler, with the knobs that the recorder found.
    pub(super) scheduler: SchedulerSpec,
    /// The `[machine]` section.
    machine: String,
    /// What is simulated, in words.
    pub(super) about: String,
}

impl MachineModel {
    /// Returns the model of `machine` with these prices, under the scheduler that represents the
    /// kernel of a recording.
    pub(super) fn from_header(
        header: &Header,
        machine: &MachineFacts,
        prices: &Prices,
    ) -> Result<MachineModel, ExperimentError> {
        let (scheduler, why, _) = recorded_scheduler(header, None)?;
        let about = format!(
            "simulated: {} with the settings of this kernel ({why}), {} CPUs, HZ={}, {}",
            scheduler.name,
            machine.online.count(),
            machine.hz,
            prices.about
        );
        let section = format!(
            "[machine]\ncpus = {}\nhz = {}\n{}\n",
            machine.online.count(),
            machine.hz,
            prices.line
        );
        Ok(MachineModel { scheduler, machine: section, about })
    }

    /// Returns the scenario of `text` on this machine; `head` has the keys before the sections.
    pub(super) fn scenario(&self, head: &str, text: &str) -> Result<Scenario, ExperimentError> {
        let name = &self.scheduler.name;
        let all = format!(
            "title = \"experiment\"\nschedulers = [\"{name}\"]\n{head}\n{}\n{text}",
            self.machine
        );
        Ok(scenario::parse("experiment", "experiment", &all).map_err(StudyError::from)?)
    }

    /// Runs the scenario. Returns its events as a recording.
    pub(super) fn run(&self, head: &str, text: &str) -> Result<RecordedWindow, ExperimentError> {
        let scenario = self.scenario(head, text)?;
        let warm_up = scenario.warmup;
        let recording = schedlab_study::show::open(
            Found::Scenario(Box::new(scenario)),
            Some(&self.scheduler),
            None,
            None,
        )?;
        let end = recording.duration;
        RecordedWindow::new(recording, warm_up, end)
    }
}
