//! The order of rows in the files of a sorted table.
//!
//! Source: Iceberg table specification, Sorting. Floating-point numbers are in the IEEE 754 total order, text and bytes in
//! that of unsigned bytes.

use std::ops::Range;
use std::sync::Arc;

use anyhow::Result;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryArray, RecordBatch};
use arrow_row::{RowConverter, Rows};
use arrow_schema::{DataType, Schema, SortOptions};
use arrow_select::interleave::interleave_record_batch;
use serde::Deserialize;

use crate::partitions::PartitionField;

/// Maximum rows, and nearly maximum bytes, that are copied in their order at once.
const COPIED_ROWS: usize = 8_192;
const COPIED_BYTES: usize = 1 << 20;

/// The place of a row: a batch, and the row in it.
type Place = (u32, u32);
/// Bytes of a place in memory.
pub const PLACE_BYTES: usize = size_of::<Place>();

/// A field of a table's sort order, as `spark/native/plan.py` describes it.
#[derive(Deserialize)]
pub struct SortField {
    /// The column and its transform, which are those of partition specs.
    #[serde(flatten)]
    pub source: PartitionField,
    descending: bool,
    nulls_first: bool,
}

impl SortField {
    /// Return the values by which rows are compared.
    fn values(&self, rows: &RecordBatch) -> Result<ArrayRef> {
        let column = rows.column(self.source.column);
        if self.source.is_identity() {
            return Ok(column.clone());
        }
        let values =
            (0..column.len()).map(|row| Ok(self.source.transformed(column, row)?.map(|value| value.ordered())));
        Ok(Arc::new(values.collect::<Result<BinaryArray>>()?))
    }
}

/// A sort order.
pub struct Sorting<'a> {
    fields: &'a [SortField],
    converter: RowConverter,
}

impl<'a> Sorting<'a> {
    /// Return the sort order of a table with these columns.
    ///
    /// # Errors
    ///
    /// A column has values without an order.
    pub fn new(fields: &'a [SortField], schema: &Schema) -> Result<Self> {
        let of_field = |field: &SortField| {
            let options = SortOptions { descending: field.descending, nulls_first: field.nulls_first };
            let identity = schema.field(field.source.column).data_type().clone();
            let type_ = if field.source.is_identity() { identity } else { DataType::Binary };
            arrow_row::SortField::new_with_options(type_, options)
        };
        Ok(Self { fields, converter: RowConverter::new(fields.iter().map(of_field).collect())? })
    }

    /// Return the keys of rows, whose bytes are in the order of the rows.
    ///
    /// # Errors
    ///
    /// A transform has no value of a row.
    pub fn keys(&self, rows: &RecordBatch) -> Result<Rows> {
        let values = self.fields.iter().map(|field| field.values(rows)).collect::<Result<Vec<_>>>()?;
        Ok(self.converter.convert_columns(&values)?)
    }
}

/// Return rows in the order of their keys, in batches of limited size. Equal ones are in the order in which they are given.
pub fn sorted(rows: &[RecordBatch], keys: &[Rows]) -> impl Iterator<Item = Result<RecordBatch>> {
    let places = |(batch, keys): (usize, &Rows)| (0..keys.num_rows()).map(move |row| (batch as u32, row as u32));
    let mut order: Vec<Place> = keys.iter().enumerate().flat_map(places).collect();
    let key = |&(batch, row): &Place| keys[batch as usize].row(row as usize);
    order.sort_unstable_by(|one, other| key(one).cmp(&key(other)).then_with(|| one.cmp(other)));
    let batches: Vec<&RecordBatch> = rows.iter().collect();
    let mut at = 0;
    std::iter::from_fn(move || {
        let (mut copied, mut bytes) = (Vec::new(), 0);
        while at < order.len() && copied.len() < COPIED_ROWS && bytes < COPIED_BYTES {
            let (batch, row) = (order[at].0 as usize, order[at].1 as usize);
            bytes += batches[batch].columns().iter().map(|column| bytes_of(column, row..row + 1)).sum::<usize>();
            copied.push((batch, row));
            at += 1;
        }
        (!copied.is_empty()).then(|| Ok(interleave_record_batch(&batches, &copied)?))
    })
}

/// Return the bytes of a range of values, nearly.
fn bytes_of(array: &ArrayRef, range: Range<usize>) -> usize {
    let within = |ends: &[i32]| ends[range.start] as usize..ends[range.end] as usize;
    match array.data_type() {
        DataType::Utf8 => within(array.as_string::<i32>().value_offsets()).len(),
        DataType::Binary => within(array.as_binary::<i32>().value_offsets()).len(),
        DataType::Struct(_) => array.as_struct().columns().iter().map(|column| bytes_of(column, range.clone())).sum(),
        DataType::List(_) => bytes_of(array.as_list::<i32>().values(), within(array.as_list::<i32>().value_offsets())),
        DataType::Map(_, _) => {
            let entries = within(array.as_map().value_offsets());
            array.as_map().entries().columns().iter().map(|column| bytes_of(column, entries.clone())).sum()
        }
        type_ => range.len() * type_.primitive_width().unwrap_or(1),
    }
}
