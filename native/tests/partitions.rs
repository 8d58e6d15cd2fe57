//! Values of partition fields: the examples of Iceberg's specification, boundaries, nulls, and what has no value.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Int32Array, Int64Array, StringArray,
    TimestampMicrosecondArray,
};
use lakehouse_native::partitions::{PartitionField, murmur3};

fn value(transform: &str, array: ArrayRef, row: usize) -> anyhow::Result<Option<Vec<u8>>> {
    let (name, width) = transform.split_once('/').unwrap_or((transform, "1"));
    let text = format!(r#"{{"column":0,"transform":"{name}","width":{width}}}"#);
    serde_json::from_str::<PartitionField>(&text).expect("the field is valid").value(&array, row)
}

fn int(transform: &str, array: ArrayRef) -> i32 {
    let value = value(transform, array, 0).expect("it has a value").expect("it is not null");
    i32::from_le_bytes(value.try_into().expect("it has four bytes"))
}

fn moment(micros: i64) -> ArrayRef {
    Arc::new(TimestampMicrosecondArray::from(vec![micros]).with_timezone("UTC"))
}

fn decimal(unscaled: i128, digits: u8) -> ArrayRef {
    Arc::new(Decimal128Array::from(vec![unscaled]).with_precision_and_scale(digits, 2).unwrap())
}

fn day(days: i32) -> ArrayRef {
    Arc::new(Date32Array::from(vec![days]))
}

/// Source: Iceberg table specification, Appendix B.
#[test]
fn hashes_are_those_of_the_specification() {
    let number = |value: i64| murmur3(&value.to_le_bytes()) as i32;
    assert_eq!(number(34), 2_017_239_379);
    assert_eq!(number(17_486), -653_330_422);
    assert_eq!(number(1_510_871_468_000_000), -2_047_944_441);
    assert_eq!(number(1_510_871_468_000_001), -1_207_196_810);
    assert_eq!(murmur3(&1_420_i16.to_be_bytes()) as i32, -500_754_589);
    assert_eq!(murmur3(b"iceberg") as i32, 1_210_000_089);
    assert_eq!(murmur3(&[0, 1, 2, 3]) as i32, -188_683_207);
}

#[test]
fn buckets_are_those_of_the_hashes() {
    let expected = |hash: i32| (hash & i32::MAX) % 100;
    assert_eq!(int("bucket/100", Arc::new(Int32Array::from(vec![34]))), expected(2_017_239_379));
    assert_eq!(int("bucket/100", Arc::new(Int64Array::from(vec![34]))), expected(2_017_239_379));
    assert_eq!(int("bucket/100", day(17_486)), expected(-653_330_422));
    assert_eq!(int("bucket/100", moment(1_510_871_468_000_001)), expected(-1_207_196_810));
    assert_eq!(int("bucket/100", decimal(1_420, 38)), expected(-500_754_589));
    assert_eq!(int("bucket/100", Arc::new(StringArray::from(vec!["iceberg"]))), expected(1_210_000_089));
    assert_eq!(int("bucket/100", Arc::new(BinaryArray::from(vec![&[0, 1, 2, 3][..]]))), expected(-188_683_207));
}

#[test]
fn units_of_time_before_the_epoch_are_negative() {
    let (hour, day_) = (3_600_000_000, 86_400_000_000);
    assert_eq!([-hour - 1, -hour, -1, 0, hour - 1, hour].map(|at| int("hour", moment(at))), [-2, -1, -1, 0, 0, 1]);
    assert_eq!([-day_ - 1, -day_, -1, 0, day_ - 1, day_].map(|at| int("day", moment(at))), [-2, -1, -1, 0, 0, 1]);
    assert_eq!([-32, -31, -1, 0, 30, 31].map(|at| int("month", day(at))), [-2, -1, -1, 0, 0, 1]);
    assert_eq!([-366, -365, -1, 0, 364, 365].map(|at| int("year", day(at))), [-2, -1, -1, 0, 0, 1]);
    assert_eq!(int("year", moment(-1)), -1);
    assert_eq!(int("month", moment(-1)), -1);
    assert_eq!(int("day", day(-719_162)), -719_162);
    // 0001-01-01, 2000-02-29, 9999-12-31
    assert_eq!([-719_162, 11_016, 2_932_896].map(|at| int("year", day(at))), [-1_969, 30, 8_029]);
    assert_eq!([-719_162, 11_016, 2_932_896].map(|at| int("month", day(at))), [-23_628, 361, 96_359]);
}

#[test]
fn truncated_numbers_are_floors() {
    let ints = [-11, -10, -1, 0, 9, 10].map(|n| int("truncate/10", Arc::new(Int32Array::from(vec![n]))));
    assert_eq!(ints, [-20, -10, -10, 0, 0, 10]);
    let long = value("truncate/10", Arc::new(Int64Array::from(vec![-1])), 0).unwrap();
    assert_eq!(long, Some((-10_i64).to_le_bytes().to_vec()));
    assert_eq!(value("truncate/50", decimal(1_065, 38), 0).unwrap(), Some(1_050_i16.to_be_bytes().to_vec()));
    assert_eq!(value("truncate/50", decimal(-5, 38), 0).unwrap(), Some(vec![0xce]));
}

#[test]
fn truncated_text_has_whole_letters() {
    let text = |width, text| value(&format!("truncate/{width}"), Arc::new(StringArray::from(vec![text])), 0).unwrap();
    assert_eq!(text(2, "ä😀b"), Some("ä😀".into()));
    assert_eq!(text(9, "ä😀b"), Some("ä😀b".into()));
    assert_eq!(text(1, ""), Some(vec![]));
    let bytes = value("truncate/2", Arc::new(BinaryArray::from(vec![&[1, 2, 3][..]])), 0).unwrap();
    assert_eq!(bytes, Some(vec![1, 2]));
}

#[test]
fn identities_are_serialized() {
    let identity = |array| value("identity", array, 0).unwrap().unwrap();
    assert_eq!(identity(Arc::new(BooleanArray::from(vec![true]))), [1]);
    assert_eq!(identity(Arc::new(Int32Array::from(vec![-2]))), (-2_i32).to_le_bytes());
    assert_eq!(identity(Arc::new(Int64Array::from(vec![i64::MIN]))), i64::MIN.to_le_bytes());
    assert_eq!(identity(day(-1)), (-1_i32).to_le_bytes());
    assert_eq!(identity(moment(-1)), (-1_i64).to_le_bytes());
    let decimals = [0, 127, 128, -128, -129, 1_420].map(|unscaled| identity(decimal(unscaled, 38)));
    assert_eq!(decimals, [vec![0], vec![127], vec![0, 128], vec![128], vec![255, 127], vec![5, 140]]);
}

#[test]
fn nulls_and_void_fields_are_null() {
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![None, Some(1)]));
    for transform in ["identity", "bucket/4", "truncate/4", "void"] {
        assert_eq!(value(transform, numbers.clone(), 0).unwrap(), None);
    }
    assert_eq!(value("void", numbers, 1).unwrap(), None);
}

#[test]
fn values_that_exceed_their_type_are_refused() {
    let refused = |transform: &str, array: ArrayRef| value(transform, array, 0).unwrap_err().to_string();
    let reason = "a transformed value exceeds its type";
    assert_eq!(refused("hour", moment(i64::MAX)), reason);
    assert_eq!(refused("truncate/10", Arc::new(Int32Array::from(vec![i32::MIN]))), reason);
    assert_eq!(refused("truncate/10", Arc::new(Int64Array::from(vec![i64::MIN]))), reason);
    assert_eq!(refused("truncate/10", decimal(-99, 2)), reason);
    let reason = "a transform does not apply to its column";
    assert_eq!(refused("hour", day(0)), reason);
    assert_eq!(refused("day", Arc::new(Int64Array::from(vec![0]))), reason);
}
