//! Values of partition fields, which those of sort orders have as well, and the partition of a row.
//!
//! Source: Iceberg table specification, Partition Transforms, and its appendices B (32-bit hash requirements) and D
//! (single-value serialization). Whatever has no value in the type of its field is an error.

use anyhow::{Result, anyhow, bail};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Int32Type, Int64Type, TimestampMicrosecondType as MicrosecondType,
};
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use serde::Deserialize;

const MICROS_A_DAY: i64 = 86_400_000_000;
const MICROS_AN_HOUR: i64 = 3_600_000_000;
const EPOCH_YEAR: i64 = 1970;

/// The values of a row's partition fields in their single-value serialization; none for null.
pub type Partition = Vec<Option<Vec<u8>>>;

/// A field of a table's partition spec, as `spark/native/plan.py` describes it.
#[derive(Deserialize)]
pub struct PartitionField {
    /// The place of the source column.
    pub column: usize,
    #[serde(flatten)]
    transform: Transform,
}

#[derive(Deserialize)]
#[serde(tag = "transform", rename_all = "lowercase")]
enum Transform {
    Identity,
    Void,
    Year,
    Month,
    Day,
    Hour,
    Bucket { width: u32 },
    Truncate { width: u32 },
}

/// A value of a transform.
pub(crate) enum Value<'a> {
    Boolean(bool),
    Int(i32),
    Long(i64),
    /// The unscaled value.
    Decimal(i128),
    Bytes(&'a [u8]),
}

impl Value<'_> {
    /// Return the single-value serialization.
    fn serialized(&self) -> Vec<u8> {
        match *self {
            Self::Boolean(value) => vec![value.into()],
            Self::Int(value) => value.to_le_bytes().to_vec(),
            Self::Long(value) => value.to_le_bytes().to_vec(),
            Self::Decimal(value) => unscaled(value),
            Self::Bytes(value) => value.to_vec(),
        }
    }

    /// Return bytes in whose order values of one transform are sorted.
    pub(crate) fn ordered(&self) -> Vec<u8> {
        let number = |value: i128| (value ^ i128::MIN).to_be_bytes().to_vec();
        match *self {
            Self::Boolean(value) => vec![value.into()],
            Self::Int(value) => number(value.into()),
            Self::Long(value) => number(value.into()),
            Self::Decimal(value) => number(value),
            Self::Bytes(value) => value.to_vec(),
        }
    }
}

/// A value of a source column.
enum Source<'a> {
    Boolean(bool),
    Int(i32),
    Long(i64),
    Days(i32),
    Micros(i64),
    /// The unscaled value, and the digits that the column has.
    Decimal(i128, u8),
    Text(&'a str),
    Bytes(&'a [u8]),
}

impl PartitionField {
    /// Return the serialized value of a row of the source column; none for null.
    ///
    /// # Errors
    ///
    /// The transform does not apply to the column, or its result exceeds the type of its values.
    pub fn value(&self, array: &ArrayRef, row: usize) -> Result<Option<Vec<u8>>> {
        Ok(self.transformed(array, row)?.map(|value| value.serialized()))
    }

    /// Return whether the values are those of the source column.
    pub(crate) fn is_identity(&self) -> bool {
        matches!(self.transform, Transform::Identity)
    }

    /// Return the value of a row of the source column; none for null.
    ///
    /// # Errors
    ///
    /// The transform does not apply to the column, or its result exceeds the type of its values.
    pub(crate) fn transformed<'r>(&self, array: &'r ArrayRef, row: usize) -> Result<Option<Value<'r>>> {
        if matches!(self.transform, Transform::Void) || array.is_null(row) {
            return Ok(None);
        }
        let int = |number: i64| Ok(Value::Int(i32::try_from(number).map_err(|_| exceeded())?));
        let truncated = |number: i128, width: u32| number - number.rem_euclid(width.into());
        let value = match (&self.transform, source(array, row)?) {
            (Transform::Bucket { width }, source) => {
                let hash = murmur3(&hashed(&source)?) & i32::MAX.unsigned_abs();
                int((hash % width).into())
            }
            (Transform::Identity, Source::Boolean(value)) => Ok(Value::Boolean(value)),
            (Transform::Identity, Source::Int(value) | Source::Days(value)) => Ok(Value::Int(value)),
            (Transform::Identity, Source::Long(value) | Source::Micros(value)) => Ok(Value::Long(value)),
            (Transform::Identity, Source::Decimal(value, _)) => Ok(Value::Decimal(value)),
            (Transform::Identity, Source::Text(value)) => Ok(Value::Bytes(value.as_bytes())),
            (Transform::Identity, Source::Bytes(value)) => Ok(Value::Bytes(value)),
            (Transform::Truncate { width }, Source::Int(value)) => {
                int(i64::try_from(truncated(value.into(), *width)).map_err(|_| exceeded())?)
            }
            (Transform::Truncate { width }, Source::Long(value)) => {
                Ok(Value::Long(i64::try_from(truncated(value.into(), *width)).map_err(|_| exceeded())?))
            }
            (Transform::Truncate { width }, Source::Decimal(value, digits)) => {
                let value = truncated(value, *width);
                if value.unsigned_abs() < 10_u128.pow(digits.into()) {
                    Ok(Value::Decimal(value))
                } else {
                    Err(exceeded())
                }
            }
            (Transform::Truncate { width }, Source::Text(value)) => {
                let end = value.char_indices().nth(*width as usize).map_or(value.len(), |(end, _)| end);
                Ok(Value::Bytes(&value.as_bytes()[..end]))
            }
            (Transform::Truncate { width }, Source::Bytes(value)) => {
                Ok(Value::Bytes(&value[..value.len().min(*width as usize)]))
            }
            (Transform::Year, Source::Days(value)) => int(months(value.into()).div_euclid(12)),
            (Transform::Year, Source::Micros(value)) => int(months(days(value)).div_euclid(12)),
            (Transform::Month, Source::Days(value)) => int(months(value.into())),
            (Transform::Month, Source::Micros(value)) => int(months(days(value))),
            (Transform::Day, Source::Days(value)) => int(value.into()),
            (Transform::Day, Source::Micros(value)) => int(days(value)),
            (Transform::Hour, Source::Micros(value)) => int(value.div_euclid(MICROS_AN_HOUR)),
            _ => bail!("a transform does not apply to its column"),
        };
        value.map(Some)
    }
}

fn exceeded() -> anyhow::Error {
    anyhow!("a transformed value exceeds its type")
}

fn source(array: &ArrayRef, row: usize) -> Result<Source<'_>> {
    Ok(match array.data_type() {
        DataType::Boolean => Source::Boolean(array.as_boolean().value(row)),
        DataType::Int32 => Source::Int(array.as_primitive::<Int32Type>().value(row)),
        DataType::Int64 => Source::Long(array.as_primitive::<Int64Type>().value(row)),
        DataType::Date32 => Source::Days(array.as_primitive::<Date32Type>().value(row)),
        DataType::Timestamp(_, _) => Source::Micros(array.as_primitive::<MicrosecondType>().value(row)),
        DataType::Decimal128(digits, _) => Source::Decimal(array.as_primitive::<Decimal128Type>().value(row), *digits),
        DataType::Utf8 => Source::Text(array.as_string::<i32>().value(row)),
        DataType::Binary => Source::Bytes(array.as_binary::<i32>().value(row)),
        other => bail!("no transform applies to columns of the type {other}"),
    })
}

/// Return the bytes of a value whose hash decides about its bucket.
fn hashed(source: &Source) -> Result<Vec<u8>> {
    Ok(match *source {
        Source::Int(value) | Source::Days(value) => i64::from(value).to_le_bytes().to_vec(),
        Source::Long(value) | Source::Micros(value) => value.to_le_bytes().to_vec(),
        Source::Decimal(value, _) => unscaled(value),
        Source::Text(value) => value.into(),
        Source::Bytes(value) => value.into(),
        Source::Boolean(_) => bail!("truth values have no buckets"),
    })
}

/// Return a number in as few bytes as two's complement has, of which the first is the highest.
fn unscaled(value: i128) -> Vec<u8> {
    let bits = 128 - if value < 0 { value.leading_ones() } else { value.leading_zeros() };
    let bytes = value.to_be_bytes();
    bytes[bytes.len() - 1 - bits as usize / 8..].to_vec()
}

fn days(micros: i64) -> i64 {
    micros.div_euclid(MICROS_A_DAY)
}

/// Return the months since the epoch of a day since the epoch.
///
/// Years begin in March here, so that a leap day is the last one (Hinnant, chrono-Compatible Low-Level Date Algorithms:
/// `civil_from_days`).
fn months(days: i64) -> i64 {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    (era * 400 + year - EPOCH_YEAR) * 12 + month + 2
}

/// Return the hash of bytes (Appleby, MurmurHash3_x86_32, with the seed 0).
pub fn murmur3(bytes: &[u8]) -> u32 {
    let mixed = |block: u32| block.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    let (blocks, rest) = bytes.as_chunks::<4>();
    let mut hash = blocks.iter().fold(0_u32, |hash, block| {
        (hash ^ mixed(u32::from_le_bytes(*block))).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
    });
    hash ^= mixed(rest.iter().rev().fold(0, |block, byte| block << 8 | u32::from(*byte)));
    hash ^= bytes.len() as u32;
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}
