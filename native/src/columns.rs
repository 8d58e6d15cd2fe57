//! The columns of the table, into which values are appended until they become an Arrow batch.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Result;
use arrow_array::builder::{
    ArrayBuilder, BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, Float32Builder, Float64Builder,
    Int32Builder, Int64Builder, StringBuilder, TimestampMicrosecondBuilder,
};
use arrow_array::{ArrayRef, ListArray, MapArray, StructArray};
use arrow_buffer::{NullBufferBuilder, OffsetBuffer};
use arrow_schema::{DataType, Field, FieldRef, Fields, TimeUnit};
use parquet::arrow::PARQUET_FIELD_ID_META_KEY;
use serde::Deserialize;

/// Maximum bytes of the items of lists and maps. One byte of a record may become many: a null struct, a long symbol.
const MAX_ITEM_BYTES: usize = 16 << 20;
/// Number of items after which their bytes are examined.
const EXAMINED_ITEMS: usize = 1_024;

/// A column of the table, or a field within one, as `spark/native/plan.py` describes it.
#[derive(Deserialize)]
pub struct ColumnSchema {
    name: String,
    id: i32,
    #[serde(flatten)]
    type_: ColumnType,
}

/// The Iceberg type of a column (Iceberg table specification, Primitive types, Nested types).
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum ColumnType {
    Boolean,
    Int,
    Long,
    Float,
    Double,
    String,
    Binary,
    Date,
    Timestamp,
    Timestamptz,
    Decimal { precision: u8, scale: i8 },
    Struct { fields: Vec<ColumnSchema> },
    List { element: Box<ColumnSchema> },
    Map { key: Box<ColumnSchema>, value: Box<ColumnSchema> },
}

impl ColumnSchema {
    /// Return the Arrow field, whose field ids the Parquet file gets.
    pub fn field(&self) -> FieldRef {
        self.as_field(true)
    }

    fn as_field(&self, is_nullable: bool) -> FieldRef {
        let id = HashMap::from([(PARQUET_FIELD_ID_META_KEY.to_owned(), self.id.to_string())]);
        Arc::new(Field::new(&self.name, self.data_type(), is_nullable).with_metadata(id))
    }

    fn data_type(&self) -> DataType {
        match &self.type_ {
            ColumnType::Boolean => DataType::Boolean,
            ColumnType::Int => DataType::Int32,
            ColumnType::Long => DataType::Int64,
            ColumnType::Float => DataType::Float32,
            ColumnType::Double => DataType::Float64,
            ColumnType::String => DataType::Utf8,
            ColumnType::Binary => DataType::Binary,
            ColumnType::Date => DataType::Date32,
            ColumnType::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            ColumnType::Timestamptz => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            ColumnType::Decimal { precision, scale } => DataType::Decimal128(*precision, *scale),
            ColumnType::Struct { fields } => DataType::Struct(fields.iter().map(ColumnSchema::field).collect()),
            ColumnType::List { element } => DataType::List(element.field()),
            ColumnType::Map { key, value } => {
                let entries = DataType::Struct(Fields::from(vec![key.as_field(false), value.field()]));
                DataType::Map(Arc::new(Field::new("key_value", entries, false)), false)
            }
        }
    }
}

/// The values of a column since the last batch.
pub enum Column {
    /// Truth values.
    Boolean(BooleanBuilder),
    /// Numbers of 32 bits.
    Int(Int32Builder),
    /// Numbers of 64 bits.
    Long(Int64Builder),
    /// Floating-point numbers of 32 bits.
    Float(Float32Builder),
    /// Floating-point numbers of 64 bits.
    Double(Float64Builder),
    /// Text.
    Text(StringBuilder),
    /// Bytes.
    Binary(BinaryBuilder),
    /// Days since the epoch.
    Date(Date32Builder),
    /// Microseconds since the epoch.
    Moment(TimestampMicrosecondBuilder),
    /// Unscaled decimal numbers.
    Decimal(Decimal128Builder),
    /// Structs.
    Struct(StructColumn),
    /// Lists.
    List(ListColumn),
    /// Maps.
    Map(MapColumn),
}

/// The values of a struct's fields.
pub struct StructColumn {
    fields: Fields,
    present: NullBufferBuilder,
    /// The values by field.
    pub columns: Vec<Column>,
}

/// The items of lists.
pub struct ListColumn {
    element: FieldRef,
    ends: Vec<i32>,
    present: NullBufferBuilder,
    /// The items of all lists.
    pub items: Box<Column>,
}

/// The entries of maps.
pub struct MapColumn {
    entries: FieldRef,
    ends: Vec<i32>,
    present: NullBufferBuilder,
    /// The keys of all maps.
    pub keys: StringBuilder,
    /// The values of all maps.
    pub values: Box<Column>,
}

impl StructColumn {
    /// Add a struct, whose fields have got their values.
    pub fn end_value(&mut self) {
        self.present.append_non_null();
    }
}

impl ListColumn {
    /// Add a list with the items since the list before it.
    pub fn end_value(&mut self) {
        self.ends.push(self.items.len() as i32);
        self.present.append_non_null();
    }
}

impl MapColumn {
    /// Add a map with the entries since the map before it.
    pub fn end_value(&mut self) {
        self.ends.push(self.keys.len() as i32);
        self.present.append_non_null();
    }
}

impl Column {
    /// Return a column without values.
    pub fn empty(type_: &DataType) -> Self {
        match type_ {
            DataType::Boolean => Self::Boolean(BooleanBuilder::new()),
            DataType::Int32 => Self::Int(Int32Builder::new()),
            DataType::Int64 => Self::Long(Int64Builder::new()),
            DataType::Float32 => Self::Float(Float32Builder::new()),
            DataType::Float64 => Self::Double(Float64Builder::new()),
            DataType::Utf8 => Self::Text(StringBuilder::new()),
            DataType::Binary => Self::Binary(BinaryBuilder::new()),
            DataType::Date32 => Self::Date(Date32Builder::new()),
            DataType::Timestamp(_, _) => Self::Moment(TimestampMicrosecondBuilder::new().with_data_type(type_.clone())),
            DataType::Decimal128(_, _) => Self::Decimal(Decimal128Builder::new().with_data_type(type_.clone())),
            DataType::Struct(fields) => Self::Struct(StructColumn {
                fields: fields.clone(),
                present: NullBufferBuilder::new(0),
                columns: fields.iter().map(|field| Self::empty(field.data_type())).collect(),
            }),
            DataType::List(element) => Self::List(ListColumn {
                element: element.clone(),
                ends: vec![0],
                present: NullBufferBuilder::new(0),
                items: Box::new(Self::empty(element.data_type())),
            }),
            DataType::Map(entries, _) => match entries.data_type() {
                DataType::Struct(fields) => Self::Map(MapColumn {
                    entries: entries.clone(),
                    ends: vec![0],
                    present: NullBufferBuilder::new(0),
                    keys: StringBuilder::new(),
                    values: Box::new(Self::empty(fields[1].data_type())),
                }),
                other => unreachable!("the entries of a map are {other}"),
            },
            other => unreachable!("no column has the type {other}"),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Boolean(values) => values.len(),
            Self::Int(values) => values.len(),
            Self::Long(values) => values.len(),
            Self::Float(values) => values.len(),
            Self::Double(values) => values.len(),
            Self::Text(values) => values.len(),
            Self::Binary(values) => values.len(),
            Self::Date(values) => values.len(),
            Self::Moment(values) => values.len(),
            Self::Decimal(values) => values.len(),
            Self::Struct(column) => column.present.len(),
            Self::List(column) => column.present.len(),
            Self::Map(column) => column.present.len(),
        }
    }

    /// Return whether the values have not too many bytes. Only some numbers of values are examined, because it takes time.
    pub fn is_bounded(&self) -> bool {
        !self.len().is_multiple_of(EXAMINED_ITEMS) || self.bytes() <= MAX_ITEM_BYTES
    }

    /// Return the bytes of the values, nearly.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Boolean(values) => values.len() / 8,
            Self::Int(values) => values.len() * 4,
            Self::Long(values) => values.len() * 8,
            Self::Float(values) => values.len() * 4,
            Self::Double(values) => values.len() * 8,
            Self::Text(values) => values.values_slice().len() + values.len() * 4,
            Self::Binary(values) => values.values_slice().len() + values.len() * 4,
            Self::Date(values) => values.len() * 4,
            Self::Moment(values) => values.len() * 8,
            Self::Decimal(values) => values.len() * 16,
            Self::Struct(column) => column.columns.iter().map(Column::bytes).sum(),
            Self::List(column) => column.ends.len() * 4 + column.items.bytes(),
            Self::Map(column) => {
                column.ends.len() * 4 + column.keys.values_slice().len() + column.keys.len() * 4 + column.values.bytes()
            }
        }
    }

    /// Append a null.
    pub fn append_null(&mut self) {
        match self {
            Self::Boolean(values) => values.append_null(),
            Self::Int(values) => values.append_null(),
            Self::Long(values) => values.append_null(),
            Self::Float(values) => values.append_null(),
            Self::Double(values) => values.append_null(),
            Self::Text(values) => values.append_null(),
            Self::Binary(values) => values.append_null(),
            Self::Date(values) => values.append_null(),
            Self::Moment(values) => values.append_null(),
            Self::Decimal(values) => values.append_null(),
            Self::Struct(column) => {
                column.columns.iter_mut().for_each(Column::append_null);
                column.present.append_null();
            }
            Self::List(column) => {
                column.ends.push(column.items.len() as i32);
                column.present.append_null();
            }
            Self::Map(column) => {
                column.ends.push(column.keys.len() as i32);
                column.present.append_null();
            }
        }
    }

    /// Return the values as an array, and begin a new batch.
    pub fn finish(&mut self) -> Result<ArrayRef> {
        Ok(match self {
            Self::Boolean(values) => Arc::new(values.finish()),
            Self::Int(values) => Arc::new(values.finish()),
            Self::Long(values) => Arc::new(values.finish()),
            Self::Float(values) => Arc::new(values.finish()),
            Self::Double(values) => Arc::new(values.finish()),
            Self::Text(values) => Arc::new(values.finish()),
            Self::Binary(values) => Arc::new(values.finish()),
            Self::Date(values) => Arc::new(values.finish()),
            Self::Moment(values) => Arc::new(values.finish()),
            Self::Decimal(values) => Arc::new(values.finish()),
            Self::Struct(column) => {
                let arrays = column.columns.iter_mut().map(Column::finish).collect::<Result<_>>()?;
                Arc::new(StructArray::try_new(column.fields.clone(), arrays, column.present.finish())?)
            }
            Self::List(column) => {
                let ends = OffsetBuffer::new(std::mem::replace(&mut column.ends, vec![0]).into());
                let items = column.items.finish()?;
                Arc::new(ListArray::try_new(column.element.clone(), ends, items, column.present.finish())?)
            }
            Self::Map(column) => {
                let ends = OffsetBuffer::new(std::mem::replace(&mut column.ends, vec![0]).into());
                let keys: ArrayRef = Arc::new(column.keys.finish());
                let values = column.values.finish()?;
                let DataType::Struct(fields) = column.entries.data_type() else { unreachable!("entries are structs") };
                let entries = StructArray::try_new(fields.clone(), vec![keys, values], None)?;
                let present = column.present.finish();
                Arc::new(MapArray::try_new(column.entries.clone(), ends, entries, present, false)?)
            }
        })
    }
}
