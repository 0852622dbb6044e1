//! What a kernel says of its sched_ext class: schedulers that are loaded into it as BPF programs
//! (Linux 6.12 and later).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The files of `/sys/kernel/sched_ext`, as they were at one moment. A kernel without the folder
/// has no sched_ext.
#[derive(Clone, PartialEq, Eq, Debug, Default, JsonSchema, Serialize, Deserialize)]
#[serde(default)]
pub struct SchedExt {
    /// `state`: `disabled`, `enabling`, `enabled`, `disabling`.
    pub state: String,
    /// `root/ops`: the name of the scheduler, while one is loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ops: Option<String>,
    /// `enable_seq`: how many schedulers were loaded since boot; it tells whether one was loaded in
    /// between.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_seq: Option<u64>,
    /// `switch_all`: the scheduler has every fair task, not only those of policy SCHED_EXT.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switch_all: Option<bool>,
}

impl SchedExt {
    /// Returns the name of the scheduler that is loaded. `None`: there is none.
    pub fn scheduler(&self) -> Option<&str> {
        let unnamed = match self.state.as_str() {
            "" | "disabled" => None,
            _ => Some("unnamed"),
        };
        unnamed
            .map(|unnamed| self.ops.as_deref().filter(|name| !name.is_empty()).unwrap_or(unnamed))
    }

    /// Returns whether a scheduler is loaded that has every fair task, as one has that does not say
    /// otherwise.
    pub fn has_every_fair_task(&self) -> bool {
        self.scheduler().is_some() && self.switch_all != Some(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheduler_is_there_while_its_state_says_so() {
        let with = |state: &str, ops: Option<&str>| SchedExt {
            state: state.to_owned(),
            ops: ops.map(str::to_owned),
            ..SchedExt::default()
        };
        assert_eq!(with("disabled", None).scheduler(), None);
        assert_eq!(with("disabled", Some("left over")).scheduler(), None);
        assert_eq!(with("enabled", Some("lavd")).scheduler(), Some("lavd"));
        assert_eq!(with("enabling", None).scheduler(), Some("unnamed"));
        assert_eq!(SchedExt::default().scheduler(), None);
    }
}
