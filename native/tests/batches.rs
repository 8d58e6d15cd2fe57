//! The walk of record batches: what it reads, and that it ends with an error, not a panic, on any other bytes.

use lakehouse_native::batches::{Aborted, Walk, next_offset};

/// Return a number in the variable-length encoding of records.
fn varint(number: i64) -> Vec<u8> {
    let mut zigzag = ((number << 1) ^ (number >> 63)) as u64;
    let mut bytes = Vec::new();
    while zigzag >= 0x80 {
        bytes.push(zigzag as u8 | 0x80);
        zigzag >>= 7;
    }
    bytes.push(zigzag as u8);
    bytes
}

fn sized(bytes: &[u8]) -> Vec<u8> {
    [varint(bytes.len() as i64), bytes.to_vec()].concat()
}

fn record(delta: i64, value: &[u8]) -> Vec<u8> {
    sized(&[vec![0], varint(delta), varint(delta), varint(-1), sized(value), varint(0)].concat())
}

/// Return a batch of `count` records at consecutive offsets from `base` on, at 1,000 ms and later.
fn batch(base: i64, count: i64, attributes: i16, producer: i64, records: &[u8]) -> Vec<u8> {
    let checked = [
        attributes.to_be_bytes().to_vec(),
        ((count - 1) as i32).to_be_bytes().to_vec(),
        1_000_i64.to_be_bytes().to_vec(),
        2_000_i64.to_be_bytes().to_vec(),
        producer.to_be_bytes().to_vec(),
        vec![0; 6],
        (count as i32).to_be_bytes().to_vec(),
        records.to_vec(),
    ]
    .concat();
    let length = (checked.len() + 9) as i32;
    let head = [base.to_be_bytes().to_vec(), length.to_be_bytes().to_vec(), vec![0, 0, 0, 0, 2]].concat();
    [head, crc32c::crc32c(&checked).to_be_bytes().to_vec(), checked].concat()
}

fn plain(base: i64, count: i64, attributes: i16, producer: i64) -> Vec<u8> {
    let records: Vec<u8> = (0..count).flat_map(|n| record(n, &[n as u8])).collect();
    batch(base, count, attributes, producer, &records)
}

/// Return offset and timestamp of each record from `start` to `end`.
fn walked(response: &[u8], aborted: Vec<(i64, i64)>, start: i64, end: i64) -> anyhow::Result<Vec<(i64, i64)>> {
    let mut records = Vec::new();
    Walk::from(start).records(response, &mut Aborted::new(aborted), end, |record| {
        records.push((record.offset, record.timestamp));
        Ok(())
    })?;
    Ok(records)
}

#[test]
fn records_of_a_range_are_read_and_a_batch_that_is_cut_off_is_left_out() {
    let response = [plain(10, 3, 0, -1), plain(20, 2, 0, -1)].concat();
    assert_eq!(walked(&response, vec![], 11, 21).unwrap(), [(11, 1_001), (12, 1_002), (20, 1_000)]);
    let cut = &response[..response.len() - 1];
    assert_eq!(walked(cut, vec![], 0, 100).unwrap(), [(10, 1_000), (11, 1_001), (12, 1_002)]);
    assert_eq!((next_offset(&response).unwrap(), next_offset(cut).unwrap()), (Some(22), Some(13)));
}

#[test]
fn time_of_the_broker_is_that_of_the_batch() {
    assert_eq!(walked(&plain(0, 2, 0x08, -1), vec![], 0, 9).unwrap(), [(0, 2_000), (1, 2_000)]);
}

#[test]
fn records_of_aborted_transactions_and_control_batches_are_left_out() {
    let control = |base, type_: u8| {
        let key = sized(&[0, 0, 0, type_]);
        batch(base, 1, 0x30, 7, &sized(&[vec![0], varint(0), varint(0), key, varint(-1), varint(0)].concat()))
    };
    let response = [plain(0, 2, 0x10, 7), plain(2, 1, 0x10, 8), control(3, 0), plain(4, 1, 0x10, 7), control(5, 1)];
    let offsets: Vec<_> = walked(&response.concat(), vec![(0, 7)], 0, 9).unwrap().iter().map(|r| r.0).collect();
    assert_eq!(offsets, [2, 4]);
}

#[test]
fn every_codec_is_read() {
    use std::io::Write;
    let records: Vec<u8> = (0..2).flat_map(|n| record(n, &[n as u8; 300])).collect();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&records).unwrap();
    let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
    lz4.write_all(&records).unwrap();
    let snappy = snap::raw::Encoder::new().compress_vec(&records).unwrap();
    let blocks = [&[0x82], b"SNAPPY".as_slice(), &[0; 9], &(snappy.len() as u32).to_be_bytes(), &snappy].concat();
    let mut zstd = vec![0; 4096];
    let length = zstd_safe::compress(&mut zstd[..], &records, 1).unwrap();
    let compressed = [(1, gzip.finish().unwrap()), (2, snappy), (2, blocks), (3, lz4.finish().unwrap())];
    for (codec, data) in compressed.into_iter().chain([(4, zstd[..length].to_vec())]) {
        assert_eq!(walked(&batch(0, 2, codec, -1, &data), vec![], 0, 9).unwrap().len(), 2, "codec {codec}");
    }
}

#[test]
fn any_changed_byte_is_an_error_or_leaves_records_as_they_are() {
    let second = plain(10, 3, 0, -1).len();
    let response = [plain(10, 3, 0, -1), plain(20, 2, 0, -1)].concat();
    let expected = walked(&response, vec![], 0, 100).unwrap();
    for place in 0..response.len() {
        for bit in 0..8 {
            let mut changed = response.clone();
            changed[place] ^= 1 << bit;
            // The checksum does not cover the base offset, the length, the leader epoch and the format version.
            let is_covered = ![0..17, second..second + 17].iter().any(|range| range.contains(&place));
            match walked(&changed, vec![], 0, 100) {
                Ok(records) => assert!(!is_covered || expected.starts_with(&records), "bit {bit} of byte {place}"),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
    }
}

#[test]
fn offsets_that_do_not_increase_are_an_error() {
    let repeated = [record(0, b"a"), record(0, b"b")].concat();
    assert!(walked(&batch(0, 2, 0, -1, &repeated), vec![], 0, 9).is_err());
    let beyond = [record(0, b"a"), record(5, b"b")].concat();
    assert!(walked(&batch(0, 2, 0, -1, &beyond), vec![], 0, 9).is_err());
}
