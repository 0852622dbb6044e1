//! What a command prints on standard error when it fails and its result would have been JSON.

use schemars::JsonSchema;
use serde::Serialize;

/// Version of the JSON: docs/formats.md.
pub const SCHEMA: &str = "schedlab-error/1";
/// Exit code of a command that fails.
const FAILED: u8 = 2;

/// The JSON of an error: why a command failed.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct ErrorOutput<'a> {
    /// What is wrong, and what to do.
    pub error: &'a str,
    /// The exit code of the command: 2.
    pub exit_code: u8,
    /// Always [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
}

impl<'a> ErrorOutput<'a> {
    /// Returns an error as JSON has it.
    pub fn new(error: &'a str) -> ErrorOutput<'a> {
        ErrorOutput { error, exit_code: FAILED, schema: SCHEMA }
    }
}
