//! The simulator's side: a machine of this shape under the scheduler that stands for this kernel.

use super::ExperimentError;
use super::watching::Seen;
use schedlab_host::MachineFacts;
use schedlab_scheduler::SchedulerSpec;
use schedlab_study::StudyError;
use schedlab_study::compare::recorded_scheduler;
use schedlab_study::gallery::Found;
use schedlab_study::preset;
use schedlab_study::scenario::{self, Scenario};
use schedlab_trace::Header;

/// Costs that the gallery's scenarios have: about those of a fast machine of today. For machines without a calibration.
const COSTS: &str = "cost = { tick_ns = \"750ns\", tick_switch_ns = \"900ns\", wakeup_switch_ns = \"900ns\", \
                     block_switch_ns = \"900ns\", switch_enter_ns = \"600ns\", timer_late_ns = \"1us\" }";

/// What the simulated machine's own work costs.
#[derive(Clone, Debug)]
pub(super) struct Prices {
    /// The line of the `[machine]` section.
    line: String,
    /// In words.
    pub(super) about: String,
    /// Why not to trust them.
    pub(super) doubt: Option<String>,
}

impl Prices {
    /// Those of a preset by name; without one those of this machine's calibration, or the gallery's where there is none.
    pub(super) fn of(asked: Option<&str>, machine: &MachineFacts) -> Result<Prices, ExperimentError> {
        let name = match asked {
            Some(name) => name,
            None if preset::kept()?.is_some() => preset::THIS_MACHINE,
            None => {
                let about =
                    "costs of a fast machine of today, fitted to nothing here (no calibration is kept)";
                let doubt = "simulated without this machine's own costs: `schedlab calibrate` measures them in half a \
                             minute, and experiments take them from then on";
                return Ok(Prices {
                    line: COSTS.to_owned(),
                    about: about.to_owned(),
                    doubt: Some(doubt.to_owned()),
                });
            }
        };
        let line = format!("costs = \"{name}\"");
        if name != preset::THIS_MACHINE {
            preset::costs(name)?;
            return Ok(Prices { line, about: format!("costs of the preset {name} (--costs)"), doubt: None });
        }
        let made = preset::this_machine()?.provenance;
        let about = format!(
            "costs of the preset {name}: measured {} by `{}` on Linux {}, foreign work {:.0} %",
            made.date,
            made.command,
            made.kernel.split(' ').next().unwrap_or_default(),
            made.foreign * 100.0
        );
        Ok(Prices { line, about, doubt: stale(&made, machine) })
    }
}

/// Why a calibration does not fit the machine it is used on.
fn stale(made: &preset::Provenance, machine: &MachineFacts) -> Option<String> {
    let now = format!("{} {}", machine.kernel, machine.version);
    let other =
        [("kernel", made.kernel.as_str(), now.as_str()), ("CPU", made.cpu.as_str(), machine.model.as_str())];
    let (what, then, now) = other.into_iter().find(|(_, then, now)| then != now)?;
    Some(format!(
        "the calibration was made with another {what} ({then}; now: {now}): `schedlab calibrate` makes a new one"
    ))
}

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
    /// Of the kernel of a recording on `machine`, with these prices.
    pub(super) fn of(
        header: &Header,
        machine: &MachineFacts,
        prices: &Prices,
    ) -> Result<Model, ExperimentError> {
        let (scheduler, why, _) = recorded_scheduler(header, None)?;
        let about = format!(
            "simulated: {} with the settings of this kernel ({why}), {} CPUs, HZ={}, {}",
            scheduler.name,
            machine.online.count(),
            machine.hz,
            prices.about
        );
        let section =
            format!("[machine]\ncpus = {}\nhz = {}\n{}\n", machine.online.count(), machine.hz, prices.line);
        Ok(Model { scheduler, machine: section, about })
    }

    /// A scenario of `text` on this machine; `head` are the keys before the sections.
    pub(super) fn scenario(&self, head: &str, text: &str) -> Result<Scenario, ExperimentError> {
        let name = &self.scheduler.name;
        let all =
            format!("title = \"experiment\"\nschedulers = [\"{name}\"]\n{head}\n{}\n{text}", self.machine);
        Ok(scenario::parse("experiment", "experiment", &all).map_err(StudyError::from)?)
    }

    /// Runs it, and looks at its events as at a recording.
    pub(super) fn run(&self, head: &str, text: &str) -> Result<Seen, ExperimentError> {
        let scenario = self.scenario(head, text)?;
        let warm_up = scenario.warmup;
        let recording =
            schedlab_study::show::open(Found::Scenario(Box::new(scenario)), Some(&self.scheduler), None)?;
        let end = recording.duration;
        Seen::of(recording, warm_up, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provenance(machine: &MachineFacts) -> preset::Provenance {
        preset::Provenance {
            kernel: format!("{} {}", machine.kernel, machine.version),
            cpu: machine.model.clone(),
            cpus: 2,
            hz: machine.hz,
            virtual_machine: false,
            date: String::new(),
            command: String::new(),
            schedlab: String::new(),
            foreign: 0.0,
            seconds: 1.0,
        }
    }

    #[test]
    fn a_calibration_of_another_kernel_or_cpu_is_doubted() {
        let machine = schedlab_host::machine();
        let same = provenance(&machine);
        assert_eq!(stale(&same, &machine), None);
        let older = preset::Provenance { kernel: "5.10.0 #1".to_owned(), ..same.clone() };
        assert!(stale(&older, &machine).is_some_and(|why| why.contains("another kernel (5.10.0")));
        let moved = preset::Provenance { cpu: "an abacus".to_owned(), ..same };
        assert!(stale(&moved, &machine).is_some_and(|why| why.contains("another CPU (an abacus")));
    }

    #[test]
    fn a_preset_by_name_is_taken_and_an_unknown_one_refused() {
        let machine = schedlab_host::machine();
        let prices = Prices::of(Some("modern-vm"), &machine).unwrap();
        assert!(prices.line == "costs = \"modern-vm\"" && prices.about.contains("modern-vm"), "{prices:?}");
        let odd = Prices::of(Some("modern-vw"), &machine).unwrap_err().to_string();
        assert!(odd.contains("did you mean \"modern-vm\"?"), "{odd}");
    }
}
