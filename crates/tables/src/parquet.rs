//! Tables as Parquet files: compressed with zstd, with Arrow's schema in them, so that texts come
//! back as dictionaries and every column says what it means.

use crate::batch::Columns;
use crate::{TableError, find};
use ::parquet::arrow::ArrowWriter;
use ::parquet::basic::{Compression, ZstdLevel};
use ::parquet::file::properties::WriterProperties;
use arrow_array::RecordBatch;
use schedlab_trace::Recording;
use std::io::Write;
use std::ops::ControlFlow;

/// Rows that are handed to the writer together.
const ROWS: usize = 1 << 16;

/// Writes a table of a recording, a piece at a time. Returns how many rows it has.
///
/// # Errors
/// There is no such table, the recording lacks what it needs, or `out` cannot be written.
pub fn of_recording(
    recording: &Recording,
    name: &str,
    out: impl Write + Send,
) -> Result<usize, TableError> {
    let table = find(name)?;
    let mut columns = Columns::new(table.def);
    let mut writer = writer(&columns.take()?, out)?;
    let (mut rows, mut failed) = (0, None);
    (table.walk)(recording, &mut |row| {
        columns.push(row);
        rows += 1;
        if rows % ROWS != 0 {
            return ControlFlow::Continue(());
        }
        match flush(&mut columns, &mut writer) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        }
    })?;
    failed.map_or(Ok(()), Err)?;
    flush(&mut columns, &mut writer)?;
    writer.close()?;
    Ok(rows)
}

/// Writes a table.
///
/// # Errors
/// `out` cannot be written.
pub fn write(table: &RecordBatch, out: impl Write + Send) -> Result<(), TableError> {
    let mut writer = writer(table, out)?;
    writer.write(table)?;
    writer.close()?;
    Ok(())
}

fn flush<W: Write + Send>(
    columns: &mut Columns,
    writer: &mut ArrowWriter<W>,
) -> Result<(), TableError> {
    Ok(writer.write(&columns.take()?)?)
}

fn writer<W: Write + Send>(like: &RecordBatch, out: W) -> Result<ArrowWriter<W>, TableError> {
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_created_by(concat!("schedlab ", env!("CARGO_PKG_VERSION")).to_owned())
        .build();
    Ok(ArrowWriter::try_new(out, like.schema(), Some(properties))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    use schedlab_trace::flat::Value;

    fn read(file: Vec<u8>) -> Vec<RecordBatch> {
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(file)).unwrap();
        reader.with_batch_size(1 << 20).build().unwrap().map(Result::unwrap).collect()
    }

    fn shipped() -> Recording {
        let path =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../recordings/redis-other-other-closed8.slt");
        Recording::open(path).unwrap()
    }

    #[test]
    fn what_is_written_comes_back() {
        let recording = shipped();
        for name in crate::recorded() {
            let mut file = Vec::new();
            let rows = of_recording(&recording, name, &mut file).unwrap();
            let table = crate::of_recording(&recording, name).unwrap();
            assert_eq!(rows, table.num_rows(), "{name}");
            assert_eq!(read(file), [table], "{name}");
        }
    }

    #[test]
    fn a_column_without_a_value_comes_back() {
        let mut table = crate::LooseTable::new([("a", "A."), ("b", "B.")]);
        table.push(&[Value::Int(1), Value::None]).unwrap();
        let (table, mut file) = (table.finish().unwrap(), Vec::new());
        write(&table, &mut file).unwrap();
        assert_eq!(read(file), [table]);
    }

    /// A writer whose disk is full.
    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_is_an_error() {
        let error = of_recording(&shipped(), "blame", Full).unwrap_err().to_string();
        assert!(error.starts_with("the Parquet file cannot be written"), "{error}");
    }
}
