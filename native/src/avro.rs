//! Avro values: a walk that accepts a record only if each value is what its schema says, and one that appends it.
//!
//! The plan of the walks is compiled from the schemas of writer and reader by `spark/native/plan.py`, which has the
//! rules of schema resolution. A record is checked completely before its values are appended, so that a rejected record
//! leaves nothing in the columns. What the check does not know for certain, it rejects: the reference decoder decides
//! about such a record.
//!
//! Source: Apache Avro 1.12 specification, Binary encoding and Logical Types.

use serde::Deserialize;

use crate::columns::Column;

/// Maximum entries of a map, whose names are compared with each other.
const MAX_ENTRIES: usize = 1 << 20;

/// The plan of a value that a writer wrote.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Node {
    /// No value.
    Null,
    /// A value that no column can have.
    Refused,
    /// A truth value.
    Boolean,
    /// A number of 32 bits.
    Int,
    /// A number of 64 bits.
    Long,
    /// A number of milliseconds, which as microseconds must have 64 bits.
    Millis,
    /// A floating-point number of 32 bits.
    Float,
    /// A floating-point number of 64 bits.
    Double,
    /// Bytes.
    Bytes,
    /// Text in UTF-8.
    String,
    /// A number of bytes that the schema has.
    Fixed {
        /// That number.
        size: usize,
    },
    /// A big-endian number of at most some digits.
    Decimal {
        /// The number of bytes; none if the value has it.
        size: Option<usize>,
        /// The maximum number of digits.
        precision: u32,
    },
    /// One of some names; those that no column can have are none.
    Enum {
        /// The names.
        symbols: Vec<Option<String>>,
    },
    /// Items of one type.
    Array {
        /// Their type.
        items: Box<Node>,
    },
    /// Values of one type by name.
    Map {
        /// Their type.
        values: Box<Node>,
    },
    /// Fields in order.
    Record(Fields),
    /// A value that sets one field of a struct, whose others are null.
    Member {
        /// The place of the field.
        place: usize,
        /// The value.
        node: Box<Node>,
    },
    /// A value of one of several types.
    Union {
        /// The types.
        branches: Vec<Node>,
    },
}

/// The fields of a record.
#[derive(Deserialize)]
pub struct Fields {
    fields: Vec<Field>,
    /// The places of columns that are null, because the record has no values for them.
    absent: Vec<usize>,
    /// The values of other columns that the record has no values for.
    #[serde(default)]
    defaults: Vec<Default>,
}

/// The value of a column that a record has no value for.
#[derive(Deserialize)]
struct Default {
    node: Node,
    /// The value as the plan reads it.
    value: Vec<u8>,
    /// The place of the column among those of the record.
    column: usize,
}

/// A field of a record.
#[derive(Deserialize)]
struct Field {
    node: Node,
    /// The place of its column among those of the record; none if no column has its values.
    column: Option<usize>,
    /// Whether it must not be null.
    #[serde(default)]
    required: bool,
}

/// The bytes of a record from which values are read.
#[derive(Clone, Copy)]
pub struct Datum<'a>(pub &'a [u8]);

impl<'a> Datum<'a> {
    #[inline]
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (first, others) = self.0.split_at_checked(count)?;
        self.0 = others;
        Some(first)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    #[inline]
    fn long(&mut self) -> Option<i64> {
        let mut value = 0_u64;
        for (place, &byte) in self.0.iter().take(10).enumerate() {
            if place == 9 && byte > 1 {
                return None;
            }
            value |= u64::from(byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                self.0 = &self.0[place + 1..];
                return Some((value >> 1) as i64 ^ -((value & 1) as i64));
            }
        }
        None
    }

    #[inline]
    fn int(&mut self) -> Option<i32> {
        self.long()?.try_into().ok()
    }

    #[inline]
    fn index(&mut self, length: usize) -> Option<usize> {
        usize::try_from(self.long()?).ok().filter(|index| *index < length)
    }

    #[inline]
    fn sized(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.long()?).ok()?;
        self.take(length)
    }

    #[inline]
    fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.sized()?).ok()
    }

    fn decimal(&mut self, size: Option<usize>) -> Option<i128> {
        let bytes = if let Some(size) = size { self.take(size)? } else { self.sized()? };
        let sign = if *bytes.first()? < 0x80 { 0 } else { 0xff };
        let (extension, number) = bytes.split_at(bytes.len().saturating_sub(16));
        let mut whole = [sign; 16];
        whole[16 - number.len()..].copy_from_slice(number);
        let is_extended = extension.iter().all(|byte| *byte == sign) && (whole[0] < 0x80) == (sign == 0);
        is_extended.then(|| i128::from_be_bytes(whole))
    }

    /// Call `item` for each item of a block-encoded value. Each item must have a byte, so that their number is bounded.
    fn items(&mut self, mut item: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        loop {
            let count = self.long()?;
            let size = if count < 0 { Some(usize::try_from(self.long()?).ok()?) } else { None };
            if count == 0 {
                return Some(());
            }
            let before = self.0.len();
            if size.is_some_and(|size| size > before) {
                return None;
            }
            for _ in 0..count.unsigned_abs() {
                let length = self.0.len();
                item(self)?;
                if self.0.len() == length {
                    return None;
                }
            }
            if size.is_some_and(|size| before - self.0.len() != size) {
                return None;
            }
        }
    }
}

/// Check a value, and move behind it. None if the reference decoder has to decide about it.
pub fn check(node: &Node, datum: &mut Datum) -> Option<()> {
    match node {
        Node::Null => Some(()),
        Node::Refused => None,
        Node::Boolean => (datum.array::<1>()?[0] <= 1).then_some(()),
        Node::Int => datum.int().map(drop),
        Node::Long => datum.long().map(drop),
        Node::Millis => datum.long()?.checked_mul(1000).map(drop),
        Node::Float => datum.array::<4>().map(drop),
        Node::Double => datum.array::<8>().map(drop),
        Node::Bytes => datum.sized().map(drop),
        Node::String => datum.text().map(drop),
        Node::Fixed { size } => datum.take(*size).map(drop),
        Node::Decimal { size, precision } => {
            (datum.decimal(*size)?.unsigned_abs() < 10_u128.pow(*precision)).then_some(())
        }
        Node::Enum { symbols } => datum.index(symbols.len()).and_then(|index| symbols[index].as_ref()).map(drop),
        Node::Array { items } => datum.items(|datum| check(items, datum)),
        Node::Map { values } => {
            let mut names = Vec::new();
            datum.items(|datum| {
                names.push(datum.text()?);
                check(values, datum)?;
                (names.len() < MAX_ENTRIES).then_some(())
            })?;
            names.sort_unstable();
            // The values of a repeated name have no order in a map.
            names.windows(2).all(|pair| pair[0] != pair[1]).then_some(())
        }
        Node::Record(record) => {
            record.fields.iter().try_for_each(|field| {
                if field.required && is_null(&field.node, *datum)? {
                    return None;
                }
                check(&field.node, datum)
            })?;
            record.defaults.iter().try_for_each(|default| check(&default.node, &mut Datum(&default.value)))
        }
        Node::Member { node, .. } => check(node, datum),
        Node::Union { branches } => {
            let index = datum.index(branches.len())?;
            check(&branches[index], datum)
        }
    }
}

fn is_null(node: &Node, mut datum: Datum) -> Option<bool> {
    Some(match node {
        Node::Null => true,
        Node::Union { branches } => matches!(branches[datum.index(branches.len())?], Node::Null),
        _ => false,
    })
}

fn try_append(node: &Node, datum: &mut Datum, column: &mut Column) -> Option<()> {
    match (node, column) {
        (Node::Union { branches }, column) => {
            let index = datum.index(branches.len())?;
            try_append(&branches[index], datum, column)?;
        }
        (Node::Null, column) => column.append_null(),
        (Node::Boolean, Column::Boolean(values)) => values.append_value(datum.array::<1>()? == [1]),
        (Node::Int, Column::Int(values)) => values.append_value(datum.int()?),
        (Node::Int, Column::Date(values)) => values.append_value(datum.int()?),
        (Node::Int, Column::Long(values)) => values.append_value(datum.int()?.into()),
        (Node::Int, Column::Double(values)) => values.append_value(datum.int()?.into()),
        (Node::Long, Column::Long(values)) => values.append_value(datum.long()?),
        (Node::Long, Column::Moment(values)) => values.append_value(datum.long()?),
        (Node::Millis, Column::Moment(values)) => values.append_value(datum.long()?.checked_mul(1000)?),
        (Node::Float, Column::Float(values)) => values.append_value(f32::from_le_bytes(datum.array()?)),
        (Node::Float, Column::Double(values)) => values.append_value(f32::from_le_bytes(datum.array()?).into()),
        (Node::Double, Column::Double(values)) => values.append_value(f64::from_le_bytes(datum.array()?)),
        (Node::Bytes | Node::String, Column::Binary(values)) => values.append_value(datum.sized()?),
        (Node::Fixed { size }, Column::Binary(values)) => values.append_value(datum.take(*size)?),
        (Node::String, Column::Text(values)) => values.append_value(datum.text()?),
        (Node::Decimal { size, .. }, Column::Decimal(values)) => values.append_value(datum.decimal(*size)?),
        (Node::Enum { symbols }, Column::Text(values)) => {
            values.append_value(symbols[datum.index(symbols.len())?].as_ref()?);
        }
        (Node::Array { items }, Column::List(column)) => {
            datum.items(|datum| {
                try_append(items, datum, &mut column.items)?;
                column.items.is_bounded().then_some(())
            })?;
            column.end_value();
        }
        (Node::Map { values }, Column::Map(column)) => {
            datum.items(|datum| {
                column.keys.append_value(datum.text()?);
                try_append(values, datum, &mut column.values)?;
                column.values.is_bounded().then_some(())
            })?;
            column.end_value();
        }
        (Node::Record(record), Column::Struct(column)) => {
            append_fields(record, datum, &mut column.columns)?;
            column.end_value();
        }
        (Node::Member { place, node }, Column::Struct(column)) => {
            for (other, field) in column.columns.iter_mut().enumerate() {
                if other == *place {
                    try_append(node, datum, field)?;
                } else {
                    field.append_null();
                }
            }
            column.end_value();
        }
        _ => return None,
    }
    Some(())
}

/// Move behind the fields of a record that was checked, and append them to columns.
///
/// Returns none if its items are more than columns may have. The columns are of no use then.
pub fn append_record(node: &Node, datum: &mut Datum, columns: &mut [Column]) -> Option<()> {
    let Node::Record(record) = node else { return None };
    append_fields(record, datum, columns)
}

fn append_fields(record: &Fields, datum: &mut Datum, columns: &mut [Column]) -> Option<()> {
    for field in &record.fields {
        match field.column {
            Some(place) => try_append(&field.node, datum, &mut columns[place])?,
            None => check(&field.node, datum)?,
        }
    }
    record.absent.iter().for_each(|place| columns[*place].append_null());
    record
        .defaults
        .iter()
        .try_for_each(|default| try_append(&default.node, &mut Datum(&default.value), &mut columns[default.column]))
}
