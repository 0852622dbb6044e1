//! The Python module `schedlab._native`: recordings, comparisons, and tables that data frames take
//! without a copy. What users call is in `python/schedlab`.
#![forbid(unsafe_code)]

mod call;
mod recording;
mod scheduler;
mod search;
mod study;
mod table;

use pyo3::prelude::*;
use schedlab_scheduler::registry;
use schedlab_study::gallery;

/// Returns name and summary of every scheduler.
#[pyfunction]
fn schedulers() -> Vec<(&'static str, &'static str)> {
    registry::all().iter().map(|entry| (entry.name, entry.summary)).collect()
}

/// Returns the names of the gallery's scenarios.
#[pyfunction]
fn scenarios() -> Vec<&'static str> {
    gallery::built_in().iter().map(|(name, _)| *name).collect()
}

/// The module.
#[pymodule(name = "_native")]
mod native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::recording::{NativeRecording, open, scenario, scenario_by};
    #[pymodule_export]
    use super::search::{NativeSearch, NativeSweep};
    #[pymodule_export]
    use super::study::{NativeStudy, compare, compare_options, diff};
    #[pymodule_export]
    use super::table::NativeTable;
    #[pymodule_export]
    use super::{scenarios, schedulers};

    /// The version of the package.
    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
