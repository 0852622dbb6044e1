//! Comparisons.

use crate::call::{bad, in_words, long, of_kind, option_words, raised, watched};
use crate::table::NativeTable;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use schedlab_files::NewFile;
use schedlab_study::StudyError;
use schedlab_study::compare::request::{CompareOption, CompareRequest, OPTIONS, Shape, option};
use schedlab_study::diff::DiffOptions;
use schedlab_study::gallery;
use schedlab_study::gate::Gate;
use schedlab_study::input::Input;
use schedlab_study::page::{Origin, of_study, open_tables};
use schedlab_study::result::Study;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The result of a comparison, and what it was made from.
#[pyclass(frozen, module = "schedlab._native")]
pub(crate) struct NativeStudy {
    study: Study,
    /// What the caller named, and what was read of it.
    name: String,
    input: Input,
    request: CompareRequest,
}

/// Returns the options of [`compare`]: keyword, shape of the value, and what is between name and
/// text of a mapping.
#[pyfunction]
pub(crate) fn compare_options() -> Vec<(&'static str, &'static str, &'static str)> {
    let of = |option: &CompareOption| match option.shape {
        Shape::Texts => (option.name, "texts", ""),
        Shape::Named(between) => (option.name, "named", between),
        Shape::Text => (option.name, "text", ""),
        Shape::Number => (option.name, "number", ""),
        Shape::Time => (option.name, "time", ""),
    };
    OPTIONS.iter().map(of).collect()
}

/// Plays a recording or a scenario, as `schedlab compare` does. `options`: keywords of
/// [`compare_options`], each with one text.
#[pyfunction]
#[pyo3(signature = (input, options, report=None))]
pub(crate) fn compare(
    py: Python<'_>,
    input: String,
    options: Vec<(String, String)>,
    report: Option<Bound<'_, PyAny>>,
) -> PyResult<NativeStudy> {
    let mut request = CompareRequest::default();
    for (name, text) in &options {
        let option =
            option(name).ok_or_else(|| PyValueError::new_err(format!("no option {name}")))?;
        request.set(option, text).map_err(|why| PyValueError::new_err(format!("{name}: {why}")))?;
    }
    let name = input;
    let (input, study) = watched(py, report.as_ref(), |stop, counter| {
        let found = gallery::find(&name)?;
        if let Some((option, why)) = request.without_meaning(&found, &name) {
            return Err(StudyError::Option(format!("{} {why}", option.name)));
        }
        let input = request.read(found)?;
        request.options.stop = Some(stop);
        let study = request.compare(&input, &|done, all| counter.set(done, all))?;
        Ok((input, study))
    })?
    .map_err(raised)?;
    Ok(NativeStudy { study, name, input, request })
}

/// Compares two recordings, two folders of recordings, or two results, as `schedlab diff --json`
/// does.
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
    let found =
        long(py, |_| schedlab_study::diff::diff(Path::new(&before), Path::new(&after), &options))?;
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
        let (words, verdict) = (option_words(), &self.study.verdict);
        (in_words(&verdict.outcome, &words), in_words(&verdict.certainty, &words))
    }

    /// The tables of what changes that the page shows open, as JSON: caption, columns and rows of
    /// cells, each with its text and a note.
    fn open_tables_json(&self) -> String {
        open_tables(&self.study).to_string()
    }

    /// The measurements.
    fn rows(&self) -> PyResult<NativeTable> {
        schedlab_tables::study::rows(&self.study).map(NativeTable).map_err(|error| bad(&error))
    }

    /// The expectations of a scenario.
    fn expectations(&self) -> PyResult<NativeTable> {
        schedlab_tables::study::expectations(&self.study)
            .map(NativeTable)
            .map_err(|error| bad(&error))
    }

    /// Writes the page that `compare --report` writes. What it needs beyond the numbers is observed
    /// in a second run of the same input, which gives the same numbers. `command` and `made_on`
    /// stand on the page.
    fn report(
        &self,
        py: Python<'_>,
        path: PathBuf,
        command: String,
        made_on: String,
    ) -> PyResult<()> {
        // What other calls of the session read may be written over.
        schedlab_files::begin_work();
        let page = long(py, |stop| {
            let mut request = self.request.clone();
            (request.options.detail, request.options.stop) = (true, Some(stop));
            request.compare(&self.input, &|_, _| {})
        })?
        .map_err(raised)?;
        let recording = self.input.recording().map(|(path, header)| {
            let bytes = std::fs::metadata(path).map_or(0, |data| data.len());
            (header.clone(), bytes)
        });
        let commit = env!("SCHEDLAB_COMMIT").to_owned();
        let origin = Origin { command, commit, made_on, recording };
        let page = of_study(&page, &self.request.scans, &origin);
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
        write().map_err(|error| {
            of_kind(Some(&error), format!("{} cannot be written: {error}", path.display()))
        })
    }
}
