//! A table that speaks Arrow's C stream interface.

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{RecordBatch, RecordBatchIterator};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

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

    fn __len__(&self) -> usize {
        self.0.num_rows()
    }
}
