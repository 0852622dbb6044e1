//! What `schedlab export` prints as JSON.

use super::Exported;
use crate::Repairs;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Version of the JSON: docs/exchange-formats.md.
pub const SCHEMA: &str = "schedlab-export/1";

/// The JSON of `export`: what was written.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct ExportOutput<'a> {
    /// Always [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// The files, in the order of the formats in the help.
    pub files: Vec<ExportedFile<'a>>,
    /// What was repaired when the recording was read.
    pub repairs: &'a Repairs,
}

/// A file that was written.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct ExportedFile<'a> {
    /// The format, as its option names it.
    pub format: &'a str,
    /// The file, or the folder of several.
    pub path: String,
    /// Number of context switches.
    pub switches: u64,
    /// Number of wakeups.
    pub wakeups: u64,
    /// Events that the format cannot express, and how many of them there are.
    pub left_out: &'a BTreeMap<&'static str, u64>,
    /// What was written in a poorer form.
    pub notes: &'a [String],
}

impl<'a> ExportedFile<'a> {
    /// Returns what was written to `path`.
    pub fn new(format: &'a str, path: &Path, exported: &'a Exported) -> ExportedFile<'a> {
        ExportedFile {
            format,
            path: path.display().to_string(),
            switches: exported.switches,
            wakeups: exported.wakes,
            left_out: &exported.left_out,
            notes: &exported.notes,
        }
    }
}
