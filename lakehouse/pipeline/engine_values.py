"""The values that the pipeline and an engine exchange: what is asked, what came out, and why a record was rejected.

They can be printed and compared. Spark's Python workers load this module, so it loads no client library.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, TypeVar

from lakehouse.core.offsets.batch import Batch, Counts, Positions
from lakehouse.core.table_protocol import PART, PARTS
from lakehouse.core.tables.metadata_columns import internal, registered
from lakehouse.core.tables.naming import TableRef
from lakehouse.formats.format import MessageSchema

Mode = Literal["append", "dedup", "upsert", "debezium"]


Place = tuple[int, int]
"""The partition and offset of a record."""


Transform = Callable[[Any], Any]
"""A user's function that derives rows from rows, in the engine's own form of a table (Spark's: a DataFrame)."""


REASONS = {
    "null_value": "The value is null, which is not a row in an append table",
    "not_framed": "The value is not in the Confluent wire format: a zero byte, then a 4-byte schema id",
    "unknown_schema": "The registry has no schema with the value's schema id that this table could use",
    "undecodable": "The value cannot be decoded with its schema",
    "bad_key": "A key column is missing: the message key cannot be read or does not fit the column, or the column is "
    "null in the value",
    "no_row": "The change event has no row after the change",
    "poison": "Decoding the record aborted the Spark job",
    "unknown_operation": "The operation of the change event is not one that changes a single row",
    "check": "The row fails a check that quarantines it",
    "unfit_schema": "The value does not decode, and its schema does not fit the table",
    "schema_limit": "The value's schema id was not looked up, because the batch has too many ids that the topic does "
    "not have. `lakehouse redrive` looks it up",
    "other_type": "The value has another record type than the topic, by the name in its schema",
}
"""Reasons for dead letters: a stable code and a sentence. Append new ones, because tables store their numbers."""


class JobFailed(Exception):
    """The engine did not complete a job. Its text may quote values of records."""

    def __init__(self, text: str, condition: str | None = None):
        """
        Args:
            text: The engine's error.
            condition: Its name, which quotes no value; None if it has none.
        """
        super().__init__(text)
        self.condition = condition

    def getCondition(self) -> str | None:
        """Return the name of the error, as PySpark's errors do."""
        return self.condition


@dataclass(frozen=True)
class LogRange:
    """Records of a range of a topic's log."""

    batch: Batch
    left_out: Sequence[Place] = ()
    """Records that are not read."""


@dataclass(frozen=True)
class WaitingLetters:
    """Dead letters of one snapshot of their table that are not rows yet."""

    ref: TableRef
    snapshot_id: int
    position: Batch
    """The newest batch of the table that lacks the records. Dead letters with later offsets are of an unpublished
    batch: the next run decides about their records again."""
    since: Positions = field(default_factory=dict)
    """The offsets by partition before which dead letters are left out."""
    poison: bool = False
    """Whether to read those whose decoding aborted a job, too; it may do so again."""


Records = LogRange | WaitingLetters


@dataclass(frozen=True)
class Side:
    """The key or value of a topic's messages: the name of the format, and the schemas."""

    format: str
    schema: MessageSchema


S = TypeVar("S")


@dataclass(frozen=True)
class Decoding(Generic[S]):
    """Instructions that turn a topic's records into rows.

    The pipeline describes each side of the messages by a `Side`, and an engine may replace it by a decoder of its own.
    """

    value: S
    key: S | None
    """None if keys are not decoded."""
    columns: tuple[str, ...]
    """The columns of the table, without metadata columns."""
    key_columns: tuple[str, ...]
    """The columns that must not be null."""
    mode: Mode
    registered: bool = True
    """Whether the schema registry has the value's schemas."""
    other_type_ids: frozenset[int] = frozenset()
    """Known schema ids of other record types. Their records belong to another table or, unless `has_other_types`, are
    dead letters."""
    unfit_ids: frozenset[int] = frozenset()
    """Ids of versions that do not fit the table."""
    unusable_ids: frozenset[int] | None = None
    """Ids that the registry has no usable schema for; None if the registry was asked about every id."""
    conflicts: Mapping[int, str] = field(default_factory=dict)
    """Reasons, by id, why records of versions cannot share the columns."""
    has_other_types: bool = False
    """Whether the topic has records of other types as well."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """The table's names of metadata columns by their internal names."""
    quarantine: Mapping[str, str] = field(default_factory=dict)
    """SQL conditions by check name; rows that meet one are quarantined."""

    @property
    def needs_headers(self) -> bool:
        """True if rows contain headers, which an engine reads only on request."""
        return any(column.needs_headers for name, column in registered().items() if internal(name) in self.metadata)


@dataclass(frozen=True)
class Target:
    """A branch that rows are written to."""

    ref: TableRef
    branch: str
    properties: Mapping[str, str]
    """Properties for the summary of the snapshot that completes the write."""

    @property
    def path(self) -> str:
        """The branch as Spark addresses it."""
        return self.ref.spark_path(self.branch)

    def deleting(self) -> Target:
        """Return the target for a commit that deletes rows and that another commit completes."""
        return replace(self, properties={PART: "delete"})

    def completing(self) -> Target:
        """Return the target for the commit that completes the deleting one.

        The audit requires both commits: if another writer drops the branch between them, Iceberg creates it again
        without the first.
        """
        return replace(self, properties={**self.properties, PARTS: "2"})


@dataclass(frozen=True)
class LetterSet:
    """A set of dead letters, which a count alone does not identify."""

    count: int = 0
    digest: int = 0
    """A number computed from their partitions and offsets, in any order."""
    recovered: int = 0
    """How many of them have become rows since."""


@dataclass(frozen=True)
class Written:
    """Result of a write."""

    counts: Counts
    """Outcomes of the records."""
    unknown_schema: int = 0
    """The number of dead letters whose schema id is not among the known writers."""
    quarantined: int = 0
    """The number of dead letters that fail a check."""
    bad_key: int = 0
    """The number of dead letters whose key does not decode."""
    dead_digest: int = 0
    """The digest of all dead letters."""
    check_digest: int = 0
    """The digest of the dead letters that fail a check."""

    def __add__(self, other: Written) -> Written:
        return Written(
            self.counts + other.counts,
            self.unknown_schema + other.unknown_schema,
            self.quarantined + other.quarantined,
            self.bad_key + other.bad_key,
            self.dead_digest ^ other.dead_digest,
            self.check_digest ^ other.check_digest,
        )

    @property
    def dead(self) -> LetterSet:
        """The set of dead letters."""
        return LetterSet(self.counts.dead_letters, self.dead_digest)

    @property
    def failing(self) -> LetterSet:
        """The set of dead letters that fail a check."""
        return LetterSet(self.quarantined, self.check_digest)


@dataclass(frozen=True)
class CheckedRows:
    """Rows that a declared check counted and sampled."""

    checked: int
    """The number of rows that were checked."""
    failing: int
    """The number of rows that fail."""
    sql: str
    """The query that returns all failing rows."""
    sample: list[dict[str, Any]] = field(default_factory=list)
    """The first failing rows, as text by column."""


@dataclass(frozen=True)
class LetterOrigin:
    """The origin that the dead letters of a batch record."""

    topic: str
    """The Kafka topic."""
    topic_id: str
    """Its id: a recreated topic has the same offsets."""
    entry: str
    """The name of the entry in lakehouse.yaml."""
    ref: TableRef
    """The table that lacks the records."""
    only_quarantined: bool = False
    """Whether records that do not decode are no dead letters."""


@dataclass(frozen=True)
class RowPlaces:
    """The partitions and offsets of the rows of one snapshot, and their keys."""

    ref: TableRef
    snapshot_id: int
    names: Mapping[str, str]
    """The table's names of metadata columns by their internal names."""
    key: Sequence[str] = ()
    """The columns that identify a row; empty if any number of rows may have one key."""


@dataclass(frozen=True)
class LetterPlaces:
    """The partitions and offsets of the dead letters of some topics in one snapshot of their table."""

    ref: TableRef
    snapshot_id: int
    topic_ids: Collection[str]


@dataclass(frozen=True)
class SnapshotRows:
    """The rows of one snapshot of a table, regardless of later commits."""

    ref: TableRef
    snapshot_id: int
    names: Mapping[str, str]
    """The table's names of metadata columns by their internal names, which the rows have."""


@dataclass(frozen=True)
class RowsBetween:
    """Rows with offsets from `start` (inclusive) to `end` (exclusive) by partition."""

    rows: Rows
    start: Positions
    end: Positions


@dataclass(frozen=True)
class LateRows:
    """Rows with offsets before `since` that were not derived."""

    rows: Rows
    derived: Sequence[tuple[Rows, Positions]]
    """Snapshots of the table, with the offsets before which their rows were derived."""
    since: Positions


@dataclass(frozen=True)
class FirstRows:
    """The first rows by partition and offset."""

    rows: Rows
    number: int


@dataclass(frozen=True)
class RowsInColumnsOf:
    """The rows of an earlier table in the columns of another; columns that it lacks, or has with values of another
    type, are null."""

    rows: Rows
    columns_of: Rows


@dataclass(frozen=True)
class GroupRows:
    """All rows of the groups that at least one of some rows is in."""

    rows: Sequence[Rows]
    """Rows with the same columns."""
    touched: Sequence[Rows]
    """Rows of the groups, which may be of snapshots with different columns."""
    group_by: tuple[str, ...]


Rows = SnapshotRows | RowsBetween | LateRows | FirstRows | RowsInColumnsOf | GroupRows
"""Rows of a source of derived topics."""
