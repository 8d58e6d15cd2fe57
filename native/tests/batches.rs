//! The walk of record batches: what it reads, and that it ends with an error, not a panic, on any other bytes.

use lakehouse_native::batches::{Aborted, Walk, next_offset};

#[path = "harness/written.rs"]
mod written;

use written::{batch, plain, record, sized, varint};

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

#[test]
fn batches_that_are_out_of_order_are_an_error() {
    for second in [0, 9, 11, 12] {
        let response = [plain(10, 3, 0, -1), plain(second, 3, 0, -1)].concat();
        let error = walked(&response, vec![], 0, 100).unwrap_err().to_string();
        assert_eq!(error, format!("the batch at offset {second} follows offset 12"));
    }
}

#[test]
fn batch_without_an_offset_after_it_is_an_error() {
    let response = plain(i64::MAX - 2, 3, 0, -1);
    assert_eq!(next_offset(&response).unwrap_err().to_string(), format!("a batch ends at offset {}", i64::MAX));
}

#[test]
fn snappy_block_that_cannot_have_the_declared_bytes_is_an_error() {
    // 8,388,608 bytes as a variable-length number, and a literal of one byte.
    let data = [0x80, 0x80, 0x80, 0x04, 0, b'a'];
    let error = walked(&batch(0, 1, 2, -1, &data), vec![], 0, 9).unwrap_err().to_string();
    assert_eq!(error, "a snappy block declares 8388608 bytes");
}
