//! Ranges of a topic, decided and written in one pass: rows to Parquet files, all other records to the caller.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{Schema, SchemaRef};
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::ColumnPath;
use serde::Deserialize;

use crate::avro::{Datum, Node, append_record, check};
use crate::batches::{Aborted, Headers, Record, Walk};
use crate::columns::{Column, ColumnSchema};
use crate::connection::{Login, Security};
use crate::files::{Files, Target, Written};
use crate::partitions::{Partition, PartitionField};
use crate::sorting::SortField;
use crate::wire::Topic;

/// Bytes of a message in the Confluent wire format before its body: a zero byte and the schema id.
const FRAME_BYTES: usize = 5;
/// Headers that have a schema id in place of the frame.
const ID_HEADERS: [&str; 2] = ["__key_schema_id", "__value_schema_id"];
/// Maximum rows, and bytes of their columns, that are collected before they are written.
const BATCH_ROWS: usize = 32_768;
const BATCH_BYTES: usize = 4 << 20;
/// Maximum bytes of the key and the value of a record that becomes a row. Columns, pages and files have copies of them.
const MAX_MESSAGE_BYTES: usize = 2 << 20;
/// Bytes of the records that do not become rows, at which they are given away.
const SPILLED_BYTES: usize = 2 << 20;
/// Maximum bytes of the key and the value of such a record.
const MAX_SPILLED_BYTES: usize = 8 << 20;
/// Number of rows, and bytes of messages, after which the bytes of columns are examined.
const EXAMINED_ROWS: usize = 64;
const EXAMINED_BYTES: usize = 64 << 10;
/// Settings of Iceberg's writer (Iceberg, Configuration: write properties).
const PAGE_ROWS: usize = 20_000;
const DICTIONARY_BYTES: usize = 2 << 20;
const ZSTD_LEVEL: i32 = 3;

/// What to read and how to decide about it, as `spark/native/task.py` describes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    bootstrap: Vec<String>,
    topic: String,
    /// The id of the topic as hexadecimal text.
    topic_id: String,
    /// Partition, first offset (inclusive) and end (exclusive).
    ranges: Vec<(i32, i64, i64)>,
    /// The topic's values and the table's columns.
    layout: Layout,
    /// Maximum duration.
    most_seconds: u64,
}

impl Request {
    /// Return whether the rows may be in several files.
    pub fn is_partitioned(&self) -> bool {
        !self.layout.partition.is_empty() || !self.layout.sort.is_empty()
    }
}

/// How values become rows, as `spark/native/plan.py` describes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layout {
    /// The plans of values by the schema id that they were written with.
    writers: HashMap<u32, Node>,
    /// The columns of the table.
    columns: Vec<ColumnSchema>,
    /// The places of the columns with metadata of a record.
    metadata: Vec<(usize, Metadata)>,
    /// The fields of the table's partition spec.
    #[serde(default)]
    partition: Vec<PartitionField>,
    /// The fields of the table's sort order.
    #[serde(default)]
    sort: Vec<SortField>,
}

/// Metadata of a record (`lakehouse/core/tables/metadata_columns.py`).
#[derive(Clone, Copy, Deserialize)]
enum Metadata {
    #[serde(rename = "kafka_topic")]
    Topic,
    #[serde(rename = "kafka_partition")]
    Partition,
    #[serde(rename = "kafka_offset")]
    Offset,
    #[serde(rename = "kafka_timestamp")]
    Timestamp,
    #[serde(rename = "kafka_timestamp_type")]
    TimestampType,
    #[serde(rename = "kafka_raw_key")]
    RawKey,
    #[serde(rename = "kafka_raw_value")]
    RawValue,
    #[serde(rename = "kafka_schema_id")]
    SchemaId,
}

/// A header of a message: its key and value.
type Header = (String, Option<Vec<u8>>);

/// A record that does not become a row.
pub struct Spilled {
    /// Its partition.
    pub partition: i32,
    /// Its offset.
    pub offset: i64,
    /// Milliseconds since the epoch.
    pub timestamp: i64,
    /// 0 for the producer's clock, 1 for the broker's.
    pub timestamp_type: i32,
    /// The message key.
    pub key: Option<Vec<u8>>,
    /// The message value.
    pub value: Option<Vec<u8>>,
    /// The message headers in order.
    pub headers: Vec<Header>,
}

/// Read the ranges, write the rows, and return the files in the order in which they were opened.
///
/// `open` is called for each file once there are rows of it: one of each partition of the table, or several if the rows
/// are sorted. `spill` is called with the records that do not become rows, in order of the ranges, whenever they have a
/// number of bytes, and at the end.
///
/// # Errors
///
/// A broker cannot be reached, the log does not have exactly what its batches announce, rows are of too many partitions,
/// a file cannot be written, a function that is called fails, or all of it takes too long. What was written until then
/// is of no use.
pub fn decide<W: Target>(
    request: &Request,
    login: Login,
    open: impl FnMut(&Partition) -> Result<W>,
    spill: impl FnMut(Vec<Spilled>) -> Result<()>,
) -> Result<Vec<Written>> {
    let began = Instant::now();
    let security = Security::of(login)?;
    let mut topic = Topic::open(request.bootstrap.clone(), security, &request.topic, &request.topic_id)?;
    let mut rows = Rows::new(&request.layout, &request.topic, open, spill)?;
    for &(partition, start, end) in &request.ranges {
        rows.partition = partition;
        let mut walk = Walk::from(start);
        topic.fetch(partition, start, end, |fetched| {
            let seconds = request.most_seconds;
            ensure!(began.elapsed() < Duration::from_secs(seconds), "the ranges were not read within {seconds} s");
            let mut aborted = Aborted::new(fetched.aborted);
            walk.records(&fetched.batches, &mut aborted, end, |record| rows.add(&record))
        })?;
    }
    rows.finish()
}

/// Write the rows of values as if they were the records of a partition with one key each; see `decide`.
///
/// # Errors
///
/// The rows cannot be written.
pub fn decide_values<W: Target>(
    layout: &Layout,
    values: &[Option<Vec<u8>>],
    open: impl FnMut(&Partition) -> Result<W>,
    spill: impl FnMut(Vec<Spilled>) -> Result<()>,
) -> Result<Vec<Written>> {
    let mut rows = Rows::new(layout, "", open, spill)?;
    for (offset, value) in values.iter().enumerate() {
        let (offset, value, headers) = (offset as i64, value.as_deref(), Headers::none());
        rows.add(&Record { offset, timestamp: 0, is_log_append_time: false, key: None, value, headers })?;
    }
    rows.finish()
}

struct Rows<'a, W: Target, O: FnMut(&Partition) -> Result<W>, S: FnMut(Vec<Spilled>) -> Result<()>> {
    layout: &'a Layout,
    topic: &'a str,
    on_spill: S,
    schema: SchemaRef,
    columns: Vec<Column>,
    partition: i32,
    pending_rows: usize,
    spilled: Vec<Spilled>,
    spilled_bytes: usize,
    files: Files<'a, W, O>,
}

impl<'a, W: Target, O: FnMut(&Partition) -> Result<W>, S: FnMut(Vec<Spilled>) -> Result<()>> Rows<'a, W, O, S> {
    fn new(layout: &'a Layout, topic: &'a str, open: O, on_spill: S) -> Result<Self> {
        let fields: Vec<_> = layout.columns.iter().map(ColumnSchema::field).collect();
        let of_order = layout.sort.iter().map(|field| &field.source);
        let mut sources = layout.partition.iter().chain(of_order);
        ensure!(
            sources.all(|field| field.column < fields.len()),
            "a field of the partitions or the order has no column"
        );
        let columns = fields.iter().map(|field| Column::empty(field.data_type())).collect();
        let schema = Arc::new(Schema::new(fields));
        let files = Files::new(&layout.partition, &layout.sort, schema.clone(), properties(layout, &schema)?, open)?;
        Ok(Self {
            layout,
            topic,
            on_spill,
            schema,
            columns,
            partition: 0,
            pending_rows: 0,
            spilled: Vec::new(),
            spilled_bytes: 0,
            files,
        })
    }

    fn add(&mut self, record: &Record) -> Result<()> {
        let Some((id, plan, body)) = self.readable(record) else { return self.spill(record) };
        let appended = append_record(plan, &mut Datum(body), &mut self.columns);
        ensure!(appended.is_some(), "the items of the record at offset {} are too many", record.offset);
        for &(place, metadata) in &self.layout.metadata {
            append_metadata(metadata, &mut self.columns[place], record, self.partition, id, self.topic)?;
        }
        self.pending_rows += 1;
        let is_large = record.key.map_or(0, <[u8]>::len) + body.len() >= EXAMINED_BYTES;
        let is_examined = is_large || self.pending_rows.is_multiple_of(EXAMINED_ROWS);
        if is_examined
            && (self.pending_rows >= BATCH_ROWS || self.columns.iter().map(Column::bytes).sum::<usize>() >= BATCH_BYTES)
        {
            self.write()?;
        }
        Ok(())
    }

    /// Return the schema id, the plan and the body of a record that becomes a row.
    fn readable<'r>(&self, record: &Record<'r>) -> Option<(u32, &'a Node, &'r [u8])> {
        if record.headers.clone().any(|(key, _)| ID_HEADERS.contains(&key)) {
            return None;
        }
        let value = record.value?;
        if record.key.map_or(0, <[u8]>::len) + value.len() > MAX_MESSAGE_BYTES {
            return None;
        }
        let (frame, body) = value.split_at_checked(FRAME_BYTES)?;
        let (0, id) = (frame[0], u32::from_be_bytes(frame[1..].try_into().ok()?)) else { return None };
        let plan = self.layout.writers.get(&id)?;
        let mut datum = Datum(body);
        check(plan, &mut datum)?;
        datum.0.is_empty().then_some((id, plan, body))
    }

    fn spill(&mut self, record: &Record) -> Result<()> {
        let spilled = Spilled {
            partition: self.partition,
            offset: record.offset,
            timestamp: record.timestamp,
            timestamp_type: record.is_log_append_time.into(),
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            headers: record.headers.clone().map(|(key, value)| (key.to_owned(), value.map(<[u8]>::to_vec))).collect(),
        };
        let size = |(key, value): &Header| size_of::<Header>() + key.len() + value.as_ref().map_or(0, Vec::len);
        let of_headers = spilled.headers.iter().map(size);
        let of_message = record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len);
        ensure!(of_message <= MAX_SPILLED_BYTES, "a record that is no row has more than {MAX_SPILLED_BYTES} bytes");
        self.spilled_bytes += size_of::<Spilled>() + of_message + of_headers.sum::<usize>();
        self.spilled.push(spilled);
        if self.spilled_bytes >= SPILLED_BYTES {
            self.give_spilled()?;
        }
        Ok(())
    }

    fn give_spilled(&mut self) -> Result<()> {
        self.spilled_bytes = 0;
        (self.on_spill)(std::mem::take(&mut self.spilled))
    }

    fn write(&mut self) -> Result<()> {
        let mut arrays = self.columns.iter_mut().map(Column::finish).collect::<Result<Vec<_>>>()?;
        // Rows may be kept until a file is written, and columns have up to twice the bytes of their values.
        arrays.iter_mut().for_each(Array::shrink_to_fit);
        let batch = RecordBatch::try_new(self.schema.clone(), arrays)?;
        ensure!(batch.num_rows() == self.pending_rows, "a column has another number of values than the others");
        self.files.write(batch)?;
        self.pending_rows = 0;
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<Written>> {
        if self.pending_rows > 0 {
            self.write()?;
        }
        if !self.spilled.is_empty() {
            self.give_spilled()?;
        }
        self.files.finish()
    }
}

fn properties(layout: &Layout, schema: &Schema) -> Result<WriterPropertiesBuilder> {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_dictionary_page_size_limit(DICTIONARY_BYTES)
        .set_data_page_row_count_limit(PAGE_ROWS);
    for &(place, metadata) in &layout.metadata {
        // Nearly every value differs: a dictionary would be built, be too large, and be dropped.
        if matches!(metadata, Metadata::Offset | Metadata::Timestamp) {
            let path = ColumnPath::from(schema.field(place).name().as_str());
            properties = properties.set_column_dictionary_enabled(path, false);
        }
    }
    Ok(properties)
}

fn append_metadata(
    metadata: Metadata,
    column: &mut Column,
    record: &Record,
    partition: i32,
    schema_id: u32,
    topic: &str,
) -> Result<()> {
    match (metadata, column) {
        (Metadata::Topic, Column::Text(values)) => values.append_value(topic),
        (Metadata::Partition, Column::Int(values)) => values.append_value(partition),
        (Metadata::Offset, Column::Long(values)) => values.append_value(record.offset),
        (Metadata::Timestamp, Column::Moment(values)) => {
            let micros = record.timestamp.checked_mul(1000);
            values.append_value(
                micros.ok_or_else(|| anyhow!("the timestamp at offset {} exceeds 64 bits", record.offset))?,
            );
        }
        (Metadata::TimestampType, Column::Text(values)) => {
            values.append_value(if record.is_log_append_time { "LogAppendTime" } else { "CreateTime" });
        }
        (Metadata::RawKey, Column::Binary(values)) => values.append_option(record.key),
        (Metadata::RawValue, Column::Binary(values)) => values.append_option(record.value),
        (Metadata::SchemaId, Column::Int(values)) => values.append_value(schema_id.try_into()?),
        _ => return Err(anyhow!("a column of metadata has another type")),
    }
    Ok(())
}
