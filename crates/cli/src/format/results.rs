//! What the rows of each result are: one line for each schema.

/// Where rows lie in the JSON of a result.
#[derive(Debug)]
pub(super) struct RowsOf {
    /// The lists from the outermost to the one whose items are rows; empty: the result is one row.
    pub(super) path: &'static [&'static str],
    /// Fields of the result itself that each row has, too.
    pub(super) with: &'static [&'static str],
}

/// What a result looks like in Markdown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Markdown {
    /// Its rows.
    #[default]
    Rows,
    /// What a terminal shows, whose tables are wider than the rows are long.
    AsShown,
}

/// A result in formats of rows.
#[derive(Debug, Default)]
pub(super) struct ResultShape {
    pub(super) schema: &'static str,
    /// The tables, in this order.
    pub(super) rows: &'static [RowsOf],
    pub(super) markdown: Markdown,
    /// Keys of sentences that come first in Markdown.
    pub(super) answers: &'static [&'static str],
    /// Columns that come first; the others keep the order of the JSON.
    pub(super) columns: &'static [&'static str],
    /// Fields that are a pair of numbers: `NAME.1` and `NAME.2`.
    pub(super) pairs: &'static [&'static str],
}

impl ResultShape {
    /// Returns the shape of a schema.
    pub(super) fn for_schema(schema: &str) -> Option<&'static ResultShape> {
        RESULTS.iter().find(|shape| shape.schema == schema)
    }
}

/// A table of rows.
const fn at(path: &'static [&'static str]) -> RowsOf {
    RowsOf { path, with: &[] }
}

/// A result whose Markdown is its rows.
const fn rows(schema: &'static str, rows: &'static [RowsOf]) -> ResultShape {
    ResultShape { schema, rows, markdown: Markdown::Rows, answers: &[], columns: &[], pairs: &[] }
}

/// A result whose Markdown is what a terminal shows.
const fn shown(schema: &'static str, rows: &'static [RowsOf]) -> ResultShape {
    ResultShape { markdown: Markdown::AsShown, ..self::rows(schema, rows) }
}

/// Every result; `show`, whose tables have no end, writes its rows itself.
const RESULTS: &[ResultShape] = &[
    shown("schedlab-compare/1", &[at(&["rows", "subjects", "cells"])]),
    ResultShape {
        pairs: &["samples", "interval"],
        ..shown("schedlab-diff/1", &[at(&["subjects", "cells"])])
    },
    ResultShape {
        columns: &["interval.name", "interval.jiffies", "cpu"],
        ..shown("schedlab-totals/1", &[RowsOf { path: &["intervals", "rows"], with: &[] }])
    },
    shown("schedlab-fleet/1", &[at(&["recordings", "values"])]),
    shown("schedlab-fleet-compare/1", &[at(&["changes"])]),
    shown("schedlab-ci/1", &[at(&["files", "gates"])]),
    shown("schedlab-latency/1", &[at(&["rows"])]),
    shown("schedlab-latency-matrix/1", &[at(&["rows"])]),
    shown("schedlab-confirm/1", &[at(&["settings"])]),
    shown("schedlab-experiment/1", &[at(&["experiments", "sheets", "lines"])]),
    rows("schedlab-published/1", &[at(&["scenarios", "figures"])]),
    rows("schedlab-decision-cost/1", &[at(&["rows"])]),
    rows("schedlab-runqueue/1", &[at(&["rows"])]),
    shown("schedlab-tune/1", &[at(&["settings"])]),
    rows("schedlab-colocate/1", &[at(&["tried"]), at(&["would_try"])]),
    rows("schedlab-calibration/1", &[at(&["costs"])]),
    ResultShape {
        columns: &["term", "also", "meaning"],
        ..rows("schedlab-explain/1", &[at(&["terms"])])
    },
    ResultShape {
        columns: &["name", "title", "summary"],
        ..rows("schedlab-list/1", &[at(&["schedulers"]), at(&["scenarios"])])
    },
    ResultShape {
        answers: &["answer"],
        columns: &["level", "what", "state", "consequence", "lift"],
        ..rows("schedlab-doctor/1", &[at(&["facts"])])
    },
    rows("schedlab-stress/1", &[at(&["rounds_ns"]), at(&["threads"])]),
    rows("schedlab-run/1", &[at(&["threads"])]),
    rows("schedlab-status/1", &[at(&["managed", "threads"])]),
    rows("schedlab-restore/1", &[at(&["given_back", "items"])]),
    rows("schedlab-verify/1", &[at(&[])]),
    ResultShape { columns: &["file"], ..rows("schedlab-record/1", &[at(&[])]) },
    ResultShape { columns: &["file"], ..rows("schedlab-import/1", &[at(&[])]) },
    ResultShape { columns: &["path", "format"], ..rows("schedlab-export/1", &[at(&["files"])]) },
    rows("schedlab-xen/1", &[at(&["domains", "vcpus"])]),
    ResultShape {
        columns: &["at_ns", "task"],
        ..rows("schedlab-watch/1", &[RowsOf { path: &["tasks"], with: &["at_ns"] }])
    },
    rows("schedlab-top/1", &[RowsOf { path: &["gains"], with: &["elapsed"] }]),
];
