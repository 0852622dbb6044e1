//! What the machine's own work costs in the simulator.

use super::plan::ExperimentError;
use schedlab_host::MachineFacts;
use schedlab_study::preset;

/// Costs for machines without a calibration: those of the gallery's scenarios, about those of a
/// fast machine.
const COSTS: &str = "cost = \
                     { tick_ns = \"750ns\", tick_switch_ns = \"900ns\", wakeup_switch_ns = \"900ns\", \
                     block_switch_ns = \"900ns\", switch_enter_ns = \"600ns\", timer_late_ns = \
                     \"1us\" }";

/// What the simulated machine's own work costs.
#[derive(Clone, Debug)]
pub(super) struct Prices {
    /// The line of the `[machine]` section.
    pub(super) line: String,
    /// Which prices they are.
    pub(super) about: String,
    /// Why they may not fit.
    pub(super) doubt: Option<String>,
}

impl Prices {
    /// Returns the prices of the preset `asked`; without one those of this machine's calibration,
    /// or [`COSTS`] where there is none.
    pub(super) fn choose(
        asked: Option<&str>,
        machine: &MachineFacts,
    ) -> Result<Prices, ExperimentError> {
        let name = match asked {
            Some(name) => name,
            None if preset::kept()?.is_some() => preset::THIS_MACHINE,
            None => {
                let about = "costs of a fast machine, not measured here (no calibration is kept)";
                let doubt = "simulated without this machine's own costs: `schedlab calibrate` \
                             measures them in half a \
                             minute, and later experiments use them";
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
            return Ok(Prices {
                line,
                about: format!("costs of the preset {name} (--costs)"),
                doubt: None,
            });
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

/// Returns why a calibration does not fit the machine that uses it.
fn stale(made: &preset::Provenance, machine: &MachineFacts) -> Option<String> {
    let now = format!("{} {}", machine.kernel, machine.version);
    let other = [
        ("kernel", made.kernel.as_str(), now.as_str()),
        ("CPU", made.cpu.as_str(), machine.model.as_str()),
    ];
    let (what, then, now) = other.into_iter().find(|(_, then, now)| then != now)?;
    Some(format!(
        "the calibration was made with another {what} ({then}; now: {now}): `schedlab calibrate` \
         makes a new one"
    ))
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
        let prices = Prices::choose(Some("modern-vm"), &machine).unwrap();
        assert!(
            prices.line == "costs = \"modern-vm\"" && prices.about.contains("modern-vm"),
            "{prices:?}"
        );
        let odd = Prices::choose(Some("modern-vw"), &machine).unwrap_err().to_string();
        assert!(odd.contains("did you mean \"modern-vm\"?"), "{odd}");
    }
}
