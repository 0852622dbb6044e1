//! What a setting would do to a fleet: every recording of a folder is compared as
//! [`compare`](crate::compare) does, and each change is a median over machines with its interval.
//! Recordings that do not replay well enough count for nothing, and are named.

use super::{each, machine, over_machines, recordings};
use crate::StudyError;
use crate::change::Judgement;
use crate::compare::request::CompareRequest;
use crate::gallery;
use crate::measurements::Kind;
use crate::metric::{Metric, Stat, Unit};
use crate::result::{Row, Study};
use crate::variant::VariantError;
use crate::view;
use schedlab_model::text::shown;
use schedlab_stats::{CONFIDENCE, OrderInterval, outliers};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Version of the JSON.
pub const SCHEMA: &str = "schedlab-fleet-compare/1";

/// The numbers that are followed over a fleet.
const NUMBERS: [Metric; 4] = [
    Metric::Latency(Stat::Percentile(99_000)),
    Metric::Response(Stat::Percentile(99_000)),
    Metric::Throughput,
    Metric::Share,
];

/// The JSON of `compare FOLDER`: what each setting does to the machines.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct FleetStudy {
    /// Always [`SCHEMA`].
    #[schemars(extend("const" = SCHEMA))]
    pub schema: &'static str,
    /// How many machines have a recording that replays well enough.
    pub machines: usize,
    /// The changes, by row, subject and number.
    pub changes: Vec<FleetChange>,
    /// The recordings: first those in which a change lies far from all others, then those that
    /// could not be trusted or compared, then the rest.
    pub recordings: Vec<FleetCompared>,
}

/// A change over all machines. A machine with several recordings counts once, with their median.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct FleetChange {
    /// The row: a variant, or a scheduler and a variant.
    pub row: String,
    /// What its subject is.
    pub kind: Kind,
    /// The subject's name.
    pub subject: String,
    /// What. Shares are parts of one CPU, times nanoseconds, the rest a second.
    pub metric: Metric,
    /// How many machines have it.
    pub machines: usize,
    /// The median without the setting.
    pub before: f64,
    /// The change: of shares the difference, of the rest the number divided by what it was before.
    pub change: OrderInterval,
    /// What to think of it: `cannot-tell` where the interval over machines has no change in it, or
    /// holds with less than 95 %, or where most recordings cannot tell it by themselves: machines
    /// do not make the error of the method smaller, which all of them have.
    pub judgement: Judgement,
    /// In how many recordings it is better, worse, and neither of them certainly.
    pub recordings: [usize; 3],
}

/// One recording.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct FleetCompared {
    /// Its path below the folder.
    pub file: String,
    /// Its machine: the folder below the folder that was named, or the file's name.
    pub machine: String,
    /// Whether it replays well enough; only then its numbers count.
    pub trusted: bool,
    /// It has no task, group or pod that the question is about; `error` says which.
    pub absent: bool,
    /// Why there is nothing of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The verdict of its comparison.
    pub verdict: String,
    /// The change that lies far from all others, where there is one: row, subject and number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outlier: Option<String>,
    #[serde(skip)]
    cells: Vec<Cell>,
}

/// A change in one recording.
#[derive(Clone, PartialEq, Debug)]
struct Cell {
    key: Key,
    before: f64,
    change: f64,
    judgement: Judgement,
}

/// Row, kind, subject and metric.
type Key = (String, Kind, String, Metric);

impl FleetStudy {
    /// Returns how many recordings could not be compared at all.
    pub fn failed(&self) -> usize {
        self.recordings.iter().filter(|one| one.error.is_some() && !one.absent).count()
    }
}

/// Compares every recording below a folder. `progress` is told how many are done.
///
/// # Errors
/// The folder cannot be read, or no recording can be compared. One of them that cannot is an entry
/// of the result.
pub fn compare(
    folder: &Path,
    request: &CompareRequest,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<FleetStudy, StudyError> {
    let paths = recordings(folder)?;
    let mut request = request.clone();
    let jobs = std::mem::replace(&mut request.options.jobs, 1);
    // Machines say more of a fleet than seeds do.
    request.options.repetitions.get_or_insert(1);
    let mut all = each(&paths, jobs, progress, |path| one(folder, path, &request));
    if let Some(first) = all.first().filter(|_| all.iter().all(|one| one.error.is_some())) {
        return Err(StudyError::Option(format!(
            "{}: no recording can be compared; of {}: {}",
            folder.display(),
            first.file,
            first.error.clone().unwrap_or_default()
        )));
    }
    let changes = changes(&all);
    mark(&mut all);
    let machines: std::collections::BTreeSet<&String> =
        all.iter().filter(|one| one.trusted).map(|one| &one.machine).collect();
    let machines = machines.len();
    all.sort_by(|a, b| {
        let key = |one: &FleetCompared| (one.outlier.is_none(), one.trusted, one.error.is_none());
        key(a).cmp(&key(b)).then(a.file.cmp(&b.file))
    });
    Ok(FleetStudy { schema: SCHEMA, machines, changes, recordings: all })
}

fn one(folder: &Path, path: &Path, request: &CompareRequest) -> FleetCompared {
    let compared = path
        .to_str()
        .ok_or_else(|| StudyError::Option("its name is not UTF-8".to_owned()))
        .and_then(gallery::find)
        .and_then(|found| request.read(found))
        .and_then(|input| request.compare(&input, &|_, _| {}));
    let file = path.strip_prefix(folder).unwrap_or(path).display().to_string();
    let empty = FleetCompared {
        file: shown(&file).into_owned(),
        machine: machine(folder, path),
        trusted: false,
        absent: false,
        error: None,
        verdict: String::new(),
        outlier: None,
        cells: Vec::new(),
    };
    match compared {
        Err(error) => {
            let absent = is_absent(&error, request);
            FleetCompared { absent, error: Some(error.to_string()), ..empty }
        }
        Ok(study) => FleetCompared {
            trusted: study.trusted(),
            verdict: format!("{} {}", study.verdict.outcome, study.verdict.certainty),
            cells: if study.trusted() { cells(&study) } else { Vec::new() },
            ..empty
        },
    }
}

/// Whether a recording does not have what the question is about: a machine of a fleet need not run
/// everything.
fn is_absent(error: &StudyError, request: &CompareRequest) -> bool {
    let of_server = format!("--serve {}:", request.options.serve.as_deref().unwrap_or_default());
    match error {
        StudyError::Variant { source: VariantError::Target { .. }, .. } => true,
        StudyError::Option(text) => request.options.serve.is_some() && text.starts_with(&of_server),
        _ => false,
    }
}

/// Returns the changes of a comparison that are followed. The subjects are those that its text
/// shows.
fn cells(study: &Study) -> Vec<Cell> {
    let Some((base, rows)) = study.rows.split_first() else { return Vec::new() };
    let (subjects, _) = view::main_subjects(study, false);
    let mut all = Vec::new();
    for row in rows {
        for (kind, name) in subjects.iter().filter(|(_, name)| !view::is_own(name)) {
            for metric in NUMBERS {
                let of = |row: &Row| {
                    row.find(*kind, name)?.cell(metric).map(|c| (c.value.median, c.change))
                };
                let (Some((before, _)), Some((after, Some(change)))) = (of(base), of(row)) else {
                    continue;
                };
                let ratio = (before > 0.0).then(|| after / before);
                let by = if metric.unit() == Unit::Share { Some(after - before) } else { ratio };
                let Some(by) = by.filter(|by| by.is_finite()) else { continue };
                let key = (row_name(row, base), *kind, name.clone(), metric);
                all.push(Cell { key, before, change: by, judgement: change.judgement });
            }
        }
    }
    all
}

/// Returns the name of a row, which is the same for machines with different kernels.
fn row_name(row: &Row, base: &Row) -> String {
    match row.scheduler == base.scheduler {
        true => row.variant.clone(),
        false => format!("{}, {}", row.scheduler, row.variant),
    }
}

fn changes(all: &[FleetCompared]) -> Vec<FleetChange> {
    let mut order: Vec<&Key> = Vec::new();
    let mut cells: BTreeMap<&Key, Vec<(&String, &Cell)>> = BTreeMap::new();
    for one in all {
        for cell in &one.cells {
            let known = cells.entry(&cell.key).or_insert_with(|| {
                order.push(&cell.key);
                Vec::new()
            });
            known.push((&one.machine, cell));
        }
    }
    order.into_iter().filter_map(|key| change(key, cells.get(key)?)).collect()
}

fn change(key: &Key, cells: &[(&String, &Cell)]) -> Option<FleetChange> {
    let (row, kind, subject, metric) = key.clone();
    let (_, before) = over_machines(cells.iter().map(|(machine, cell)| (*machine, cell.before)))?;
    let (machines, change) =
        over_machines(cells.iter().map(|(machine, cell)| (*machine, cell.change)))?;
    let count =
        |is: fn(Judgement) -> bool| cells.iter().filter(|(_, cell)| is(cell.judgement)).count();
    let better = count(|judgement| judgement == Judgement::Better);
    let worse = count(|judgement| judgement == Judgement::Worse);
    let recordings = [better, worse, cells.len() - better - worse];
    let none = if metric.unit() == Unit::Share { 0.0 } else { 1.0 };
    let certain = change.confidence >= CONFIDENCE;
    let most = |told: usize| told * 2 > cells.len();
    let judgement = match (change.low, change.high) {
        (low, high) if low == none && high == none => Judgement::Same,
        (low, high) if !certain || low <= none && high >= none => Judgement::CannotTell,
        (low, _) => match metric.is_better(if low > none { 1.0 } else { -1.0 }) {
            Some(true) if most(better) => Judgement::Better,
            Some(false) if most(worse) => Judgement::Worse,
            _ => Judgement::CannotTell,
        },
    };
    let before = before.median;
    Some(FleetChange {
        row,
        kind,
        subject,
        metric,
        machines,
        before,
        change,
        judgement,
        recordings,
    })
}

/// Marks the recordings in which a change lies far from that of all others.
fn mark(all: &mut [FleetCompared]) {
    let mut values: BTreeMap<Key, Vec<(usize, f64)>> = BTreeMap::new();
    for (at, one) in all.iter().enumerate() {
        for cell in &one.cells {
            let value = match cell.key.3.unit() {
                Unit::Share => cell.change,
                _ if cell.change > 0.0 => libm::log(cell.change),
                _ => continue,
            };
            values.entry(cell.key.clone()).or_default().push((at, value));
        }
    }
    for ((row, _, subject, metric), values) in values {
        let of: Vec<f64> = values.iter().map(|(_, value)| *value).collect();
        for far in outliers(&of) {
            let one = &mut all[values[far].0];
            one.outlier.get_or_insert_with(|| format!("{row}: {subject} {metric}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(machine: &str, change: f64) -> FleetCompared {
        let judgement = match change {
            1.0 => Judgement::Same,
            less if less < 1.0 => Judgement::Better,
            _ => Judgement::Worse,
        };
        let p99 = Metric::Latency(Stat::Percentile(99_000));
        let key = ("idle".to_owned(), Kind::Class, "redis".to_owned(), p99);
        FleetCompared {
            file: machine.to_owned(),
            machine: machine.to_owned(),
            trusted: true,
            absent: false,
            error: None,
            verdict: String::new(),
            outlier: None,
            cells: vec![Cell { key, before: 1e6, change, judgement }],
        }
    }

    #[test]
    fn a_change_of_all_machines_is_told_and_one_of_some_is_not() {
        let told = |factors: &[f64]| {
            let all: Vec<FleetCompared> = (factors.iter().enumerate())
                .map(|(at, factor)| compared(&format!("m{at}"), *factor))
                .collect();
            changes(&all)[0].judgement
        };
        assert_eq!(told(&[0.5, 0.6, 0.4, 0.5, 0.6, 0.7, 0.5]), Judgement::Better);
        assert_eq!(told(&[1.5, 1.6, 1.4, 1.5, 1.6, 1.7, 1.5]), Judgement::Worse);
        assert_eq!(told(&[0.5, 1.6, 0.4, 1.5, 0.6, 1.7, 0.5]), Judgement::CannotTell);
        // Three machines are too few for 95 %.
        assert_eq!(told(&[0.5, 0.6, 0.4]), Judgement::CannotTell);
        assert_eq!(told(&[1.0; 7]), Judgement::Same);
        // Seven recordings of one machine are one machine.
        let one: Vec<FleetCompared> = (0..7).map(|_| compared("m", 0.5)).collect();
        assert_eq!(changes(&one)[0].machines, 1);
        assert_eq!(changes(&one)[0].judgement, Judgement::CannotTell);
    }

    /// The error of the method is that of every machine.
    #[test]
    fn what_no_recording_can_tell_a_fleet_cannot() {
        let mut all: Vec<FleetCompared> =
            (0..9).map(|at| compared(&format!("m{at}"), 0.5 + f64::from(at) / 100.0)).collect();
        assert_eq!(changes(&all)[0].judgement, Judgement::Better);
        for one in &mut all[..5] {
            one.cells[0].judgement = Judgement::CannotTell;
        }
        assert_eq!(changes(&all)[0].judgement, Judgement::CannotTell);
        assert_eq!(changes(&all)[0].recordings, [4, 0, 5]);
    }

    #[test]
    fn the_one_that_reacts_otherwise_is_marked() {
        let mut all: Vec<FleetCompared> =
            (0..9).map(|at| compared(&format!("m{at}"), 0.5 + f64::from(at) / 100.0)).collect();
        all.push(compared("odd", 4.0));
        mark(&mut all);
        assert_eq!(all[9].outlier.as_deref(), Some("idle: redis latency p99"));
        assert!(all[..9].iter().all(|one| one.outlier.is_none()));
    }
}
