//! The JSON Schema of each result of this crate, made from its type: a field is described once, in
//! its doc comment.

use crate::corpus::CorpusResult;
use crate::decision_cost::DecisionCostResult;
use crate::diff::Diff;
use crate::diff::totals::{self, Totals};
use crate::error_output::ErrorOutput;
use crate::fleet::Fleet;
use crate::fleet::compare::FleetStudy;
use crate::glossary::ExplainOutput;
use crate::listing::ListOutput;
use crate::preset::Preset;
use crate::published::Gallery;
use crate::result::Study;
use crate::tune::Tuned;
use crate::workbench::{self, WorkbenchOutput};
use crate::xen::Host;
use crate::{
    corpus, decision_cost, diff, error_output, fleet, glossary, listing, preset, published, result,
    tune, xen,
};
use schedlab_trace::analysis::show::json::{self as show, ShowOutput};
use schedlab_trace::export::output::{self as export, ExportOutput};
use schedlab_trace::import::output::{self as import, ImportOutput};
use schemars::JsonSchema;
pub use schemars::Schema;
use schemars::generate::SchemaSettings;

/// Returns the name of each schema, and the schema.
pub fn all() -> Vec<(&'static str, Schema)> {
    vec![
        (result::SCHEMA, schema::<Study>(result::SCHEMA)),
        (corpus::SCHEMA, schema::<CorpusResult>(corpus::SCHEMA)),
        (fleet::SCHEMA, schema::<Fleet>(fleet::SCHEMA)),
        (fleet::compare::SCHEMA, schema::<FleetStudy>(fleet::compare::SCHEMA)),
        (diff::SCHEMA, schema::<Diff>(diff::SCHEMA)),
        (totals::SCHEMA, schema::<Totals>(totals::SCHEMA)),
        (tune::SCHEMA, schema::<Tuned>(tune::SCHEMA)),
        (published::SCHEMA, schema::<Gallery>(published::SCHEMA)),
        (xen::SCHEMA, schema::<Host>(xen::SCHEMA)),
        (workbench::SCHEMA, schema::<WorkbenchOutput>(workbench::SCHEMA)),
        (decision_cost::SCHEMA, schema::<DecisionCostResult>(decision_cost::SCHEMA)),
        (preset::SCHEMA, schema::<Preset>(preset::SCHEMA)),
        (glossary::SCHEMA, schema::<ExplainOutput<'_>>(glossary::SCHEMA)),
        (listing::SCHEMA, schema::<ListOutput<'_>>(listing::SCHEMA)),
        (show::SCHEMA, schema::<ShowOutput<'_>>(show::SCHEMA)),
        (export::SCHEMA, schema::<ExportOutput<'_>>(export::SCHEMA)),
        (import::SCHEMA, schema::<ImportOutput<'_>>(import::SCHEMA)),
        (error_output::SCHEMA, schema::<ErrorOutput<'_>>(error_output::SCHEMA)),
    ]
}

/// Returns the schema of a result that is written as JSON.
pub fn schema<T: JsonSchema>(name: &str) -> Schema {
    let mut schema =
        SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>();
    schema.insert("title".to_owned(), name.into());
    schema
}
