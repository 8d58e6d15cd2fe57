"""The values that the pipeline and an engine exchange: what is asked, what came out, and why a record was rejected.

They can be printed and compared. Spark's Python workers load this module, so it loads no client library.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from lakehouse.core.errors import Unreachable
from lakehouse.core.offsets.batch import Batch, Counts, Positions
from lakehouse.core.offsets.ledger import LogContents, OffsetRange, RangeContents
from lakehouse.core.patterns import Matches
from lakehouse.core.table_protocol import PART, PARTS
from lakehouse.core.tables.naming import CATALOG, TableRef
from lakehouse.formats.format import MessageSchema
from lakehouse.formats.schema import Guids
from lakehouse.pipeline.spilled_records import SpilledRecords

if TYPE_CHECKING:
    from lakehouse.config.checks import Check, Scope

ADDS_ROWS = "rows"
"""The value of PART in a commit with rows of the batch, which count with those of the commit that completes it."""

Mode = Literal["append", "dedup", "upsert", "debezium"]


Place = tuple[int, int]
"""The partition and offset of a record."""


Transform = Callable[[Any], Any]
"""A user's function that derives rows from rows, in the engine's own form of a table (Spark's: a DataFrame)."""


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


class CountsLost(Exception):
    """The engine wrote records, and did not send their counts."""

    def __init__(self, failure: Unreachable):
        super().__init__(str(failure))
        self.failure = failure


@dataclass(frozen=True)
class LogRange:
    """Records of a range of a topic's log."""

    batch: Batch
    left_out: Sequence[Place] = ()
    """Records that are not read."""
    kept: str = field(default="", compare=False)
    """The name by which the engine keeps the records; empty if they are read from the log."""


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


Records = LogRange | WaitingLetters | SpilledRecords


@dataclass(frozen=True)
class Side:
    """The key or value of a topic's messages: the name of the format, and the schemas."""

    format: str
    schema: MessageSchema


S = TypeVar("S")


@dataclass(frozen=True)
class KnownRows:
    """The rows of a table, from which change events of a batch, which it may have, get the values that they omit."""

    ref: TableRef
    snapshot_id: int
    place: Sequence[str]
    batch: Batch
    has_batch: bool


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
    deletion: tuple[str, str] | None = None
    """The column, and its value as text, of records that delete the row of their key; None if only null values do."""
    registered: bool = True
    """Whether the schema registry has the value's schemas."""
    other_type_ids: frozenset[int] = frozenset()
    """Known schema ids of other record types. Their records belong to another table or, unless `has_other_types`, are
    dead letters."""
    unfit_ids: frozenset[int] = frozenset()
    """Ids of versions that do not fit the table."""
    unusable_ids: frozenset[int] | None = None
    """Ids that the registry has no usable schema for; None if the registry was asked about every id."""
    needs_headers: bool = False
    """Whether rows or schema ids may depend on headers, which an engine reads only on request."""
    reads_header_ids: bool = False
    """Whether schema ids are read from headers. Otherwise, the result of a write counts the records that have some."""
    guids: Guids = Guids()
    """The GUIDs that headers may contain in place of schema ids."""
    conflicts: Mapping[int, str] = field(default_factory=dict)
    """Reasons, by id, why records of versions cannot share the columns."""
    has_other_types: bool = False
    """Whether the topic has records of other types as well."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """The table's names of metadata columns by their internal names."""
    truncate: Literal["apply", "ignore", "refuse"] = "refuse"
    """The effect of a change event that truncates the table."""
    unavailable: str = ""
    """The placeholder in change events for values that they omit."""
    known: KnownRows | None = None
    """The rows that have those values; None if there are none."""
    quarantine: Mapping[str, str | Matches] = field(default_factory=dict)
    """Tests of rows by check name (lakehouse.config.checks.RowCheck); rows that do not pass one are quarantined."""


@dataclass(frozen=True)
class Target:
    """A branch that rows are written to."""

    ref: TableRef
    branch: str
    properties: Mapping[str, str]
    """Properties for the summary of the snapshot that completes the write."""

    def deleting(self) -> Target:
        """Return the target for a commit that deletes rows and that another commit completes."""
        return replace(self, properties={PART: "delete"})

    def adding(self) -> Target:
        """Return the target for a commit that adds some of the rows and that another commit completes."""
        return replace(self, properties={PART: ADDS_ROWS})

    def completing(self, parts: int = 2) -> Target:
        """Return the target for the commit that completes deleting and adding ones.

        The audit requires all commits: if another writer drops the branch between them, Iceberg creates it again
        without the earlier ones.

        Args:
            parts: The number of commits with this one.
        """
        return replace(self, properties={**self.properties, PARTS: str(parts)}) if parts > 1 else self


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
    snapshot_starts: int = 0
    """The number of change events that are the first of a snapshot of the source."""
    ignored_header_ids: int = 0
    """The number of records with a schema id in a header that was not read, of which none may be published."""
    others: SpilledRecords | None = field(default=None, compare=False)
    """The dead letters, if the write kept them; the sum of two writes has none."""

    def __add__(self, other: Written) -> Written:
        return Written(
            self.counts + other.counts,
            self.unknown_schema + other.unknown_schema,
            self.quarantined + other.quarantined,
            self.bad_key + other.bad_key,
            self.dead_digest ^ other.dead_digest,
            self.check_digest ^ other.check_digest,
            self.snapshot_starts + other.snapshot_starts,
            self.ignored_header_ids + other.ignored_header_ids,
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
    errors: int = 0
    """The number of failing rows for which the check raises an error."""
    error: str = ""
    """The name of an error that the check raises; empty if it raises none. A query that raises one fails."""


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

    @property
    def columns(self) -> Mapping[str, str]:
        """The columns of dead letters that have the same value in all of them."""
        return {
            "processor": "lakehouse",
            "statement_name": self.entry,
            "affected_type": "table",
            "affected_catalog": CATALOG,
            "affected_database": self.ref.namespace,
            "affected_name": self.ref.name,
            "topic_id": self.topic_id,
        }


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


Places = RowPlaces | LetterPlaces


@dataclass(frozen=True)
class Rejected:
    """The records that are dead letters, with unchanged bytes."""

    decided: Any
    """Decided records with headers, of which they are some."""
    origin: LetterOrigin


@dataclass(frozen=True)
class Redecided:
    """Dead letters that decode now, or belong to another table, become rows."""

    decided: Any
    """The dead letters, as the engine decided them again."""
    key: Sequence[str] = ()
    """The columns that identify a row if a record replaces the row of its key."""


@dataclass(frozen=True)
class Confirmed:
    """Dead letters become rows only if their key has its row, or a later row or record.

    A record that the broker deleted was not read again. Without a later record of its key that decodes, it must remain
    a dead letter, unless it belongs to another table.
    """

    attempt: Any
    """The attempt at them that the engine returned."""
    decided: Sequence[Any]
    """The records that were written, as the engine decided them."""
    ref: TableRef
    """The table with the rows."""
    key: Sequence[str]
    """The columns that identify a row."""
    place: Sequence[str]
    """The columns of Kafka partitions and offsets."""


@dataclass(frozen=True)
class ExistingRows:
    """Dead letters whose records are rows of a table: a redrive published them, and was interrupted before it marked
    the dead letters."""

    waiting: WaitingLetters
    ref: TableRef
    place: Sequence[str]
    """The columns of Kafka partitions and offsets."""


Redrivable = Redecided | Confirmed | ExistingRows
"""Dead letters, and the condition on which they become rows."""


@dataclass(frozen=True)
class Reading:
    """A job that reads records, and does not decode them; a time that the engine cannot represent prevents it."""

    records: LogRange


@dataclass(frozen=True)
class Deciding:
    """A job that decides about all records, good or bad; one whose decoding aborts the job prevents it."""

    decided: Any
    """The records, as the engine decided them."""


@dataclass(frozen=True)
class Controls:
    """A job that decodes messages which no producer sent."""

    decoding: Decoding[Side]
    explained: bool
    """Whether what explains dead letters must work, too."""


@dataclass(frozen=True)
class Checking:
    """Jobs that check no rows, so that a check which does not fit the table fails."""

    declared: Mapping[str, Check]
    scope: Scope


Trial = Reading | Deciding | Controls | Checking
"""Jobs whose results are not kept."""


Answer = TypeVar("Answer")
AnswerCo = TypeVar("AnswerCo", covariant=True)


class Question(Generic[AnswerCo]):
    """A question about tables, the log and decided records, which `Engine.count` answers."""


@dataclass(frozen=True)
class NullKeys(Question[int]):
    """The number of rows of a branch with a null in a key column."""

    ref: TableRef
    branch: str
    key: Sequence[str]


@dataclass(frozen=True)
class LettersOf(Question[LetterSet]):
    """The set of a batch's records in a table of dead letters, or in a branch of it."""

    ref: TableRef
    batch: Batch
    branch: str | None = None


@dataclass(frozen=True)
class PoisonLetters(Question[list[Place]]):
    """Each record of a batch whose decoding aborted a job, and that is no row."""

    ref: TableRef
    batch: Batch


@dataclass(frozen=True)
class LostRows(Question[list[Place]]):
    """The first rows of main that a branch lacks, although no record that was read replaces or removes them."""

    base: int | None
    """The snapshot of main at which the branch begins; None if main had none."""
    target: Target
    """The branch, after the records were written."""
    decided: Sequence[Any]
    """The records that were written, as the engine decided them."""
    batch: Batch
    """Their range."""
    key: Sequence[str]
    """The columns that identify a row."""
    place: Sequence[str]
    """The columns of Kafka partitions and offsets."""


@dataclass(frozen=True)
class Contents(Question[dict[OffsetRange | None, RangeContents]]):
    """The contents of each range in tables, taken together; None is the key for offsets in no range."""

    places: Sequence[Places]
    ranges: Sequence[OffsetRange]


@dataclass(frozen=True)
class Duplicates(Question[list[tuple[int, int, int]]]):
    """The first records that occur more often than `allowed`, as (partition, offset, occurrences)."""

    places: Places
    allowed: int = 1


@dataclass(frozen=True)
class DuplicateKeys(Question[list[tuple[str, int]]]):
    """The first keys with more than one row, as (key, rows)."""

    rows: RowPlaces
    shown: Collection[str]
    """The columns whose values may be returned; others are hidden."""


@dataclass(frozen=True)
class Logged(Question[tuple[dict[int, LogContents], list[tuple[int, int, int]]]]):
    """The number of records in the log by the snapshot id of their range, and the first ones without an outcome, as
    (snapshot id, partition, offset)."""

    batch: Batch
    """The part of the log to read."""
    ranges: Sequence[OffsetRange]
    outcomes: Sequence[Places]
    """Rows and dead letters; empty to count records only."""


@dataclass(frozen=True)
class WrongNewest(Question[list[tuple[int, int, bool]]]):
    """The first records that are the newest of their key but are not what an upsert table has, as (partition, offset,
    tombstone); for a tombstone, the table still has an older row.

    Of the last records of a key in each partition, the one with the latest timestamp is the newest. Keys with several
    of this timestamp are left out, because these have no order.
    """

    decided: Any
    """The records up to the table's offsets, as the engine decided them."""
    letters: LetterPlaces | None
    rows: RowPlaces


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
    """The rows of an earlier table in the columns of another; those that it lacks, or has in another type, are null."""

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


@dataclass(frozen=True)
class Ends(Question[dict[int, int]]):
    """The offset after the last one of some rows, by partition."""

    rows: Rows


@dataclass(frozen=True)
class IsEmpty(Question[bool]):
    """The absence of rows."""

    rows: Rows


@dataclass(frozen=True)
class ChangedColumns(Question[list[str]]):
    """The columns of both whose values in the earlier rows are not values of the present type."""

    rows: Rows
    earlier: Rows
