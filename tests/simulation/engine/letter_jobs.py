"""Simulated dead letters: the functions of spark.tables.dead_letters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from lakehouse.core.offsets.batch import Batch, Positions
from lakehouse.core.tables.naming import TableRef
from spark.tables.decision import Decision
from spark.tables.target import Target
from tests.simulation.engine.decoding_jobs import Decoded, Outcome, Records, digest, is_of
from tests.simulation.engine.memory_spark import Letter, MemorySpark, Rows
from tests.simulation.engine.write_jobs import planned
from tests.simulation.systems.kafka import Record


@dataclass(frozen=True)
class Dead(Decoded):
    """A lazy DataFrame of the decoded records that are dead letters."""

    only_failing: bool = False

    def outcomes(self) -> list[Outcome]:
        """Read and decode the records, and return those that are dead letters."""
        return [o for o in super().outcomes() if o.reason == "check" or (o.reason and not self.only_failing)]


def of_batch(decoded: Decoded, decoding: Any, topic: Any, ref: TableRef, batch: Batch) -> Dead:
    """Return the records that are dead letters: those that fail a check, and with `errors: log` all others."""
    return Dead(decoded.records, decoded.decoding, decoded.forced_reason, only_failing=topic.errors != "log")


def decision(letters: Rows, batch: Batch) -> Decision:
    """Return the set of a batch's records in a table of dead letters."""
    of = [letter for letter in letters.collect() if is_of(letter.record, batch.topic_id, batch.start, batch.end)]
    return Decision(len(of), digest(letter.record for letter in of), sum(letter.recovered for letter in of))


def discard(spark: MemorySpark, target: Target, batch: Batch) -> None:
    """Delete the dead letters of a batch."""
    planned = spark.job("plan", lambda: spark.head(target.ref, target.branch))
    keep = lambda letter: not is_of(letter.record, batch.topic_id, batch.start, batch.end)  # noqa: E731
    spark.job("commit deletes", lambda: spark.commit(target.deleting(), planned, keep=keep))


@dataclass(frozen=True)
class Missing:
    """A checkpointed DataFrame of dead letters that their table lacks."""

    spark: MemorySpark
    letters: Sequence[Letter]

    def count(self) -> int:
        """Return their number."""
        return len(self.letters)


def missing(of_range: Sequence[Dead], letters: Rows, batch: Batch, table: Rows, *columns: str) -> Missing:
    """Return the dead letters of a range that are neither waiting in their table nor rows."""
    spark = letters.spark

    def lacking() -> list[Letter]:
        existing = {row.record for row in spark.rows(table.ref, table.branch)}
        existing |= {letter.record for letter in spark.rows(letters.ref, letters.branch) if not letter.recovered}
        outcomes = [o for decoded in of_range for o in decoded.outcomes()]
        return [Letter(o.record, o.reason) for o in outcomes if o.reason and o.record not in existing]

    return Missing(spark, spark.job("missing letters", lacking))


def discard_earlier(missing: Missing, target: Target, batch: Batch) -> None:
    """Delete the dead letters of records that became rows and are dead letters again."""
    spark, again = missing.spark, {letter.record for letter in missing.letters}
    planned = spark.job("plan", lambda: spark.head(target.ref, target.branch))
    keep = lambda letter: letter.record not in again  # noqa: E731
    spark.job("commit deletes", lambda: spark.commit(target.deleting(), planned, keep=keep))


def append_letters(letters: Dead | Missing, target: Target) -> None:
    """Append dead letters."""
    if isinstance(letters, Missing):
        spark, rows = letters.spark, letters.letters
    else:
        spark, outcomes = letters.records.spark, planned(letters, target)
        rows = [Letter(o.record, o.reason) for o in outcomes if o.reason]
    spark.job("commit", lambda: spark.commit(target, None, rows))


def waiting(
    spark: MemorySpark,
    letters: TableRef,
    snapshot_id: int,
    position: Batch,
    since: Positions,
    *,
    poison: bool = False,
) -> Records:
    """Return the dead letters of a snapshot that are not rows yet."""
    position = replace(position, start={p: since.get(p, 0) for p in position.end})
    return Records(spark, position, Rows(spark, letters, "main", snapshot_id), with_poison=poison)


def poisonous(letters: Rows, batch: Batch) -> list[tuple[int, int]]:
    """Return the partition and offset of each poisonous record of a batch."""
    poison = (letter.record for letter in letters.collect() if letter.reason == "poison" and not letter.recovered)
    return [(r.partition, r.offset) for r in poison if is_of(r, batch.topic_id, batch.start, batch.end)]


def without(records: Records, places: Sequence[tuple[int, int]]) -> Records:
    """Return the records that have none of these partitions and offsets."""
    return replace(records, left_out=frozenset(places))


@dataclass(frozen=True)
class Attempted:
    """A checkpointed DataFrame of dead letters that were decoded again."""

    spark: MemorySpark
    outcomes: Sequence[Outcome]


def attempt(decoded: Decoded, key: Sequence[str] = ()) -> Attempted:
    """Decide once which dead letters decode now."""
    spark = decoded.records.spark
    return Attempted(spark, spark.job("attempt", decoded.outcomes))


def replaced(attempted: Attempted, pieces: Sequence[Decoded], table: Rows, *columns: Any) -> Attempted:
    """Return the attempts, recovered only if the key has its row, or a later row or record."""
    spark = attempted.spark

    def states() -> list[Record]:
        good = [o.record for piece in pieces for o in piece.outcomes() if o.is_good]
        return [*good, *(row.record for row in spark.rows(table.ref, table.branch))]

    known = spark.job("replaced", states)
    has_state = lambda r: any((r.key, r.partition) == (s.key, s.partition) and s.offset >= r.offset for s in known)  # noqa: E731
    is_settled = lambda o: bool(o.reason) or o.is_filtered or has_state(o.record)  # noqa: E731
    return Attempted(spark, [o if is_settled(o) else replace(o, reason="compacted") for o in attempted.outcomes])


def without_record(attempted: Attempted, most: int) -> list[tuple[int, int]]:
    """Return the partitions and offsets of dead letters that remain because the broker deleted their records."""
    return [(o.record.partition, o.record.offset) for o in attempted.outcomes if o.reason == "compacted"][:most]


def existing_rows(waiting: Records, table: Rows, partition: str, offset: str) -> Attempted:
    """Return the dead letters whose records are rows, by partition and offset."""
    spark = waiting.spark

    def existing() -> list[Outcome]:
        places = {(row.record.partition, row.record.offset) for row in spark.rows(table.ref, table.branch)}
        return [Outcome(r, None) for r in waiting.read() if (r.partition, r.offset) in places]

    return Attempted(spark, spark.job("existing_rows", existing))


def first_offsets(attempted: Attempted) -> dict[int, int]:
    """Return the first offset by partition of the dead letters that decode."""
    first: dict[int, int] = {}
    for record in (o.record for o in attempted.outcomes if o.reason is None):
        first[record.partition] = min(record.offset, first.get(record.partition, record.offset))
    return first


def remaining(attempted: Attempted) -> tuple[int, Decision]:
    """Return the number of dead letters, and the set of those that do not decode."""
    stay = [o.record for o in attempted.outcomes if o.reason]
    return len(attempted.outcomes), Decision(len(stay), digest(stay))


def mark(attempted: Attempted, target: Target, topic_id: str) -> None:
    """Count one more attempt at each dead letter, and mark those that are rows now."""
    spark = attempted.spark
    by_place = {(o.record.topic_id, o.record.partition, o.record.offset): o for o in attempted.outcomes}

    def change(letter: Letter) -> Letter:
        outcome = by_place.get((letter.record.topic_id, letter.record.partition, letter.record.offset))
        if outcome is None or letter.recovered:
            return letter
        return replace(letter, attempts=letter.attempts + 1, recovered=outcome.reason is None)

    planned = spark.job("plan", lambda: spark.head(target.ref, target.branch))
    spark.job("commit", lambda: spark.commit(target, planned, change=change))
