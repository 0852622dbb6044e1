//! Recordings and results as Arrow record batches, for data frames. `docs/tables.md` lists every
//! table and column.
//!
//! A table is declared once, as a [`TableDef`]: those of recordings in [`schedlab_trace::flat`],
//! those of results in [`study`]. Nothing here knows Python.
#![forbid(unsafe_code)]

mod batch;
#[cfg(feature = "parquet")]
pub mod parquet;
pub mod study;

pub use batch::LooseTable;
pub use schedlab_trace::flat::{ColumnDef, Kind, TableDef};

use arrow_array::RecordBatch;
use schedlab_trace::flat::{self, Flat};
use schedlab_trace::{Recording, TraceError};
use std::ops::ControlFlow;

/// Why there is no table.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The recording cannot be read, or lacks what the table needs.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A name that no table has.
    #[error("there is no table `{name}`; the tables of a recording are {}", recorded().collect::<Vec<_>>().join(", "))]
    Unknown {
        /// As given.
        name: String,
    },
    /// Columns of different lengths: a fault of schedlab.
    #[error("the table cannot be built: {0}")]
    Arrow(#[from] arrow_schema::ArrowError),
    /// A column whose values differ in kind: a fault of schedlab.
    #[error("column `{column}` holds values of two kinds: please report it")]
    Mixed {
        /// Its name.
        column: String,
    },
    /// A Parquet file that cannot be written.
    #[cfg(feature = "parquet")]
    #[error("the Parquet file cannot be written: {0}")]
    Parquet(#[from] ::parquet::errors::ParquetError),
}

/// Every declared table: those of recordings first, then those of results.
pub fn all() -> impl Iterator<Item = &'static TableDef> {
    flat::TABLES.iter().map(|table| table.def).chain([&study::ROWS, &study::EXPECTATIONS])
}

/// The names of the tables of a recording.
pub fn recorded() -> impl Iterator<Item = &'static str> {
    flat::TABLES.iter().map(|table| table.def.name)
}

/// The table of this name.
fn find(name: &str) -> Result<&'static Flat, TableError> {
    flat::find(name).ok_or_else(|| TableError::Unknown { name: name.to_owned() })
}

/// Says what a recording lacks for a table.
///
/// # Errors
/// There is no such table, or the recording lacks what it needs.
pub fn check(recording: &Recording, name: &str) -> Result<(), TableError> {
    Ok((find(name)?.check)(&recording.header)?)
}

/// Returns a table of a recording.
///
/// # Errors
/// There is no such table, or the recording lacks what it needs.
pub fn of_recording(recording: &Recording, name: &str) -> Result<RecordBatch, TableError> {
    let table = find(name)?;
    let mut columns = batch::Columns::new(table.def);
    (table.walk)(recording, &mut |row| {
        columns.push(row);
        ControlFlow::Continue(())
    })?;
    Ok(columns.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Int64Type, TimestampNanosecondType};
    use arrow_schema::{DataType, TimeUnit};

    fn shipped() -> Recording {
        let path =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../recordings/redis-other-other-closed8.slt");
        Recording::open(path).expect("a shipped recording")
    }

    #[test]
    fn every_table_of_a_recording_can_be_built() {
        let recording = shipped();
        for name in recorded() {
            let batch = of_recording(&recording, name).expect(name);
            assert!(batch.num_rows() > 0, "{name}");
            let schema = batch.schema();
            let names: Vec<&str> =
                schema.fields().iter().map(|field| field.name().as_str()).collect();
            let declared: Vec<&str> =
                find(name).expect(name).def.columns.iter().map(|column| column.name).collect();
            assert_eq!(names, declared);
        }
        let events = of_recording(&recording, "events").expect("events");
        assert_eq!(events.num_rows(), recording.events.len());
        let at = events.column(0).as_primitive::<Int64Type>();
        let last = recording.events.last().expect("an event").at.0;
        assert_eq!(u64::try_from(at.value(at.len() - 1)), Ok(last));
    }

    #[test]
    fn moments_are_timestamps() {
        let mut recording = shipped();
        recording.header.realtime_offset_ns = Some(1_700_000_000_000_000_000);
        let events = of_recording(&recording, "events").expect("events");
        let moments = events.column_by_name("wall_time").expect("wall_time");
        let kind = DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
        assert_eq!(moments.data_type(), &kind);
        let first = recording.header.unix_ns(recording.events[0].at).expect("a moment");
        let moments = moments.as_primitive::<TimestampNanosecondType>();
        assert_eq!(u64::try_from(moments.value(0)), Ok(first));
    }

    #[test]
    fn an_unknown_table_is_answered_with_the_known_ones() {
        let error = of_recording(&shipped(), "waits").expect_err("no such table").to_string();
        assert_eq!(
            error,
            "there is no table `waits`; the tables of a recording are events, tasks, latencies, \
             activations, slices, migrations, blame"
        );
    }

    #[test]
    fn times_have_their_unit_in_their_name() {
        for table in all() {
            let mut seen = std::collections::BTreeSet::new();
            for column in table.columns {
                assert!(seen.insert(column.name), "{} twice in {}", column.name, table.name);
                assert!(column.doc.ends_with('.') || column.doc.ends_with('…'), "{}", column.doc);
            }
        }
    }
}
