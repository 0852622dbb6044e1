//! What `schedlab stress` prints as JSON.

use super::{GroupsRequest, HogReport, HogsRequest};
use schedlab_model::Ns;
use schemars::JsonSchema;
use serde::Serialize;

/// Version of the JSON: docs/measuring.md.
pub const SCHEMA: &str = "schedlab-stress/1";

/// The JSON of `stress`: what a load did.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[serde(untagged)]
pub enum StressOutput<'a> {
    /// Groups of senders and receivers.
    Groups(GroupsOutput<'a>),
    /// Threads that compute or stream through memory.
    Hogs(HogsOutput<'a>),
}

/// What groups of senders and receivers did.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct GroupsOutput<'a> {
    /// Always [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// Always `groups`.
    #[schemars(extend("const" = "groups"))]
    pub load: &'static str,
    /// What was asked for.
    pub request: &'a GroupsRequest,
    /// Number of senders and receivers in all.
    pub tasks: usize,
    /// Number of messages in a round, of all senders together.
    pub messages_per_round: u64,
    /// Length of each finished round, nanoseconds.
    pub rounds_ns: &'a [Ns],
    /// Whether a signal ended it.
    pub interrupted: bool,
}

impl<'a> GroupsOutput<'a> {
    /// Returns what the rounds of a load did.
    pub fn new(
        request: &'a GroupsRequest,
        rounds_ns: &'a [Ns],
        interrupted: bool,
    ) -> GroupsOutput<'a> {
        GroupsOutput {
            schema: SCHEMA,
            load: "groups",
            request,
            tasks: request.tasks(),
            messages_per_round: request.total_messages(),
            rounds_ns,
            interrupted,
        }
    }
}

/// What threads that compute or stream through memory did.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct HogsOutput<'a> {
    /// Always [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// Always `hogs`.
    #[schemars(extend("const" = "hogs"))]
    pub load: &'static str,
    /// What was asked for.
    pub request: &'a HogsRequest,
    /// Length of the run, nanoseconds.
    pub elapsed_ns: u64,
    /// What each thread got.
    pub threads: &'a [HogReport],
    /// Whether a signal ended it.
    pub interrupted: bool,
}
