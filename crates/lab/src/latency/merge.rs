//! `latency merge`: results of several machines or kernels, side by side. Reads what
//! `latency --json`, `latency --matrix --json` and `latency merge --json` write, what
//! `cyclictest --json` writes, and the histograms that cyclictest and rtla print as text.

mod histogram;

use super::load::Load;
use super::matrix::{Cell, Matrix, Quantity, Round, SCHEMA, System};
use super::single;
use histogram::Column;
use schedlab_host::is_realtime;
use schedlab_measure::{LatencyReport, Samples};
use schedlab_model::text::shown;
use schedlab_model::{Ns, Policy};
use schedlab_stats::{OrderInterval, median_interval};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use std::path::PathBuf;

/// Largest file that is read, bytes: a hundred times the largest that was seen.
const MOST: u64 = 256 << 20;

/// A file with its name in the table, if it was given one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResultFile {
    /// Results of one name belong to one system; more files are more rounds.
    pub name: Option<String>,
    /// The file.
    pub path: PathBuf,
    /// Policy of the threads, where the file does not state it.
    pub policy: Option<Policy>,
}

/// Why files cannot be merged.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {what}", path = path.display())]
pub struct MergeError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong, what would be right.
    pub what: String,
}

/// A row of one system beside the same row of the first.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct Difference {
    /// [`System::name`].
    pub system: String,
    /// The system that it is compared with.
    pub base: String,
    /// What else ran.
    pub load: Load,
    /// Policy.
    pub policy: Policy,
    /// `p50`, `p99` or `max`.
    pub rung: &'static str,
    /// This system divided by the first, over pairs of rounds.
    pub ratio: OrderInterval,
    /// This system minus the first, over pairs of rounds, nanoseconds.
    pub difference_ns: OrderInterval,
}

impl Difference {
    /// Returns whether the interval of the difference excludes 0 with a confidence above 90 % (five
    /// rounds or more).
    pub fn told(&self) -> bool {
        let of = &self.difference_ns;
        of.confidence > 0.9 && (of.low > 0.0 || of.high < 0.0)
    }
}

/// Reads all `sources` into one result, in their order.
///
/// # Errors
/// A file that cannot be read or has no known format; one name for two kernels; one name for
/// several systems of a file.
pub fn merge(sources: &[ResultFile]) -> Result<Matrix, MergeError> {
    let mut whole = Matrix {
        schema: SCHEMA.to_owned(),
        request: None,
        systems: Vec::new(),
        cells: Vec::new(),
        stopped: false,
    };
    for source in sources {
        let fail = |what: String| MergeError { path: source.path.clone(), what };
        let one = read(source).map_err(fail)?;
        whole.stopped |= one.stopped;
        for system in one.systems {
            match whole.systems.iter_mut().find(|known| known.name == system.name) {
                None => whole.systems.push(system),
                Some(known) if known.same_as(&system) => known.add_notes(system.notes),
                Some(known) => {
                    return Err(fail(format!(
                        "'{}' is already the name of {}, and this is {}: give each a name, as in \
                         standard=a.json rt=b.json",
                        known.name,
                        known.described(),
                        system.described()
                    )));
                }
            }
        }
        for cell in one.cells {
            let same = |c: &&mut Cell| {
                (&c.system, c.load, c.policy) == (&cell.system, cell.load, cell.policy)
            };
            match whole.cells.iter_mut().find(same) {
                Some(known) => known.rounds.extend(cell.rounds),
                None => whole.cells.push(cell),
            }
        }
    }
    Ok(whole)
}

/// A rung: its name, and its value.
type Rung = (&'static str, fn(&Samples) -> u64);

/// Returns every row of every further system against the row of the first, where both have it.
/// Where cyclictest or rtla measured one of them, both are counted by wakeups, as those do; a
/// quantity is compared with the same quantity only.
pub fn differences(matrix: &Matrix) -> Vec<Difference> {
    let Some(base) = matrix.systems.first() else { return Vec::new() };
    let of_base = |cell: &Cell| {
        matrix
            .cells
            .iter()
            .find(|c| c.system == base.name && (c.load, c.policy) == (cell.load, cell.policy))
    };
    let rungs: [Rung; 3] =
        [("p50", |s| s.quantile(0.5)), ("p99", |s| s.quantile(0.99)), ("max", Samples::max)];
    let mut found = Vec::new();
    for cell in matrix.cells.iter().filter(|cell| cell.system != base.name) {
        let Some(first) = of_base(cell) else { continue };
        let Some(own) = matrix.system(&cell.system) else { continue };
        if !own.quantity.compares(base.quantity) {
            continue;
        }
        let by_wakeup = [base, own].into_iter().any(System::counts_wakeups);
        let counted = |round| -> &Samples {
            if by_wakeup { Round::by_wakeup(round) } else { &round.samples }
        };
        for (rung, value) in rungs {
            let pairs = cell.rounds.iter().zip(&first.rounds);
            let pairs = pairs
                .map(|(own, other)| (value(counted(own)) as f64, value(counted(other)) as f64));
            let pairs: Vec<(f64, f64)> = pairs.filter(|(_, other)| *other > 0.0).collect();
            let ratio = median_interval(pairs.iter().map(|(own, other)| own / other).collect());
            let difference =
                median_interval(pairs.iter().map(|(own, other)| own - other).collect());
            let (Some(ratio), Some(difference_ns)) = (ratio, difference) else { continue };
            found.push(Difference {
                system: cell.system.clone(),
                base: base.name.clone(),
                load: cell.load,
                policy: cell.policy,
                rung,
                ratio,
                difference_ns,
            });
        }
    }
    found
}

fn rename(matrix: &mut Matrix, name: &str) -> Result<(), String> {
    if let [_, second, ..] = &matrix.systems[..] {
        return Err(format!(
            "it has several systems ('{}' is one): one name is not enough for it",
            second.name
        ));
    }
    matrix.systems.iter_mut().for_each(|system| name.clone_into(&mut system.name));
    matrix.cells.iter_mut().for_each(|cell| name.clone_into(&mut cell.system));
    Ok(())
}

const KINDS: &str = "what `schedlab latency --json`, `schedlab latency --matrix --json`, \
                     `cyclictest --json=FILE`, `cyclictest -h`, `rtla timerlat hist` or `rtla \
                     osnoise hist` writes";

fn read(source: &ResultFile) -> Result<Matrix, String> {
    let text = schedlab_files::read_to_string(&source.path, MOST)
        .map_err(|error| format!("{error}; give {KINDS}"))?;
    // The message is one line, whatever the file says.
    let plain = |error: String| shown(&error).into_owned();
    let path = source.path.display().to_string();
    let name = source.name.as_deref();
    let mut one = parse(&text, name.unwrap_or(&path), source.policy).map_err(plain)?;
    if let Some(name) = name.filter(|_| !histogram::is_text(&text)) {
        rename(&mut one, name)?;
    }
    Ok(one)
}

/// Reads the text of one file. Where it does not say which system it is of, or under which policy
/// the threads ran, it is called `name`, and the policy is `policy`.
///
/// # Errors
/// What is wrong, and what is allowed.
pub fn parse(text: &str, name: &str, policy: Option<Policy>) -> Result<Matrix, String> {
    if histogram::is_text(text) {
        return histogram::read(text, name, policy);
    }
    let value: Value = serde_json::from_str(text).map_err(|error| {
        format!("neither JSON ({error}) nor a histogram that is known; give {KINDS}")
    })?;
    let schema = value.get("schema").and_then(Value::as_str);
    match schema {
        Some(SCHEMA) => matrix(value),
        Some(single::SCHEMA) => single(value),
        Some(other) => Err(unknown(other)),
        None if value.get("rt_test_version:").is_some() && value.get("thread").is_some() => {
            cyclictest(&value)
        }
        None => Err(format!("JSON, but no result of a latency measurement; give {KINDS}")),
    }
}

fn unknown(schema: &str) -> String {
    let newer = [SCHEMA, single::SCHEMA].into_iter().find(|known| {
        let family = |name: &str| name.rsplit_once('/').map(|(family, _)| family.to_owned());
        family(known) == family(schema)
    });
    match newer {
        Some(known) => format!(
            "its schema is {schema}, this schedlab reads {known}: measure again, or merge with \
             the schedlab that wrote it"
        ),
        None => format!("its schema is {schema}, which is no latency measurement; give {KINDS}"),
    }
}

fn matrix(value: Value) -> Result<Matrix, String> {
    let matrix: Matrix =
        serde_json::from_value(value).map_err(|error| format!("damaged: {error}"))?;
    if let Some(cell) = matrix.cells.iter().find(|cell| matrix.system(&cell.system).is_none()) {
        return Err(format!(
            "damaged: a row is of '{}', which is none of its systems",
            cell.system
        ));
    }
    Ok(matrix)
}

fn one_row(system: System, policy: Policy, round: Round, stopped: bool) -> Matrix {
    let cell =
        Cell { system: system.name.clone(), load: Load::Unstated, policy, rounds: vec![round] };
    Matrix {
        schema: SCHEMA.to_owned(),
        request: None,
        systems: vec![system],
        cells: vec![cell],
        stopped,
    }
}

fn single(value: Value) -> Result<Matrix, String> {
    let kernel = value.get("kernel").and_then(Value::as_str).unwrap_or_default().to_owned();
    let report: LatencyReport =
        serde_json::from_value(value).map_err(|error| format!("damaged: {error}"))?;
    let name = kernel.split_whitespace().next().unwrap_or("unknown").to_owned();
    let realtime = is_realtime(&kernel);
    let system = System {
        name,
        kernel,
        realtime,
        virtual_machine: None,
        emulated: false,
        tool: "schedlab latency".to_owned(),
        quantity: Quantity::Wakeup,
        notes: Vec::new(),
    };
    Ok(one_row(system, report.request.policy, Round::from_report(&report), report.stopped))
}

fn cyclictest(value: &Value) -> Result<Matrix, String> {
    let text = |path: &str| value.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let command = text("/cmdline:");
    let kernel = format!("{} {}", text("/sysinfo/release"), text("/sysinfo/version"));
    let unit =
        if value.get("resolution_in_ns").and_then(Value::as_u64) == Some(1) { 1 } else { 1000 };
    let mut samples = Samples::default();
    let threads =
        value.get("thread").and_then(Value::as_object).ok_or("damaged: `thread` is no object")?;
    let columns = threads
        .iter()
        .map(|(number, thread)| {
            column(thread).map_err(|what| format!("damaged: thread {number}: {what}"))
        })
        .collect::<Result<Vec<_>, _>>()?;
    columns.iter().try_for_each(|column| column.add_to(&mut samples, unit, 1))?;
    let realtime = value.pointer("/sysinfo/realtime").and_then(Value::as_u64) == Some(1)
        || is_realtime(&kernel);
    let name = text("/sysinfo/release").to_owned();
    let tool = format!("cyclictest {}", text("/rt_test_version:"));
    let system = System {
        name,
        kernel,
        realtime,
        virtual_machine: None,
        emulated: false,
        tool,
        quantity: Quantity::Wakeup,
        notes: histogram::beyond_note(&columns).into_iter().collect(),
    };
    Ok(one_row(system, policy(command)?, Round::from_samples(Ns::ZERO, samples), false))
}

/// Returns the histogram of a thread in cyclictest's JSON.
fn column(thread: &Value) -> Result<Column, &'static str> {
    let get = |key: &str| thread.get(key).and_then(Value::as_u64);
    let histogram = thread.get("histogram").and_then(Value::as_object);
    let histogram = histogram.ok_or("no histogram; give cyclictest -h 10000 or more")?;
    let mut column = Column { max: get("max"), ..Column::default() };
    for (time, count) in histogram {
        let time: u64 = time.parse().map_err(|_| "a time that is no number")?;
        column.buckets.insert(time, count.as_u64().ok_or("a count that is no number")?);
    }
    column.beyond = get("cycles").ok_or("no `cycles`")?.saturating_sub(column.inside());
    Ok(column)
}

/// Returns the policy that a command line of cyclictest asks for.
fn policy(command: &str) -> Result<Policy, String> {
    let words: Vec<&str> = command.split_whitespace().collect();
    let value = |short: &str, long: &str| {
        words.iter().enumerate().find_map(|(index, word)| {
            let behind = word.strip_prefix(long).map(|rest| rest.trim_start_matches('='));
            let behind =
                behind.or_else(|| word.strip_prefix(short).filter(|_| !word.starts_with("--")))?;
            if behind.is_empty() { words.get(index + 1).copied() } else { Some(behind) }
        })
    };
    let priority = value("-p", "--priority");
    let usual = if priority.is_some_and(|p| p != "0") { "fifo" } else { "other" };
    let name = match value("\0", "--policy") {
        Some("normal") => "other",
        Some(name) => name,
        None => usual,
    };
    let text = match name {
        "fifo" | "rr" => format!("{name}:{}", priority.unwrap_or("1")),
        other => other.to_owned(),
    };
    text.parse()
        .map_err(|error| format!("its command `{command}` has no policy that is known: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CYCLICTEST: &str = r##"{"file_version": 1, "cmdline:": "cyclictest -q -t1 -p49 --policy=fifo -h3", "rt_test_version:": "2.40",
        "return_code": 0, "sysinfo": {"release": "6.1.0-rt", "version": "#1 SMP PREEMPT_RT Debian", "realtime": 1},
        "num_threads": 1, "resolution_in_ns": 0,
        "thread": {"0": {"histogram": {"1": 3, "2": 5}, "cycles": 10, "min": 1, "max": 40, "avg": 3.0, "cpu": 0}}}"##;

    #[test]
    fn cyclictests_own_results_are_read() {
        let matrix = parse(CYCLICTEST, "", None).unwrap();
        assert!(matrix.systems[0].realtime && matrix.systems[0].name == "6.1.0-rt");
        let cell = &matrix.cells[0];
        assert_eq!((cell.policy, cell.load), (Policy::Fifo(49), Load::Unstated));
        let samples = cell.all();
        // Two of ten lie beyond the histogram: they are at most the maximum.
        assert_eq!((samples.count(), samples.max(), samples.min()), (10, 40_500, 1_500));
        assert_eq!(samples.above(2_600), 2);
    }

    #[test]
    fn policies_of_command_lines() {
        for (command, expected) in [
            ("cyclictest -p 80 -i 1000", "fifo:80"),
            ("cyclictest -q", "other"),
            ("cyclictest --policy=rr -p5", "rr:5"),
            ("cyclictest --policy normal", "other"),
            ("cyclictest --policy=other -p 0", "other"),
            ("cyclictest -S -p99", "fifo:99"),
            ("cyclictest --priority=12", "fifo:12"),
        ] {
            assert_eq!(policy(command).unwrap().to_string(), expected, "{command}");
        }
        assert!(policy("cyclictest --policy=best").is_err());
    }

    #[test]
    fn what_is_no_result_is_refused_with_a_remedy() {
        for (text, expected) in [
            ("", "neither JSON"),
            ("{}", "cyclictest"),
            ("[1]", "schedlab latency --json"),
            (r#"{"schema": "schedlab-latency/2"}"#, "reads schedlab-latency/1"),
            (r#"{"schema": "schedlab-latency-matrix/9"}"#, "reads schedlab-latency-matrix/1"),
            (r#"{"schema": "schedlab-stress/1"}"#, "no latency measurement"),
            (r#"{"schema": "schedlab-latency/1"}"#, "damaged"),
            (r#"{"schema": "schedlab-latency-matrix/1", "systems": [], "cells": 3}"#, "damaged"),
            (r#"{"rt_test_version:": "2", "thread": {"0": {}}}"#, "no histogram"),
            (r#"{"rt_test_version:": "2", "thread": {"0": {"histogram": {"x": 1}}}}"#, "no number"),
        ] {
            let error = parse(text, "", None).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_shift_is_told_and_noise_is_not() {
        let cell = |system: &str, shift: u64| {
            let round = |n: u64| {
                let mut samples = Samples::default();
                (0..1000).for_each(|i| samples.add(10_000 + n * 500 + i * 10 + shift));
                Round::from_samples(Ns::from_s(1), samples)
            };
            let rounds = (0..6).map(round).collect();
            Cell { system: system.to_owned(), load: Load::Idle, policy: Policy::Other, rounds }
        };
        let system = |name: &str| System {
            name: name.to_owned(),
            kernel: String::new(),
            realtime: false,
            virtual_machine: None,
            emulated: false,
            tool: String::new(),
            quantity: Quantity::Wakeup,
            notes: Vec::new(),
        };
        let matrix = |shift| Matrix {
            schema: SCHEMA.to_owned(),
            request: None,
            systems: vec![system("a"), system("b")],
            cells: vec![cell("a", 0), cell("b", shift)],
            stopped: false,
        };
        let same = differences(&matrix(0));
        assert!(same.len() == 3 && same.iter().all(|d| !d.told() && d.ratio.median == 1.0));
        let other = differences(&matrix(5_000));
        assert!(other.iter().all(Difference::told), "{other:?}");
    }
}
