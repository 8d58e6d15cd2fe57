"""Kafka in memory: one topic with partitions, transactions, compaction, retention, truncation and recreation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakehouse.core.errors import LakehouseError, Unreachable
from lakehouse.core.offsets.batch import Batch
from resources.kafka.kafka import Offsets, TopicDescription
from tests.simulation.world import World


@dataclass(frozen=True)
class Record:
    """A record of a topic.

    Attributes:
        topic_id: The id of the topic. A recreated topic has another one, and the same offsets again.
        partition: The partition.
        offset: The offset.
        key: The value of the key column.
        value: A number that identifies the record; None for a tombstone.
        schema_id: The id of the schema in its frame.
        is_garbage: Whether the value does not decode.
        is_poison: Whether decoding the value aborts the Spark job.
        at: Its timestamp in seconds since the epoch.
    """

    topic_id: str
    partition: int
    offset: int
    key: int
    value: int | None
    schema_id: int
    is_garbage: bool
    is_poison: bool
    at: float

    @property
    def fails_check(self) -> bool:
        """True if its row fails the check that quarantines rows."""
        return isinstance(self.value, int) and self.value % 3 == 0


@dataclass
class Partition:
    """The log of a partition.

    Attributes:
        start: The first offset.
        records: The records by offset, without those that were aborted or compacted.
        aborted: The timestamps in seconds of aborted records by offset.
        end: One past the last offset.
        open_from: The first offset of the open transaction; None if there is none.
    """

    start: int = 0
    records: dict[int, Record] = field(default_factory=dict)
    aborted: dict[int, float] = field(default_factory=dict)
    end: int = 0
    open_from: int | None = None

    @property
    def stable_end(self) -> int:
        """The end that a read_committed consumer sees."""
        return self.end if self.open_from is None else self.open_from


class MemoryKafka:
    """The methods of resources.protocols.KafkaClient that ingestion uses.

    Attributes:
        topic: The name of the only topic.
        topic_id: Its present id.
        log: Its partitions; empty if it does not exist.
        every_record: All committed records that were ever produced, by topic id, partition and offset.
    """

    servers = "memory:9092"

    # No schedule calls these; some subclasses implement them.
    consumer: Any
    ensure_topic: Any
    enqueue: Any
    messages: Any
    producer: Any
    renew_login: Any
    topic_setting: Any
    translate_errors: Any
    wait_for_records: Any

    def __init__(self, world: World, topic: str, partitions: int):
        self._world, self.topic, self._number = world, topic, 0
        self.every_record: dict[tuple[str, int, int], Record] = {}
        self.recreate(partitions)

    def recreate(self, partitions: int) -> None:
        """Delete the topic and create it again."""
        self._number += 1
        self.topic_id, self.log = f"id{self._number}", {p: Partition() for p in range(partitions)}

    def age(self, topic_id: str) -> int:
        """Return a number that is greater for a topic that was created later."""
        return int(topic_id.removeprefix("id"))

    # The client protocol

    def cluster_id(self) -> str:
        """Return the id of the cluster."""
        return self._call("cluster_id", lambda: "cluster")

    def describe(self, topics: Sequence[str]) -> dict[str, TopicDescription]:
        """Return the topics that exist."""

        def descriptions() -> dict[str, TopicDescription]:
            exists = self.log and self.topic in topics
            return {self.topic: TopicDescription(self.topic_id, len(self.log))} if exists else {}

        return self._call("describe", descriptions)

    def offsets(self, topics: Sequence[str], *, committed: bool = True) -> dict[str, dict[int, Offsets]]:
        """Return where each partition starts and ends."""

        def offsets() -> dict[str, dict[int, Offsets]]:
            if not self.log:
                raise self.missing_topic_error(self.topic)
            return {self.topic: self.bounds(committed=committed)}

        return self._call("offsets", offsets)

    def bounds(self, *, committed: bool) -> dict[int, Offsets]:
        """Return where each partition starts and ends, without a fault."""
        ends = {p: part.stable_end if committed else part.end for p, part in self.log.items()}
        return {p: Offsets(part.start, ends[p]) for p, part in self.log.items()}

    def offsets_at(self, topic: str, timestamp_ms: int) -> dict[int, int]:
        """Return the first offset at or after a time."""

        def first(part: Partition) -> int:
            later = (o for o, record in sorted(part.records.items()) if record.at * 1000 >= timestamp_ms)
            return min(next(later, part.stable_end), part.stable_end)

        return self._call("offsets_at", lambda: {p: first(part) for p, part in self.log.items()})

    def oldest_timestamp(
        self, topic: str, positions: Mapping[int, int], ends: Mapping[int, int]
    ) -> dict[int, int | None]:
        """Return the timestamp of the first record at or after each position, which an aborted one may be."""

        def oldest(p: int, position: int) -> int | None:
            times = self.log[p].aborted | {offset: record.at for offset, record in self.log[p].records.items()}
            pending = [offset for offset in times if position <= offset < ends[p]]
            return int(times[min(pending)] * 1000) if pending else None

        return self._call("oldest_timestamp", lambda: {p: oldest(p, o) for p, o in positions.items()})

    def missing_topic_error(self, topic: str) -> LakehouseError:
        """Return the error for a topic that does not exist."""
        return LakehouseError(f"Topic '{topic}' does not exist at {self.servers}. Nothing was changed. Create it")

    def spark_options(self) -> dict[str, str]:
        """Return nothing: the simulated engine reads this object."""
        return {}

    def native_login(self) -> str:
        """Return the login of the simulated engine, which needs none."""
        return "{}"

    def _call(self, operation, effect):
        unreachable = lambda cause: Unreachable("Kafka", self.servers, "that it is up", cause)  # noqa: E731
        return self._world.call(f"kafka.{operation}", effect, unreachable)

    def has(self, place: tuple[str, int, int]) -> bool:
        """Return whether the log has a record, given by topic id, partition and offset."""
        topic_id, partition, offset = place
        return topic_id == self.topic_id and offset in self.log[partition].records

    # Producers, and operators of the broker

    def produce(self, partition: int, records: Sequence[Mapping[str, Any]]) -> None:
        """Append records, each given by the fields that a producer decides on, as one transaction without an end."""
        part = self.log[partition]
        for fields in records:
            record = Record(self.topic_id, partition, part.end, **{"at": self._world.now(), **fields})
            part.records[part.end] = record
            part.end += 1
            if part.open_from is None:
                self.every_record[self.topic_id, partition, record.offset] = record

    def begin(self, partition: int) -> None:
        """Begin a transaction."""
        self.log[partition].open_from = self.log[partition].end

    def end(self, partition: int, *, commits: bool) -> None:
        """End the transaction with a marker, which occupies one offset."""
        part = self.log[partition]
        assert part.open_from is not None
        for offset in range(part.open_from, part.end):
            if commits:
                self.every_record[self.topic_id, partition, offset] = part.records[offset]
            else:
                part.aborted[offset] = part.records.pop(offset).at
        part.open_from, part.end = None, part.end + 1

    def retain(self, partition: int, start: int) -> None:
        """Delete the records before an offset."""
        part = self.log[partition]
        part.start = max(part.start, min(start, part.stable_end))
        part.records = {o: record for o, record in part.records.items() if o >= part.start}
        part.aborted = {o: at for o, at in part.aborted.items() if o >= part.start}

    def truncate(self, partition: int) -> None:
        """Lose the last record, as an unclean leader election does."""
        part = self.log[partition]
        if part.end > part.start and part.open_from is None:
            part.end -= 1
            part.records.pop(part.end, None)

    # The engine's consumer

    def read(self, batch: Batch) -> list[Record]:
        """Return the committed records of a range, as Spark's source does with failOnDataLoss.

        Raises:
            LookupError: The log does not have the range.
        """
        records = []
        for p, end in batch.end.items():
            if end <= batch.start[p]:
                continue
            part = self.log.get(p)
            if part is None or batch.start[p] < part.start or end > part.stable_end:
                raise LookupError(f"partition {p} has no offsets {batch.start[p]} to {end - 1}")
            records += [part.records[o] for o in range(batch.start[p], end) if o in part.records]
        return records
