//! The Parquet files of a request: one for each partition of the table that has rows, or several if rows are sorted.

use std::collections::HashMap;
use std::io::{self, Write};

use anyhow::{Result, ensure};
use arrow_array::{RecordBatch, UInt32Array};
use arrow_row::Rows;
use arrow_schema::SchemaRef;
use arrow_select::take::take_record_batch;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataWriter};
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use parquet::file::statistics::Statistics;
use parquet::schema::types::ColumnDescPtr;

use crate::partitions::{Partition, PartitionField};
use crate::sorting::{PLACE_BYTES, SortField, Sorting, sorted};

/// Maximum number of open files, each of which has a buffer in the client of its storage.
const MAX_OPEN: usize = 16;
/// Maximum number of partitions of a sorted table, whose files are complete at once: their rows would be few.
const MAX_SORTED: usize = 128;
/// Bytes of the rows of all partitions, and of the encoder of some, until those of the largest partition are written as a
/// row group, or as a sorted file.
///
/// Only one file is encoded at a time: an encoder of a column has a megabyte or more.
const PENDING_BYTES: usize = 44 << 20;
/// Bytes of an encoder, and of the copy that is sorted, for each byte of the rows that are encoded at once.
const ENCODED_TIMES: usize = 3;
/// A quarter of Iceberg's row groups, which the writer keeps in memory.
const ROW_GROUP_BYTES: usize = 32 << 20;
/// The same of a file whose rows are in memory until all of them are written.
const SORTED_ROW_GROUP_BYTES: usize = 8 << 20;

/// Where a file is written.
pub trait Target: Write + Send {
    /// Complete the file.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    fn close(&mut self) -> io::Result<()> {
        self.flush()
    }
}

impl Target for Vec<u8> {}
impl Target for io::Sink {}

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

/// Files that are being written. The file of a partition is open until the end, unless its rows are sorted.
pub struct Files<'a, W: Target, O: FnMut(&Partition) -> Result<W>> {
    fields: &'a [PartitionField],
    sorting: Option<Sorting<'a>>,
    schema: SchemaRef,
    properties: WriterProperties,
    open: O,
    places: HashMap<Partition, usize>,
    groups: Vec<Group<W>>,
    written: Vec<Written>,
}

/// The rows of a partition.
struct Group<W: Target> {
    partition: Partition,
    pending: Vec<RecordBatch>,
    /// The keys of the pending rows if these are sorted.
    keys: Vec<Rows>,
    file: Option<File<W>>,
}

impl<W: Target> Group<W> {
    fn pending_bytes(&self) -> usize {
        let of_rows = self.pending.iter().map(RecordBatch::get_array_memory_size);
        of_rows.chain(self.keys.iter().map(|keys| keys.size() + keys.num_rows() * PLACE_BYTES)).sum()
    }
}

struct File<W: Target> {
    partition: Partition,
    rows: usize,
    writer: ArrowWriter<W>,
}

impl<W: Target> File<W> {
    fn write(&mut self, rows: &RecordBatch) -> Result<()> {
        self.rows += rows.num_rows();
        Ok(self.writer.write(rows)?)
    }

    fn complete(mut self) -> Result<Written> {
        let metadata = self.writer.finish()?;
        self.writer.inner_mut().close()?;
        let mut footer = Vec::new();
        ParquetMetaDataWriter::new(&mut footer, &metadata).finish()?;
        Ok(Written {
            partition: self.partition,
            rows: self.rows,
            footer,
            size: self.writer.bytes_written() as u64,
            bounds: float_bounds(&metadata),
        })
    }
}

impl<'a, W: Target, O: FnMut(&Partition) -> Result<W>> Files<'a, W, O> {
    /// Return no files. `open` is called for each file once there are rows of it.
    ///
    /// # Errors
    ///
    /// Rows of these columns have no such order.
    pub fn new(
        fields: &'a [PartitionField],
        order: &'a [SortField],
        schema: SchemaRef,
        properties: WriterPropertiesBuilder,
        open: O,
    ) -> Result<Self> {
        let sorting = if order.is_empty() { None } else { Some(Sorting::new(order, &schema)?) };
        let bytes = if sorting.is_some() { SORTED_ROW_GROUP_BYTES } else { ROW_GROUP_BYTES };
        let properties = properties.set_max_row_group_bytes(Some(bytes)).build();
        Ok(Self { fields, sorting, schema, properties, open, places: HashMap::new(), groups: vec![], written: vec![] })
    }

    /// Write rows to the files of their partitions, in their order or in that of the table.
    ///
    /// # Errors
    ///
    /// The rows are of too many partitions, a row has no partition or no key, or a file cannot be written.
    pub fn write(&mut self, rows: RecordBatch) -> Result<()> {
        if self.fields.is_empty() {
            let place = self.place(Vec::new())?;
            match &mut self.groups[place].file {
                Some(file) => return file.write(&rows),
                None => {
                    self.make_room(rows.get_array_memory_size())?;
                    self.keep(place, rows)?;
                }
            }
        } else {
            self.make_room(rows.get_array_memory_size())?;
            let mut by_place: Vec<Vec<u32>> = Vec::new();
            for row in 0..rows.num_rows() {
                let values = self.fields.iter().map(|field| field.value(rows.column(field.column), row));
                let place = self.place(values.collect::<Result<Partition>>()?)?;
                by_place.resize_with(self.groups.len(), Vec::new);
                by_place[place].push(row.try_into()?);
            }
            for (place, of_place) in by_place.into_iter().enumerate().filter(|(_, of_place)| !of_place.is_empty()) {
                self.keep(place, take_record_batch(&rows, &UInt32Array::from(of_place))?)?;
            }
            drop(rows);
        }
        self.make_room(0)
    }

    /// Write pending rows, those of the largest partitions first, until rows of some bytes can be kept as well.
    fn make_room(&mut self, bytes: usize) -> Result<()> {
        loop {
            let pending = self.groups.iter().map(Group::pending_bytes).sum::<usize>();
            let batches = self.groups.iter().flat_map(|group| &group.pending);
            let largest = batches.map(RecordBatch::get_array_memory_size).fold(bytes, usize::max);
            if pending == 0 || pending + bytes + ENCODED_TIMES * largest <= PENDING_BYTES {
                return Ok(());
            }
            let place = (0..self.groups.len()).max_by_key(|&place| self.groups[place].pending_bytes());
            place.map_or(Ok(()), |place| self.flush(place))?;
        }
    }

    /// Return the place of a partition.
    fn place(&mut self, partition: Partition) -> Result<usize> {
        if let Some(place) = self.places.get(&partition) {
            return Ok(*place);
        }
        let place = self.groups.len();
        let most = if self.sorting.is_some() { MAX_SORTED } else { MAX_OPEN };
        ensure!(place < most, "the rows of a task are of more than {most} partitions");
        let file = if self.sorting.is_some() { None } else { Some(self.create(partition.clone())?) };
        self.groups.push(Group { partition: partition.clone(), pending: Vec::new(), keys: Vec::new(), file });
        self.places.insert(partition, place);
        Ok(place)
    }

    fn create(&mut self, partition: Partition) -> Result<File<W>> {
        let options = ArrowWriterOptions::new().with_properties(self.properties.clone()).with_skip_arrow_metadata(true);
        let writer = ArrowWriter::try_new_with_options((self.open)(&partition)?, self.schema.clone(), options)?;
        Ok(File { partition, rows: 0, writer })
    }

    fn keep(&mut self, place: usize, rows: RecordBatch) -> Result<()> {
        if let Some(sorting) = &self.sorting {
            self.groups[place].keys.push(sorting.keys(&rows)?);
        }
        self.groups[place].pending.push(rows);
        Ok(())
    }

    /// Write the pending rows of a partition as a row group, or as a sorted file.
    fn flush(&mut self, place: usize) -> Result<()> {
        let group = &mut self.groups[place];
        let (pending, keys) = (std::mem::take(&mut group.pending), std::mem::take(&mut group.keys));
        if let Some(file) = &mut group.file {
            pending.into_iter().try_for_each(|rows| file.write(&rows))?;
            return Ok(file.writer.flush()?);
        }
        let partition = group.partition.clone();
        let mut file = self.create(partition)?;
        sorted(&pending, &keys).try_for_each(|rows| file.write(&rows?))?;
        self.written.push(file.complete()?);
        Ok(())
    }

    /// Complete the files, and return them in the order in which they were opened.
    ///
    /// # Errors
    ///
    /// A file cannot be written.
    pub fn finish(mut self) -> Result<Vec<Written>> {
        for place in 0..self.groups.len() {
            if self.groups[place].file.is_some() || !self.groups[place].pending.is_empty() {
                self.flush(place)?;
            }
        }
        let open = self.groups.into_iter().filter_map(|group| group.file);
        self.written.into_iter().map(Ok).chain(open.map(File::complete)).collect()
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
