//! Comparisons.

use crate::call::{bad, long, raised, watched};
use crate::table::NativeTable;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use schedlab_files::NewFile;
use schedlab_model::Ns;
use schedlab_scheduler::SchedulerSpec;
use schedlab_study::compare::{Options, modelled_by};
use schedlab_study::diff::DiffOptions;
use schedlab_study::gate::Gate;
use schedlab_study::input::Input;
use schedlab_study::page::{Origin, of_study};
use schedlab_study::result::Study;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The result of a comparison, and what it was made from.
#[pyclass(frozen, module = "schedlab._native")]
pub(crate) struct NativeStudy {
    study: Study,
    /// What the caller named, and what was read of it.
    name: String,
    input: Input,
    options: Options,
}

/// Plays a recording or a scenario under schedulers and variants, as `schedlab compare` does.
#[pyfunction]
#[pyo3(signature = (input, schedulers, variants, seeds=None, seed=None, duration_ns=None, jobs=0, report=None))]
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
    report: Option<Bound<'_, PyAny>>,
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
    let name = input;
    let (input, study) = watched(py, report.as_ref(), |stop, counter| {
        let input = Input::open_first(&name, duration)?;
        let progress = |done, all| counter.set(done, all);
        let study = input.compare(None, &with_stop(&options, stop), &progress)?;
        Ok((input, study))
    })?
    .map_err(raised)?;
    let mut study = study;
    study.notes.extend(said.into_iter().flatten());
    Ok(NativeStudy { study, name, input, options })
}

fn with_stop(options: &Options, stop: Arc<AtomicBool>) -> Options {
    Options { stop: Some(stop), ..options.clone() }
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
        serde_json::to_string(&self.study).map_err(|error| bad(&error))
    }

    /// What it comes to: the outcome, and how sure that is.
    #[getter]
    fn verdict(&self) -> (String, String) {
        (self.study.verdict.outcome.clone(), self.study.verdict.certainty.clone())
    }

    /// The measurements.
    fn rows(&self) -> PyResult<NativeTable> {
        schedlab_tables::study::rows(&self.study).map(NativeTable).map_err(|error| bad(&error))
    }

    /// The expectations of a scenario.
    fn expectations(&self) -> PyResult<NativeTable> {
        schedlab_tables::study::expectations(&self.study).map(NativeTable).map_err(|error| bad(&error))
    }

    /// Writes the page that `compare --report` writes. What it needs beyond the numbers is observed in a second run of the same
    /// input, which gives the same numbers. `command` and `made_on` stand on the page.
    fn report(&self, py: Python<'_>, path: PathBuf, command: String, made_on: String) -> PyResult<()> {
        // What other calls of the session read may be written over.
        schedlab_files::begin_work();
        let page = long(py, |stop| {
            let options = Options { detail: true, ..with_stop(&self.options, stop) };
            let mut study = self.input.compare(None, &options, &|_, _| {})?;
            study.notes.clone_from(&self.study.notes);
            Ok(study)
        })?
        .map_err(raised)?;
        let recording = self.input.recording().map(|(path, header)| {
            let bytes = std::fs::metadata(path).map_or(0, |data| data.len());
            (header.clone(), bytes)
        });
        let commit = env!("SCHEDLAB_COMMIT").to_owned();
        let page = of_study(&page, &Origin { command, commit, made_on, recording });
        let text = page.render().map_err(|error| bad(&error))?;
        let own = Path::new(&self.name);
        let write = || -> std::io::Result<()> {
            if own.is_file() {
                schedlab_files::open(own)?;
            }
            let mut file = NewFile::create(&path)?;
            file.write_all(text.as_bytes())?;
            file.commit()
        };
        write()
            .map_err(|error| PyValueError::new_err(format!("{} cannot be written: {error}", path.display())))
    }
}
