//! `cargo xtask docs`: the parts of the documents that are made from code, and the output below
//! their commands. `xtask tidy` fails when the first are stale, `crates/cli/tests/it/documented.rs`
//! when the second is.

mod python;

mod schemas;

use crate::built::Built;
use crate::finding::Finding;
use crate::picture::{self, RUNGS, Series};
use crate::tree;
use anyhow::{Context, Result};
use schedlab_model::Ns;
use schedlab_scheduler::SchedulerSpec;
use schedlab_scheduler::registry::{self, Entry};
use schedlab_sim::{Machine, RunOptions, TickSkew};
use schedlab_study::compare::clients;
use schedlab_study::error_parts::{PARTS, RULE};
use schedlab_study::metric::{Better, METRICS, Metric, Of, Unit};
use schedlab_study::scenario::{self, Scenario};
use schedlab_study::variant::Variant;
use schedlab_tables::Kind;
use schedlab_trace::import::formats::{self, Elsewhere};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;

/// The generated files.
const SCHEDULERS: &str = "docs/schedulers.md";
const METRICS_PAGE: &str = "docs/metrics.md";
const TABLES_PAGE: &str = "docs/tables.md";
const LADDER: &str = "docs/redis-batch.svg";
/// The page with the generated tables of formats and of load generators, and the lines around each
/// table.
const EXCHANGE: &str = "docs/exchange-formats.md";
const FORMATS_BEGIN: &str =
    "<!-- made by `cargo xtask docs` from formats::all (crates/trace/src/import) -->\n";
const CLIENTS_BEGIN: &str =
    "<!-- made by `cargo xtask docs` from CLIENTS (crates/study/src/compare/clients.rs) -->\n";
/// The page with the generated list of the parts of an error.
const RESULT: &str = "docs/result-schema.md";
const PARTS_BEGIN: &str =
    "<!-- made by `cargo xtask docs` from PARTS (crates/study/src/error_parts.rs) -->\n";
const MADE_END: &str = "<!-- end of what is made -->\n";
/// The Python function whose keywords are the options of `compare`.
const OPTIONS_PYTHON: &str = "python/schedlab/_study.py";

/// The lines of the picture: scheduler and variant of `scenarios/redis-batch.toml`, name, colour.
const LINES: &[(&str, &str, &str, &str)] = &[
    ("linux-6.1", "shared", "share the CPU, Linux 6.1 (CFS)", "#c0392b"),
    ("linux-6.18", "shared", "share the CPU, Linux 6.18 (EEVDF)", "#e08e0b"),
    ("linux-6.18", "redis fifo", "Redis SCHED_FIFO, Linux 6.18", "#7d3c98"),
    ("linux-6.18", "batch idle", "batch SCHED_IDLE, Linux 6.18", "#1e8449"),
    ("linux-6.18", "dedicated", "a CPU of its own", "#5d6d7e"),
];

/// Writes the generated files anew.
pub(crate) fn command() -> Result<ExitCode> {
    let root = tree::root();
    std::fs::create_dir_all(root.join("docs"))?;
    for (file, text) in texts(&root)? {
        std::fs::write(root.join(&file), text).context(file)?;
    }
    std::fs::write(root.join(LADDER), redis_ladder(&root)?).context(LADDER)?;
    println!(
        "wrote {SCHEDULERS}, {METRICS_PAGE}, {TABLES_PAGE}, the tables of fields in the pages, \
         {OPTIONS_PYTHON}, docs/schema and {LADDER}"
    );
    blocks(&root)
}

/// Runs the commands of all pages and writes what they print below them: the test that compares
/// them does it.
fn blocks(root: &Path) -> Result<ExitCode> {
    let test = "documented::every_block_of_output_is_what_the_program_prints";
    // As `make test` compiles it: another selection of targets would compile most crates once more.
    let mut command = Built::all()?.test("schedlab-cli", "test", test)?;
    let status =
        command.env("SCHEDLAB_DOCS", "write").current_dir(root.join("crates/cli")).status()?;
    if status.success() {
        println!("the blocks of all pages are what their commands print");
    }
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// A finding for each generated file that is not what the code says now.
pub(crate) fn check(root: &Path, findings: &mut Vec<Finding>) {
    let texts = match texts(root) {
        Ok(texts) => texts,
        Err(error) => return findings.push(Finding::new(EXCHANGE, 0, format!("{error:#}"))),
    };
    for (file, text) in texts {
        if std::fs::read_to_string(root.join(&file)).unwrap_or_default() != text {
            findings.push(Finding::new(
                &file,
                0,
                "is stale: run `cargo xtask docs` and commit the result",
            ));
        }
    }
}

/// The generated texts, with their files.
fn texts(root: &Path) -> Result<Vec<(String, String)>> {
    let options = std::fs::read_to_string(root.join(OPTIONS_PYTHON)).context(OPTIONS_PYTHON)?;
    let mut texts = vec![
        (SCHEDULERS.to_owned(), schedulers(registry::all())),
        (METRICS_PAGE.to_owned(), metrics()),
        (TABLES_PAGE.to_owned(), tables()),
        (OPTIONS_PYTHON.to_owned(), python::compare(&options).context(OPTIONS_PYTHON)?),
    ];
    let made = schemas::all();
    texts.extend(pages(root, &made)?);
    for (name, schema) in &made {
        texts.push((schemas::file(name), serde_json::to_string_pretty(schema)? + "\n"));
    }
    Ok(texts)
}

/// Returns the pages that have generated tables among their text.
fn pages(
    root: &Path,
    schemas: &[(&'static str, serde_json::Value)],
) -> Result<BTreeMap<String, String>> {
    let mut tables = vec![
        (EXCHANGE, FORMATS_BEGIN.to_owned(), formats()),
        (EXCHANGE, CLIENTS_BEGIN.to_owned(), clients()),
        (RESULT, PARTS_BEGIN.to_owned(), error_parts()),
    ];
    let of_place =
        |place: &schemas::SchemaTables| (place.page, place.begin(), place.tables(schemas));
    tables.extend(schemas::places().iter().map(of_place));
    let mut pages = BTreeMap::new();
    for (page, begin, table) in tables {
        let text = match pages.remove(page) {
            Some(text) => text,
            None => std::fs::read_to_string(root.join(page)).context(page)?,
        };
        pages.insert(page.to_owned(), with_table(&text, &begin, &table).context(page)?);
    }
    Ok(pages)
}

/// A page with `table` behind the line `begin`.
fn with_table(page: &str, begin: &str, table: &str) -> Result<String> {
    let lacks = || format!("the lines around a table are missing: {begin}");
    let (before, rest) = page.split_once(begin).with_context(lacks)?;
    let (_, after) = rest.split_once(MADE_END).with_context(lacks)?;
    Ok(format!("{before}{begin}{table}{MADE_END}{after}"))
}

/// How the error of a number is made of its parts, and each part.
fn error_parts() -> String {
    let mut text = format!("  The error is {RULE}.\n\n  | part | what it is |\n  |---|---|\n");
    for part in PARTS {
        let _ = writeln!(text, "  | `{}` | {} |", part.name, part.doc);
    }
    text
}

/// The table of the load generators whose output `--client-log` reads.
fn clients() -> String {
    let mut text = String::from("| load generator | line |\n|---|---|\n");
    for client in clients::all() {
        let _ = writeln!(text, "| {} | `{}` |", client.programs.join(", "), client.line());
    }
    text
}

/// The table of what `import` knows.
fn formats() -> String {
    let mut text =
        String::from("| file | read | what is kept, or what makes it readable |\n|---|---|---|\n");
    for format in formats::all() {
        let read = match (format.is_trace(), format.elsewhere()) {
            (true, _) => "yes",
            (false, Some(Elsewhere::Recording)) => "is one already",
            (false, Some(Elsewhere::RtApp)) => "as a scenario",
            (false, Some(Elsewhere::Scenario)) => "is one already",
            (false, None) => "no",
        };
        let _ = writeln!(
            text,
            "| {} | {read} | {} |",
            format.what,
            format.advice().unwrap_or(format.notes)
        );
    }
    text
}

/// The page of all tables.
fn tables() -> String {
    let mut text = String::from(
        "# Tables\n\nMade by `cargo xtask docs` from the declarations in `crates/trace/src/flat` \
         and `crates/tables/src/study.rs`: do not \
         edit by hand.\n\nThe Python package hands them to data frames (`sl.open(FILE).events`, \
         `sl.compare(FILE).rows()`); \
         `schedlab export --csv` writes `events`, `tasks` and, as `waits.csv`, `latencies`, \
         `schedlab export --parquet DIR` each \
         table of a recording as `DIR/NAME.parquet`, and `schedlab compare --format parquet` \
         writes `rows`. Whole numbers have 64 bits, times \
         are nanoseconds, moments are timestamps with nanoseconds (in CSV texts of ISO 8601), \
         texts are dictionaries; any value may be missing. In a Parquet file \
         each column says what it means: under \
         `doc` in the metadata of its field.\n",
    );
    for table in schedlab_tables::all() {
        let _ = write!(
            text,
            "\n## {}\n\n{}\n\n| column | holds | what it means |\n|---|---|---|\n",
            table.name, table.doc
        );
        for column in table.columns {
            let kind = match column.kind {
                Kind::Int => "whole number",
                Kind::WallTime => "moment (UTC)",
                Kind::Float => "number",
                Kind::Bool => "yes or no",
                Kind::Text => "text",
            };
            let _ = writeln!(text, "| `{}` | {kind} | {} |", column.name, column.doc);
        }
    }
    text
}

/// The page of all metrics.
fn metrics() -> String {
    let mut text = String::from(
        "# Metrics\n\nMade by `cargo xtask docs` from `METRICS` (`crates/study/src/metric.rs`): \
         do not edit by hand.\n\nA metric with \
         statistics is followed by one of them: `latency p99`, `response max`, `wait mean`. Any \
         percentile (`p50`, `p99.9`), `mean`, \
         `mode`, `min` and `max` can be asked for; the table names those that results hold. \
         Shares are parts of one CPU (of the \
         machine: of all CPU time), times nanoseconds, the rest events a second of virtual time.\n\
         \n\
         | metric | of | unit | better | in results | what it is |\n|---|---|---|---|---|---|\n",
    );
    for def in METRICS {
        let of = match def.of {
            Of::Tasks => "tasks, sources, channels",
            Of::Machine => "the machine",
            Of::Agents => "the machine, with agents",
        };
        let unit = match def.unit {
            Unit::Share => "share",
            Unit::Time => "ns",
            Unit::PerSecond => "1/s",
        };
        let better = match def.better {
            Some(Better::Smaller) => "smaller",
            Some(Better::Larger) => "larger",
            None => "depends",
        };
        let stats: Vec<String> = def.reported.iter().map(ToString::to_string).collect();
        let is_distribution = format!("{} max", def.name).parse::<Metric>().is_ok();
        let reported = match (def.in_results, stats.is_empty()) {
            (false, _) if def.of == Of::Tasks => "no (goals, expectations and gates)".to_owned(),
            (false, _) => "no (`bench model`)".to_owned(),
            (true, true) if is_distribution => "no (expectations and gates)".to_owned(),
            (true, true) => "yes".to_owned(),
            (true, false) => stats.join(", "),
        };
        let _ = writeln!(
            text,
            "| `{}` | {of} | {unit} | {better} | {reported} | {} |",
            def.name, def.doc
        );
    }
    text
}

/// The picture of the README: what the clients of a Redis server see beside a batch job.
fn redis_ladder(root: &Path) -> Result<String> {
    let scenario = scenario::load(&root.join("scenarios/redis-batch.toml"))?;
    let series = LINES
        .iter()
        .map(|(scheduler, variant, label, colour)| {
            let values = response_ladder(&scenario, scheduler, variant)?;
            Ok(Series { label: (*label).to_owned(), colour, values })
        })
        .collect::<Result<Vec<_>>>()?;
    Ok(picture::ladder(
        "Redis and a batch job on one CPU",
        "32 closed-loop clients, 32-CPU machine, HZ=250; simulated: schedlab compare redis-batch",
        &series,
    ))
}

/// The response times that the clients see, at [`RUNGS`].
fn response_ladder(scenario: &Scenario, scheduler: &str, name: &str) -> Result<Vec<Ns>> {
    let unchanged =
        Variant { name: scenario.baseline.clone(), schedulers: Vec::new(), clauses: Vec::new() };
    let variant = std::iter::once(&unchanged)
        .chain(&scenario.variants)
        .find(|variant| variant.name == name)
        .with_context(|| format!("redis-batch has no variant `{name}`"))?;
    let applied = variant.apply(&scenario.subject())?;
    let spec = SchedulerSpec { knobs: applied.knobs, ..SchedulerSpec::named(scheduler) };
    let machine = Machine {
        topology: scenario.machine.topology.clone(),
        hz: scenario.machine.hz,
        ticks: TickSkew::Aligned,
        costs: scenario.machine.costs,
        ..Machine::flat(1)
    };
    let options = RunOptions {
        seed: scenario.seed,
        duration: scenario.duration,
        warmup: scenario.warmup,
        ..RunOptions::default()
    };
    let built = registry::build(&spec, machine.topology.cpus())?;
    let outcome =
        schedlab_sim::run(&machine, &applied.workload, built.as_ref(), &options, &mut ())?;
    let response = &outcome.metrics.sources.first().context("redis-batch has no source")?.response;
    Ok(RUNGS
        .iter()
        .map(|rung| match rung {
            100_000 => response.max(),
            rung => response.quantile(f64::from(*rung) / 100_000.0),
        })
        .collect())
}

/// Every scheduler with its knobs, as Markdown.
fn schedulers(all: &[Entry]) -> String {
    let mut text = String::from(
        "# Schedulers and their knobs\n\n\
         Made by `cargo xtask docs` from the registry (`crates/scheduler/src/registry.rs`): do \
         not edit by \
         hand.\nSet a knob after the name: `--scheduler \
         linux-6.1:latency_ns=6ms,wakeup_granularity_ns=1ms`.\n\
         Knobs have the names and defaults of the real system.\n",
    );
    for entry in all {
        let _ = write!(text, "\n## {}\n{}\n", entry.name, entry.summary);
        let lines: String = entry.capabilities().iter().map(|line| format!("* {line}\n")).collect();
        let _ = write!(text, "\n{lines}");
        let knobs = (entry.knobs)();
        if knobs.is_empty() {
            text.push_str("\nNo knobs.\n");
            continue;
        }
        text.push_str(
            "\n| knob | default | allowed | what it does | source |\n|---|---|---|---|---|\n",
        );
        for knob in knobs {
            let cell = |part: &str| part.replace('|', "\\|").replace('\n', " ");
            let _ = writeln!(
                text,
                "| `{}` | {} | {} | {} | {} |",
                knob.name,
                cell(&knob.default),
                cell(&knob.allowed().replace(", such as \"3ms\"", "")),
                cell(knob.doc),
                cell(knob.source)
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::Ns;
    use schedlab_scheduler::{Knob, KnobKind};

    #[test]
    fn the_picture_of_the_readme_is_fresh() {
        let root = tree::root();
        let there = std::fs::read_to_string(root.join(LADDER)).unwrap_or_default();
        let now = redis_ladder(&root).expect("redis-batch runs");
        assert!(
            there == now,
            "{LADDER} is stale: run `cargo xtask docs`, look at it, and commit it"
        );
    }

    #[test]
    fn a_knob_becomes_a_row() {
        fn knobs() -> Vec<Knob> {
            let kind = KnobKind::Time(Ns::from_us(1), Ns::from_s(1));
            let (doc, source) = ("Length of a | slice.", "a textbook");
            vec![Knob { name: "slice_ns", kind, unit: "", default: "4ms".to_owned(), doc, source }]
        }
        let entry = Entry {
            name: "novel",
            summary: "For a test.",
            knobs,
            ..schedlab_scheduler::simple::RR
        };
        let text = schedulers(&[entry]);
        assert!(text.contains("## novel\nFor a test.\n"), "{text}");
        assert!(text.contains("| `slice_ns` | 4ms | a time from 1.00us to 1.00s"), "{text}");
        assert!(text.contains("a \\| slice. | a textbook |"), "{text}");
    }
}
