//! Comparisons.

use crate::call::{bad, long};
use crate::table::NativeTable;
use pyo3::exceptions::{PyKeyboardInterrupt, PyValueError};
use pyo3::prelude::*;
use schedlab_model::Ns;
use schedlab_scheduler::SchedulerSpec;
use schedlab_study::StudyError;
use schedlab_study::compare::{Options, RecordedInput, compare_recording, compare_scenario, modelled_by};
use schedlab_study::diff::DiffOptions;
use schedlab_study::gallery::{self, Found};
use schedlab_study::gate::Gate;
use schedlab_study::result::Study;
use std::path::Path;

/// The result of a comparison.
#[pyclass(frozen, module = "schedlab._native")]
pub(crate) struct NativeStudy(Study);

/// Plays a recording or a scenario under schedulers and variants, as `schedlab compare` does.
#[pyfunction]
#[pyo3(signature = (input, schedulers, variants, seeds=None, seed=None, duration_ns=None, jobs=0))]
#[expect(clippy::too_many_arguments, reason = "the keywords of a Python function")]
pub(crate) fn compare(
    py: Python<'_>,
    input: String,
    schedulers: Vec<String>,
    variants: Vec<String>,
    seeds: Option<u32>,
    seed: Option<u64>,
    duration_ns: Option<u64>,
    jobs: usize,
) -> PyResult<NativeStudy> {
    if seeds.is_some_and(|seeds| !(1..=1000).contains(&seeds)) {
        return Err(PyValueError::new_err("seeds: 1 to 1000"));
    }
    let parse = |text: &String| text.parse::<SchedulerSpec>().map_err(|error| bad(&error));
    let specs = schedulers.iter().map(parse).collect::<PyResult<Vec<_>>>()?;
    let (schedulers, said): (Vec<_>, Vec<_>) = specs.iter().map(modelled_by).unzip();
    let duration = duration_ns.map(Ns);
    let options =
        Options { schedulers, variants, seed, repetitions: seeds, duration, jobs, ..Options::default() };
    let study = long(py, |stop| run(&input, &Options { stop: Some(stop), ..options }))?;
    let mut study = study.map_err(|error| match error {
        StudyError::Stopped => PyKeyboardInterrupt::new_err("stopped"),
        other => bad(&other),
    })?;
    study.notes.extend(said.into_iter().flatten());
    Ok(NativeStudy(study))
}

fn run(input: &str, options: &Options) -> Result<Study, StudyError> {
    match gallery::find(input)? {
        Found::Scenario(scenario) => compare_scenario(&scenario, options, &|_, _| {}),
        Found::Recording(path) => compare_recording(&RecordedInput::open(&path)?, None, options, &|_, _| {}),
    }
}

/// Compares two recordings, two folders of recordings, or two results, as `schedlab diff --json` does.
#[pyfunction]
pub(crate) fn diff(
    py: Python<'_>,
    before: String,
    after: String,
    fail_if: Vec<String>,
    least: f64,
    seed: u64,
) -> PyResult<String> {
    let gate = |text: &String| Gate::parse(text).map_err(|error| bad(&error));
    let gates = fail_if.iter().map(gate).collect::<PyResult<Vec<_>>>()?;
    let options = DiffOptions { least, seed, gates, ..DiffOptions::default() };
    let found = long(py, |_| schedlab_study::diff::diff(Path::new(&before), Path::new(&after), &options))?;
    serde_json::to_string(&found.map_err(|error| bad(&error))?).map_err(|error| bad(&error))
}

#[pymethods]
impl NativeStudy {
    /// The whole result in the schema `schedlab-compare/1`.
    fn json(&self) -> PyResult<String> {
        serde_json::to_string(&self.0).map_err(|error| bad(&error))
    }

    /// What it comes to: the outcome, and how sure that is.
    #[getter]
    fn verdict(&self) -> (String, String) {
        (self.0.verdict.outcome.clone(), self.0.verdict.certainty.clone())
    }

    /// The measurements.
    fn rows(&self) -> PyResult<NativeTable> {
        schedlab_tables::study::rows(&self.0).map(NativeTable).map_err(|error| bad(&error))
    }

    /// The expectations of a scenario.
    fn expectations(&self) -> PyResult<NativeTable> {
        schedlab_tables::study::expectations(&self.0).map(NativeTable).map_err(|error| bad(&error))
    }
}
