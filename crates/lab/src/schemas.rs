//! The JSON Schema of each result of this crate and of the crates below it, made from its type: a
//! field is described once, in its doc comment.

use crate::colocate::{self, ColocateOutput};
use crate::confirm::{self, Confirmed};
use crate::experiment::{self, ExperimentOutput};
use crate::latency::{self, LatencyResult, MatrixOutput};
use crate::record::output::{self as record, RecordOutput};
use crate::runqueue::{self, RunqueueResult};
use crate::top::{self, TopOutput};
use crate::watch::output::{self as watch, WatchOutput};
use schedlab_host::doctor::{self, DoctorOutput};
use schedlab_live::detach::{self, RestoreOutput};
use schedlab_live::driver::{self, RunOutput};
use schedlab_live::status::{self, StatusOutput};
use schedlab_live::verify::{self, VerifyOutput};
use schedlab_measure::stress::{self, StressOutput};
use schedlab_study::schemas::{Schema, of};

/// Returns the name of each schema, and the schema.
pub fn all() -> Vec<(&'static str, Schema)> {
    vec![
        (confirm::SCHEMA, of::<Confirmed>(confirm::SCHEMA)),
        (colocate::SCHEMA, of::<ColocateOutput<'_>>(colocate::SCHEMA)),
        (experiment::SCHEMA, of::<ExperimentOutput<'_>>(experiment::SCHEMA)),
        (latency::SCHEMA, of::<LatencyResult>(latency::SCHEMA)),
        (latency::MATRIX_SCHEMA, of::<MatrixOutput<'_>>(latency::MATRIX_SCHEMA)),
        (runqueue::SCHEMA, of::<RunqueueResult>(runqueue::SCHEMA)),
        (top::SCHEMA, of::<TopOutput<'_>>(top::SCHEMA)),
        (record::SCHEMA, of::<RecordOutput>(record::SCHEMA)),
        (watch::SCHEMA, of::<WatchOutput>(watch::SCHEMA)),
        (stress::SCHEMA, of::<StressOutput<'_>>(stress::SCHEMA)),
        (doctor::SCHEMA, of::<DoctorOutput<'_>>(doctor::SCHEMA)),
        (driver::SCHEMA, of::<RunOutput<'_>>(driver::SCHEMA)),
        (status::SCHEMA, of::<StatusOutput<'_>>(status::SCHEMA)),
        (detach::SCHEMA, of::<RestoreOutput<'_>>(detach::SCHEMA)),
        (verify::SCHEMA, of::<VerifyOutput<'_>>(verify::SCHEMA)),
    ]
}
