//! Rows into columns.

use arrow_array::builder::{BooleanBuilder, Float64Builder, Int64Builder, StringDictionaryBuilder};
use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use schedlab_trace::flat::{Kind, TableDef, Value};
use std::collections::HashMap;
use std::sync::Arc;

/// A column that grows. Texts are dictionaries: few different ones in many rows.
enum Growing {
    Int(Int64Builder),
    Float(Float64Builder),
    Bool(BooleanBuilder),
    Text(StringDictionaryBuilder<Int32Type>),
}

impl Growing {
    fn new(kind: Kind) -> Growing {
        match kind {
            Kind::Int => Growing::Int(Int64Builder::new()),
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
            Growing::Float(all) => Arc::new(all.finish()),
            Growing::Bool(all) => Arc::new(all.finish()),
            Growing::Text(all) => Arc::new(all.finish()),
        }
    }
}

/// The columns of one table.
pub(crate) struct Columns {
    def: &'static TableDef,
    growing: Vec<Growing>,
}

impl Columns {
    pub(crate) fn new(def: &'static TableDef) -> Columns {
        Columns { def, growing: def.columns.iter().map(|column| Growing::new(column.kind)).collect() }
    }

    /// Appends a row, its values in the order of the columns.
    pub(crate) fn push(&mut self, row: &[Value<'_>]) {
        for (column, value) in self.growing.iter_mut().zip(row) {
            column.push(*value);
        }
    }

    pub(crate) fn finish(mut self) -> Result<RecordBatch, ArrowError> {
        let arrays = self.growing.iter_mut().map(Growing::finish).collect();
        RecordBatch::try_new(Arc::new(schema(self.def)), arrays)
    }
}

/// The Arrow schema of a table; what a column means is in its metadata, under `doc`.
fn schema(def: &TableDef) -> Schema {
    let field = |column: &schedlab_trace::flat::ColumnDef| {
        let kind = match column.kind {
            Kind::Int => DataType::Int64,
            Kind::Float => DataType::Float64,
            Kind::Bool => DataType::Boolean,
            Kind::Text => DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
        };
        let doc = HashMap::from([("doc".to_owned(), column.doc.to_owned())]);
        Field::new(column.name, kind, true).with_metadata(doc)
    };
    Schema::new(def.columns.iter().map(field).collect::<Vec<Field>>())
}
