//! What the workbench (`schedlab ui`) shows of an input and asks about it, as typed results: what
//! is in a recording ([`overview`]), what can be changed ([`settings`]), and a question that is
//! answered as `schedlab compare` answers it ([`ask`]). The server is in the crate `schedlab-ui`.

pub mod ask;
pub mod overview;
pub mod settings;

use ask::Stage;
use overview::{InputsOutput, Overview};
use schemars::JsonSchema;
use serde::Serialize;
use settings::SettingsOutput;

/// Version of the JSON: docs/guide/workbench.md.
pub const SCHEMA: &str = "schedlab-workbench/1";

/// The JSON of the workbench's addresses. An answer itself is `schedlab-compare/1`, an error
/// `schedlab-error/1`.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
#[serde(untagged)]
pub enum WorkbenchOutput {
    /// What can be opened.
    Inputs(InputsOutput),
    /// What is in an input.
    Overview(Box<Overview>),
    /// What can be changed of it.
    Settings(SettingsOutput),
    /// How far the answer to a question is.
    Stage(Stage),
}
