//! The Parquet files of a request: one for each partition of the table that has rows.

use std::collections::HashMap;
use std::io::Write;

use anyhow::{Result, ensure};
use arrow_array::{RecordBatch, UInt32Array};
use arrow_schema::SchemaRef;
use arrow_select::take::take_record_batch;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataWriter};
use parquet::file::properties::WriterProperties;
use parquet::file::statistics::Statistics;
use parquet::schema::types::ColumnDescPtr;

use crate::partitions::{Partition, PartitionField};

/// Maximum number of files, each of which has a buffer in the client of its storage.
const MAX_FILES: usize = 16;
/// Bytes of the rows of all partitions that are kept until those of the largest one become a row group.
///
/// Only one file is encoded at a time: an encoder of a column has a megabyte or more.
const PENDING_BYTES: usize = 32 << 20;

/// A file that was written.
pub struct Written {
    /// The partition of its rows.
    pub partition: Partition,
    /// Number of rows.
    pub rows: usize,
    /// The footer.
    pub footer: Vec<u8>,
    /// Size in bytes.
    pub size: u64,
    /// The bounds of columns of floating-point numbers.
    pub bounds: Vec<Bounds>,
}

/// The bounds of a column of floating-point numbers, which the footer has in the IEEE 754 total order, as Iceberg does.
///
/// Other libraries do not read bounds in that order from a footer yet (Parquet format, ColumnOrder).
pub struct Bounds {
    /// The path of the column, with dots between.
    pub path: String,
    /// The smallest and the largest number; none if there is none but NaN.
    pub limits: Option<(f64, f64)>,
    /// The number of NaN.
    pub nans: u64,
}

/// Files that are being written.
pub struct Files<'a, W: Write + Send, O: FnMut(&Partition) -> Result<W>> {
    fields: &'a [PartitionField],
    schema: SchemaRef,
    properties: WriterProperties,
    open: O,
    places: HashMap<Partition, usize>,
    files: Vec<File<W>>,
}

struct File<W: Write + Send> {
    partition: Partition,
    rows: usize,
    pending: Vec<RecordBatch>,
    writer: ArrowWriter<W>,
}

impl<W: Write + Send> File<W> {
    fn pending_bytes(&self) -> usize {
        self.pending.iter().map(RecordBatch::get_array_memory_size).sum()
    }

    /// Write the pending rows as a row group.
    fn flush(&mut self) -> Result<()> {
        self.pending.drain(..).try_for_each(|rows| self.writer.write(&rows))?;
        Ok(self.writer.flush()?)
    }
}

impl<'a, W: Write + Send, O: FnMut(&Partition) -> Result<W>> Files<'a, W, O> {
    /// Return no files. `open` is called for each partition once there are rows of it.
    pub fn new(fields: &'a [PartitionField], schema: SchemaRef, properties: WriterProperties, open: O) -> Self {
        Self { fields, schema, properties, open, places: HashMap::new(), files: Vec::new() }
    }

    /// Write rows to the files of their partitions, in their order.
    ///
    /// # Errors
    ///
    /// The rows are of too many partitions, a row has no partition, or a file cannot be written.
    pub fn write(&mut self, rows: &RecordBatch) -> Result<()> {
        if self.fields.is_empty() {
            let place = self.place(Vec::new())?;
            self.files[place].rows += rows.num_rows();
            return Ok(self.files[place].writer.write(rows)?);
        }
        let mut by_file: Vec<Vec<u32>> = vec![Vec::new(); MAX_FILES];
        for row in 0..rows.num_rows() {
            let values = self.fields.iter().map(|field| field.value(rows.column(field.column), row));
            let partition = values.collect::<Result<Partition>>()?;
            by_file[self.place(partition)?].push(row.try_into()?);
        }
        for (place, of_file) in by_file.into_iter().enumerate().filter(|(_, of_file)| !of_file.is_empty()) {
            let of_file = take_record_batch(rows, &UInt32Array::from(of_file))?;
            self.files[place].rows += of_file.num_rows();
            self.files[place].pending.push(of_file);
        }
        while self.files.iter().map(File::pending_bytes).sum::<usize>() > PENDING_BYTES {
            self.files.iter_mut().max_by_key(|file| file.pending_bytes()).map_or(Ok(()), File::flush)?;
        }
        Ok(())
    }

    /// Return the place of the file of a partition.
    fn place(&mut self, partition: Partition) -> Result<usize> {
        if let Some(place) = self.places.get(&partition) {
            return Ok(*place);
        }
        let place = self.files.len();
        ensure!(place < MAX_FILES, "the rows of a task are of more than {MAX_FILES} partitions");
        let options = ArrowWriterOptions::new().with_properties(self.properties.clone()).with_skip_arrow_metadata(true);
        let writer = ArrowWriter::try_new_with_options((self.open)(&partition)?, self.schema.clone(), options)?;
        self.files.push(File { partition: partition.clone(), rows: 0, pending: Vec::new(), writer });
        self.places.insert(partition, place);
        Ok(place)
    }

    /// Complete the files, and return them in the order in which they were opened.
    ///
    /// # Errors
    ///
    /// A file cannot be written.
    pub fn finish(self) -> Result<Vec<Written>> {
        let written = self.files.into_iter().map(|mut file| {
            file.flush()?;
            let File { partition, rows, mut writer, .. } = file;
            let metadata = writer.finish()?;
            let mut footer = Vec::new();
            ParquetMetaDataWriter::new(&mut footer, &metadata).finish()?;
            Ok(Written {
                partition,
                rows,
                footer,
                size: writer.bytes_written() as u64,
                bounds: float_bounds(&metadata),
            })
        });
        written.collect()
    }
}

/// Return the bounds of the columns of floating-point numbers for which each row group has statistics.
fn float_bounds(metadata: &ParquetMetaData) -> Vec<Bounds> {
    let columns = metadata.file_metadata().schema_descr().columns();
    let of_column = |(index, column): (usize, &ColumnDescPtr)| {
        let (mut lower, mut upper, mut nans) = (None::<f64>, None::<f64>, 0);
        for group in metadata.row_groups() {
            let (low, high, of_group) = match group.column(index).statistics()? {
                Statistics::Float(of) => {
                    (of.min_opt().copied().map(f64::from), of.max_opt().copied().map(f64::from), of.nan_count_opt())
                }
                Statistics::Double(of) => (of.min_opt().copied(), of.max_opt().copied(), of.nan_count_opt()),
                _ => return None,
            };
            // A row group of nulls has neither.
            nans += if low.is_none() { of_group.unwrap_or(0) } else { of_group? };
            // Bounds are NaN if a row group has no other number.
            let numbers = |bound: Option<f64>| bound.filter(|bound| !bound.is_nan());
            lower = numbers(low).into_iter().chain(lower).min_by(f64::total_cmp);
            upper = numbers(high).into_iter().chain(upper).max_by(f64::total_cmp);
        }
        Some(Bounds { path: column.path().string(), limits: lower.zip(upper), nans })
    };
    columns.iter().enumerate().filter_map(of_column).collect()
}
