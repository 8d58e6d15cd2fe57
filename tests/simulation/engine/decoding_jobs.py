"""Simulated decoding: the functions of spark.records and spark.decoding, and what they return."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.errors.exceptions.connect import SparkException

from lakehouse.core.offsets.batch import Batch
from spark.tables import staged_checks
from tests.simulation.engine.check_jobs import fails
from tests.simulation.engine.memory_spark import MemorySpark, Rows
from tests.simulation.systems.kafka import Record


@dataclass(frozen=True)
class Records:
    """A lazy DataFrame of records, from Kafka or from dead letters."""

    spark: MemorySpark
    batch: Batch
    letters: Rows | None = None
    left_out: frozenset[tuple[int, int]] = frozenset()
    with_poison: bool = False

    def read(self) -> list[Record]:
        """Read the records."""
        if self.letters:
            letters = self.spark.rows(self.letters.ref, "main", self.letters.snapshot_id)
            waiting = (letter for letter in letters if not letter.recovered)
            pending = (letter.record for letter in waiting if self.with_poison or letter.reason != "poison")
            return [
                record for record in pending if is_of(record, self.batch.topic_id, self.batch.start, self.batch.end)
            ]
        try:
            records = self.spark.kafka.read(self.batch)
            return [record for record in records if (record.partition, record.offset) not in self.left_out]
        except LookupError as error:
            raise SparkException(f"failOnDataLoss: {error}") from error


@dataclass(frozen=True)
class Outcome:
    """The decoded form of a record, which belongs to another table if it is filtered."""

    record: Record
    reason: str | None
    is_filtered: bool = False

    @property
    def is_good(self) -> bool:
        """True if the record becomes a row or a deletion."""
        return self.reason is None and not self.is_filtered


@dataclass(frozen=True)
class Decoded:
    """A lazy DataFrame of decoded records."""

    records: Records
    decoding: Any
    forced_reason: str | None = None

    @property
    def write(self) -> DiscardingWriter:
        """A writer that decodes the records and discards the rows."""
        return DiscardingWriter(self)

    def outcomes(self) -> list[Outcome]:
        """Read and decode the records; a poisonous one aborts the job."""
        return [self._outcome(record) for record in self.records.read()]

    def _outcome(self, record: Record) -> Outcome:
        reason = self.forced_reason or self._reason(record)
        is_filtered = reason == "other_type" and self.decoding.has_other_types
        return Outcome(record, None if is_filtered else reason, is_filtered)

    def _reason(self, record: Record) -> str | None:
        decoding = self.decoding
        if record.value is None:
            return None if decoding.mode == "upsert" else "null_value"
        if record.is_poison:
            raise SparkException("the executor ran out of memory")
        if record.schema_id in decoding.other_type_ids:
            return "other_type"
        if record.schema_id not in decoding.value.writers:
            limited = decoding.unusable_ids is not None and record.schema_id not in decoding.unusable_ids
            return "schema_limit" if limited else "unknown_schema"
        if record.is_garbage:
            return "undecodable"
        return "check" if any(fails(sql, record) for sql in decoding.quarantine.values()) else None


@dataclass(frozen=True)
class DiscardingWriter:
    """A writer of Spark's format `noop`."""

    decoded: Decoded

    def format(self, name: str) -> DiscardingWriter:
        """Return the writer of a format."""
        assert name == "noop"
        return self

    def mode(self, name: str) -> DiscardingWriter:
        """Return the writer with a mode, which this format ignores."""
        return self

    def save(self) -> None:
        """Decode all records.

        Raises:
            SparkException: A record aborts the job.
        """
        self.decoded.records.spark.job("is_decodable", self.decoded.outcomes)


def read_range(spark: MemorySpark, kafka: Mapping[str, str], batch: Batch, *, headers: bool = False) -> Records:
    """Return the records of a batch."""
    return Records(spark, batch)


def decode(records: Records, decoding: Any, *, headers: bool = False) -> Decoded:
    """Return decoded records."""
    return Decoded(records, decoding)


def refused(records: Records, decoding: Any, reason: str, *, headers: bool = False) -> Decoded:
    """Return records as dead letters with one reason."""
    return Decoded(records, decoding, reason)


def decode_controls(spark: MemorySpark, decoding: Any, *, explained: bool) -> None:
    """Decode messages that no producer sent: the decoder always works."""


def is_readable(records: Records) -> bool:
    """Return whether Spark can read the records."""
    records.spark.job("is_readable", records.read)
    return True


def quarantine_result(
    decoded: Decoded, name: str, columns: list[str], sql: str, checked: int, any_: bool
) -> staged_checks.Result:
    """Return the result of the check that quarantines rows."""
    outcomes = decoded.records.spark.job("quarantine_result", decoded.outcomes) if any_ else []
    return staged_checks.Result(checked, sum(o.reason == "check" for o in outcomes), sql)


def validate(spark: MemorySpark, declared: Mapping[str, Any], scope: Any) -> None:
    """Require nothing: each check fits the table."""


def foreign_schema_ids(decoded: Decoded, most: int, known: Any = (), side: str = "value") -> list[int]:
    """Return the unknown schema ids in records."""
    outcomes = decoded.records.spark.job("foreign_schema_ids", decoded.outcomes)
    ids = {o.record.schema_id for o in outcomes if o.reason == "unknown_schema"}
    return sorted(ids - set(known))[:most] if side == "value" else []


def first_faults(decoded: Decoded, decoding: Any, limit: int = 5, *, shows_keys: bool = False) -> list[Any]:
    """Return the first records that do not decode."""
    outcomes = decoded.records.spark.job("first_faults", decoded.outcomes)
    return [(o.record.partition, o.record.offset, o.reason) for o in outcomes if o.reason][:limit]


def is_of(record: Record, topic_id: str, start: Mapping[int, int], end: Mapping[int, int]) -> bool:
    """Return whether a record is of a topic and a range of offsets."""
    p = record.partition
    return record.topic_id == topic_id and p in end and start.get(p, 0) <= record.offset < end[p]


def digest(records: Any) -> int:
    """Return a number that identifies a set of records."""
    return functools.reduce(lambda digest, r: digest ^ (r.partition * 1_000_003 + r.offset + 7) ** 3, records, 0)
