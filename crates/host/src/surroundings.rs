//! What is around a measurement and is no setting of the scheduler: idle states, lockdown, the
//! groups that this process is in.

use crate::cgroup::Groups;
use crate::facts::GroupFacts;
use crate::tracefs::PseudoFs;
use schedlab_model::GroupId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// See the module. What cannot be read is missing.
#[derive(Clone, PartialEq, Eq, Debug, Default, JsonSchema, Serialize, Deserialize)]
pub struct Surroundings {
    /// `none`, `integrity` or `confidentiality`; `None`: the kernel does not say.
    pub lockdown: Option<String>,
    /// The driver that puts idle CPUs to sleep.
    pub idle_driver: Option<String>,
    /// The idle states of CPU 0, lightest first.
    pub idle_states: Vec<IdleState>,
    /// The groups of CPU time that this process is in, its own first, the root last.
    pub groups: Vec<GroupFacts>,
    /// Part of all CPU time that a hypervisor took away while this was probed (some milliseconds),
    /// in thousandths.
    pub steal_now_permille: u64,
}

/// A way for a CPU to sleep.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize, Deserialize)]
pub struct IdleState {
    /// Its name.
    pub name: String,
    /// Time to leave it, as the driver says, microseconds.
    pub exit_us: u64,
    /// Switched off.
    pub disabled: bool,
}

/// Looks.
pub(crate) fn surroundings() -> Surroundings {
    let stolen = || crate::proc::stolen().0;
    let (before, start) = (stolen(), std::time::Instant::now());
    let cpu = Path::new("/sys/devices/system/cpu");
    let mut result = Surroundings {
        lockdown: lockdown(),
        idle_driver: text(&cpu.join("cpuidle/current_driver")).filter(|driver| driver != "none"),
        idle_states: idle_states(&cpu.join("cpu0/cpuidle")),
        groups: own_groups(),
        steal_now_permille: 0,
    };
    // Counters of stolen time go by clock ticks of 10 ms: five of them tell at least something.
    std::thread::sleep(std::time::Duration::from_millis(50));
    let all = start.elapsed().as_nanos() as u64 * crate::proc::steal().len().max(1) as u64;
    result.steal_now_permille = (stolen().saturating_sub(before) * 1000 / all.max(1)).min(1000);
    result
}

fn text(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// The mode of kernel lockdown. `None`: the kernel has none, or it cannot be read.
pub(crate) fn lockdown() -> Option<String> {
    let text = PseudoFs::detached("securityfs").ok().and_then(|fs| fs.read("lockdown").ok())?;
    chosen(&text)
}

/// "none [integrity] confidentiality": the word in brackets.
fn chosen(text: &str) -> Option<String> {
    text.split_whitespace()
        .find_map(|word| Some(word.strip_prefix('[')?.strip_suffix(']')?.to_owned()))
}

fn idle_states(folder: &Path) -> Vec<IdleState> {
    let state = |index: u32| {
        let state: PathBuf = folder.join(format!("state{index}"));
        let number = |file: &str| {
            text(&state.join(file)).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0)
        };
        Some(IdleState {
            name: text(&state.join("name"))?,
            exit_us: number("latency"),
            disabled: number("disable") != 0,
        })
    };
    (0..).map_while(state).collect()
}

fn own_groups() -> Vec<GroupFacts> {
    let mut groups = Groups::new();
    let own = groups.of_thread(rustix::thread::gettid().as_raw_nonzero().get() as u32);
    let all: Vec<GroupFacts> = groups.fresh().to_vec();
    let find = |id: GroupId| all.iter().find(|group| group.id == id).cloned();
    std::iter::successors(find(own), |group| find(group.parent?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_in_brackets_holds() {
        assert_eq!(chosen("none [integrity] confidentiality\n").as_deref(), Some("integrity"));
        assert_eq!(chosen("[none] integrity confidentiality\n").as_deref(), Some("none"));
        assert_eq!(chosen(""), None);
    }

    #[test]
    fn this_process_is_in_the_root_at_least() {
        let found = surroundings();
        assert_eq!(found.groups.last().map(|group| group.path.as_str()), Some("/"));
        assert!(found.steal_now_permille <= 1000);
    }
}
