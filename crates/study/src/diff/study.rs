//! Two results of `compare --json`: rows of the same scheduler and variant, subject by subject.

use super::{Cell, Diff, SCHEMA, Side, Subject};
use crate::StudyError;
use crate::change::{self, Judgement, MethodError};
use crate::result::{self, Row, Study, Verdict};
use schedlab_model::text::shown;
use std::path::Path;

/// The largest result that is read.
const RESULT_MAX: u64 = 256 << 20;

fn open(path: &Path) -> Result<Study, StudyError> {
    let fail = |what: String| StudyError::Option(format!("{}: {what}", path.display()));
    let text = schedlab_files::read(path, RESULT_MAX).map_err(|error| fail(error.to_string()))?;
    parse(&text).map_err(|error| fail(shown(&error).into_owned()))
}

/// Reads the JSON of a result.
///
/// # Errors
/// What is wrong, as text.
pub fn parse(text: &[u8]) -> Result<Study, String> {
    let study: Study = serde_json::from_slice(text)
        .map_err(|error| format!("not a result of `schedlab compare --json`: {error}"))?;
    if study.schema != result::SCHEMA {
        return Err(format!(
            "its schema is `{}`, this schedlab reads `{}`",
            study.schema,
            result::SCHEMA
        ));
    }
    Ok(study)
}

pub(super) fn diff(before: &Path, after: &Path) -> Result<Diff, StudyError> {
    let (one, two) = (open(before)?, open(after)?);
    let side = |path: &Path, study: &Study| Side {
        file: path.display().to_string(),
        duration_ns: study.duration_ns,
        ..Side::default()
    };
    let label = |row: &Row| format!("{} / {}", row.scheduler, row.variant);
    let (mut subjects, mut gone) = (Vec::new(), Vec::new());
    for row in &one.rows {
        match two.rows.iter().find(|other| label(other) == label(row)) {
            None => gone.push(label(row)),
            Some(other) => {
                let several = one.rows.len() > 1;
                let prefix = if several { format!("{}: ", label(row)) } else { String::new() };
                let pairs =
                    row.subjects.iter().filter_map(|s| Some((s, other.find(s.kind, &s.name)?)));
                subjects.extend(pairs.map(|(a, b)| subject(&prefix, a, b)));
            }
        }
    }
    let is_new = |row: &&Row| !one.rows.iter().any(|other| label(other) == label(row));
    let mut notes = Vec::new();
    if one.seeds != two.seeds {
        notes.push("the two results have different seeds: each range is over its own".to_owned());
    }
    Ok(Diff {
        schema: SCHEMA.to_owned(),
        before: side(before, &one),
        after: side(after, &two),
        verdict: Verdict::default(),
        subjects,
        gone,
        new: two.rows.iter().filter(is_new).map(label).collect(),
        gates: Vec::new(),
        notes,
    })
}

fn subject(prefix: &str, a: &result::Subject, b: &result::Subject) -> Subject {
    let cell = |one: &result::Cell| {
        let two = b.cell(one.metric)?;
        // The results keep median and range over the seeds.
        let ends = |cell: &result::Cell| [cell.value.low, cell.value.median, cell.value.high];
        let (x, y) = (ends(one), ends(two));
        let interval = [y[0] - x[2], y[2] - x[0]];
        let change = change::change(one.metric, &[x[1]], &[y[1]], MethodError::default());
        let judgement = match change {
            _ if x == y => Judgement::Same,
            Some(change) if interval[0] > 0.0 || interval[1] < 0.0 => change.judgement,
            _ => Judgement::CannotTell,
        };
        Some(Cell {
            metric: one.metric,
            before: x[1],
            after: y[1],
            samples: [0, 0],
            interval: Some(interval),
            judgement,
            lacks: None,
            alone: None,
        })
    };
    Subject {
        kind: serde_json::to_value(a.kind)
            .ok()
            .and_then(|v| v.as_str().map(str::to_owned))
            .unwrap_or_default(),
        name: format!("{prefix}{}", a.name),
        tasks: [a.tasks, b.tasks],
        cells: a.cells.iter().filter_map(cell).collect(),
    }
}
