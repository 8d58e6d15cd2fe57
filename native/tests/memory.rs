//! The memory that a request allocates, whatever the number of records, their size and the counts that they declare.
//!
//! The allocator counts what Rust allocates; that of zstd's C library is limited by its window (`batches.rs`).

#[path = "harness/written.rs"]
#[allow(dead_code)]
mod written;

use std::io;
use std::sync::{Mutex, PoisonError};

use lakehouse_native::batches::{Aborted, Walk};
use lakehouse_native::range::{Layout, decide_values};
use peak_alloc::PeakAlloc;
use written::{batch, record, sized, varint};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// The allocator counts all threads.
static ALONE: Mutex<()> = Mutex::new(());

/// Megabytes that a request may add to a process.
const MOST: f32 = 80.0;

fn added<T>(request: impl FnOnce() -> T) -> (f32, T) {
    let before = ALLOCATOR.current_usage_as_mb();
    ALLOCATOR.reset_peak_usage();
    let result = request();
    (ALLOCATOR.peak_usage_as_mb() - before, result)
}

fn layout(columns: &[&str], nodes: &[&str]) -> Layout {
    partitioned(columns, nodes, "")
}

fn partitioned(columns: &[&str], nodes: &[&str], partition: &str) -> Layout {
    arranged(columns, nodes, partition, "")
}

/// Return the layout of a partitioned and sorted table.
fn arranged(columns: &[&str], nodes: &[&str], partition: &str, sort: &str) -> Layout {
    let columns: Vec<_> =
        columns.iter().enumerate().map(|(n, c)| format!(r#"{{"name":"c{n}","id":{n},{c}}}"#)).collect();
    let nodes: Vec<_> =
        nodes.iter().enumerate().map(|(n, node)| format!(r#"{{"node":{node},"column":{n}}}"#)).collect();
    let record = format!(r#"{{"kind":"record","fields":[{}],"absent":[]}}"#, nodes.join(","));
    let text = format!(
        r#"{{"writers":{{"1":{record}}},"columns":[{}],"metadata":[],"partition":[{partition}],"sort":[{sort}]}}"#,
        columns.join(",")
    );
    serde_json::from_str(&text).expect("the layout is valid")
}

fn framed(body: &[u8]) -> Option<Vec<u8>> {
    Some([&[0, 0, 0, 0, 1], body].concat())
}

/// Return the number of rows of values, none if they are refused, which must be within the limit.
fn decided(layout: &Layout, values: impl IntoIterator<Item = Option<Vec<u8>>>) -> Option<usize> {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let values = &values.into_iter().collect::<Vec<_>>();
    let (megabytes, decided) = added(|| decide_values(layout, values, |_| Ok(io::sink()), |_| Ok(())));
    println!("{megabytes:.1} MB for {} values", values.len());
    assert!(megabytes < MOST, "{megabytes:.1} MB");
    decided.ok().map(|files| files.iter().map(|file| file.rows).sum())
}

/// Require that a batch is read, or refused, within the limit.
fn walked(attributes: i16, records: &[u8]) -> anyhow::Result<()> {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let response = batch(0, 1, attributes, -1, records);
    let (megabytes, result) =
        added(|| Walk::from(0).records(&response, &mut Aborted::new(vec![]), i64::MAX, |_| Ok(())));
    println!("{megabytes:.1} MB for a batch of {} bytes", response.len());
    assert!(megabytes < MOST, "{megabytes:.1} MB");
    result
}

/// Text without repetitions.
fn text(length: usize, seed: u64) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'0' + (state % 64) as u8)
    };
    (0..length).map(|_| next()).collect()
}

#[test]
fn a_million_records_are_within_the_limit() {
    require_limit_for_a_million("", "");
    require_limit_for_a_million(BUCKETS, "");
}

#[test]
fn a_million_sorted_records_are_within_the_limit() {
    require_limit_for_a_million("", &ascending(&[2, 0]));
    require_limit_for_a_million(BUCKETS, &ascending(&[2, 0]));
}

const BUCKETS: &str = r#"{"column":1,"transform":"bucket","width":16}"#;

/// Return the fields of a sort order by columns.
fn ascending(columns: &[usize]) -> String {
    let rest = r#""transform":"identity","width":1,"descending":false,"nulls_first":true"#;
    columns.iter().map(|column| format!(r#"{{"column":{column},{rest}}}"#)).collect::<Vec<_>>().join(",")
}

fn require_limit_for_a_million(partition: &str, sort: &str) {
    let string = r#"{"kind":"string"}"#;
    let long = r#"{"kind":"long"}"#;
    let layout = arranged(
        &[r#""type":"long""#, r#""type":"string""#, r#""type":"string""#, r#""type":"string""#, r#""type":"long""#],
        &[long, string, string, string, long],
        partition,
        sort,
    );
    let value = |n: i64| {
        let account = format!("account-{n}");
        let texts = [account.as_bytes(), text(16, n as u64).as_bytes(), b"BUY"].map(sized).concat();
        framed(&[varint(n), texts, varint(n * 7919)].concat())
    };
    assert_eq!(decided(&layout, (0..1_000_000).map(value)), Some(1_000_000));
}

#[test]
fn records_of_a_megabyte_are_within_the_limit() {
    let layout = layout(&[r#""type":"string""#], &[r#"{"kind":"string"}"#]);
    let value = |n| framed(&sized(text(1 << 20, n).as_bytes()));
    assert_eq!(decided(&layout, (0..50).map(value)), Some(50));
}

#[test]
fn records_of_the_largest_size_are_within_the_limit() {
    let value = |n| framed(&sized(text((2 << 20) - 9, n).as_bytes()));
    let buckets = r#"{"column":0,"transform":"bucket","width":16}"#;
    for (partition, sort) in [("", ""), (buckets, ""), ("", &ascending(&[0])), (buckets, &ascending(&[0]))] {
        let layout = arranged(&[r#""type":"binary""#], &[r#"{"kind":"bytes"}"#], partition, sort);
        assert_eq!(decided(&layout, [framed(&sized(&vec![0; 2 << 20]))]), Some(0));
        assert_eq!(decided(&layout, (0..48).map(value)), Some(48));
    }
}

#[test]
fn records_of_many_small_items_are_within_the_limit() {
    let of_items = r#""type":"list","element":{"name":"element","id":9,"type":"struct","fields":[
        {"name":"a","id":10,"type":"long"},{"name":"b","id":11,"type":"string"}]}"#;
    let fields = r#"{"node":{"kind":"union","branches":[{"kind":"null"},{"kind":"string"}]},"column":1}"#;
    let items = format!(r#"{{"kind":"record","fields":[{fields}],"absent":[0]}}"#);
    let layout = layout(&[of_items], &[&format!(r#"{{"kind":"array","items":{items}}}"#)]);
    let body = [varint(2_000_000), vec![0; 2_000_000], varint(0)].concat();
    assert_eq!(decided(&layout, [framed(&body), framed(&body)]), None);
}

#[test]
fn records_of_the_most_items_are_within_the_limit() {
    let of_items = r#""type":"list","element":{"name":"element","id":9,"type":"long"}"#;
    let long = r#"{"kind":"long"}"#;
    let nodes = [long, &format!(r#"{{"kind":"array","items":{long}}}"#)];
    let items = [varint(1_900_000), (0..1_900_000).map(|n| (n % 127) as u8).collect(), varint(0)].concat();
    let buckets = r#"{"column":0,"transform":"bucket","width":16}"#;
    for (partition, sort) in [("", ""), (buckets, ""), ("", &ascending(&[0])), (buckets, &ascending(&[0]))] {
        let layout = arranged(&[r#""type":"long""#, of_items], &nodes, partition, sort);
        let values = (0..5).map(|n| framed(&[varint(n), items.clone()].concat()));
        assert_eq!(decided(&layout, values), Some(5));
    }
}

#[test]
fn items_of_long_symbols_are_within_the_limit() {
    let of_items = r#""type":"list","element":{"name":"element","id":9,"type":"string"}"#;
    let symbols = format!(r#"{{"kind":"array","items":{{"kind":"enum","symbols":["{}"]}}}}"#, "S".repeat(1_000));
    let layout = layout(&[of_items], &[&symbols]);
    let body = [varint(1_000_000), vec![0; 1_000_000], varint(0)].concat();
    assert_eq!(decided(&layout, [framed(&body)]), None);
}

#[test]
fn maps_of_many_entries_are_within_the_limit() {
    let of_entries = r#""type":"map","key":{"name":"key","id":9,"type":"string"},
        "value":{"name":"value","id":10,"type":"boolean"}"#;
    let layout = layout(&[of_entries], &[r#"{"kind":"map","values":{"kind":"boolean"}}"#]);
    let body = [varint(1_000_000), vec![0; 2_000_000], varint(0)].concat();
    assert_eq!(decided(&layout, [framed(&body)]), Some(0));
}

#[test]
fn counts_that_no_bytes_follow_are_within_the_limit() {
    let of_items = r#""type":"list","element":{"name":"element","id":9,"type":"boolean"}"#;
    let layout = layout(&[of_items], &[r#"{"kind":"array","items":{"kind":"boolean"}}"#]);
    let values = [i64::MAX, i64::MIN, 1 << 40].map(|count| framed(&[varint(count), varint(1), vec![0; 9]].concat()));
    assert_eq!(decided(&layout, values), Some(0));
}

#[test]
fn batches_that_expand_are_within_the_limit() {
    let records = record(0, &vec![0; 20 << 20]);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    io::Write::write_all(&mut gzip, &records).unwrap();
    let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
    io::Write::write_all(&mut lz4, &records).unwrap();
    let mut zstd = vec![0; 1 << 20];
    let length = zstd_safe::compress(&mut zstd[..], &records, 1).unwrap();
    zstd.truncate(length);
    let snappy = snap::raw::Encoder::new().compress_vec(&records).unwrap();
    drop(records);
    for (codec, data) in [(1, gzip.finish().unwrap()), (2, snappy), (3, lz4.finish().unwrap()), (4, zstd)] {
        assert!(walked(codec, &data).is_err());
    }
}
