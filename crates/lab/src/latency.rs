//! `schedlab latency`: what a measurement of wakeup latency means. `docs/latency-schema.md`
//! describes the JSON.

mod findings;
mod load;
mod matrix;
mod merge;
mod page;
mod published;
mod single;

pub use findings::{Finding, Truth, findings};
pub use load::Load;
pub use matrix::{
    Cell, Matrix, MatrixError, MatrixOutput, MatrixProgress, MatrixRequest, MatrixRow, Quantity,
    Round, SCHEMA as MATRIX_SCHEMA, System, matrix,
};
pub use merge::{Difference, MergeError, ResultFile, differences, merge, parse};
pub use page::{of_matrix, summary};
pub use published::{MAXIMA, PublishedMaximum};
pub use single::{
    Judged, LatencyResult, Measured, RUNGS, Row, SCHEMA, check_subjects, gates, judge, kernel,
    measure,
};
