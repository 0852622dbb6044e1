//! Results of `compare` as tables.

use crate::TableError;
use crate::batch::Columns;
use arrow_array::RecordBatch;
use schedlab_study::change::{Change, Judgement};
use schedlab_study::error_parts::ErrorBar;
use schedlab_study::measurements::Kind as SubjectKind;
use schedlab_study::metric::Unit;
use schedlab_study::result::{Cell, Interval, Row, Study, Subject};
use schedlab_trace::flat::{ColumnDef, Kind, TableDef, Value, column};

/// The table of measurements.
pub const ROWS: TableDef = TableDef {
    name: "rows",
    doc: "One measurement of one subject under one scheduler and variant of a comparison.",
    columns: ROW_COLUMNS,
};

const ROW_COLUMNS: &[ColumnDef] = &[
    column(
        "row",
        Kind::Int,
        "Place of the scheduler and variant in the comparison; 0 is the first, against which \
         changes are counted.",
    ),
    column("scheduler", Kind::Text, "Scheduler with its knobs."),
    column("variant", Kind::Text, "Variant; the unchanged workload has a name too."),
    column(
        "bound",
        Kind::Bool,
        "Whether the row is no setting of the same machine but a bound: more CPUs, or fewer tasks.",
    ),
    column(
        "kind",
        Kind::Text,
        "What the subject is: `class` of tasks, `source`, `channel` or `machine`.",
    ),
    column("subject", Kind::Text, "Its name."),
    column("tasks", Kind::Int, "How many tasks it has."),
    column("metric", Kind::Text, "What was measured; `docs/metrics.md` lists them."),
    column("unit", Kind::Text, "`share` (of one CPU), `ns`, or `1/s`."),
    column("value", Kind::Float, "Median over the seeds."),
    column("low", Kind::Float, "Smallest over the seeds."),
    column("high", Kind::Float, "Largest over the seeds."),
    column(
        "error",
        Kind::Float,
        "Recordings: half width of the interval that holds what a second recording would show (95 \
         %), before it is cut to what is possible.",
    ),
    column("error_low", Kind::Float, "Lower end of that interval, or of the range over the seeds."),
    column("error_high", Kind::Float, "Its upper end."),
    column("error_largest", Kind::Text, "The largest part of the error (docs/result-schema.md)."),
    column(
        "interval_low",
        Kind::Float,
        "Of percentiles: lower end of the 95 % interval by order statistics.",
    ),
    column(
        "interval_high",
        Kind::Float,
        "Its upper end; missing where the values are too few for one.",
    ),
    column("samples", Kind::Int, "Values of all runs together, of percentiles."),
    column("change", Kind::Float, "Against the first row, in the metric's unit."),
    column(
        "change_error",
        Kind::Float,
        "Half width of its error bar, before it is cut to what is possible.",
    ),
    column("change_low", Kind::Float, "Lower end of that bar."),
    column("change_high", Kind::Float, "Its upper end."),
    column("change_largest", Kind::Text, "The largest part of the error of the change."),
    column("ratio", Kind::Float, "Value divided by that of the first row."),
    column("judgement", Kind::Text, "`better`, `worse`, `different`, `cannot-tell` or `same`."),
];

/// The table of expectations.
pub const EXPECTATIONS: TableDef = TableDef {
    name: "expectations",
    doc: "One expectation of a scenario and one cell that it speaks about.",
    columns: EXPECTATION_COLUMNS,
};

const EXPECTATION_COLUMNS: &[ColumnDef] = &[
    column("expectation", Kind::Text, "The expectation in words."),
    column("line", Kind::Int, "Its line in the scenario."),
    column("scheduler", Kind::Text, "Scheduler of the row."),
    column("variant", Kind::Text, "Variant of the row."),
    column("subject", Kind::Text, "What it is about."),
    column("got", Kind::Text, "What came out, as people write it."),
    column("holds", Kind::Bool, "Whether it holds."),
    column("published", Kind::Text, "What was published for this, in words."),
    column(
        "differs",
        Kind::Text,
        "Why the simulated figure differs from that, or what it rests on.",
    ),
];

/// Returns the measurements of a comparison.
///
/// # Errors
/// None is known.
pub fn rows(study: &Study) -> Result<RecordBatch, TableError> {
    let mut columns = Columns::new(&ROWS);
    for (index, row) in study.rows.iter().enumerate() {
        for subject in &row.subjects {
            for cell in &subject.cells {
                let metric = cell.metric.to_string();
                columns.push(&measurement(index, row, subject, cell, &metric));
            }
        }
    }
    Ok(columns.finish()?)
}

fn measurement<'a>(
    index: usize,
    row: &'a Row,
    subject: &'a Subject,
    cell: &Cell,
    metric: &'a str,
) -> [Value<'a>; 26] {
    let float = |value: Option<f64>| value.map_or(Value::None, Value::Float);
    let interval = cell.interval.unwrap_or(Interval { low: None, high: None, samples: 0 });
    let change = cell.change;
    let bar = change.and_then(|change| change.error_bar);
    let of_change = |get: fn(&Change) -> f64| float(change.as_ref().map(get));
    [
        Value::count(index),
        Value::Text(&row.scheduler),
        Value::Text(&row.variant),
        Value::Bool(row.bound.is_some()),
        Value::Text(kind(subject.kind)),
        Value::Text(&subject.name),
        Value::count(subject.tasks),
        Value::Text(metric),
        Value::Text(unit(cell.metric.unit())),
        Value::Float(cell.value.median),
        Value::Float(cell.value.low),
        Value::Float(cell.value.high),
        float(cell.error),
        float(cell.error_bar.map(|bar| bar.low)),
        float(cell.error_bar.map(|bar| bar.high)),
        largest(cell.error_bar),
        float(interval.low),
        float(interval.high),
        if cell.interval.is_some() { Value::count(interval.samples) } else { Value::None },
        of_change(|change| change.difference),
        of_change(|change| change.error),
        float(bar.map(|bar| bar.low)),
        float(bar.map(|bar| bar.high)),
        largest(bar),
        float(change.and_then(|change| change.ratio)),
        change.map_or(Value::None, |change| Value::Text(judgement(change.judgement))),
    ]
}

fn largest(bar: Option<ErrorBar>) -> Value<'static> {
    bar.and_then(|bar| bar.largest).map_or(Value::None, |part| Value::Text(part.def().name))
}

/// Returns the expectations of a scenario, and what came of them.
///
/// # Errors
/// None is known.
pub fn expectations(study: &Study) -> Result<RecordBatch, TableError> {
    let mut columns = Columns::new(&EXPECTATIONS);
    for checked in &study.expectations {
        columns.push(&[
            Value::Text(&checked.expectation),
            Value::count(checked.line),
            Value::Text(&checked.scheduler),
            Value::Text(&checked.variant),
            Value::Text(&checked.subject),
            Value::Text(&checked.got),
            Value::Bool(checked.holds),
            checked.published.as_deref().map_or(Value::None, Value::Text),
            checked.differs.as_deref().map_or(Value::None, Value::Text),
        ]);
    }
    Ok(columns.finish()?)
}

/// The words of JSON.
fn kind(kind: SubjectKind) -> &'static str {
    match kind {
        SubjectKind::Class => "class",
        SubjectKind::Task => "task",
        SubjectKind::Source => "source",
        SubjectKind::Channel => "channel",
        SubjectKind::Machine => "machine",
    }
}

fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Share => "share",
        Unit::Time => "ns",
        Unit::PerSecond => "1/s",
    }
}

/// The words of JSON.
fn judgement(judgement: Judgement) -> &'static str {
    match judgement {
        Judgement::Better => "better",
        Judgement::Worse => "worse",
        Judgement::Different => "different",
        Judgement::CannotTell => "cannot-tell",
        Judgement::Same => "same",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Float64Type, Int32Type};
    use schedlab_model::Ns;
    use schedlab_study::compare::{Options, compare_scenario};
    use schedlab_study::gallery;

    fn word<'a>(batch: &'a RecordBatch, name: &str, row: usize) -> &'a str {
        let column = batch.column_by_name(name).expect(name).as_dictionary::<Int32Type>();
        let values = column.values().as_string::<i32>();
        values.value(column.key(row).expect("a value"))
    }

    #[test]
    fn rows_hold_what_json_holds() {
        let scenario = gallery::load("two-hogs").expect("a scenario").expect("a good one");
        let options = Options { duration: Some(Ns::from_ms(1_200)), ..Options::default() };
        let study = compare_scenario(&scenario, &options, &|_, _| {}).expect("a result");
        let batch = rows(&study).expect("rows");
        let cells: Vec<(&Row, &Subject, &Cell)> = study
            .rows
            .iter()
            .flat_map(|row| row.subjects.iter().map(move |subject| (row, subject)))
            .flat_map(|(row, subject)| subject.cells.iter().map(move |cell| (row, subject, cell)))
            .collect();
        assert_eq!(batch.num_rows(), cells.len());
        let values = batch.column_by_name("value").expect("value").as_primitive::<Float64Type>();
        for (at, (row, subject, cell)) in cells.iter().enumerate() {
            assert_eq!(values.value(at).to_bits(), cell.value.median.to_bits());
            assert_eq!(word(&batch, "scheduler", at), row.scheduler);
            assert_eq!(word(&batch, "subject", at), subject.name);
            // The words are those of JSON.
            let json = |value: &dyn erased::Json| value.text();
            assert_eq!(word(&batch, "metric", at), json(&cell.metric));
            assert_eq!(word(&batch, "kind", at), json(&subject.kind));
            if let Some(change) = &cell.change {
                assert_eq!(word(&batch, "judgement", at), json(&change.judgement));
            }
        }
        let batch = expectations(&study).expect("expectations");
        assert_eq!(batch.num_rows(), study.expectations.len());
        assert!(batch.num_rows() > 0);
    }

    mod erased {
        /// What JSON writes for a value that is a word.
        pub(super) trait Json {
            fn text(&self) -> String;
        }
        impl<T: serde::Serialize> Json for T {
            fn text(&self) -> String {
                serde_json::to_value(self).expect("JSON").as_str().expect("a word").to_owned()
            }
        }
    }
}
