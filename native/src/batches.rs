//! Record batches of a fetch response, walked in place: checksum, decompression, control and aborted batches, records.
//!
//! Source: Apache Kafka, Message Format (record batch and record of magic 2, control batches).

use std::collections::HashSet;
use std::io::Read;

use anyhow::{Result, anyhow, bail, ensure};

/// Bytes of a record batch before its records.
const HEADER: usize = 61;
/// Bytes of a record batch that its length field does not count.
const BEFORE_LENGTH: usize = 12;
/// Maximum bytes of the records of one batch, decompressed.
const MAX_RECORDS_BYTES: usize = 16 << 20;
/// Maximum window of zstd frames as a power of two (Zstandard, window size), which is that of its levels up to 19.
const MAX_WINDOW: u32 = 23;
/// More bytes than a byte of snappy data can become: three become 64 at most (Snappy, Compressed format description).
const MAX_SNAPPY_RATIO: usize = 32;

/// Attributes of a batch.
const CODEC: i16 = 0x07;
const LOG_APPEND_TIME: i16 = 0x08;
const TRANSACTIONAL: i16 = 0x10;
const CONTROL: i16 = 0x20;

/// One record of the log.
pub struct Record<'a> {
    /// Its offset in the partition.
    pub offset: i64,
    /// Milliseconds since the epoch.
    pub timestamp: i64,
    /// Whether the broker's clock, instead of the producer's, has set the timestamp.
    pub is_log_append_time: bool,
    /// The message key.
    pub key: Option<&'a [u8]>,
    /// The message value.
    pub value: Option<&'a [u8]>,
    /// The message headers in order.
    pub headers: Headers<'a>,
}

/// The headers of one record, which `Record` has checked.
#[derive(Clone)]
pub struct Headers<'a> {
    count: usize,
    bytes: Bytes<'a>,
}

impl Headers<'_> {
    /// Return no headers.
    pub fn none() -> Self {
        Self { count: 0, bytes: Bytes(&[]) }
    }
}

impl<'a> Iterator for Headers<'a> {
    type Item = (&'a str, Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        self.count = self.count.checked_sub(1)?;
        header(&mut self.bytes).ok()
    }
}

/// The transactions of a fetch response that were aborted.
pub struct Aborted {
    /// First offset and producer id, newest first.
    pending: Vec<(i64, i64)>,
    producers: HashSet<i64>,
}

impl Aborted {
    /// Return the transactions, given by first offset and producer id.
    pub fn new(mut transactions: Vec<(i64, i64)>) -> Self {
        transactions.sort_unstable_by(|one, other| other.cmp(one));
        Self { pending: transactions, producers: HashSet::new() }
    }

    fn advance(&mut self, last_offset: i64) {
        while self.pending.last().is_some_and(|(first, _)| *first <= last_offset) {
            self.producers.extend(self.pending.pop().map(|(_, producer)| producer));
        }
    }
}

/// Decompresses batches into a buffer that all of them share.
#[derive(Default)]
pub struct Walk {
    records: Vec<u8>,
    zstd: Option<zstd_safe::DCtx<'static>>,
    next_offset: i64,
}

impl Walk {
    /// Return a walk of a partition from an offset on.
    pub fn from(offset: i64) -> Self {
        Self { next_offset: offset, ..Self::default() }
    }

    /// Call `each` with the records of complete batches whose offsets are before `end`.
    ///
    /// Offsets must increase, which no checksum covers, across calls too. A batch that the response cuts off is left out.
    pub fn records(
        &mut self,
        mut response: &[u8],
        aborted: &mut Aborted,
        end: i64,
        mut each: impl FnMut(Record) -> Result<()>,
    ) -> Result<()> {
        let mut previous = -1;
        while let Some((batch, others)) = first_batch(response)? {
            response = others;
            let base = i64::from_be_bytes(field(batch, 0));
            let last = last_offset(batch);
            ensure!(previous < base, "the batch at offset {base} follows offset {previous}");
            ensure!(base <= last, "the batch at offset {base} ends at offset {last}");
            previous = last;
            ensure!(batch[16] == 2, "the batch at offset {base} has format version {}", batch[16]);
            let checksum = u32::from_be_bytes(field(batch, 17));
            ensure!(crc32c::crc32c(&batch[21..]) == checksum, "the batch at offset {base} has another checksum");
            let attributes = i16::from_be_bytes(field(batch, 21));
            let producer = i64::from_be_bytes(field(batch, 43));
            aborted.advance(last);
            let records = &batch[HEADER..];
            if attributes & CONTROL != 0 {
                if is_abort(records, base)? {
                    aborted.producers.remove(&producer);
                }
                continue;
            }
            let is_aborted = attributes & TRANSACTIONAL != 0 && aborted.producers.contains(&producer);
            if is_aborted || last < self.next_offset || base >= end {
                continue;
            }
            self.batch(batch, attributes, records, end, &mut each)?;
        }
        Ok(())
    }

    fn batch(
        &mut self,
        batch: &[u8],
        attributes: i16,
        records: &[u8],
        end: i64,
        each: &mut impl FnMut(Record) -> Result<()>,
    ) -> Result<()> {
        let (base, last) = (i64::from_be_bytes(field(batch, 0)), last_offset(batch));
        let base_timestamp = i64::from_be_bytes(field(batch, 27));
        let max_timestamp = i64::from_be_bytes(field(batch, 35));
        let count = i32::from_be_bytes(field(batch, 57));
        ensure!(count >= 0, "the batch at offset {base} has {count} records");
        let is_log_append_time = attributes & LOG_APPEND_TIME != 0;
        let mut bytes = match attributes & CODEC {
            0 => {
                ensure!(records.len() <= MAX_RECORDS_BYTES, "a batch has more than {MAX_RECORDS_BYTES} bytes");
                Bytes(records)
            }
            codec => {
                decompress(codec, records, &mut self.records, &mut self.zstd)?;
                Bytes(&self.records)
            }
        };
        let mut previous = base - 1;
        for _ in 0..count {
            let mut record = Bytes(bytes.sized()?.ok_or_else(|| anyhow!("a record at offset {base} has no length"))?);
            record.take(1)?;
            let delta = record.varint()?;
            let timestamp = if is_log_append_time { Some(max_timestamp) } else { base_timestamp.checked_add(delta) };
            let offset = base.checked_add(record.varint()?).unwrap_or(i64::MAX);
            ensure!(previous < offset && offset <= last, "offset {offset} follows {previous} in a batch up to {last}");
            previous = offset;
            let (key, value) = (record.sized()?, record.sized()?);
            let headers = headers(&mut record, offset)?;
            ensure!(record.0.is_empty(), "the record at offset {offset} has bytes after its headers");
            if offset < self.next_offset || offset >= end {
                continue;
            }
            self.next_offset = offset + 1;
            let timestamp = timestamp.ok_or_else(|| anyhow!("the timestamp at offset {offset} exceeds 64 bits"))?;
            each(Record { offset, timestamp, is_log_append_time, key, value, headers })?;
        }
        ensure!(bytes.0.is_empty(), "the batch at offset {base} has bytes after its {count} records");
        Ok(())
    }
}

/// Return the offset after the last complete batch; none if there is no complete batch.
pub fn next_offset(mut response: &[u8]) -> Result<Option<i64>> {
    let mut next = None;
    while let Some((batch, others)) = first_batch(response)? {
        let last = last_offset(batch);
        next = Some(last.checked_add(1).ok_or_else(|| anyhow!("a batch ends at offset {last}"))?);
        response = others;
    }
    Ok(next)
}

fn first_batch(response: &[u8]) -> Result<Option<(&[u8], &[u8])>> {
    if response.len() < HEADER {
        return Ok(None);
    }
    let length = i32::from_be_bytes(field(response, 8));
    let length = usize::try_from(length).unwrap_or(0) + BEFORE_LENGTH;
    ensure!(length >= HEADER, "a batch has {length} bytes");
    Ok(response.split_at_checked(length))
}

fn last_offset(batch: &[u8]) -> i64 {
    i64::from_be_bytes(field(batch, 0)).saturating_add(i32::from_be_bytes(field(batch, 23)).into())
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("the caller has checked the length")
}

/// Return whether a control batch ends a transaction by aborting it. Its key is a version and a type, where 0 aborts.
fn is_abort(records: &[u8], base: i64) -> Result<bool> {
    let mut record = Bytes(Bytes(records).sized()?.unwrap_or_default());
    record.take(1)?;
    record.varint()?;
    record.varint()?;
    let key = record.sized()?.unwrap_or_default();
    ensure!(key.len() >= 4, "the control batch at offset {base} has no type");
    Ok(key[2..4] == [0, 0])
}

fn headers<'a>(record: &mut Bytes<'a>, offset: i64) -> Result<Headers<'a>> {
    let count = record.varint()?;
    let headers = Headers { count: usize::try_from(count)?, bytes: Bytes(record.0) };
    for _ in 0..count {
        header(record).map_err(|error| error.context(format!("a header of the record at offset {offset}")))?;
    }
    Ok(headers)
}

fn header<'a>(bytes: &mut Bytes<'a>) -> Result<(&'a str, Option<&'a [u8]>)> {
    let key = bytes.sized()?.ok_or_else(|| anyhow!("it has no key"))?;
    Ok((std::str::from_utf8(key).map_err(|_| anyhow!("its key is no text"))?, bytes.sized()?))
}

/// Bytes that are read from the front.
#[derive(Clone)]
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    #[inline]
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (first, others) = self.0.split_at_checked(count).ok_or_else(|| anyhow!("a record is cut off"))?;
        self.0 = others;
        Ok(first)
    }

    #[inline]
    fn varint(&mut self) -> Result<i64> {
        let mut value = 0_u64;
        for (place, &byte) in self.0.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                self.0 = &self.0[place + 1..];
                return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
            }
        }
        bail!("a record has an invalid number")
    }

    /// Return bytes with their length before them; none if the length is negative.
    #[inline]
    fn sized(&mut self) -> Result<Option<&'a [u8]>> {
        usize::try_from(self.varint()?).ok().map(|length| self.take(length)).transpose()
    }
}

fn decompress(
    codec: i16,
    data: &[u8],
    records: &mut Vec<u8>,
    zstd: &mut Option<zstd_safe::DCtx<'static>>,
) -> Result<()> {
    records.clear();
    let limit = MAX_RECORDS_BYTES as u64 + 1;
    match codec {
        1 => drop(flate2::read::MultiGzDecoder::new(data).take(limit).read_to_end(records)?),
        2 => snappy(data, records)?,
        3 => drop(lz4_flex::frame::FrameDecoder::new(data).take(limit).read_to_end(records)?),
        4 => unzstd(data, records, zstd.get_or_insert_with(zstd_safe::DCtx::create))?,
        other => bail!("codec {other} is unknown"),
    }
    ensure!(records.len() <= MAX_RECORDS_BYTES, "a batch has more than {MAX_RECORDS_BYTES} bytes");
    Ok(())
}

/// Decompress zstd frames. Producers that stream do not write the size into the frame.
fn unzstd(data: &[u8], records: &mut Vec<u8>, context: &mut zstd_safe::DCtx<'static>) -> Result<()> {
    let named = |code| anyhow!("zstd: {}", zstd_safe::get_error_name(code));
    context.reset(zstd_safe::ResetDirective::SessionOnly).map_err(named)?;
    context.set_parameter(zstd_safe::DParameter::WindowLogMax(MAX_WINDOW)).map_err(named)?;
    let mut input = zstd_safe::InBuffer::around(data);
    // Whatever size the frame declares, memory is for what it has so far.
    let mut room = 64 << 10;
    loop {
        ensure!(records.len() <= MAX_RECORDS_BYTES, "a batch has more than {MAX_RECORDS_BYTES} bytes");
        records.reserve(room);
        let at = records.len();
        let mut output = zstd_safe::OutBuffer::around_pos(records, at);
        let remaining = context.decompress_stream(&mut output, &mut input).map_err(named)?;
        let is_full = output.pos() == output.capacity();
        if input.pos == data.len() && !is_full {
            ensure!(remaining == 0, "a zstd frame is cut off");
            return Ok(());
        }
        room = 1 << 20;
    }
}

/// Decompress snappy data, raw or in the blocks of Java's library (snappy-java, SnappyOutputStream).
fn snappy(mut data: &[u8], records: &mut Vec<u8>) -> Result<()> {
    const MAGIC: &[u8] = &[0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
    let mut decoder = snap::raw::Decoder::new();
    let mut append = |block: &[u8]| -> Result<()> {
        let (at, length) = (records.len(), snap::raw::decompress_len(block)?);
        ensure!(at + length <= MAX_RECORDS_BYTES, "a batch has more than {MAX_RECORDS_BYTES} bytes");
        ensure!(length <= block.len() * MAX_SNAPPY_RATIO, "a snappy block declares {length} bytes");
        records.resize(at + length, 0);
        decoder.decompress(block, &mut records[at..])?;
        Ok(())
    };
    if !data.starts_with(MAGIC) {
        return append(data);
    }
    data = data.get(16..).ok_or_else(|| anyhow!("the header of snappy data is cut off"))?;
    while !data.is_empty() {
        let (length, others) = data.split_at_checked(4).ok_or_else(|| anyhow!("a snappy block is cut off"))?;
        let length = u32::from_be_bytes(length.try_into()?) as usize;
        let (block, others) = others.split_at_checked(length).ok_or_else(|| anyhow!("a snappy block is cut off"))?;
        append(block)?;
        data = others;
    }
    Ok(())
}
