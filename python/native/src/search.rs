//! Sweeps over settings, and searches.

use crate::call::{bad, long, raised};
use crate::table::NativeTable;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use schedlab_model::Ns;
use schedlab_study::StudyError;
use schedlab_study::compare::{Options, Point, RecordedInput, ReplayFrom, Window};
use schedlab_study::headline::Wanted;
use schedlab_study::input::Input;
use schedlab_study::tune::{Aim, Explorer, HeldOut, TuneOptions, Tuned, tune};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Returns the part of a recording that begins at a time and has a length.
fn window(begin_ns: Option<u64>, duration_ns: Option<u64>) -> Window {
    Window { from: begin_ns.map(Ns), ..Window::first(duration_ns.map(Ns)) }
}

/// An input whose settings are swept. It is read here and never again: a worker's copy of the file
/// may be gone by then.
#[pyclass(frozen, module = "schedlab._native")]
pub(crate) struct NativeSweep {
    input: Input,
    duration: Option<Ns>,
}

#[pymethods]
impl NativeSweep {
    #[new]
    #[pyo3(signature = (input, begin_ns, duration_ns, replay))]
    fn new(
        py: Python<'_>,
        input: String,
        begin_ns: Option<u64>,
        duration_ns: Option<u64>,
        replay: Option<String>,
    ) -> PyResult<NativeSweep> {
        let part = window(begin_ns, duration_ns);
        let replay = chosen(replay)?;
        let input = long(py, |_| Input::open(&input, replay, &part))?.map_err(raised)?;
        Ok(NativeSweep { input, duration: part.length })
    }

    /// The measurements of the unchanged row and of each point (its scheduler or none, its
    /// settings), as `compare` has them.
    #[pyo3(signature = (points, only, seeds, seed, jobs))]
    fn rows(
        &self,
        py: Python<'_>,
        points: Vec<(Option<String>, String)>,
        only: Vec<String>,
        seeds: u32,
        seed: Option<u64>,
        jobs: usize,
    ) -> PyResult<NativeTable> {
        let point = |(scheduler, settings): &(Option<String>, String)| {
            Point::parse(scheduler.as_deref(), settings)
        };
        let points = points.iter().map(point).collect::<Result<Vec<_>, _>>().map_err(raised)?;
        let wanted = |text: &String| Wanted::parse(text, None).map_err(PyValueError::new_err);
        let only = only.iter().map(wanted).collect::<PyResult<Vec<_>>>()?;
        let (repetitions, duration) = (Some(seeds), self.duration);
        let options =
            Options { points, only, seed, repetitions, duration, jobs, ..Options::default() };
        let study = long(py, |stop| {
            self.input.compare(None, &Options { stop: Some(stop), ..options }, &|_, _| {})
        })?;
        let study = study.map_err(raised)?;
        schedlab_tables::study::rows(&study).map(NativeTable).map_err(|error| bad(&error))
    }
}

/// A search for the setting that serves a goal best.
#[pyclass(frozen, module = "schedlab._native")]
pub(crate) struct NativeSearch {
    input: Input,
    /// What recordings are replayed from, those that the result is checked on too.
    replay: Option<ReplayFrom>,
    options: TuneOptions,
}

#[pymethods]
impl NativeSearch {
    #[new]
    #[pyo3(signature = (input, goal, keep, space, seeds, seed, begin_ns, duration_ns, serve, replay))]
    #[expect(clippy::too_many_arguments, reason = "the keywords of a Python function")]
    fn new(
        py: Python<'_>,
        input: String,
        goal: String,
        keep: Vec<String>,
        space: Vec<String>,
        seeds: u32,
        seed: Option<u64>,
        begin_ns: Option<u64>,
        duration_ns: Option<u64>,
        serve: Option<String>,
        replay: Option<String>,
    ) -> PyResult<NativeSearch> {
        let aim = |text: &String| Aim::parse(text).map_err(PyValueError::new_err);
        let options = TuneOptions {
            goal: aim(&goal)?,
            keep: keep.iter().map(aim).collect::<PyResult<_>>()?,
            space,
            seeds,
            trials: 0,
            seed,
            duration: duration_ns.map(Ns),
            jobs: 0,
            serve,
            stop: None,
            keep_finished: false,
        };
        let part = window(begin_ns, duration_ns);
        let replay = chosen(replay)?;
        let input = long(py, |_| Input::open(&input, replay, &part))?;
        let search = NativeSearch { input: input.map_err(raised)?, replay, options };
        Explorer::new(search.input.target(None), &search.options).map_err(raised)?;
        Ok(search)
    }

    /// The losses of points, each a value for each dimension, with one seed; None: no setting of
    /// this machine, or refused.
    fn losses(
        &self,
        py: Python<'_>,
        values: Vec<Vec<String>>,
        jobs: usize,
    ) -> PyResult<Vec<Option<Vec<f64>>>> {
        let work =
            |stop| Explorer::new(self.input.target(None), &self.with(jobs, stop))?.losses(&values);
        long(py, work)?.map_err(raised)
    }

    /// The answer from points whose losses are known, in the schema `schedlab-tune/1`.
    fn finish(
        &self,
        py: Python<'_>,
        values: Vec<Vec<String>>,
        losses: Vec<Option<Vec<f64>>>,
        how: String,
        validate: Vec<String>,
        jobs: usize,
    ) -> PyResult<String> {
        let found = long(py, |stop| {
            let options = self.with(jobs, stop);
            let others = self.others(&validate)?;
            let explorer = Explorer::new(self.input.target(None), &options)?;
            explorer.finish(&values, &losses, &how, &held_out(&validate, &others), &|_| {})
        })?;
        json(found)
    }

    /// The answer of the command line's own search, for up to three dimensions.
    fn search(
        &self,
        py: Python<'_>,
        trials: usize,
        validate: Vec<String>,
        jobs: usize,
    ) -> PyResult<String> {
        let found = long(py, |stop| {
            let options = TuneOptions { trials, ..self.with(jobs, stop) };
            let others = self.others(&validate)?;
            tune(self.input.target(None), &options, &held_out(&validate, &others), &|_| {})
        })?;
        json(found)
    }
}

impl NativeSearch {
    fn with(&self, jobs: usize, stop: Arc<AtomicBool>) -> TuneOptions {
        TuneOptions { jobs, stop: Some(stop), ..self.options.clone() }
    }

    fn others(&self, files: &[String]) -> Result<Vec<RecordedInput>, StudyError> {
        let from = self.replay.unwrap_or_default();
        files.iter().map(|file| RecordedInput::open_from(Path::new(file), from)).collect()
    }
}

/// Reads the keyword `replay`.
fn chosen(replay: Option<String>) -> PyResult<Option<ReplayFrom>> {
    replay.map(|name| name.parse()).transpose().map_err(raised)
}

fn held_out<'a>(files: &[String], others: &'a [RecordedInput]) -> Vec<HeldOut<'a>> {
    files.iter().cloned().zip(others).collect()
}

fn json(found: Result<Tuned, StudyError>) -> PyResult<String> {
    let found = found.map_err(raised)?;
    serde_json::to_string(&found).map_err(|error| bad(&error))
}
