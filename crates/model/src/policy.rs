//! A task's *policy*, in the words of sched(7) and `chrt`, and its nice value.

use crate::Ns;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// What sched(7) calls the scheduling policy of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Policy {
    /// `SCHED_OTHER` (`SCHED_NORMAL` in the kernel), the default.
    #[default]
    Other,
    /// `SCHED_BATCH`: as OTHER, but never preempts at wakeup.
    Batch,
    /// `SCHED_IDLE`: runs (almost) only when nothing else wants to.
    Idle,
    /// `SCHED_FIFO` with a real-time priority 1 … 99 (99 is the most urgent).
    Fifo(u8),
    /// `SCHED_RR` with a real-time priority 1 … 99.
    Rr(u8),
    /// `SCHED_DEADLINE`: `runtime` in each `period`, by `deadline` after its start.
    Deadline {
        /// CPU time per period.
        runtime: Ns,
        /// Relative deadline.
        deadline: Ns,
        /// Period.
        period: Ns,
    },
}

impl Policy {
    /// FIFO or RR.
    pub const fn is_realtime(self) -> bool {
        matches!(self, Policy::Fifo(_) | Policy::Rr(_))
    }
    /// OTHER, BATCH or IDLE: served by the fair class.
    pub const fn is_fair(self) -> bool {
        matches!(self, Policy::Other | Policy::Batch | Policy::Idle)
    }
    /// The real-time priority 1 … 99, or 0.
    pub const fn rt_priority(self) -> u8 {
        match self {
            Policy::Fifo(priority) | Policy::Rr(priority) => priority,
            _ => 0,
        }
    }
}

/// `other`, `batch`, `idle`, `fifo:50`, `rr:1`, `deadline:4ms/10ms/10ms`.
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Policy::Other => f.pad("other"),
            Policy::Batch => f.pad("batch"),
            Policy::Idle => f.pad("idle"),
            Policy::Fifo(priority) => f.pad(&format!("fifo:{priority}")),
            Policy::Rr(priority) => f.pad(&format!("rr:{priority}")),
            Policy::Deadline { runtime, deadline, period } => {
                f.pad(&format!("deadline:{}ns/{}ns/{}ns", runtime.0, deadline.0, period.0))
            }
        }
    }
}

/// Why a text is not a policy.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PolicyError {
    /// Not one of the names.
    #[error(
        "unknown policy `{0}`: use other, batch, idle, fifo:N, rr:N (N from 1 to 99), or \
         deadline:RUNTIME/DEADLINE/PERIOD (such as deadline:4ms/10ms/10ms)"
    )]
    Unknown(String),
    /// A real-time priority outside 1 … 99.
    #[error("`{0}`: the real-time priority must be a number from 1 to 99, such as fifo:50")]
    Priority(String),
    /// Deadline parameters that do not satisfy 0 < runtime ≤ deadline ≤ period.
    #[error(
        "`{0}`: must satisfy 0 < RUNTIME <= DEADLINE <= PERIOD, such as deadline:4ms/10ms/10ms"
    )]
    Deadline(String),
}

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Policy, PolicyError> {
        let (name, argument) = text.split_once(':').unwrap_or((text, ""));
        let priority = || {
            argument
                .parse::<u8>()
                .ok()
                .filter(|p| (1..=99).contains(p))
                .ok_or_else(|| PolicyError::Priority(text.to_owned()))
        };
        match (name, argument) {
            ("other" | "normal", "") => Ok(Policy::Other),
            ("batch", "") => Ok(Policy::Batch),
            ("idle", "") => Ok(Policy::Idle),
            ("fifo", _) => Ok(Policy::Fifo(priority()?)),
            ("rr", _) => Ok(Policy::Rr(priority()?)),
            ("deadline", _) => {
                deadline(argument).ok_or_else(|| PolicyError::Deadline(text.to_owned()))
            }
            _ => Err(PolicyError::Unknown(text.to_owned())),
        }
    }
}

fn deadline(argument: &str) -> Option<Policy> {
    let mut parts = argument.split('/').map(str::parse::<Ns>);
    let mut next = || parts.next()?.ok();
    let (runtime, deadline, period) = (next()?, next()?, next()?);
    let ordered = Ns::ZERO < runtime && runtime <= deadline && deadline <= period;
    (ordered && parts.next().is_none()).then_some(Policy::Deadline { runtime, deadline, period })
}

impl Serialize for Policy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for Policy {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Policy".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

impl<'de> Deserialize<'de> for Policy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Policy, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A nice value, −20 (most CPU) … 19 (least).
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Debug,
    Default,
    JsonSchema,
    Serialize,
    Deserialize,
)]
#[serde(try_from = "i8", into = "i8")]
pub struct Nice(i8);

impl Nice {
    /// Nice 0.
    pub const ZERO: Nice = Nice(0);
    /// `value` when it is from −20 to 19.
    #[inline]
    pub const fn new(value: i8) -> Option<Nice> {
        if value >= -20 && value <= 19 { Some(Nice(value)) } else { None }
    }
    /// The value, −20 … 19.
    pub const fn get(self) -> i8 {
        self.0
    }
    /// 0 for nice −20 … 39 for nice 19: the index into the kernel's 40-entry tables.
    pub const fn table_index(self) -> usize {
        (self.0 + 20) as usize
    }
}

impl TryFrom<i8> for Nice {
    type Error = String;
    fn try_from(value: i8) -> Result<Nice, String> {
        Nice::new(value).ok_or_else(|| format!("nice {value} is outside -20 to 19"))
    }
}

impl From<Nice> for i8 {
    fn from(nice: Nice) -> i8 {
        nice.0
    }
}

impl fmt::Display for Nice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_round_trip() {
        for text in ["other", "batch", "idle", "fifo:1", "rr:99"] {
            assert_eq!(text.parse::<Policy>().unwrap().to_string(), text);
        }
        let parsed: Policy = "deadline:4ms/10ms/10ms".parse().unwrap();
        assert_eq!(parsed.to_string().parse(), Ok(parsed));
    }

    #[test]
    fn refuses_bad_policies() {
        for text in
            ["fifo", "fifo:0", "fifo:100", "rr:x", "idle:3", "lottery", "deadline:5ms/4ms/9ms"]
        {
            assert!(text.parse::<Policy>().is_err(), "{text}");
        }
    }
}
