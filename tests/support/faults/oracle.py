"""A comparison of a table with its topic that uses no code of the project.

Kafka is read by a read_committed consumer, the table through pyiceberg's metadata, manifests and Parquet footers, and
the values by fastavro. The batch tokens (`lakehouse.batch`) are read as docs/exactly-once.md describes them.
"""

from __future__ import annotations

import io
import json
import os
import struct
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import fastavro
import pyarrow.parquet as pq
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryError

from tests.support.topics import METADATA, Message, Stream, in_order, registry

At = tuple[int, int]
"""(partition, offset)."""

SHOWN = 5
"""Maximum number of positions in an error."""


@dataclass(frozen=True)
class Log:
    """The records of a topic that a read_committed consumer receives, with start and end offsets by partition.

    `end` is one past the last committed offset; transaction markers count.
    """

    records: dict[At, Message]
    start: Mapping[int, int]
    end: Mapping[int, int]


@dataclass(frozen=True)
class Verdict:
    """The numbers of compared records, rows, dead letters and batches."""

    records: int
    rows: int
    dead_letters: int
    batches: int

    def __str__(self) -> str:
        return f"{self.records:,} records, {self.rows:,} rows, {self.dead_letters:,} dead letters"


def judge(stream: Stream, removed: Callable[[dict[str, Any]], bool] = lambda row: False) -> Verdict:
    """Compare a topic, which has no active producers, with its table, which must have caught up.

    Args:
        stream: The topic and its table.
        removed: Whether a row was deleted by hand.

    Raises:
        AssertionError: The table differs. The message contains the partitions and offsets.
    """
    log = read_log(stream.name)
    table = stream.table()
    assert table is not None and table.current_snapshot() is not None, f"{stream.name} has no published table"
    upsert = stream.topic.mode == "upsert"
    good = {at: row for at, record in log.records.items() if (row := decoded(record, stream)) is not None}
    dead = {at: record for at, record in log.records.items() if at not in good}
    expected = newest(good, stream.topic.key) if upsert else good
    expected = {at: row for at, row in expected.items() if not removed(row)}
    rows = in_order(table.scan(snapshot_id=table.current_snapshot().snapshot_id).to_arrow().to_pylist())
    rows = [row for row in rows if row["kafka_offset"] >= log.start[row["kafka_partition"]]]

    _same_positions(f"table {stream.topic.table}", expected, map(position, rows))
    for row in rows:
        wanted = expected[position(row)]
        cells = {name: value for name, value in row.items() if value is not None or name in wanted}
        assert cells == wanted, f"table {stream.topic.table} at {position(row)}: {cells} and not {wanted}"
    letters = [x for x in stream.dead_letters() if x["kafka_offset"] >= log.start[x["kafka_partition"]]]
    _same_positions("dead letters", dead, map(position, letters))
    for letter in letters:
        _same_bytes(letter, dead[position(letter)])
    batches = list(tokens(table))
    _contiguous(batches, log)
    for token, added in batches:
        _conserved(token, added, good, log, stream.topic.key if upsert else ())
    for checked in (table, stream.table(f"{stream.topic.table}__dead_letters")):
        if checked is not None:
            files_are_sound(checked)
    return Verdict(len(log.records), len(rows), len(letters), len(batches))


def read_log(topic: str) -> Log:
    """Read all partitions of a topic from the first record to the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
            "group.id": f"judge-{uuid.uuid4()}",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 1,
        }
    )
    partitions = sorted(consumer.list_topics(topic, timeout=20).topics[topic].partitions)
    start = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=20)[0] for p in partitions}
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in partitions])
    records: dict[At, Message] = {}
    end: dict[int, int] = {}
    while len(end) < len(partitions):
        message = consumer.poll(20)
        assert message is not None, f"no end of {topic} within 20 s"
        at = message.partition(), message.offset()
        if error := message.error():
            assert error.code() == KafkaError._PARTITION_EOF, f"{topic} partition {at[0]}: {error}"
            end[at[0]] = at[1]
            continue
        headers = message.headers() or []
        records[at] = Message(*at, message.timestamp()[1], message.key(), message.value(), headers)
    consumer.close()
    return Log(records, start, end)


def decoded(record: Message, stream: Stream) -> dict[str, Any] | None:
    """Return the row of a record, the key alone for a tombstone, or None for a dead letter."""
    upsert = stream.topic.mode == "upsert"
    keyed = {}
    if upsert and record.key is not None:
        with suppress(UnicodeDecodeError):
            keyed = {stream.topic.key[0]: record.key.decode()}
    if record.value is None:
        return keyed or None if upsert else None
    value = _avro(record.value)
    if value is None:
        return None
    if upsert:
        keyed |= {name: cell for name, cell in value.items() if cell is not None}
        if stream.topic.key[0] not in keyed:
            return None
    (schema_id,) = struct.unpack(">I", record.value[1:5])
    return (
        value
        | keyed
        | {
            "kafka_partition": record.partition,
            "kafka_offset": record.offset,
            "kafka_timestamp": record.timestamp_ms,
            "kafka_schema_id": schema_id,
        }
    )


def newest(good: Mapping[At, dict[str, Any]], key: tuple[str, ...]) -> dict[At, dict[str, Any]]:
    """Return the last row of each key, without keys whose last record is a tombstone.

    All records of a key are in one partition, in the order of their offsets.
    """
    last: dict[tuple[Any, ...], At] = {}
    for at, row in sorted(good.items()):
        last[tuple(row[column] for column in key)] = at
    return {at: good[at] for at in last.values() if METADATA[0] in good[at]}


def tokens(table: Any) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield the tokens of the batches of `main`, newest first, with the number of records that their commits added.

    An upsert commits deletions before its rows, and the compiled decoder its files before the rows of other records.
    """
    snapshots = {snapshot.snapshot_id: snapshot for snapshot in table.metadata.snapshots}
    snapshot = table.current_snapshot()
    while snapshot is not None:
        summary = snapshot.summary.additional_properties
        snapshot = snapshots.get(snapshot.parent_snapshot_id)
        if token := summary.get("lakehouse.batch"):
            added = int(summary.get("added-records", 0))
            while snapshot is not None and "lakehouse.part" in (part := snapshot.summary.additional_properties):
                added += int(part.get("added-records", 0))
                snapshot = snapshots.get(snapshot.parent_snapshot_id)
            yield json.loads(token), added


def files_are_sound(table: Any) -> None:
    """Check that each file of the current snapshot exists, is listed once and has the row count of its manifest.

    Raises:
        AssertionError: A file is missing, listed twice or has another number of rows.
    """
    snapshot = table.current_snapshot()
    for other in table.metadata.snapshots:
        assert table.io.new_input(other.manifest_list).exists(), f"snapshot {other.snapshot_id}: no manifest list"
    if snapshot is None:
        return
    listed: Counter[str] = Counter()
    for manifest in snapshot.manifests(table.io):
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            file = entry.data_file
            listed[file.file_path] += 1
            source = table.io.new_input(file.file_path)
            assert source.exists(), f"{file.file_path} is in the table and not in the store"
            with source.open() as opened:
                rows = pq.read_metadata(opened).num_rows
            assert rows == file.record_count, f"{file.file_path}: {rows} rows, and {file.record_count} in the manifest"
    twice = [path for path, times in listed.items() if times > 1]
    assert not twice, f"files that are in the table more than once: {twice[:SHOWN]}"


def position(row: dict[str, Any]) -> At:
    return row["kafka_partition"], row["kafka_offset"]


def _same_positions(where: str, expected: Iterable[At], positions: Iterable[At]) -> None:
    wanted, counted = set(expected), Counter(positions)
    lost = sorted(wanted - counted.keys())
    unexpected = sorted(counted.keys() - wanted)
    twice = sorted(at for at, times in counted.items() if times > 1)
    faults = [
        f"{len(at)} {what} (at {at[:SHOWN]})" for what, at in zip(KINDS, (lost, twice, unexpected), strict=True) if at
    ]
    assert not faults, f"{where}: {', '.join(faults)} of {len(wanted)} expected"


KINDS = ("lost", "duplicated", "that should not be there")


def _same_bytes(letter: dict[str, Any], record: Message) -> None:
    content = letter["key"], letter["value"], [(h["key"], h["value"]) for h in letter["headers"] or []]
    assert content == (record.key, record.value, record.headers), f"dead letter {position(letter)}: {content}"
    assert letter["kafka_timestamp"] == record.timestamp_ms and letter["error_reason"], letter


def _contiguous(batches: list[tuple[dict[str, Any], int]], log: Log) -> None:
    """Check that the batches of `main` are contiguous and that the newest one ends at the end of the log."""
    assert batches, "no snapshot of main carries a token"
    newest = batches[0][0]
    end = {int(p): offset for p, offset in newest["end"].items()}
    assert end == log.end, f"the table was filled up to {end}, the log ends at {log.end}"
    for (later, _), (earlier, _) in zip(batches, batches[1:], strict=False):
        assert (later["cluster_id"], later["topic_id"]) == (earlier["cluster_id"], earlier["topic_id"])
        for partition, start in later["start"].items():
            previous_end = earlier["end"].get(partition, log.start[int(partition)])
            assert start == previous_end, (
                f"partition {partition}: one batch ends at {previous_end}, the next begins at {start}"
            )


def _conserved(
    token: dict[str, Any], added: int, good: Mapping[At, dict[str, Any]], log: Log, key: tuple[str, ...]
) -> None:
    """Check the number of rows that a batch added: one per record or, with a key, one per remaining key."""
    start, end = ({int(p): offset for p, offset in token[bound].items()} for bound in ("start", "end"))
    if any(offset < log.start[p] for p, offset in start.items()):
        return
    rows_of_batch = {at: row for at, row in good.items() if start.get(at[0], 0) <= at[1] < end.get(at[0], 0)}
    rows = len(newest(rows_of_batch, key)) if key else len(rows_of_batch)
    assert added == rows, f"the batch {start} to {end} added {added} rows, its records come to {rows}"


def _avro(value: bytes) -> dict[str, Any] | None:
    """Return the record of a message in the Confluent wire format, or None for an invalid message or trailing bytes."""
    if len(value) <= 5 or value[0]:
        return None
    schema = _schema(struct.unpack(">I", value[1:5])[0])
    body = io.BytesIO(value[5:])
    if schema is None:
        return None
    try:
        record = fastavro.schemaless_reader(body, schema, None)
    except (EOFError, ValueError, IndexError, StopIteration, UnicodeDecodeError):
        return None
    return record if not body.read(1) else None


@cache
def _schema(id_: int) -> Any:
    try:
        return fastavro.parse_schema(json.loads(registry().get_schema(id_).schema_str))
    except SchemaRegistryError as error:
        if error.http_status_code != 404:
            raise
        return None
