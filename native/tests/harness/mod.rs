//! What must hold for the bytes of any broker and producer. `cargo fuzz` looks for bytes for which it does not.

use std::sync::LazyLock;

use lakehouse_native::batches::{Aborted, Walk, next_offset};
use lakehouse_native::range::{Layout, decide_values};

/// The range of which a response is read.
const START: i64 = 5;
const END: i64 = 1_000;

/// A table with a column of each type, and the plan of its values, as `spark/native/plan.py` describes them.
static LAYOUT: LazyLock<Layout> =
    LazyLock::new(|| serde_json::from_str(include_str!("layout.json")).expect("the layout is valid"));

/// Walk a fetch response: it ends, with records of the range in order or an error.
///
/// Format version and checksum of each batch are set to what they should be, so that the walk goes on to its records.
pub fn walk(response: &[u8]) {
    let response = &with_checksums(response);
    let (mut at, mut bytes) = (START - 1, 0);
    let mut aborted = Aborted::new(vec![(START, 7), (END / 2, 8)]);
    let walked = Walk::from(START).records(response, &mut aborted, END, |record| {
        assert!(at < record.offset && record.offset < END);
        at = record.offset;
        bytes += record.headers.clone().map(|(key, value)| key.len() + value.map_or(0, <[u8]>::len)).sum::<usize>();
        Ok(())
    });
    match next_offset(response) {
        Ok(next) if walked.is_ok() => assert!(at < START || next.is_some_and(|next| next > at)),
        _ => (),
    }
}

fn with_checksums(response: &[u8]) -> Vec<u8> {
    let (mut response, mut at) = (response.to_vec(), 0);
    while response.len() - at >= 61 {
        let length = i32::from_be_bytes(response[at + 8..at + 12].try_into().expect("it has four bytes"));
        let Some(end) = usize::try_from(length).ok().map(|length| at + 12 + length) else { break };
        if end < at + 61 || end > response.len() {
            break;
        }
        response[at + 16] = 2;
        let checksum = crc32c::crc32c(&response[at + 21..end]);
        response[at + 17..at + 21].copy_from_slice(&checksum.to_be_bytes());
        at = end;
    }
    response
}

/// Decide about values, each with a byte before it that is its length: each becomes a row or is left, never both.
pub fn decide(mut data: &[u8]) {
    let mut values = Vec::new();
    while let Some((&length, others)) = data.split_first() {
        let (value, others) = others.split_at(others.len().min(length.into()));
        values.push(Some([&[0, 0, 0, 0, 1], value].concat()));
        data = others;
    }
    let mut left = Vec::new();
    let spill = |records| {
        left.extend(records);
        Ok(())
    };
    let files = decide_values(&LAYOUT, &values, |_| Ok(Vec::new()), spill).expect("any value is a row, or is left");
    assert_eq!(files.iter().map(|file| file.rows).sum::<usize>() + left.len(), values.len());
    assert!(left.windows(2).all(|pair| pair[0].offset < pair[1].offset));
    assert!(left.iter().all(|record| record.value == values[record.offset as usize]));
}
