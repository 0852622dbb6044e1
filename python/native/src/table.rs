//! A table that speaks Arrow's C stream interface.

use arrow_array::cast::AsArray;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::types::{Float64Type, Int32Type, Int64Type, TimestampNanosecondType};
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchIterator};
use arrow_schema::DataType;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use schedlab_model::text::iso8601_ns;

/// One record batch.
#[pyclass(frozen, module = "schedlab._native")]
pub(crate) struct NativeTable(pub(crate) RecordBatch);

#[pymethods]
impl NativeTable {
    /// Arrow's PyCapsule protocol: pyarrow, polars, pandas, duckdb and others take the data from
    /// here without a copy.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The protocol allows to answer with another schema than the requested one.
        drop(requested_schema);
        let batches = RecordBatchIterator::new([Ok(self.0.clone())], self.0.schema());
        PyCapsule::new_with_value(
            py,
            FFI_ArrowArrayStream::new(Box::new(batches)),
            c"arrow_array_stream",
        )
    }

    /// Names and meanings of the columns.
    #[getter]
    fn columns(&self) -> Vec<(String, String)> {
        let schema = self.0.schema();
        let doc = |field: &arrow_schema::FieldRef| {
            (field.name().clone(), field.metadata().get("doc").cloned().unwrap_or_default())
        };
        schema.fields().iter().map(doc).collect()
    }

    /// Returns the first `count` rows, a list of values each.
    fn head(&self, py: Python<'_>, count: usize) -> PyResult<Vec<Vec<Py<PyAny>>>> {
        let count = count.min(self.0.num_rows());
        let row = |row| self.0.columns().iter().map(|column| value(py, column, row)).collect();
        (0..count).map(row).collect()
    }

    fn __len__(&self) -> usize {
        self.0.num_rows()
    }
}

/// Returns one value as Python has it; missing ones and those of an unknown type are `None`.
fn value(py: Python<'_>, column: &ArrayRef, row: usize) -> PyResult<Py<PyAny>> {
    if column.is_null(row) {
        return Ok(py.None());
    }
    match column.data_type() {
        DataType::Int64 => column.as_primitive::<Int64Type>().value(row).into_py_any(py),
        DataType::Timestamp(..) => {
            let moment = column.as_primitive::<TimestampNanosecondType>().value(row);
            iso8601_ns(u64::try_from(moment).unwrap_or_default()).into_py_any(py)
        }
        DataType::Float64 => column.as_primitive::<Float64Type>().value(row).into_py_any(py),
        DataType::Boolean => column.as_boolean().value(row).into_py_any(py),
        DataType::Dictionary(..) => {
            let words = column.as_dictionary::<Int32Type>();
            let key = words.key(row).unwrap_or_default();
            words.values().as_string::<i32>().value(key).into_py_any(py)
        }
        _ => Ok(py.None()),
    }
}
