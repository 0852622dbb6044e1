//! Many recordings at once, as those of the machines of a fleet: what each machine's tasks met, and
//! (in [`compare`]) what a setting would do to all of them.
//!
//! Recordings are read by a few threads, each one recording at a time, and of each only its numbers
//! are kept: memory grows with the largest recording, not with their number.

pub mod compare;

use crate::StudyError;
use crate::corpus;
use crate::measurements::SubjectData;
use crate::metric::{Metric, Stat};
use crate::serve::Server;
use crate::together::Together;
use schedlab_model::text::shown;
use schedlab_model::{EventSink, Ns};
use schedlab_stats::{OrderInterval, median, median_interval, outliers};
use schedlab_trace::analysis::{Analysis, Summary, TaskSummary};
use schedlab_trace::{Header, Recording};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Version of the JSON.
pub const SCHEMA: &str = "schedlab-fleet/1";

/// The number by which machines are ordered.
pub const ORDER: Metric = Metric::Latency(Stat::Percentile(99_000));

/// What is measured of the tasks of each recording.
pub const NUMBERS: [Metric; 5] = [
    Metric::Share,
    Metric::Latency(Stat::Percentile(50_000)),
    ORDER,
    Metric::Latency(Stat::Max),
    Metric::Throttled,
];

/// The JSON of `show FOLDER`: what was recorded on each machine.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct Fleet {
    /// Always [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// The tasks that are measured, as they were named; `null`: all but those of the kernel.
    pub tasks: Option<String>,
    /// What tasks are taken together by (`unit`, `pod`, ...): then entries are of these; `null`:
    /// they are not.
    pub by: Option<&'static str>,
    /// How many machines.
    pub machines: usize,
    /// Over all machines: one entry for each number that some of them have, by subject those with
    /// the longest run-queue latency p99 first.
    pub typical: Vec<Typical>,
    /// The recordings, those that lie far from all others first, then by run-queue latency p99,
    /// then those that could not be read.
    pub recordings: Vec<FleetRecording>,
}

/// A number over all machines. A machine with several recordings counts once, with their median.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct Typical {
    /// What its tasks belong to, with `by`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// What. Shares are parts of one CPU, times nanoseconds.
    pub metric: Metric,
    /// How many machines have it.
    pub machines: usize,
    /// Its median, and the interval that holds that of all such machines.
    pub interval: OrderInterval,
}

/// One recording; with `by` one subject of it.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct FleetRecording {
    /// Its path below the folder.
    pub file: String,
    /// Its machine: the folder below the folder that was named, or the file's name.
    pub machine: String,
    /// What its tasks belong to, with `by`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Why there is nothing of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Kernel release.
    pub kernel: String,
    /// CPUs.
    pub cpus: usize,
    /// Length.
    pub duration_ns: u64,
    /// Events that the recorder lost.
    pub lost: u64,
    /// Part of all CPU time in which CPUs were not idle.
    pub busy: f64,
    /// The numbers of its tasks; none where it has no such task.
    pub values: Vec<FleetValue>,
    /// Its run-queue latency p99 lies far from that of all others (of the same subject).
    pub outlier: bool,
}

/// A number of one recording.
#[derive(Clone, Copy, PartialEq, Debug, JsonSchema, Serialize)]
pub struct FleetValue {
    /// What. Shares are parts of one CPU, times nanoseconds.
    pub metric: Metric,
    /// Its value.
    pub value: f64,
}

impl FleetRecording {
    /// Returns a number.
    pub fn value(&self, metric: Metric) -> Option<f64> {
        self.values.iter().find(|value| value.metric == metric).map(|value| value.value)
    }
}

impl Fleet {
    /// Returns how many recordings there is nothing of.
    pub fn unread(&self) -> usize {
        self.recordings.iter().filter(|one| one.error.is_some()).count()
    }
}

/// Returns the recordings below a folder, by name.
///
/// # Errors
/// It cannot be read, or has none.
pub fn recordings(folder: &Path) -> Result<Vec<PathBuf>, StudyError> {
    let none =
        || StudyError::Option(format!("{}: there is no recording (.slt) in it", folder.display()));
    let mut all = corpus::files(folder).map_err(|error| match folder.read_dir() {
        Ok(_) => none(),
        Err(_) => error,
    })?;
    // A stranger's folder may have a pipe in it, whose opening waits for a writer.
    all.retain(|path| path.extension().is_some_and(|end| end == "slt") && path.is_file());
    if all.is_empty() { Err(none()) } else { Ok(all) }
}

/// Returns the machine of a recording.
fn machine(folder: &Path, path: &Path) -> String {
    let below = path.strip_prefix(folder).unwrap_or(path);
    let first = below.components().next().map(|first| Path::new(first.as_os_str()));
    let name = first.map_or_else(String::new, |first| match first == below {
        true => first.with_extension("").display().to_string(),
        false => first.display().to_string(),
    });
    shown(&name).into_owned()
}

/// Returns what `work` makes of each path, in their order, by so many threads (0: one for each
/// CPU). `progress` is told how many are done.
pub(crate) fn each<T: Send>(
    paths: &[PathBuf],
    jobs: usize,
    progress: &(dyn Fn(usize, usize) + Sync),
    work: impl Fn(&Path) -> T + Sync,
) -> Vec<T> {
    let cpus = || std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = if jobs == 0 { cpus() } else { jobs }.min(paths.len()).max(1);
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let made: Mutex<Vec<(usize, T)>> = Mutex::new(Vec::new());
    let worker = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(path) = paths.get(at) else { return };
            let one = work(path);
            // A worker that panicked ends the scope; what the others made is whole.
            made.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((at, one));
            progress(done.fetch_add(1, Ordering::Relaxed) + 1, paths.len());
        }
    };
    std::thread::scope(|scope| (0..jobs).for_each(|_| drop(scope.spawn(worker))));
    let mut made = made.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    made.sort_by_key(|(at, _)| *at);
    made.into_iter().map(|(_, one)| one).collect()
}

/// What is measured of each recording.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked<'a> {
    /// These tasks: a program, a unit, a group, a pod or a container, as `--serve` takes it.
    pub tasks: Option<&'a str>,
    /// By what they belong to.
    pub by: Option<Together>,
}

/// Measures every recording below a folder.
///
/// # Errors
/// The folder cannot be read, has no recording, or none has these tasks. A recording that cannot be
/// read is an entry of the result.
pub fn show(
    folder: &Path,
    Asked { tasks, by }: Asked<'_>,
    jobs: usize,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Fleet, StudyError> {
    let paths = recordings(folder)?;
    let wanted = (tasks.map(Server::new), by);
    let all = each(&paths, jobs, progress, |path| one(folder, path, &wanted));
    let mut all: Vec<FleetRecording> = all.into_iter().flatten().collect();
    if let [first, ..] = &all[..]
        && all.iter().all(|one| one.error.is_some())
    {
        let why = first.error.clone().unwrap_or_default();
        return Err(StudyError::Option(format!(
            "{}: no recording can be measured; of {}: {why}",
            folder.display(),
            first.file
        )));
    }
    if let Some(tasks) = tasks.filter(|_| all.iter().all(|one| one.values.is_empty())) {
        return Err(StudyError::Option(format!(
            "--serve {tasks}: no task of any recording below {} is meant; name {}",
            folder.display(),
            crate::serve::NAMES
        )));
    }
    order(&mut all);
    let machines: std::collections::BTreeSet<&String> =
        all.iter().map(|one| &one.machine).collect();
    Ok(Fleet {
        schema: SCHEMA,
        tasks: tasks.map(str::to_owned),
        by: by.map(Together::word),
        machines: machines.len(),
        typical: typical(&all),
        recordings: all,
    })
}

/// The tasks that are measured, and by what they are taken together.
type Wanted = (Option<Server>, Option<Together>);

fn one(folder: &Path, path: &Path, wanted: &Wanted) -> Vec<FleetRecording> {
    let file = path.strip_prefix(folder).unwrap_or(path).display().to_string();
    let empty = FleetRecording {
        file: shown(&file).into_owned(),
        machine: machine(folder, path),
        subject: None,
        error: None,
        kernel: String::new(),
        cpus: 0,
        duration_ns: 0,
        lost: 0,
        busy: 0.0,
        values: Vec::new(),
        outlier: false,
    };
    measured(path, wanted, &empty).unwrap_or_else(|error| {
        vec![FleetRecording { error: Some(error.to_string()), ..empty.clone() }]
    })
}

/// Returns the subjects of a recording; `empty` has its names.
fn measured(
    path: &Path,
    (server, by): &Wanted,
    empty: &FleetRecording,
) -> Result<Vec<FleetRecording>, StudyError> {
    let trace = |source| StudyError::trace(path, source);
    let recording = Recording::open(path).map_err(trace)?;
    let header = &recording.header;
    Summary::check(header).map_err(trace)?;
    // A machine that does not run the server has a row without numbers.
    let tasks: Vec<bool> = match server {
        Some(server) => server.tasks(header).unwrap_or_default(),
        None => header.tasks.iter().map(|task| !task.kernel).collect(),
    };
    let mut summary = Summary::new(header.tasks.len(), header.topology.cpus(), Ns::ZERO);
    recording.events.iter().for_each(|event| summary.event(event));
    summary.finish(recording.duration);
    let (busy, idle) = summary.cpus.iter().fold((Ns::ZERO, Ns::ZERO), |(busy, idle), cpu| {
        (busy.saturating_add(cpu.busy), idle.saturating_add(cpu.idle))
    });
    let whole = FleetRecording {
        kernel: header.kernel.clone(),
        cpus: header.topology.cpus(),
        duration_ns: recording.duration.0,
        lost: recording.repairs.lost,
        busy: busy.0 as f64 / busy.saturating_add(idle).0.max(1) as f64,
        ..empty.clone()
    };
    let subjects = subjects(header, &tasks, *by);
    if subjects.is_empty() {
        return Ok(vec![whole]);
    }
    let one = |(subject, tasks): (Option<String>, Vec<usize>)| {
        let mut sum = TaskSummary::default();
        tasks.into_iter().for_each(|task| sum.merge(&summary.tasks[task]));
        let data = SubjectData::of_tasks("", summary.window, sum);
        let value = |metric| Some(FleetValue { metric, value: data.value(metric)? });
        let values = NUMBERS.into_iter().filter_map(value).collect();
        FleetRecording { subject, values, ..whole.clone() }
    };
    Ok(subjects.into_iter().map(one).collect())
}

/// Returns the tasks of each subject; without `by` one of all, if there are some.
fn subjects(
    header: &Header,
    tasks: &[bool],
    by: Option<Together>,
) -> BTreeMap<Option<String>, Vec<usize>> {
    let names = by.map(|by| by.names(header));
    let mut found: BTreeMap<Option<String>, Vec<usize>> = BTreeMap::new();
    for (task, _) in tasks.iter().enumerate().filter(|(_, own)| **own) {
        found.entry(names.as_ref().map(|names| names[task].clone())).or_default().push(task);
    }
    found
}

/// Finds the recordings that lie far from all others, and puts them first. Latencies are compared
/// as factors, within a subject.
fn order(all: &mut [FleetRecording]) {
    let mut have: BTreeMap<Option<String>, Vec<(usize, f64)>> = BTreeMap::new();
    for (at, one) in all.iter().enumerate() {
        if let Some(value) = one.value(ORDER).filter(|value| *value > 0.0) {
            have.entry(one.subject.clone()).or_default().push((at, libm::log(value)));
        }
    }
    for of_subject in have.into_values() {
        let logs: Vec<f64> = of_subject.iter().map(|(_, log)| *log).collect();
        outliers(&logs).into_iter().for_each(|far| all[of_subject[far].0].outlier = true);
    }
    all.sort_by(|a, b| {
        let none = |one: &FleetRecording| one.values.is_empty();
        let key = |one: &FleetRecording| (one.error.is_some(), none(one), !one.outlier);
        let value = |one: &FleetRecording| one.value(ORDER).unwrap_or(0.0);
        let longer = key(a).cmp(&key(b)).then(value(b).total_cmp(&value(a)));
        longer.then_with(|| (&a.file, &a.subject).cmp(&(&b.file, &b.subject)))
    });
}

fn typical(all: &[FleetRecording]) -> Vec<Typical> {
    let mut subjects: BTreeMap<&Option<String>, Vec<&FleetRecording>> = BTreeMap::new();
    all.iter().for_each(|one| subjects.entry(&one.subject).or_default().push(one));
    let of = |(subject, own): (&Option<String>, Vec<&FleetRecording>)| -> Vec<Typical> {
        let of = |metric: Metric| {
            let values = own.iter().filter_map(|one| Some((&one.machine, one.value(metric)?)));
            let (machines, interval) = over_machines(values)?;
            Some(Typical { subject: subject.clone(), metric, machines, interval })
        };
        NUMBERS.into_iter().filter_map(of).collect()
    };
    let mut found: Vec<Vec<Typical>> = subjects.into_iter().map(of).collect();
    let longest = |one: &Vec<Typical>| {
        let of = one.iter().find(|typical| typical.metric == ORDER);
        of.map_or(0.0, |typical| typical.interval.median)
    };
    found.sort_by(|a, b| longest(b).total_cmp(&longest(a)));
    found.into_iter().flatten().collect()
}

/// Returns how many machines there are, and the median over them; a machine with several values has
/// their median.
pub(crate) fn over_machines<'a>(
    values: impl Iterator<Item = (&'a String, f64)>,
) -> Option<(usize, OrderInterval)> {
    let mut by_machine: BTreeMap<&String, Vec<f64>> = BTreeMap::new();
    values.for_each(|(machine, value)| by_machine.entry(machine).or_default().push(value));
    let medians: Vec<f64> = by_machine.values().filter_map(|values| median(values)).collect();
    Some((medians.len(), median_interval(medians)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording(file: &str, p99: Option<f64>) -> FleetRecording {
        let mut all = one(Path::new("/f"), &Path::new("/f").join(file), &(None, None));
        let mut one = all.remove(0);
        one.error = None;
        one.values = p99.map(|value| FleetValue { metric: ORDER, value }).into_iter().collect();
        one
    }

    #[test]
    fn a_folder_or_a_file_is_a_machine() {
        let of = |path: &str| machine(Path::new("/f"), Path::new(path));
        assert_eq!(of("/f/web-1/a.slt"), "web-1");
        assert_eq!(of("/f/web-1.slt"), "web-1");
        assert_eq!(of("/f/eu/web-1/a.slt"), "eu");
    }

    #[test]
    fn what_lies_far_comes_first() {
        let mut all: Vec<FleetRecording> = (0..9)
            .map(|at| recording(&format!("m{at}.slt"), Some(1e6 * (1.0 + f64::from(at) / 100.0))))
            .collect();
        all.push(recording("slow.slt", Some(1e9)));
        all.push(FleetRecording { error: Some("cut".to_owned()), ..recording("x.slt", None) });
        order(&mut all);
        assert_eq!((all[0].file.as_str(), all[0].outlier), ("slow.slt", true));
        assert_eq!(all.iter().filter(|one| one.outlier).count(), 1);
        assert_eq!((all[1].file.as_str(), all[10].file.as_str()), ("m8.slt", "x.slt"));
    }

    /// A subject that waits longer than others everywhere is not far off because of that.
    #[test]
    fn subjects_are_compared_with_themselves() {
        let of = |subject: &str, at: usize, p99: f64| FleetRecording {
            subject: Some(subject.to_owned()),
            ..recording(&format!("m{at}.slt"), Some(p99))
        };
        let spread = |at: usize| 1.0 + at as f64 / 100.0;
        let mut all: Vec<FleetRecording> =
            (0..9).map(|at| of("fast", at, 1e4 * spread(at))).collect();
        all.extend((0..9).map(|at| of("slow", at, 1e8 * spread(at))));
        all.push(of("fast", 9, 1e8));
        order(&mut all);
        let far: Vec<&FleetRecording> = all.iter().filter(|one| one.outlier).collect();
        assert_eq!(far.len(), 1);
        assert_eq!((far[0].file.as_str(), far[0].subject.as_deref()), ("m9.slt", Some("fast")));
        let typical = typical(&all);
        assert_eq!(typical[0].subject.as_deref(), Some("slow"), "the longest first");
        assert_eq!((typical[0].machines, typical[1].machines), (9, 10));
    }

    #[test]
    fn a_machine_counts_once() {
        let names = ["a", "b", "c"].map(String::from);
        let values = [(&names[0], 1.0), (&names[0], 3.0), (&names[1], 9.0), (&names[2], 4.0)];
        let (machines, interval) = over_machines(values.into_iter()).unwrap();
        assert_eq!((machines, interval.median), (3, 4.0));
    }

    #[test]
    fn each_keeps_the_order() {
        let paths: Vec<PathBuf> = (0..50).map(|n| PathBuf::from(n.to_string())).collect();
        let made = each(&paths, 4, &|_, _| {}, |path| path.to_owned());
        assert_eq!(made, paths);
    }
}
