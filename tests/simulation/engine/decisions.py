"""Decided records of the simulated engine: records of Kafka or dead letters, and a decision about each.

Reads are lazy, as in Spark: each question reads the records again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lakehouse.core.offsets.batch import Positions
from lakehouse.pipeline.engine_values import Decoding, JobFailed, Records, Side, Target, WaitingLetters
from lakehouse.pipeline.spilled_records import SpilledRecords
from tests.simulation.engine.checks import fails
from tests.simulation.engine.tables import MemoryTables
from tests.simulation.systems.kafka import Record


@dataclass(frozen=True)
class Decision:
    """The decision about a record, which belongs to another table if it is filtered."""

    record: Record
    reason: str | None
    is_filtered: bool = False
    is_deletion: bool = False

    @property
    def is_good(self) -> bool:
        """True if the record becomes a row or a deletion."""
        return self.reason is None and not self.is_filtered


class MemoryRecords(list[Record]):
    """Records that files of rows lack, in place of a table of Arrow."""

    @property
    def num_rows(self) -> int:
        """Their number."""
        return len(self)


@dataclass(frozen=True)
class MemoryDecided:
    """Records with a decision about each; see lakehouse.pipeline.engine.Decided."""

    tables: MemoryTables
    records: Records
    decoding: Decoding[Side]
    refused: str | None = None

    def unknown_schema_ids(
        self, most: int, known: Collection[int] = (), side: Literal["key", "value"] = "value"
    ) -> list[int | str]:
        if side == "key":
            return []
        decisions = self.tables.job("foreign_schema_ids", self.decide)
        ids = {d.record.schema_id for d in decisions if d.reason == "unknown_schema"}
        return sorted(ids - set(known))[:most]

    def first_faults(self, limit: int = 5, *, shows_keys: bool = False) -> list[tuple[int, int, str]]:
        decisions = self.tables.job("first_faults", self.decide)
        return [(d.record.partition, d.record.offset, d.reason) for d in decisions if d.reason][:limit]

    def quarantined(self, shown: Mapping[str, Sequence[str]]) -> Mapping[str, tuple[int, list[dict[str, Any]]]]:
        decisions = self.tables.job("quarantine_result", self.decide)
        return dict.fromkeys(shown, (sum(d.reason == "check" for d in decisions), []))

    def decide(self) -> list[Decision]:
        """Read and decide the records; a poisonous one aborts the job."""
        return [self._decision(record) for record in read(self.tables, self.records)]

    def _decision(self, record: Record) -> Decision:
        reason = self.refused or self._reason(record)
        is_filtered = reason == "other_type" and self.decoding.has_other_types
        deletion = self.decoding.deletion
        is_deletion = record.value is None or (deletion is not None and str(record.value) == deletion[1])
        return Decision(record, None if is_filtered else reason, is_filtered, is_deletion)

    def _reason(self, record: Record) -> str | None:
        decoding = self.decoding
        if record.value is None:
            return None if decoding.mode == "upsert" and decoding.key else "null_value"
        if record.is_poison:
            raise JobFailed("the executor ran out of memory")
        if record.schema_id in decoding.other_type_ids:
            return "other_type"
        if all(version.id != record.schema_id for version in decoding.value.schema.versions):
            limited = decoding.unusable_ids is not None and record.schema_id not in decoding.unusable_ids
            return "schema_limit" if limited else "unknown_schema"
        if record.is_garbage:
            return "undecodable"
        return "check" if any(fails(str(test), record) for test in decoding.quarantine.values()) else None


def read(tables: MemoryTables, records: Records) -> list[Record]:
    """Read records from the log, or dead letters.

    Raises:
        JobFailed: The log lacks some of them.
    """
    if isinstance(records, WaitingLetters):
        position = records.position
        letters = (letter for letter in tables.rows(records.ref, "main", records.snapshot_id) if not letter.recovered)
        waiting = (letter.record for letter in letters if records.poison or letter.reason != "poison")
        return [record for record in waiting if is_of(record, position.topic_id, records.since, position.end)]
    if isinstance(records, SpilledRecords):
        return list(records.table)
    try:
        logged = tables.kafka.read(records.batch)
    except LookupError as error:
        raise JobFailed(f"failOnDataLoss: {error}") from error
    return [record for record in logged if (record.partition, record.offset) not in records.left_out]


def is_of(record: Record, topic_id: str, start: Positions, end: Positions) -> bool:
    """Return whether a record is of a topic and a range of offsets."""
    p = record.partition
    return record.topic_id == topic_id and p in end and start.get(p, 0) <= record.offset < end[p]


def one_a_key(
    records: Iterable[Record], choose: Callable[..., Record], identity: Callable[[Record], Any]
) -> dict[Any, Record]:
    """Return the newest (max) or oldest (min) record of each key: by offset in a partition, else by timestamp."""
    of_partitions: dict[Any, Record] = {}
    for record in records:
        place = identity(record), record.partition
        of_partitions[place] = choose(of_partitions.get(place, record), record, key=lambda r: r.offset)
    of_keys: dict[Any, Record] = {}
    for (key, _), record in of_partitions.items():
        of_keys[key] = choose(of_keys.get(key, record), record, key=lambda r: (r.at, r.partition))
    return of_keys


def is_late(record: Record, row: Record) -> bool:
    """Return whether a record came after a newer one of its key from another partition."""
    return record.partition != row.partition and record.at < row.at


def digest(records: Iterable[Record]) -> int:
    """Return a number that identifies a set of records."""
    return functools.reduce(lambda digest, r: digest ^ (r.partition * 1_000_003 + r.offset + 7) ** 3, records, 0)


def planned(decided: MemoryDecided, target: Target) -> list[Decision]:
    """Read and decide the records for a write to a branch, which must exist."""
    tables = decided.tables

    def plan() -> list[Decision]:
        tables.head(target.ref, target.branch)
        return decided.decide()

    decisions: list[Decision] = tables.job("read", plan)
    return decisions
