//! Rows into columns.

use crate::TableError;
use arrow_array::builder::{
    BooleanBuilder, Float64Builder, Int64Builder, StringDictionaryBuilder,
    TimestampNanosecondBuilder,
};
use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, NullArray, RecordBatch, RecordBatchOptions};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};
use schedlab_trace::flat::{Kind, TableDef, Value};
use std::collections::HashMap;
use std::sync::Arc;

/// A column that grows. Texts are dictionaries: few different ones in many rows.
enum Growing {
    Int(Int64Builder),
    WallTime(TimestampNanosecondBuilder),
    Float(Float64Builder),
    Bool(BooleanBuilder),
    Text(StringDictionaryBuilder<Int32Type>),
}

impl Growing {
    fn new(kind: Kind) -> Growing {
        match kind {
            Kind::Int => Growing::Int(Int64Builder::new()),
            Kind::WallTime => {
                let builder = TimestampNanosecondBuilder::new();
                Growing::WallTime(builder.with_timezone(UTC))
            }
            Kind::Float => Growing::Float(Float64Builder::new()),
            Kind::Bool => Growing::Bool(BooleanBuilder::new()),
            Kind::Text => Growing::Text(StringDictionaryBuilder::new()),
        }
    }

    /// Appends `value`; one of another kind is missing.
    fn push(&mut self, value: Value<'_>) {
        match self {
            Growing::Int(all) => {
                all.append_option(if let Value::Int(value) = value { Some(value) } else { None })
            }
            Growing::WallTime(all) => {
                all.append_option(if let Value::Int(value) = value { Some(value) } else { None })
            }
            Growing::Float(all) => {
                all.append_option(if let Value::Float(value) = value { Some(value) } else { None })
            }
            Growing::Bool(all) => {
                all.append_option(if let Value::Bool(value) = value { Some(value) } else { None })
            }
            Growing::Text(all) => {
                all.append_option(if let Value::Text(value) = value { Some(value) } else { None })
            }
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Growing::Int(all) => Arc::new(all.finish()),
            Growing::WallTime(all) => Arc::new(all.finish()),
            Growing::Float(all) => Arc::new(all.finish()),
            Growing::Bool(all) => Arc::new(all.finish()),
            Growing::Text(all) => Arc::new(all.finish()),
        }
    }
}

/// The columns of one table.
pub(crate) struct Columns {
    schema: SchemaRef,
    growing: Vec<Growing>,
}

impl Columns {
    pub(crate) fn new(def: &TableDef) -> Columns {
        let fields =
            def.columns.iter().map(|column| field(column.name, column.doc, kind_of(column.kind)));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<Field>>()));
        Columns {
            schema,
            growing: def.columns.iter().map(|column| Growing::new(column.kind)).collect(),
        }
    }

    /// Appends a row, its values in the order of the columns.
    pub(crate) fn push(&mut self, row: &[Value<'_>]) {
        for (column, value) in self.growing.iter_mut().zip(row) {
            column.push(*value);
        }
    }

    /// Returns the rows since the last call.
    pub(crate) fn take(&mut self) -> Result<RecordBatch, ArrowError> {
        let arrays = self.growing.iter_mut().map(Growing::finish).collect();
        RecordBatch::try_new(Arc::clone(&self.schema), arrays)
    }

    pub(crate) fn finish(mut self) -> Result<RecordBatch, ArrowError> {
        self.take()
    }
}

/// The time zone of moments.
const UTC: &str = "UTC";

fn kind_of(kind: Kind) -> DataType {
    match kind {
        Kind::Int => DataType::Int64,
        Kind::WallTime => DataType::Timestamp(TimeUnit::Nanosecond, Some(UTC.into())),
        Kind::Float => DataType::Float64,
        Kind::Bool => DataType::Boolean,
        Kind::Text => DataType::Utf8,
    }
}

/// The Arrow field of a column; what it means is in its metadata, under `doc`. Texts are
/// dictionaries.
fn field(name: &str, doc: &str, kind: DataType) -> Field {
    let kind = match kind {
        DataType::Utf8 => DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
        plain => plain,
    };
    let doc = HashMap::from([("doc".to_owned(), doc.to_owned())]);
    Field::new(name, kind, true).with_metadata(doc)
}

/// A table whose declaration names its columns, but not what they hold: the first value of a column
/// says that.
pub struct LooseTable {
    columns: Vec<LooseColumn>,
    rows: usize,
}

/// A column of it; nothing grows until it has a value.
struct LooseColumn {
    name: String,
    doc: String,
    growing: Option<(Kind, Growing)>,
}

impl LooseTable {
    /// Returns a table of these columns: name, and what it means.
    pub fn new<'a>(columns: impl IntoIterator<Item = (&'a str, &'a str)>) -> LooseTable {
        let column = |(name, doc): (&str, &str)| LooseColumn {
            name: name.to_owned(),
            doc: doc.to_owned(),
            growing: None,
        };
        LooseTable { columns: columns.into_iter().map(column).collect(), rows: 0 }
    }

    /// Appends a row, its values in the order of the columns.
    ///
    /// # Errors
    /// A column that holds values of another kind.
    pub fn push(&mut self, row: &[Value<'_>]) -> Result<(), TableError> {
        for (column, value) in self.columns.iter_mut().zip(row) {
            let Some(kind) = kind_of_value(value) else {
                if let Some((_, growing)) = &mut column.growing {
                    growing.push(Value::None);
                }
                continue;
            };
            let rows = self.rows;
            let (known, growing) = column.growing.get_or_insert_with(|| {
                let mut growing = Growing::new(kind);
                (0..rows).for_each(|_| growing.push(Value::None));
                (kind, growing)
            });
            if *known != kind {
                return Err(TableError::Mixed { column: column.name.clone() });
            }
            growing.push(*value);
        }
        self.rows += 1;
        Ok(())
    }

    /// Returns the table. A column without a value has Arrow's type of nothing, which joins with
    /// any other.
    ///
    /// # Errors
    /// None is known.
    pub fn finish(self) -> Result<RecordBatch, TableError> {
        let (mut fields, mut arrays) = (Vec::new(), Vec::new());
        for LooseColumn { name, doc, growing } in self.columns {
            let (kind, array): (DataType, ArrayRef) = match growing {
                Some((kind, mut growing)) => (kind_of(kind), growing.finish()),
                None => (DataType::Null, Arc::new(NullArray::new(self.rows))),
            };
            fields.push(field(&name, &doc, kind));
            arrays.push(array);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)?)
    }
}

const fn kind_of_value(value: &Value<'_>) -> Option<Kind> {
    match value {
        Value::None => None,
        Value::Int(_) => Some(Kind::Int),
        Value::Float(_) => Some(Kind::Float),
        Value::Bool(_) => Some(Kind::Bool),
        Value::Text(_) => Some(Kind::Text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_what_its_first_value_is() {
        let mut table = LooseTable::new([("a", "A."), ("b", "B."), ("c", "C.")]);
        table.push(&[Value::None, Value::Text("x"), Value::None]).unwrap();
        table.push(&[Value::Int(7), Value::None, Value::None]).unwrap();
        let error = table.push(&[Value::Float(0.5), Value::None, Value::None]).unwrap_err();
        assert_eq!(error.to_string(), "column `a` holds values of two kinds: please report it");
        let mut table = LooseTable::new([("a", "A."), ("b", "B."), ("c", "C.")]);
        table.push(&[Value::None, Value::Text("x"), Value::None]).unwrap();
        table.push(&[Value::Int(7), Value::None, Value::None]).unwrap();
        let batch = table.finish().unwrap();
        assert_eq!(batch.num_rows(), 2);
        let kinds: Vec<DataType> =
            batch.schema().fields().iter().map(|field| field.data_type().clone()).collect();
        let text = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        assert_eq!(kinds, [DataType::Int64, text, DataType::Null]);
        assert_eq!(batch.schema().field(0).metadata()["doc"], "A.");
    }
}
