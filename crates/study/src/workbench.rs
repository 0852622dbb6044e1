//! What the workbench (`schedlab ui`) shows of an input and asks about it, as typed results: what
//! is in a recording ([`overview`]), which task works for which ([`flow`]), two of them beside each
//! other ([`beside`]), what can be changed ([`settings`]), a question that is answered as `schedlab
//! compare` answers it ([`ask`]), and a search as `schedlab tune` makes it ([`search`]). The server
//! is in the crate `schedlab-ui`.

pub mod ask;
pub mod beside;
pub mod course;
pub mod flow;
mod looked;
pub mod named;
pub mod overview;
pub mod picture;
pub mod search;
pub mod settings;

use ask::Stage;
use course::CourseOutput;
use flow::FlowOutput;
use overview::{InputsOutput, Overview, ProgramsOutput};
use picture::PictureOutput;
use schemars::JsonSchema;
use search::SearchProgress;
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
    /// All its programs.
    Programs(ProgramsOutput),
    /// What can be changed of it.
    Settings(SettingsOutput),
    /// How far the answer to a question is.
    Stage(Stage),
    /// How far a search is.
    Search(SearchProgress),
    /// Which task works for which.
    Flow(Box<FlowOutput>),
    /// The lessons of the course.
    Course(CourseOutput),
    /// A small picture of a scenario.
    Picture(PictureOutput),
}
