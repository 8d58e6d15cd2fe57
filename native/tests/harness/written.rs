//! Record batches as producers write them.

/// Return a number in the variable-length encoding of records.
pub fn varint(number: i64) -> Vec<u8> {
    let mut zigzag = ((number << 1) ^ (number >> 63)) as u64;
    let mut bytes = Vec::new();
    while zigzag >= 0x80 {
        bytes.push(zigzag as u8 | 0x80);
        zigzag >>= 7;
    }
    bytes.push(zigzag as u8);
    bytes
}

pub fn sized(bytes: &[u8]) -> Vec<u8> {
    [varint(bytes.len() as i64), bytes.to_vec()].concat()
}

pub fn record(delta: i64, value: &[u8]) -> Vec<u8> {
    sized(&[vec![0], varint(delta), varint(delta), varint(-1), sized(value), varint(0)].concat())
}

/// Return a batch of `count` records at consecutive offsets from `base` on, at 1,000 ms and later.
pub fn batch(base: i64, count: i64, attributes: i16, producer: i64, records: &[u8]) -> Vec<u8> {
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

pub fn plain(base: i64, count: i64, attributes: i16, producer: i64) -> Vec<u8> {
    let records: Vec<u8> = (0..count).flat_map(|n| record(n, &[n as u8])).collect();
    batch(base, count, attributes, producer, &records)
}
