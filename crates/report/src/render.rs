//! From a page to HTML.

use crate::embed::json;
use crate::{
    Between, Cdf, Cell, Column, Curve, Ladders, LaneRun, LaneWait, Lanes, Matrix, Page, Part,
    Series, Sweep, Table, Tone,
};
use minijinja::value::Serde;
use minijinja::{Environment, Value, context};
use schedlab_model::Ns;
use std::hash::{Hash, Hasher};

const PAGE: &str = include_str!("../assets/page.html");
/// Built from `ui/src/page` (`cargo xtask ui`), with uPlot inside.
const STYLE: &str = include_str!("../assets/page.css");
const SCRIPT: &str = include_str!("../assets/page.js");
const LICENCE: &str = include_str!("../assets/uPlot-LICENSE");

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A template failed: a fault of schedlab.
    #[error("the page cannot be written: {0}")]
    Template(#[from] minijinja::Error),
    /// Data that JSON cannot hold: a fault of schedlab.
    #[error("the data of the page cannot be written: {0}")]
    Data(#[from] serde_json::Error),
}

impl Page {
    /// The whole page as HTML.
    ///
    /// # Errors
    /// [`ReportError`]; none is known.
    pub fn render(&self) -> Result<String, ReportError> {
        let mut environment = Environment::new();
        environment.add_template("page.html", PAGE)?;
        let mut sections = Vec::new();
        for (index, section) in self.sections.iter().enumerate() {
            let mut parts = Vec::new();
            for (number, part) in section.parts.iter().enumerate() {
                parts.push(self::part(part, &id(index, number))?);
            }
            let id = format!("s{index}");
            sections
                .push(context! { id, title => section.title.as_str(), lead => section.lead.as_str(), folded => section.folded, parts });
        }
        let verdict = self.verdict.as_ref().map(|(outcome, certainty, tone)| {
            context! { outcome => outcome.as_str(), certainty => certainty.as_str(), tone => tone.class() }
        });
        let waits = self.waits.as_ref().map(|(title, waits)| self.waits_of(title, waits));
        let nonce = nonce(&sections, &self.title);
        let whole = context! {
            nonce,
            title => self.title.as_str(),
            subtitle => self.subtitle.as_str(),
            verdict,
            waits,
            sections,
            footer => self.footer.as_str(),
            licence => LICENCE,
            style => Value::from_safe_string(STYLE.to_owned()),
            script => Value::from_safe_string(SCRIPT.to_owned()),
        };
        Ok(environment.get_template("page.html")?.render(whole)?)
    }
}

impl Page {
    /// The waits, with the lanes that show them.
    fn waits_of(&self, title: &str, waits: &[LaneWait]) -> Value {
        let lanes = self.sections.iter().enumerate().find_map(|(index, section)| {
            let is_lanes = |part: &Part| matches!(part, Part::Lanes(_));
            let number = section.parts.iter().position(is_lanes)?;
            Some((id(index, number), &section.parts[number]))
        });
        let runs = match &lanes {
            Some((_, Part::Lanes(lanes))) => &lanes.runs[..],
            _ => &[],
        };
        // A schedule that was cut short does not show all of them.
        let shown = |wait: &LaneWait| {
            let within = |run: &LaneRun| run.from_ns <= wait.from && wait.to <= run.to_ns;
            runs.get(wait.run).is_some_and(within)
        };
        let item = |wait: &LaneWait| {
            context! {
                head => wait.head.as_str(), text => wait.text.as_str(), run => wait.run,
                cpu => wait.cpu.0, from => wait.from.0, to => wait.to.0, shown => shown(wait),
            }
        };
        let items: Vec<Value> = waits.iter().map(item).collect();
        context! { title, items, lanes => lanes.map(|(id, _)| id) }
    }
}

/// The name of a part in the page.
fn id(section: usize, part: usize) -> String {
    format!("p{section}-{part}")
}

/// A word that only the page's own scripts and styles carry: markup that came in with data cannot
/// know it, since it depends on all the data. The same page has the same word.
fn nonce(sections: &[Value], title: &str) -> String {
    let mut hash = std::hash::DefaultHasher::new();
    for section in sections {
        section.to_string().hash(&mut hash);
    }
    title.hash(&mut hash);
    format!("{:016x}", hash.finish())
}

fn part(part: &Part, id: &str) -> Result<Value, ReportError> {
    Ok(match part {
        Part::Text(text) => context! { kind => "text", id, text => text.as_str() },
        Part::List(items) => context! { kind => "list", id, items => serde(items) },
        Part::Facts(facts) => context! { kind => "facts", id, facts => serde(&facts.0) },
        Part::Table(table) => context! { kind => "table", id, table => self::table(table) },
        Part::Cdf(cdf) => self::cdf(cdf, id)?,
        Part::Lanes(lanes) => self::lanes(lanes, id)?,
        Part::Matrix(matrix) => self::matrix(matrix, id),
        Part::Code(code) => {
            context! { kind => "code", id, title => code.title.as_str(), text => code.text.as_str() }
        }
        Part::Ladders(ladders) => self::ladders(ladders, id)?,
        Part::Choice(choice) => {
            let items: Vec<Value> = choice
                .items
                .iter()
                .map(
                    |(name, matrix)| context! { name => name.as_str(), ..self::matrix(matrix, id) },
                )
                .collect();
            context! { kind => "choice", id, label => choice.label.as_str(), items }
        }
        Part::Series(series) => self::series(series, id)?,
        Part::Sweep(sweep) => self::sweep(sweep, id)?,
    })
}

fn table(table: &Table) -> Value {
    // All but the heads of the rows are numbers: their cells need not say so one by one.
    let of_numbers = |row: &Vec<Cell>| {
        let mut cells = row.iter().zip(&table.columns).skip(1);
        row.first().is_some_and(|cell| cell.head)
            && cells.all(|(cell, column)| column.number && !cell.head)
    };
    context! {
        numbers => table.rows.iter().all(of_numbers),
        caption => table.caption.as_str(),
        columns => serde(&table.columns),
        rows => serde(&table.rows),
        fold => table.fold.as_deref(),
    }
}

fn serde(value: &impl serde::Serialize) -> Value {
    Value::from(Serde(value))
}

fn data(value: &impl serde::Serialize) -> Result<Value, ReportError> {
    Ok(Value::from_safe_string(json(value)?))
}

fn cdf(cdf: &Cdf, id: &str) -> Result<Value, ReportError> {
    let ladder = |measure: &crate::Measure| {
        let row = |curve: &Curve| {
            let l = &curve.ladder;
            let cell = |ns: Ns| Cell::number(time(ns), ns.0 as f64);
            let rungs = [Some(l.p50), Some(l.p90), Some(l.p99), l.p999, l.p9999]
                .into_iter()
                .zip(l.intervals);
            let rung = |(ns, ends): (Option<Ns>, Between)| {
                ns.map_or_else(|| Cell::text("–"), |ns| cell(ns).note(between(ends), Tone::Dim))
            };
            let name = Cell::head(&curve.name).swatch(curve.style);
            let count = Cell::number(grouped(curve.count), curve.count as f64);
            std::iter::once(name).chain(rungs.map(rung)).chain([cell(l.max), count]).collect()
        };
        let heads = ["p50", "p90", "p99", "p99.9", "p99.99", "max", "count"];
        let heads = std::iter::once(Column::text("run")).chain(heads.map(Column::number)).collect();
        table(&Table {
            caption: format!(
                "{}: {}. {} Below a percentile: the two values between which it lies with 95 %, \
                 by order statistics (“?”: too few \
                 values for that end)",
                cdf.title, measure.name, measure.about
            ),
            columns: heads,
            rows: measure.curves.iter().map(row).collect(),
            fold: None,
        })
    };
    let measures: Vec<Value> = cdf
        .measures
        .iter()
        .map(|measure| context! { name => measure.name.as_str(), about => measure.about.as_str(), ladder => ladder(measure) })
        .collect();
    Ok(
        context! { kind => "cdf", id, title => cdf.title.as_str(), measures, data => data(&cdf.measures)? },
    )
}

/// The two ends as readers see them.
fn between(ends: Between) -> String {
    let [low, high] = ends.map(|end| end.map_or("?".to_owned(), time));
    format!("{low} … {high}")
}

fn ladders(ladders: &Ladders, id: &str) -> Result<Value, ReportError> {
    #[derive(serde::Serialize)]
    struct Data<'a> {
        rungs: &'a [String],
        curves: &'a [crate::LadderLine],
    }
    let data = data(&Data { rungs: &ladders.rungs, curves: &ladders.curves })?;
    Ok(
        context! { kind => "ladder", id, title => ladders.title.as_str(), about => ladders.about.as_str(), data },
    )
}

fn lanes(lanes: &Lanes, id: &str) -> Result<Value, ReportError> {
    let cut: Vec<&LaneRun> = lanes.runs.iter().filter(|run| run.cut).collect();
    let part =
        |run: &&LaneRun| format!("{} of {}", time(run.to_ns.saturating_sub(run.from_ns)), run.name);
    let notes: Vec<String> = match cut.first() {
        None => Vec::new(),
        Some(run) => vec![format!(
            "Not the whole run is shown: {}, from {} on. More would make the page too large.",
            cut.iter().map(part).collect::<Vec<_>>().join("; "),
            time(run.from_ns)
        )],
    };
    let names = lanes.runs.iter().map(|run| run.name.as_str()).collect::<Vec<_>>().join(", ");
    let data = data(&lanes.data())?;
    Ok(context! { kind => "lanes", id, notes, names, data })
}

fn matrix(matrix: &Matrix, id: &str) -> Value {
    let rows: Vec<Value> = matrix
        .rows
        .iter()
        .zip(&matrix.times)
        .map(|(name, times)| {
            let total: Ns = times.iter().copied().sum();
            let cells: Vec<Value> = times
                .iter()
                .map(|ns| context! { text => if *ns == Ns::ZERO { String::new() } else { time(*ns) }, shade => matrix.shade(*ns) })
                .collect();
            context! { name => name.as_str(), cells, total => time(total) }
        })
        .collect();
    context! {
        kind => "matrix", id, caption => matrix.caption.as_str(), columns => serde(&matrix.columns),
        rows_are => matrix.rows_are.as_str(), columns_are => matrix.columns_are.as_str(), rows,
    }
}

fn series(series: &Series, id: &str) -> Result<Value, ReportError> {
    let row = |trace: &crate::Trace| {
        let mut sorted = trace.values.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |part: f64| {
            sorted.get(((sorted.len().max(1) - 1) as f64 * part) as usize).copied().unwrap_or(0.0)
        };
        let mean = sorted.iter().sum::<f64>() / sorted.len().max(1) as f64;
        let number = |value: f64| Cell::number(format!("{value:.2}"), value);
        let name = Cell::head(&trace.name).swatch(trace.style);
        vec![name, number(mean), number(at(0.5)), number(at(0.99)), number(at(1.0))]
    };
    let heads = ["mean", "median", "p99", "max"].map(Column::number);
    let table = table(&Table {
        caption: format!("{}, {}; {}", series.title, series.unit, series.about),
        columns: std::iter::once(Column::text("run")).chain(heads).collect(),
        rows: series.traces.iter().map(row).collect(),
        fold: None,
    });
    Ok(context! {
        kind => "series", id, title => series.title.as_str(), unit => series.unit.as_str(), about => series.about.as_str(), table,
        data => data(series)?,
    })
}

fn sweep(sweep: &Sweep, id: &str) -> Result<Value, ReportError> {
    #[derive(serde::Serialize)]
    struct Data<'a> {
        what: &'a str,
        values: &'a [String],
        lines: &'a [crate::SweepLine],
    }
    let data = data(&Data { what: &sweep.what, values: &sweep.values, lines: &sweep.lines })?;
    let lines: Vec<&String> = sweep.lines.iter().map(|line| &line.name).collect();
    Ok(context! {
        kind => "sweep", id, title => sweep.title.as_str(), what => sweep.what.as_str(),
        most => sweep.values.len().saturating_sub(1), lines => serde(&lines), data,
    })
}

/// A time with a space that does not break before its unit.
fn time(ns: Ns) -> String {
    let text = ns.to_string();
    match text.find(|c: char| c.is_alphabetic()) {
        Some(at) => format!("{}\u{a0}{}", &text[..at], &text[at..].replace("us", "µs")),
        None => text,
    }
}

/// Thousands set apart.
fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}
