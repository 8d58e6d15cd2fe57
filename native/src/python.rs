//! The Python module `lakehouse_native`.

use std::io::{self, BufWriter, Write};
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, anyhow};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::connection::Login;
use crate::files::{Target, Written};
use crate::partitions::Partition;
use crate::range::{self, Request, Spilled};

/// Bytes of a file that are given to Python at once.
const WRITE_BYTES: usize = 4 << 20;
/// The same of one of several files.
const PARTITION_WRITE_BYTES: usize = 256 << 10;

/// A Python file.
struct File(Py<PyAny>);

/// A Python file with a buffer.
impl Target for BufWriter<File> {
    fn close(&mut self) -> io::Result<()> {
        self.flush()?;
        Python::attach(|py| self.get_ref().0.call_method0(py, "close")).map_err(io::Error::other)?;
        Ok(())
    }
}

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Python::attach(|py| self.0.call_method1(py, "write", (PyBytes::new(py, bytes),)))
            .map(|_| bytes.len())
            .map_err(io::Error::other)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Read ranges of a topic, write their rows, and return the files in the order in which they were opened.
///
/// Args:
///     request: JSON text; see `spark/native/task.py`.
///     login: JSON text with secrets; see `resources/kafka/connection.py`.
///     open: Called for each file once there are rows of it, with the list of the values of its partition in Iceberg's
///         single-value serialization, or None for null; returns a file that is open for writing. It is closed here.
///     spill: Called with lists of the records that do not become rows, in order, each as a dictionary in the columns of
///         Spark's Kafka source with its timestamp in milliseconds.
///
/// Returns:
///     Each file as a dictionary: the `partition` as it was given to `open`, the number of `rows`, the `footer`, the size
///     in `bytes`, and the `bounds` of columns of floating-point numbers (`path`, `lower` and `upper`, which are None
///     without numbers, and the number of `nans`).
///
/// Raises:
///     RuntimeError: The ranges cannot be read or written, or `open` or `spill` failed. The text has no value of a record
///         but what these raise.
#[pyfunction]
fn decide<'py>(
    py: Python<'py>,
    request: &str,
    login: &str,
    open: Py<PyAny>,
    spill: Py<PyAny>,
) -> PyResult<Bound<'py, PyList>> {
    let files = py
        .detach(|| -> Result<_> {
            let request: Request = serde_json::from_str(request).context("the request is not valid")?;
            // The cause may quote a secret.
            let login: Login = serde_json::from_str(login).map_err(|_| anyhow!("the login is not valid"))?;
            let capacity = if request.is_partitioned() { PARTITION_WRITE_BYTES } else { WRITE_BYTES };
            let open = |partition: &Partition| {
                let file = Python::attach(|py| open.call1(py, (values(py, partition)?,))).map_err(io::Error::other)?;
                Ok(BufWriter::with_capacity(capacity, File(file)))
            };
            range::decide(&request, login, open, |records| give(&spill, &records))
        })
        .map_err(|error| PyRuntimeError::new_err(format!("{error:#}")))?;
    PyList::new(py, files.iter().map(|file| file_as_dictionary(py, file)).collect::<PyResult<Vec<_>>>()?)
}

/// Call a Python function with records.
fn give(spill: &Py<PyAny>, records: &[Spilled]) -> Result<()> {
    Python::attach(|py| {
        let records = records.iter().map(|record| as_dictionary(py, record)).collect::<PyResult<Vec<_>>>()?;
        spill.call1(py, (PyList::new(py, records)?,))?;
        Ok(())
    })
}

/// Decode values, and return the rows as Parquet files with their partitions, and the places of the other values.
///
/// Args:
///     layout: JSON text; see `spark/native/plan.py`.
///     values: The values with their frames, at offsets 0, 1, … of partition 0.
///
/// Raises:
///     RuntimeError: The layout is not valid, or the rows cannot be written.
#[pyfunction]
#[expect(clippy::type_complexity)]
fn decide_values<'py>(
    py: Python<'py>,
    layout: &str,
    values: Vec<Option<Vec<u8>>>,
) -> PyResult<(Vec<(Bound<'py, PyList>, Bound<'py, PyBytes>)>, Vec<i64>)> {
    let (mut written, mut spilled) = (Vec::new(), Vec::new());
    let open = |_: &Partition| {
        written.push(Memory::default());
        Ok(written[written.len() - 1].clone())
    };
    let spill = |records: Vec<Spilled>| {
        spilled.extend(records.iter().map(|record| record.offset));
        Ok(())
    };
    let files = serde_json::from_str(layout)
        .context("the layout is not valid")
        .and_then(|layout| range::decide_values(&layout, &values, open, spill))
        .map_err(|error| PyRuntimeError::new_err(format!("{error:#}")))?;
    let files = files.iter().zip(&written).map(|(file, memory)| {
        let bytes = memory.0.lock().expect("no writer panics");
        Ok((self::values(py, &file.partition)?, PyBytes::new(py, &bytes)))
    });
    Ok((files.collect::<PyResult<_>>()?, spilled))
}

impl Target for Memory {}

/// A file in memory.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no writer panics").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn values<'py>(py: Python<'py>, partition: &Partition) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, partition.iter().map(|value| value.as_ref().map(|bytes| PyBytes::new(py, bytes))))
}

fn file_as_dictionary<'py>(py: Python<'py>, file: &Written) -> PyResult<Bound<'py, PyDict>> {
    let columns = PyDict::new(py);
    columns.set_item("partition", values(py, &file.partition)?)?;
    columns.set_item("rows", file.rows)?;
    columns.set_item("footer", PyBytes::new(py, &file.footer))?;
    columns.set_item("bytes", file.size)?;
    let bounds = file.bounds.iter().map(|of_column| {
        let columns = PyDict::new(py);
        let (lower, upper) = of_column.limits.unzip();
        columns.set_item("path", &of_column.path)?;
        columns.set_item("lower", lower)?;
        columns.set_item("upper", upper)?;
        columns.set_item("nans", of_column.nans)?;
        Ok(columns)
    });
    columns.set_item("bounds", PyList::new(py, bounds.collect::<PyResult<Vec<_>>>()?)?)?;
    Ok(columns)
}

fn as_dictionary<'py>(py: Python<'py>, record: &Spilled) -> PyResult<Bound<'py, PyDict>> {
    let bytes = |data: &Option<Vec<u8>>| data.as_ref().map(|data| PyBytes::new(py, data));
    let columns = PyDict::new(py);
    columns.set_item("partition", record.partition)?;
    columns.set_item("offset", record.offset)?;
    columns.set_item("timestamp", record.timestamp)?;
    columns.set_item("timestampType", record.timestamp_type)?;
    columns.set_item("key", bytes(&record.key))?;
    columns.set_item("value", bytes(&record.value))?;
    let headers = record.headers.iter().map(|(key, value)| {
        let header = PyDict::new(py);
        header.set_item("key", key)?;
        header.set_item("value", bytes(value))?;
        Ok(header)
    });
    let headers = headers.collect::<PyResult<Vec<_>>>()?;
    columns.set_item("headers", if headers.is_empty() { None } else { Some(PyList::new(py, headers)?) })?;
    Ok(columns)
}

/// The compiled decoder of lakehouse.
#[pymodule]
fn lakehouse_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(decide, module)?)?;
    module.add_function(wrap_pyfunction!(decide_values, module)?)
}
