//! Recordings.

use crate::call::{Word, bad, long, raised, raised_in};
use crate::scheduler::PythonScheduler;
use crate::table::NativeTable;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use schedlab_model::Ns;
use schedlab_scheduler::SchedulerSpec;
use schedlab_study::compare::modelled_by;
use schedlab_study::gallery::{self, Found};
use schedlab_study::scenario::Scenario;
use schedlab_study::show::{simulate, simulate_by};
use schedlab_trace::Recording;
use std::path::PathBuf;

/// A recording in memory.
#[pyclass(frozen, module = "schedlab._native")]
pub(crate) struct NativeRecording {
    recording: Recording,
    /// The file.
    #[pyo3(get)]
    path: PathBuf,
    /// The part of the file that it is, in nanoseconds; `None`: all of it.
    #[pyo3(get)]
    window: Option<(u64, u64)>,
    /// Whether a scenario was simulated: `path` is what the scenario was called then.
    #[pyo3(get)]
    simulated: bool,
}

/// Reads a recording, or a trace of any kind that `schedlab import` reads.
#[pyfunction]
pub(crate) fn open(py: Python<'_>, path: PathBuf) -> PyResult<NativeRecording> {
    let recording = long(py, |_| Recording::open(&path))?;
    let recording = recording.map_err(|error| {
        let (name, bad) = (path.display().to_string(), bad(&error));
        let text = bad.value(py).to_string();
        // An error of the operating system names its file.
        if text.contains(&name) { bad } else { PyValueError::new_err(format!("{name}: {text}")) }
    })?;
    if recording.events.is_empty() {
        return Err(PyValueError::new_err(format!(
            "{}: the recording holds no events",
            path.display()
        )));
    }
    Ok(NativeRecording { recording, path, window: None, simulated: false })
}

/// Options of `show` and the keywords of [`scenario`].
const SCENARIO_WORDS: [Word; 4] =
    [("scheduler", "scheduler"), ("variant", "variant"), ("seed", "seed"), ("for", "duration")];

/// Simulates a scenario once, and returns its events as a recording.
#[pyfunction]
#[pyo3(signature = (name, scheduler=None, variant=None, seed=None, duration_ns=None))]
pub(crate) fn scenario(
    py: Python<'_>,
    name: String,
    scheduler: Option<String>,
    variant: Option<String>,
    seed: Option<u64>,
    duration_ns: Option<u64>,
) -> PyResult<NativeRecording> {
    let scenario = found(&name, seed, duration_ns)?;
    let parse = |text: String| text.parse::<SchedulerSpec>().map_err(|error| bad(&error));
    let scheduler = scheduler.map(parse).transpose()?.map(|spec| modelled_by(&spec).0);
    let recording =
        long(py, |stop| simulate(&scenario, scheduler.as_ref(), variant.as_deref(), Some(&stop)))?;
    let recording = recording.map_err(|error| raised_in(error, &SCENARIO_WORDS))?;
    Ok(NativeRecording { recording, path: name.into(), window: None, simulated: true })
}

/// Simulates a scenario once under a scheduler that is written in Python: `make` gets the names,
/// nice values and policies of its tasks and the number of its CPUs first.
#[pyfunction]
#[pyo3(signature = (name, scheduler, variant=None, seed=None, duration_ns=None))]
pub(crate) fn scenario_by(
    py: Python<'_>,
    name: String,
    scheduler: Bound<'_, PyAny>,
    variant: Option<String>,
    seed: Option<u64>,
    duration_ns: Option<u64>,
) -> PyResult<NativeRecording> {
    let scenario = found(&name, seed, duration_ns)?;
    let tasks: Vec<(String, i8, String)> = scenario
        .workload
        .tasks
        .iter()
        .map(|task| (task.name.clone(), task.nice.get(), task.policy.to_string()))
        .collect();
    scheduler.call_method1("_begin", (tasks, scenario.machine.topology.cpus()))?;
    let title: String = scheduler.get_type().name()?.extract()?;
    let mut by = PythonScheduler::new(&scheduler)?;
    let (recording, by) = long(py, |stop| {
        by.ends_with(&stop);
        (simulate_by(&scenario, &title, &by, variant.as_deref(), Some(&stop)), by)
    })?;
    if let Some(raised) = by.raised() {
        return Err(raised);
    }
    let recording = recording.map_err(|error| raised_in(error, &SCENARIO_WORDS))?;
    Ok(NativeRecording { recording, path: name.into(), window: None, simulated: true })
}

/// The scenario of this name, with another seed and duration.
fn found(name: &str, seed: Option<u64>, duration_ns: Option<u64>) -> PyResult<Box<Scenario>> {
    let Found::Scenario(mut scenario) = gallery::find(name).map_err(raised)? else {
        return Err(PyValueError::new_err(format!(
            "{name} is a recording: read it with schedlab.open"
        )));
    };
    if duration_ns == Some(0) {
        return Err(PyValueError::new_err("duration: longer than 0"));
    }
    scenario.seed = seed.unwrap_or(scenario.seed);
    scenario.duration = duration_ns.map_or(scenario.duration, Ns);
    Ok(scenario)
}

#[pymethods]
impl NativeRecording {
    /// Its length in nanoseconds.
    #[getter]
    fn duration_ns(&self) -> u64 {
        self.recording.duration.0
    }

    /// Its header as JSON, in the words of `schedlab show --json`.
    fn header_json(&self) -> PyResult<String> {
        serde_json::to_string(&self.recording.header).map_err(|error| bad(&error))
    }

    /// What was repaired when it was read, as JSON.
    fn repairs_json(&self) -> PyResult<String> {
        serde_json::to_string(&self.recording.repairs).map_err(|error| bad(&error))
    }

    /// Returns one of its tables.
    fn table(&self, py: Python<'_>, name: String) -> PyResult<NativeTable> {
        let batch = long(py, |_| schedlab_tables::of_recording(&self.recording, &name))?;
        Ok(NativeTable(batch.map_err(|error| bad(&error))?))
    }

    /// Returns the part from `from_ns` to `to_ns`, as if it had been recorded then, with what was
    /// pending at its beginning.
    fn part(&self, py: Python<'_>, from_ns: u64, to_ns: u64) -> PyResult<NativeRecording> {
        let to = Ns(to_ns).min(self.recording.duration);
        let from = Ns(from_ns);
        if from >= to {
            let length = self.recording.duration;
            return Err(PyValueError::new_err(format!(
                "from {from} to {to} there is nothing: the recording is {length} long"
            )));
        }
        let recording = long(py, |_| self.recording.part(from, to))?;
        let offset = self.window.map_or(0, |(from, _)| from);
        let window = Some((offset + from.0, offset + to.0));
        Ok(NativeRecording {
            recording,
            path: self.path.clone(),
            window,
            simulated: self.simulated,
        })
    }
}
