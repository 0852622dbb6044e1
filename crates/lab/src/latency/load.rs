//! What else ran during a measurement.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What ran beside the measuring threads.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, JsonSchema, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// Nothing that schedlab started.
    Idle,
    /// Groups of senders and receivers, as hackbench.
    Loaded,
    /// The file does not say.
    Unstated,
}

impl Load {
    /// Returns its name for a table.
    pub const fn as_str(self) -> &'static str {
        match self {
            Load::Idle => "idle",
            Load::Loaded => "loaded",
            Load::Unstated => "as it was",
        }
    }
}
