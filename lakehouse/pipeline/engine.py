"""The interface of the engine that reads, decides, writes and counts records.

The pipeline decides what is done and in which order; an engine does it. There are two: Spark (`spark/engine.py`), and
the one in memory of the simulation (`tests/simulation/engine/memory_engine.py`). One contract suite runs the same
programs over both.

Arguments are the values of engine_values.py. What an engine reads lazily, or keeps until it is used again, is an object
of the engine: decided records, attempts at dead letters, and derived rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol

from lakehouse.core.offsets.batch import Batch, Positions
from lakehouse.core.tables.naming import TableRef
from lakehouse.pipeline.engine_values import (
    CheckedRows,
    Decoding,
    LetterOrigin,
    LetterPlaces,
    LetterSet,
    LogRange,
    Mode,
    Place,
    Records,
    RowPlaces,
    Rows,
    Side,
    Target,
    Transform,
    WaitingLetters,
    Written,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from lakehouse.config.checks import Check, Scope
    from lakehouse.core.offsets.ledger import LogContents, OffsetRange, RangeContents
    from resources.protocols import KafkaClient


class Decided(Protocol):
    """Records with a decision about each: a row, a deletion, a dead letter with a reason, or a record of another table.

    Each question reads and decides the records again, so the answers may differ if the log or a check does.
    """

    def completes(self) -> bool:
        """Return whether all records can be decided without aborting a job, whether good or bad.

        Raises:
            JobFailed: The cause is not a record: the query is invalid, or the connection was lost.
        """

    def unknown_schema_ids(
        self, most: int, known: Collection[int] = (), side: Literal["key", "value"] = "value"
    ) -> list[int]:
        """Return the schema ids of records whose key or value has an unknown schema, by descending number of records.

        Args:
            most: The maximum number of ids. Producers choose ids, so there may be as many as records.
            known: Ids to leave out.
            side: Whether to inspect keys or values. A key that is not in the key's format counts as one of an unknown
                schema.
        """

    def first_faults(self, limit: int = 5, *, shows_keys: bool = False) -> list[tuple[int, int, str]]:
        """Return partition, offset and reason of the first records that could not be decoded.

        Args:
            limit: The maximum number of records.
            shows_keys: Whether the text may quote message keys.
        """

    def quarantined(self, check: str, columns: Sequence[str]) -> tuple[int, list[dict[str, Any]]]:
        """Return the number of rows that a check quarantines, and the first of them as text by column."""


class LetterAttempt(Protocol):
    """Dead letters that were decided again, once: the engine keeps the decision."""

    @property
    def count(self) -> int:
        """Their number."""

    @property
    def remaining(self) -> LetterSet:
        """Those that do not become rows."""

    def first_offsets(self) -> dict[int, int]:
        """Return the first offset by partition of the dead letters that become rows."""

    def without_record(self, most: int) -> list[Place]:
        """Return the first dead letters that decode, and remain because the broker deleted their records."""


class MissingLetters(Protocol):
    """Dead letters that their table lacks, determined once."""

    @property
    def count(self) -> int:
        """Their number."""


class LetterStore(Protocol):
    """The tables of dead letters."""

    def of_batch(self, ref: TableRef, batch: Batch, branch: str | None = None) -> LetterSet:
        """Return the set of a batch's records in a table of dead letters, or in a branch of it."""

    def poisonous(self, ref: TableRef, batch: Batch) -> list[Place]:
        """Return each record of a batch whose decoding aborted a job, and that is no row."""

    def read(self, ref: TableRef, topic_id: str, since: Positions, upto: Positions) -> pa.Table:
        """Return the dead letters from `since` (inclusive) to `upto` (exclusive) by partition, in order."""

    def discard(self, target: Target, batch: Batch) -> None:
        """Delete the dead letters of a batch's offsets from a branch of their table."""

    def put(self, decided: Decided, target: Target, origin: LetterOrigin) -> None:
        """Append the records that are dead letters, with unchanged bytes, to a branch of their table.

        Args:
            decided: The records, with headers.
            target: The branch.
            origin: Their origin.
        """

    def missing(
        self,
        decided: Sequence[Decided],
        origin: LetterOrigin,
        ref: TableRef,
        batch: Batch,
        rows: Target,
        place: Sequence[str],
    ) -> MissingLetters:
        """Determine the dead letters of a range that are neither waiting in their table nor rows.

        Args:
            decided: The records of the range, with headers.
            origin: Their origin.
            ref: The table of dead letters.
            batch: The range.
            rows: The branch with the rows, all of the batch's topic.
            place: The columns of Kafka partitions and offsets.
        """

    def discard_earlier(self, missing: MissingLetters, target: Target, batch: Batch) -> None:
        """Delete the dead letters that `missing` replaces: their records were rows, and are dead letters again."""

    def put_missing(self, missing: MissingLetters, target: Target) -> None:
        """Append them to a branch of their table."""

    def attempt(self, decided: Decided, key: Sequence[str] = ()) -> LetterAttempt:
        """Decide once which dead letters decode now, or belong to another table.

        Args:
            decided: The dead letters.
            key: The columns that identify a row if a record replaces the row of its key.
        """

    def confirm(
        self,
        attempt: LetterAttempt,
        decided: Sequence[Decided],
        ref: TableRef,
        key: Sequence[str],
        place: Sequence[str],
    ) -> LetterAttempt:
        """Return the attempt in which dead letters become rows only if their key has its row, or a later row or record.

        A record that the broker deleted was not read again. Without a later record of its key that decodes, it must
        remain a dead letter, unless it belongs to another table.

        Args:
            attempt: The dead letters.
            decided: The records that were written.
            ref: The table with the rows.
            key: The columns that identify a row.
            place: The columns of Kafka partitions and offsets.
        """

    def existing_rows(self, waiting: WaitingLetters, ref: TableRef, place: Sequence[str]) -> LetterAttempt:
        """Return the dead letters whose records are rows of a table: a redrive published them, and was interrupted
        before it marked the dead letters."""

    def mark(self, attempt: LetterAttempt, target: Target, topic_id: str) -> None:
        """Count one more attempt at each dead letter on a branch, and mark those that became rows as redriven.

        Args:
            attempt: The dead letters.
            target: The branch.
            topic_id: Id of the Kafka topic that they come from.
        """


class LedgerCounts(Protocol):
    """Counts of what a table, its dead letters and the topic's log have of the ranges in a ledger."""

    def contents(
        self, places: Sequence[RowPlaces | LetterPlaces], ranges: Sequence[OffsetRange]
    ) -> dict[OffsetRange | None, RangeContents]:
        """Return what the tables together have of each range; None for offsets in no range."""

    def duplicates(self, places: RowPlaces | LetterPlaces, allowed: int = 1) -> list[tuple[int, int, int]]:
        """Return the first records that occur more often than `allowed`, as (partition, offset, occurrences)."""

    def duplicate_keys(self, places: RowPlaces, shown: Collection[str]) -> list[tuple[str, int]]:
        """Return the first keys with more than one row, as (key, rows).

        Args:
            places: The rows.
            shown: The columns whose values may be returned; others are hidden.
        """

    def logged(
        self, batch: Batch, ranges: Sequence[OffsetRange], outcomes: Sequence[RowPlaces | LetterPlaces]
    ) -> tuple[dict[int, LogContents], list[tuple[int, int, int]]]:
        """Return the number of records in the log for each snapshot's ranges, and the first records without an outcome.

        Args:
            batch: The part of the log to read.
            ranges: The ranges.
            outcomes: Rows and dead letters; empty to count records only.

        Returns:
            The numbers by snapshot id, and (snapshot id, partition, offset) of the records to report.
        """

    def wrong_newest(
        self, decided: Decided, letters: LetterPlaces | None, rows: RowPlaces
    ) -> list[tuple[int, int, bool]]:
        """Return the first records that are the newest of their key but are not what an upsert table has.

        Keys that occur in several partitions are left out, because their records have no order.

        Args:
            decided: The records up to the table's offsets.
            letters: The dead letters; None if there are none.
            rows: The rows.

        Returns:
            (partition, offset, tombstone) of each record; for a tombstone, the table still has an older row.
        """


class DerivedRows(Protocol):
    """The result of a transform, without the metadata columns of the source."""

    def avro_schema(self, name: str, columns: Sequence[str] | None = None) -> str:
        """Return the Avro schema of the result, or of some of its columns.

        Args:
            name: The name of the record.
            columns: The columns.
        """

    def messages(self, key: tuple[int, str] | None, value: tuple[int, str]) -> pa.Table:
        """Return the rows as Avro messages in the Confluent wire format: binary columns `key` and `value`.

        Args:
            key: The registry id and schema of the keys, whose fields are columns of the result; None for messages
                without keys.
            value: The registry id and schema of the values, likewise.
        """

    def lineage(self) -> Mapping[str, list[str]]:
        """Return the columns of the source that each column was derived from."""


class DerivationEngine(Protocol):
    """Rows from which topics are derived, and the messages."""

    def ends(self, rows: Rows) -> Positions:
        """Return the offset after the last one of the rows, by partition."""

    def is_empty(self, rows: Rows) -> bool:
        """Return whether there are no rows."""

    def changed_columns(self, rows: Rows, earlier: Rows) -> list[str]:
        """Return the columns of both whose values in the earlier rows are not values of the present type."""

    def is_read(self, transform: Transform, rows: Rows, columns: Sequence[str]) -> bool:
        """Return whether the result of a transform depends on any of some columns."""

    def derive(self, rows: Rows, transform: Transform) -> DerivedRows:
        """Return the result of a transform."""


class Maintenance(Protocol):
    """Compaction, expiry and clean-up. They commit like any other writer, and are safe to run again."""

    def compact(self, ref: TableRef, target_bytes: int, small_bytes: int) -> Mapping[str, int]:
        """Rewrite small data files, and those with delete files, to about the target size.

        Args:
            ref: The table.
            target_bytes: The target size of a data file.
            small_bytes: The size below which a data file is rewritten.
        """

    def compact_deletes(self, ref: TableRef) -> Mapping[str, int]:
        """Rewrite position delete files into fewer files."""

    def compact_manifests(self, ref: TableRef) -> Mapping[str, int]:
        """Rewrite manifests into fewer files, so that scan planning opens fewer."""

    def expire(self, ref: TableRef, older_than: datetime, retain_last: int) -> Mapping[str, int]:
        """Expire older snapshots, except the last ones and those of branches and tags."""

    def remove_orphans(self, catalog: str, ref: TableRef, older_than: datetime) -> int:
        """Delete files that no metadata refers to, and return their number.

        Args:
            catalog: The name of a catalog in the session that may delete files.
            ref: The table.
            older_than: The time after which files are kept.
        """

    def delete_rows(self, ref: TableRef, column: str, older_than: datetime) -> bool:
        """Delete rows whose time is before `older_than`, and return whether there were any."""


class Engine(Protocol):
    """Reads, decides, writes and checks records.

    Every operation may raise JobFailed, and Stalled or Unreachable if the engine does not answer.
    """

    @property
    def letters(self) -> LetterStore: ...

    @property
    def ledger(self) -> LedgerCounts: ...

    @property
    def derivation(self) -> DerivationEngine: ...

    @property
    def maintenance(self) -> Maintenance: ...

    def is_readable(self, records: LogRange) -> bool:
        """Return whether records can be read at all; a time that the engine cannot represent prevents it."""

    def decide(
        self, records: Records, decoding: Decoding[Side], *, headers: bool = False, refused: str | None = None
    ) -> Decided:
        """Decide about records.

        Args:
            records: The records.
            decoding: The instructions.
            headers: Whether the message headers are needed, which are otherwise not read.
            refused: A reason for which all of them are dead letters, without being decoded.
        """

    def require_decoder(self, decoding: Decoding[Side], *, explained: bool) -> None:
        """Require that messages which no producer sent can be decoded.

        Args:
            decoding: The instructions.
            explained: Whether what explains dead letters must work, too.

        Raises:
            JobFailed: They cannot.
        """

    def create_branch(self, ref: TableRef, branch: str, snapshot_id: int | None = None) -> None:
        """Create a branch with an age limit, by which it differs from one that Iceberg creates for a commit.

        Args:
            ref: The table.
            branch: The name of the branch.
            snapshot_id: The snapshot at which it begins; if None, the head of main, or an empty snapshot in a table
                without snapshots.
        """

    def write_nothing(self, target: Target) -> None:
        """Commit an empty snapshot for the properties in its summary."""

    def write(self, decided: Decided, target: Target, mode: Mode, key: tuple[str, ...], *, empty: bool) -> Written:
        """Write records to a branch in one pass that also counts their outcomes.

        Args:
            decided: The records.
            target: The branch.
            mode: How records change the table: `append` adds each row, `dedup` the first row of each key that the table
                lacks, the others replace the row of each key by its newest one.
            key: The columns that identify a row.
            empty: Whether the table has no rows to compare with.
        """

    def lost_rows(
        self,
        base: int | None,
        target: Target,
        decided: Sequence[Decided],
        batch: Batch,
        key: Sequence[str],
        place: Sequence[str],
    ) -> list[Place]:
        """Return rows of main that a branch lacks, although no record that was read replaces or removes them.

        Args:
            base: The snapshot of main at which the branch begins; None if main had none.
            target: The branch, after the records were written.
            decided: The records that were written.
            batch: Their range.
            key: The columns that identify a row.
            place: The columns of Kafka partitions and offsets.
        """

    def null_keys(self, ref: TableRef, branch: str, key: Sequence[str]) -> int:
        """Return the number of rows of a branch with a null in a key column."""

    def check(
        self, declared: Mapping[str, Check], scope: Scope, shown: Mapping[str, list[str]]
    ) -> dict[str, CheckedRows]:
        """Run declared checks.

        Args:
            declared: The checks by name.
            scope: The rows to check, and the tables that checks refer to.
            shown: The columns of a sample, by check.

        Raises:
            ConfigError: A check does not fit the table.
        """

    def validate(self, declared: Mapping[str, Check], scope: Scope) -> None:
        """Require that checks fit the table, without reading rows.

        Raises:
            ConfigError: A check does not fit.
        """


class EngineClient(Protocol):
    """The engine of an environment."""

    def engine(self, settings: Mapping[str, str], kafka: KafkaClient | None = None) -> Engine:
        """Return the engine.

        Args:
            settings: The settings of a catalog.
            kafka: The cluster whose topics are read; None if none is.
        """

    def with_own_session(self) -> EngineClient:
        """Return a client with its own session, for another thread or other rights."""

    def close(self) -> None:
        """End the session."""
