"""The interface of the engine that reads, decides, writes and counts records.

The pipeline decides what is done and in which order; an engine does it. There are two: Spark (`spark/engine.py`), and
the one in memory of the simulation (`tests/simulation/engine/memory_engine.py`). One contract suite runs the same
programs over both.

Arguments are the values of engine_values.py and compaction_values.py. What an engine reads lazily, or keeps until it is
used again, is an object of the engine: decided records, attempts at dead letters, and derived rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol

from lakehouse.core.offsets.batch import Batch, Positions
from lakehouse.core.tables.naming import TableRef
from lakehouse.pipeline.compaction_values import Compactable, Rewritten
from lakehouse.pipeline.engine_values import (
    Answer,
    CheckedRows,
    Decoding,
    LetterSet,
    LogRange,
    Mode,
    Place,
    Question,
    Records,
    Redrivable,
    Rejected,
    Rows,
    Side,
    Target,
    Transform,
    Trial,
    Written,
)
from lakehouse.pipeline.row_files import LetterTable, NoRowFiles, RowFiles

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table

    from lakehouse.config.checks import Check, Scope
    from resources.protocols import KafkaClient


class Decided(Protocol):
    """Records with a decision about each: a row, a deletion, a dead letter with a reason, or a record of another table.

    Each question reads and decides the records again, so the answers may differ if the log or a check does.
    """

    def unknown_schema_ids(
        self, most: int, known: Collection[int] = (), side: Literal["key", "value"] = "value"
    ) -> list[int | str]:
        """Return the schema ids of records whose key or value has an unknown schema, by descending number of records.

        A record whose header has a GUID in place of an id counts under the GUID.

        Args:
            most: The maximum number of ids. Producers choose ids, so there may be as many as records.
            known: Ids to leave out.
            side: Whether to inspect keys or values. A key that is not in the key's format counts as one of an unknown
                schema, and so does a value of a format without schemas that does not decode.
        """

    def first_faults(self, limit: int = 5, *, shows_keys: bool = False) -> list[tuple[int, int, str]]:
        """Return partition, offset and reason of the first records that could not be decoded.

        Args:
            limit: The maximum number of records.
            shows_keys: Whether the text may quote message keys.
        """

    def quarantined(self, shown: Mapping[str, Sequence[str]]) -> Mapping[str, tuple[int, list[dict[str, Any]]]]:
        """Return the number of rows that each check quarantines, and the first of them as text by column.

        Args:
            shown: The columns of a sample, by check.
        """


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

    def read(self, ref: TableRef, topic_id: str, since: Positions, upto: Positions) -> pa.Table:
        """Return the dead letters from `since` (inclusive) to `upto` (exclusive) by partition, in order."""

    def missing(
        self, rejected: Sequence[Rejected], ref: TableRef, batch: Batch, rows: Target, place: Sequence[str]
    ) -> MissingLetters:
        """Determine the dead letters of a range that are neither waiting in their table nor rows.

        Args:
            rejected: The records of the range that are dead letters.
            ref: The table of dead letters.
            batch: The range.
            rows: The branch with the rows, all of the batch's topic.
            place: The columns of Kafka partitions and offsets.
        """

    def discard(self, target: Target, batch: Batch, replaced_by: MissingLetters | None = None) -> None:
        """Delete dead letters of a batch's offsets from a branch of their table.

        Args:
            target: The branch.
            batch: The offsets.
            replaced_by: Only those of these records, which were rows and are dead letters again; None for all.
        """

    def put(self, letters: Rejected | MissingLetters, target: Target) -> None:
        """Append dead letters to a branch of their table."""

    def attempt(self, letters: Redrivable) -> LetterAttempt:
        """Decide once which dead letters become rows."""

    def mark(self, attempt: LetterAttempt, target: Target, topic_id: str) -> None:
        """Count one more attempt at each dead letter on a branch, and mark those that became rows as redriven.

        Args:
            attempt: The dead letters.
            target: The branch.
            topic_id: Id of the Kafka topic that they come from.
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

    def reads(self, columns: Sequence[str]) -> bool:
        """Return whether the result depends on any of some columns of the source."""


class Maintenance(Protocol):
    """Compaction, expiry and clean-up. They commit like any other writer, and are safe to run again."""

    def compact(self, ref: TableRef, files: Compactable) -> Rewritten:
        """Rewrite files into fewer ones."""

    def expire(self, ref: TableRef, older_than: datetime, retain_last: int) -> int:
        """Expire older snapshots, except the last ones and those of branches and tags.

        Returns:
            The number of data files that only they had, and that were deleted.
        """

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
    def maintenance(self) -> Maintenance: ...

    def keep(self, records: LogRange) -> LogRange:
        """Keep records from their first use until `release`, so that further uses do not read the log again.

        Returns:
            The records as the engine keeps them. It may read those that it has lost, or all of them, again.
        """

    def release(self, records: LogRange) -> None:
        """Release the memory and disk space of records that are kept."""

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

    def row_files(
        self,
        batch: Batch,
        decoding: Decoding[Side],
        table: Table,
        on_begin: Callable[[], None],
        *,
        required: bool = False,
        others: bool = False,
        letters: LetterTable | None = None,
    ) -> RowFiles | NoRowFiles:
        """Write the rows of a batch to data files that no snapshot has, and return the other records of the batch.

        Args:
            batch: The range of the log.
            decoding: The instructions.
            table: The table.
            on_begin: Called before the engine reads the batch.
            required: Whether the files are needed whatever the environment declares.
            others: Whether records that become no rows are likely.
            letters: The table of dead letters, of which the engine may write files; None if it must not.

        Raises:
            ConfigError: The files are needed, and the engine lacks what writes them.
        """

    def completes(self, trial: Trial) -> bool:
        """Return whether jobs complete whose results are not kept; False if a record prevents it.

        Raises:
            JobFailed: The cause is not a record: the decoder does not work, the query is invalid, or the connection was
                lost.
            ConfigError: A check does not fit the table.
        """

    def create_branch(self, ref: TableRef, branch: str, snapshot_id: int | None = None) -> None:
        """Create a branch with an age limit, by which it differs from one that Iceberg creates for a commit.

        Args:
            ref: The table.
            branch: The name of the branch.
            snapshot_id: The snapshot at which it begins; if None, the head of main, or an empty snapshot in a table
                without snapshots.

        Raises:
            CommitConflict: Other writers changed the table meanwhile.
        """

    def write(
        self,
        decided: Decided | None,
        target: Target,
        mode: Mode = "append",
        key: tuple[str, ...] = (),
        *,
        empty: bool = False,
        keeping: Batch | None = None,
    ) -> Written:
        """Write records to a branch in one pass that also counts their outcomes.

        Args:
            decided: The records; None to commit an empty snapshot for the properties in its summary.
            target: The branch.
            mode: How records change the table: `append` adds each row, `dedup` the first row of each key that the table
                lacks, the others replace the row of each key by its newest one.
            key: The columns that identify a row.
            empty: Whether the table has no rows to compare with.
            keeping: The range of the log that the records are of, which were decided with headers, to return its dead
                letters with the result; None to return none. An engine may return none, too.
        """

    def count(self, question: Question[Answer]) -> Answer:
        """Answer a question about tables, the log and decided records."""

    def derive(self, rows: Rows, transform: Transform) -> DerivedRows:
        """Return the result of a transform."""

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
