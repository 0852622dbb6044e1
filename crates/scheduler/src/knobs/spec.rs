//! What a user asks for, a scheduler by name with knobs, and what can be wrong with it.

use std::fmt;
use std::str::FromStr;

/// A scheduler by name, with knobs: `linux-6.18` or `linux-6.18:base_slice_ns=2.8ms,features.RUN_TO_PARITY=off`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SchedulerSpec {
    /// Name in the registry.
    pub name: String,
    /// Knob settings as text, in the order given.
    pub knobs: Vec<(String, String)>,
}

/// What is wrong with a scheduler's name or knobs.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KnobError {
    /// Not `name=value`.
    #[error("`{0}` is not a knob setting: write name=value, several separated by commas")]
    Syntax(String),
    /// No such scheduler.
    #[error("unknown scheduler `{name}`{}; `schedlab list schedulers` shows all", suggest(.nearest))]
    UnknownScheduler {
        /// As given.
        name: String,
        /// The nearest real one.
        nearest: Option<String>,
    },
    /// No such knob.
    #[error("scheduler {scheduler} has no knob `{name}`{}; it has: {all}", suggest(.nearest))]
    UnknownKnob {
        /// The scheduler.
        scheduler: String,
        /// As given.
        name: String,
        /// The nearest real one.
        nearest: Option<String>,
        /// Every knob it has.
        all: String,
    },
    /// A value of the wrong kind or out of bounds.
    #[error("knob {name}={value}: must be {allowed}")]
    Value {
        /// The knob.
        name: String,
        /// As given.
        value: String,
        /// What is allowed.
        allowed: String,
    },
}

fn suggest(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|n| format!(" (did you mean `{n}`?)")).unwrap_or_default()
}

impl FromStr for SchedulerSpec {
    type Err = KnobError;

    fn from_str(text: &str) -> Result<SchedulerSpec, KnobError> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let knobs = rest
            .split(',')
            .filter(|part| !part.trim().is_empty())
            .map(|part| match part.split_once('=') {
                Some((knob, value)) => Ok((knob.trim().to_owned(), value.trim().to_owned())),
                None => Err(KnobError::Syntax(part.to_owned())),
            })
            .collect::<Result<_, _>>()?;
        Ok(SchedulerSpec { name: name.trim().to_owned(), knobs })
    }
}

impl fmt::Display for SchedulerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        for (i, (knob, value)) in self.knobs.iter().enumerate() {
            write!(f, "{}{knob}={value}", if i == 0 { ':' } else { ',' })?;
        }
        Ok(())
    }
}
