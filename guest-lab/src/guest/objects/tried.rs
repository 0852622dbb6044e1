//! `cargo xtask objects`: builds the objects of sched_ext schedulers that the guests play, and
//! compares each in the scenarios of `scenarios/ext`, beside a kernel's own scheduler and
//! schedlab's policies, as a user does: with the program `schedlab`. Nothing is booted.

use super::{build, held, types};
use crate::guest::kernels;
use crate::guest::store::Store;
use crate::root;
use anyhow::{Context, Result, ensure};
use schedlab_scheduler::registry::{self, Family};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};

/// Builds sched_ext objects (the kernel's samples, some of scx) and compares each on 64 CPUs and in
/// the other scenarios of scenarios/ext: figures, refusals
#[derive(clap::Args, Clone, Debug)]
pub struct ObjectsArgs {
    /// Take the samples and types of this kernel of Debian
    #[arg(long, value_name = "KERNEL", default_value = "7.2")]
    kernel: String,
    /// Ask this program, not that of this tree
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Take only this scenario of scenarios/ext (may be given several times)
    #[arg(long = "scenario", value_name = "NAME")]
    scenarios: Vec<String>,
    /// Take only objects and schedulers whose names have this in them
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Only build, and say where the objects are
    #[arg(long)]
    build: bool,
    /// Write the table of docs/sched-ext-objects.md
    #[arg(long, conflicts_with_all = ["scenarios", "only", "build"])]
    write: bool,
}

/// Where the scenarios and the profiles are.
const SCENARIOS: &str = "scenarios/ext";
const PROFILES: &str = "contrib/sched-ext";
/// Simulated of each: longer than the longest warmup of a scenario by far.
const LENGTH: &str = "2s";
/// Played on one thread and on two, which must give the same bytes.
const TWICE: &str = "sixty-four-cpus";
/// The figures of the table that was written last.
const KEPT: &str = "guest-lab/guest/answers-objects/tried.json";
const PAGE: &str = "docs/sched-ext-objects.md";
const BEGIN: &str = "<!-- made by `cargo xtask objects --write` -->\n";
const END: &str = "<!-- end of what was tried -->\n";
/// What every table begins with.
const BASE: &str = "linux-7.2";

/// The table.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
struct Tried {
    kernel: String,
    /// Scenarios with the figure of each.
    columns: Vec<Column>,
    rows: Vec<Row>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Column {
    scenario: String,
    title: String,
    figure: String,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Row {
    scheduler: String,
    kind: Kind,
    /// In the order of the columns.
    cells: Vec<Cell>,
    /// CPU time of all simulations together.
    seconds: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum Kind {
    Kernel,
    Object,
    Own,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
enum Cell {
    /// In ns, or a part of a CPU.
    Time(f64),
    Share(f64),
    /// The program said that.
    Refused(String),
    Nothing,
}

/// Builds, compares, and writes the table where that is asked for.
///
/// # Errors
/// What cannot be fetched, built or read.
pub fn command(args: &ObjectsArgs) -> Result<ExitCode> {
    let tree = root();
    let store = Store::open(&tree);
    let kernels = kernels::get(&store, std::slice::from_ref(&args.kernel))?;
    let kernel = kernels.first().context("no kernel")?;
    let folder = build::built(&store, kernel)?;
    let types = types::of(kernel, &folder)?;
    store.fetched().iter().for_each(|line| println!("{line}"));
    println!("objects: {}\ntypes of the kernel: {}", folder.display(), types.display());
    if args.build {
        return Ok(ExitCode::SUCCESS);
    }
    let program = match &args.program {
        Some(program) => program.clone(),
        None => crate::guest::build(&tree, false)?,
    };
    let asks = Asks { program: &program, tree: &tree, types: &types };
    let scenarios = scenarios(&tree, &args.scenarios)?;
    let mut tried = Tried { kernel: kernel.release.clone(), ..Tried::default() };
    for (kind, name, spec) in schedulers(&tree, &folder)? {
        if kind != Kind::Kernel && !name.contains(&args.only) {
            continue;
        }
        let row = asks.row(kind, &name, &spec, &scenarios, &mut tried.columns)?;
        println!("{name}: {}, {:.1} s", row.words(), row.seconds);
        tried.rows.push(row);
    }
    let text = page(&tried, &held::names(&tree)?);
    println!("\n{text}");
    if args.write {
        let kept = tree.join(KEPT);
        std::fs::write(&kept, serde_json::to_string_pretty(&tried)? + "\n")
            .with_context(|| kept.display().to_string())?;
        held::put(&tree.join(PAGE), BEGIN, END, &text)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn scenarios(tree: &Path, wanted: &[String]) -> Result<Vec<String>> {
    let mut all = BTreeSet::new();
    for entry in std::fs::read_dir(tree.join(SCENARIOS)).context(SCENARIOS)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        all.extend(name.strip_suffix(".toml").map(str::to_owned));
    }
    for name in wanted {
        let list = || all.iter().cloned().collect::<Vec<_>>().join(", ");
        ensure!(all.contains(name), "{SCENARIOS} has no `{name}`: there are {}", list());
    }
    Ok(all.into_iter().filter(|name| wanted.is_empty() || wanted.contains(name)).collect())
}

/// What is compared: kind, name and what the program is asked for.
fn schedulers(tree: &Path, folder: &Path) -> Result<Vec<(Kind, String, String)>> {
    let mut all = vec![(Kind::Kernel, BASE.to_owned(), BASE.to_owned())];
    let mut objects = BTreeSet::new();
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        objects.extend(name.strip_suffix(".bpf.o").map(str::to_owned));
    }
    for name in objects {
        let mut spec = format!("bpf:{}", folder.join(format!("{name}.bpf.o")).display());
        let profile = format!("{PROFILES}/{}.toml", name.trim_start_matches("scx_"));
        if tree.join(&profile).exists() {
            let _ = write!(spec, "?profile={profile}");
        }
        all.push((Kind::Object, name, spec));
    }
    let own = registry::all().iter().filter(|entry| entry.family == Family::Agent);
    all.extend(own.map(|entry| (Kind::Own, entry.name.to_owned(), entry.name.to_owned())));
    Ok(all)
}

/// The program, and what it needs.
struct Asks<'a> {
    program: &'a Path,
    tree: &'a Path,
    types: &'a Path,
}

impl Asks<'_> {
    fn row(
        &self,
        kind: Kind,
        name: &str,
        spec: &str,
        scenarios: &[String],
        columns: &mut Vec<Column>,
    ) -> Result<Row> {
        let begin = cpu_time()?;
        let mut cells = Vec::new();
        for scenario in scenarios {
            let (columns_of, own) = self.cells(kind, spec, scenario)?;
            if kind == Kind::Kernel {
                columns.extend(columns_of);
            }
            let wanted = columns.iter().filter(|column| column.scenario == *scenario).count();
            match own {
                Ok(own) => cells.extend(own),
                // Said once, for all of its figures.
                Err(why) => {
                    cells.push(Cell::Refused(why));
                    cells.resize(cells.len() + wanted.saturating_sub(1), Cell::Nothing);
                }
            }
        }
        let seconds = (10.0 * (cpu_time()? - begin)).round() / 10.0;
        Ok(Row { scheduler: name.to_owned(), kind, cells, seconds })
    }

    /// Asks the program, which uses so many threads.
    fn compare(&self, kind: Kind, spec: &str, scenario: &str, jobs: &str) -> Result<Output> {
        let path = format!("{SCENARIOS}/{scenario}.toml");
        let mut ask = Command::new(self.program);
        // Threads play seeds beside each other.
        let seeds = if scenario == TWICE { "2" } else { "1" };
        ask.args(["compare", &path, "--for", LENGTH, "--seeds", seeds, "--json", "--jobs", jobs]);
        ask.args(["--scheduler", spec]).current_dir(self.tree).stdin(Stdio::null());
        if kind == Kind::Object {
            ask.arg("--kernel-btf").arg(self.types);
        }
        ask.output().with_context(|| self.program.display().to_string())
    }

    /// The first two figures of a scenario's headline; the inner error is what the program said.
    #[allow(clippy::type_complexity)]
    fn cells(
        &self,
        kind: Kind,
        spec: &str,
        scenario: &str,
    ) -> Result<(Vec<Column>, Result<Vec<Cell>, String>)> {
        let output = self.compare(kind, spec, scenario, "1")?;
        if ![Some(0), Some(3)].contains(&output.status.code()) {
            let said = String::from_utf8_lossy(&output.stderr);
            return Ok((Vec::new(), Err(reason(&said, spec))));
        }
        if kind == Kind::Object && scenario == TWICE {
            let again = self.compare(kind, spec, scenario, "2")?;
            ensure!(again.stdout == output.stdout, "{spec}: other bytes on two threads");
        }
        let study: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        let headline = study["headline"].as_array().into_iter().flatten();
        let figures: Vec<(&str, &str)> = headline.filter_map(figure).take(2).collect();
        let title = study["input"]["title"].as_str().unwrap_or(scenario);
        let column = |(subject, metric): &(&str, &str)| Column {
            scenario: scenario.to_owned(),
            title: title.to_owned(),
            figure: format!("{subject} {metric}"),
        };
        let rows = study["rows"].as_array();
        let row = rows.and_then(|rows| rows.iter().find(|row| row["scheduler"] == spec));
        let cells = figures.iter().map(|figure| cell(row, *figure)).collect();
        Ok((figures.iter().map(column).collect(), Ok(cells)))
    }
}

/// The subject and the metric of a figure of a headline.
fn figure(of: &serde_json::Value) -> Option<(&str, &str)> {
    Some((of["subject"].as_str()?, of["metric"].as_str()?))
}

/// A figure, such as `latency p99` of `sleeper`, of a row of the program's answer.
fn cell(row: Option<&serde_json::Value>, (subject, metric): (&str, &str)) -> Cell {
    let value = || {
        let subjects = row?["subjects"].as_array()?;
        let subject = subjects.iter().find(|one| one["name"] == subject)?;
        let cells = subject["cells"].as_array()?;
        cells.iter().find(|one| one["metric"] == metric)?["value"]["median"].as_f64()
    };
    match value() {
        Some(share) if metric == "share" => Cell::Share((1e4 * share).round() / 1e4),
        Some(time) => Cell::Time(time.round()),
        None => Cell::Nothing,
    }
}

/// The sentence of a refusal, without the path of the object.
fn reason(said: &str, spec: &str) -> String {
    // With `--json` an error is an object, too.
    let told: Option<serde_json::Value> = serde_json::from_str(said.trim()).ok();
    let told = told.as_ref().and_then(|told| told["error"].as_str());
    let plain = said.lines().find(|line| line.starts_with("error: "));
    let line = told.or(plain).unwrap_or(said.trim());
    let path = spec.split('?').next().unwrap_or(spec).trim_start_matches("bpf:");
    let line = line.trim_start_matches("error: ").replace(&format!("{spec}, as it is: "), "");
    let line = line.replace(&format!("bpf:{path}: "), "").replace(path, "it").replace('|', "/");
    // Objects name their sources where they were compiled.
    let short = |word: &str| match word.starts_with('/') {
        true => word.rsplit('/').next().unwrap_or_default().to_owned(),
        false => word.to_owned(),
    };
    line.split_whitespace().map(short).collect::<Vec<_>>().join(" ")
}

/// CPU time of the processes that ended, in seconds (fields 16 and 17 of proc(5), in ticks of 10
/// ms).
fn cpu_time() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/self/stat").context("/proc/self/stat")?;
    let (_, rest) = text.rsplit_once(')').context("/proc/self/stat")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
    Ok((ticks(13).unwrap_or(0.0) + ticks(14).unwrap_or(0.0)) / 100.0)
}

impl Row {
    fn words(&self) -> String {
        self.cells.iter().map(Cell::words).collect::<Vec<_>>().join(", ")
    }

    /// What it said in the first scenario, if it said the same in all.
    fn refused(&self) -> Option<&str> {
        let mut said = self.cells.iter().filter(|cell| **cell != Cell::Nothing);
        let Some(Cell::Refused(first)) = said.next() else { return None };
        said.all(|cell| matches!(cell, Cell::Refused(_))).then_some(first)
    }
}

impl Cell {
    fn words(&self) -> String {
        match self {
            Cell::Time(ns) if *ns < 1e6 => format!("{:.3} ms", ns / 1e6),
            Cell::Time(ns) => format!("{:.2} ms", ns / 1e6),
            Cell::Share(share) => format!("{:.0} %", 100.0 * share),
            Cell::Refused(why) => why.clone(),
            Cell::Nothing => String::new(),
        }
    }
}

/// The table. `held`: objects that were held against a kernel.
fn page(tried: &Tried, held: &[String]) -> String {
    let mut text = format!("Types of Linux {}, {LENGTH} of each:\n\n", tried.kernel);
    for column in &tried.columns {
        let Column { scenario, title, figure } = column;
        let _ = writeln!(text, "* `{scenario}`, {figure}: {title}");
    }
    let heads: Vec<String> = tried
        .columns
        .iter()
        .map(|column| format!("{}: {}", column.scenario, column.figure))
        .collect();
    let _ = writeln!(
        text,
        "\n| scheduler | held against a kernel | {} | CPU time |",
        heads.join(" | ")
    );
    let _ = writeln!(text, "|---|---|{}---|", "---|".repeat(heads.len()));
    for row in tried.rows.iter().filter(|row| row.refused().is_none()) {
        let against = match row.kind {
            Kind::Kernel => "yes ([oracles](../oracles/))",
            Kind::Object if held.contains(&row.scheduler) => "yes",
            Kind::Object => "no",
            Kind::Own => "no: no kernel has it",
        };
        let cells: Vec<String> = row.cells.iter().map(Cell::words).collect();
        let (name, seconds) = (&row.scheduler, row.seconds);
        let _ = writeln!(text, "| {name} | {against} | {} | {seconds:.1} s |", cells.join(" | "));
    }
    let _ = writeln!(text, "\nWhat the simulator does not run, with what it says:\n");
    let _ = writeln!(text, "| scheduler | why |\n|---|---|");
    for row in &tried.rows {
        if let Some(why) = row.refused() {
            let _ = writeln!(text, "| {} | {why} |", row.scheduler);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page has what was recorded: no figure of it is written by hand.
    #[test]
    fn the_page_has_what_was_tried() {
        let tree = root();
        let text = std::fs::read_to_string(tree.join(PAGE)).expect(PAGE);
        let (_, inside, _) = held::parts(&text, BEGIN, END).expect("a place for the table");
        let kept = std::fs::read_to_string(tree.join(KEPT)).expect(KEPT);
        let tried: Tried = serde_json::from_str(&kept).expect("a table");
        let page = page(&tried, &held::names(&tree).expect("figures"));
        assert_eq!(inside.trim(), page.trim(), "cargo xtask objects --write writes it");
        let objects = tried.rows.iter().filter(|row| row.kind == Kind::Object).count();
        assert!(objects >= 17, "{objects} objects");
    }

    #[test]
    fn figures_and_refusals_are_read_from_the_answer() {
        let row = serde_json::json!({ "subjects": [{ "name": "hog", "cells": [
            { "metric": "share", "value": { "median": 1.5 } },
            { "metric": "latency p99", "value": { "median": 2_500_000.0 } },
        ] }] });
        assert_eq!(cell(Some(&row), ("hog", "share")).words(), "150 %");
        assert_eq!(cell(Some(&row), ("hog", "latency p99")).words(), "2.50 ms");
        assert_eq!(cell(Some(&row), ("hog", "latency p50")), Cell::Nothing);
        let said = "note: x\nerror: bpf:/a/b.bpf.o?x=1, as it is: at 0ns: it ended\n";
        assert_eq!(reason(said, "bpf:/a/b.bpf.o?x=1"), "at 0ns: it ended");
        assert_eq!(reason("error: bpf:/a/b.bpf.o: no such\n", "bpf:/a/b.bpf.o"), "no such");
        let told = r#"{"error":"bpf:/a/b.bpf.o: no such","exit_code":2}"#;
        assert_eq!(reason(told, "bpf:/a/b.bpf.o"), "no such");
        assert_eq!(reason("error: /a/b/c.c:5: no", "rr"), "c.c:5: no");
        let refused = |cells| Row { scheduler: String::new(), kind: Kind::Own, cells, seconds: 0. };
        let why = || Cell::Refused("why".to_owned());
        assert_eq!(refused(vec![why(), Cell::Nothing, why()]).refused(), Some("why"));
        assert_eq!(refused(vec![why(), Cell::Time(1.0)]).refused(), None);
    }
}
