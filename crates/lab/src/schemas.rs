//! The JSON Schema of each result of this crate and of the crates below it, made from its type: a
//! field is described once, in its doc comment.

use crate::colocate::{self, ColocateOutput};
use crate::confirm::{self, Confirmed};
use crate::experiment::{self, ExperimentOutput};
use crate::flight::log::{self as flight, FlightLine};
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
use schedlab_study::schemas::{Schema, schema};

/// Returns the name of each schema, and the schema.
pub fn all() -> Vec<(&'static str, Schema)> {
    vec![
        (confirm::SCHEMA, schema::<Confirmed>(confirm::SCHEMA)),
        (colocate::SCHEMA, schema::<ColocateOutput<'_>>(colocate::SCHEMA)),
        (experiment::SCHEMA, schema::<ExperimentOutput<'_>>(experiment::SCHEMA)),
        (flight::SCHEMA, schema::<FlightLine>(flight::SCHEMA)),
        (latency::SCHEMA, schema::<LatencyResult>(latency::SCHEMA)),
        (latency::MATRIX_SCHEMA, schema::<MatrixOutput<'_>>(latency::MATRIX_SCHEMA)),
        (runqueue::SCHEMA, schema::<RunqueueResult>(runqueue::SCHEMA)),
        (top::SCHEMA, schema::<TopOutput<'_>>(top::SCHEMA)),
        (record::SCHEMA, schema::<RecordOutput>(record::SCHEMA)),
        (watch::SCHEMA, schema::<WatchOutput>(watch::SCHEMA)),
        (stress::SCHEMA, schema::<StressOutput<'_>>(stress::SCHEMA)),
        (doctor::SCHEMA, schema::<DoctorOutput<'_>>(doctor::SCHEMA)),
        (driver::SCHEMA, schema::<RunOutput<'_>>(driver::SCHEMA)),
        (status::SCHEMA, schema::<StatusOutput<'_>>(status::SCHEMA)),
        (detach::SCHEMA, schema::<RestoreOutput<'_>>(detach::SCHEMA)),
        (verify::SCHEMA, schema::<VerifyOutput<'_>>(verify::SCHEMA)),
    ]
}
