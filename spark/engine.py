"""The engine on Spark: the interface of lakehouse/pipeline/engine.py as jobs of Spark Connect.

Each operation is one or a few functions of this package, which take and return DataFrames.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, lru_cache, partial, reduce, wraps
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from lakehouse.config.checks import Check, Scope
from lakehouse.core.errors import CommitConflict, ConfigError, LakehouseError, TransformFailed
from lakehouse.core.offsets.batch import Batch, Counts, Positions
from lakehouse.core.tables.naming import TableRef
from lakehouse.formats import format_of
from lakehouse.pipeline.compaction_values import Compactable, Rewritten
from lakehouse.pipeline.engine_values import (
    Answer,
    ChangedColumns,
    CheckedRows,
    Checking,
    Confirmed,
    Contents,
    Controls,
    Deciding,
    Decoding,
    DuplicateKeys,
    Duplicates,
    Ends,
    ExistingRows,
    FirstRows,
    GroupRows,
    IsEmpty,
    JobFailed,
    LateRows,
    LetterSet,
    LettersOf,
    Logged,
    LogRange,
    LostRows,
    Mode,
    NullKeys,
    Place,
    Places,
    PoisonLetters,
    Question,
    Reading,
    Records,
    Redecided,
    Redrivable,
    Rejected,
    RowPlaces,
    Rows,
    RowsBetween,
    RowsInColumnsOf,
    Side,
    SnapshotRows,
    Target,
    Transform,
    Trial,
    WaitingLetters,
    Written,
    WrongNewest,
)
from lakehouse.pipeline.row_files import LetterTable, NoRowFiles, RowFiles
from lakehouse.pipeline.spilled_records import SpilledRecords
from resources.protocols import KafkaClient, SparkClient
from spark import avro_schema, column_lineage, derive, user_modules
from spark import records as kafka_records
from spark.decoding import control, decode, explain
from spark.decoding.decode import Codec
from spark.native import job
from spark.native.letters import LetterWriter
from spark.native.plan import Unsupported
from spark.tables import (
    dead_letters,
    ledger_counts,
    lost_rows,
    maintenance_procedures,
    places,
    related_events,
    row_files,
    staged_checks,
    write,
)

if TYPE_CHECKING:
    from pyiceberg.table import Table

_LOG = logging.getLogger(__name__)

COMMIT_FAILED = "org.apache.iceberg.exceptions.CommitFailedException"
"""The error of Iceberg if another writer has changed a table (Iceberg, API: CommitFailedException)."""

T = TypeVar("T", bound=type)


def _raises_job_failed(class_: T) -> T:
    """Translate errors of Spark in the public methods of a class."""

    def translated(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return method(*args, **kwargs)
            except PySparkException as error:
                raise JobFailed(str(error), error.getCondition()) from error

        return call

    for name, member in list(vars(class_).items()):
        if not name.startswith("_") and callable(member):
            setattr(class_, name, translated(member))
    return class_


@lru_cache(maxsize=64)
def codec_of(side: Side) -> Codec:
    """Return the codec of one side of messages. Parsing schemas may take longer than a small batch."""
    format_ = format_of(side.format)
    codec: Codec = resolve_name(format_.decoder)(side.schema, format_.reader(side.schema))
    return codec


def with_codecs(decoding: Decoding[Side]) -> Decoding[Codec]:
    """Return the instructions with the codecs of both sides."""
    instructions: Any = decoding
    return replace(instructions, value=codec_of(decoding.value), key=decoding.key and codec_of(decoding.key))


class SparkEngines:
    """The Spark server of an environment, as lakehouse.pipeline.engine.EngineClient."""

    def __init__(self, spark: SparkClient):
        self._spark = spark

    def engine(self, settings: Mapping[str, str], kafka: KafkaClient | None = None) -> SparkEngine:
        """Return the engine."""
        return SparkEngine(self._spark, settings, kafka)

    def with_own_session(self) -> SparkEngines:
        """Return a client with its own session."""
        return SparkEngines(self._spark.with_own_session())

    def close(self) -> None:
        """End the session."""
        self._spark.close()


@dataclass(frozen=True)
class _Jobs:
    """Jobs in the session of a server. Objects of the engine that they get are those which the engine has returned."""

    client: SparkClient
    settings: Mapping[str, str]
    kafka: KafkaClient | None

    @property
    def _session(self) -> SparkSession:
        return self.client.session(self.settings)

    def _records(self, records: Records, *, headers: bool = False) -> DataFrame:
        if isinstance(records, WaitingLetters):
            return dead_letters.waiting(self._session, records)
        if isinstance(records, SpilledRecords):
            return kafka_records.spilled(self._session, records.table)
        if records.kept:
            read = partial(self._records, replace(records, kept=""), headers=True)
            kept = kafka_records.kept(self._session, records.kept, read)
            return kept if headers else kept.drop("headers")
        assert self.kafka is not None
        frame = kafka_records.read_range(self._session, self.kafka.spark_options(), records.batch, headers=headers)
        return frame.filter(~places.in_log().is_one_of(records.left_out)) if records.left_out else frame

    def _table(self, ref: TableRef, branch: str | None = None) -> DataFrame:
        return self._session.table(ref.spark_path(branch) if branch else ref.spark_path())


@_raises_job_failed
@dataclass(frozen=True)
class SparkDecided:
    """Decided records, as the columns of spark.decoding.decoded. Each action reads and decides them again.

    Attributes:
        alone: The records, each decided by itself.
        decoding: The instructions.
        related: The change events with regard to each other; None if the records are none.
    """

    alone: DataFrame
    decoding: Decoding[Codec]
    partitions: int
    """The number of partitions of the topic."""
    related: related_events.RelatedEvents | None = None

    @property
    def is_truncated(self) -> bool:
        """True if a record deletes all rows."""
        return self.related is not None and self.related.summary.truncate is not None

    @property
    def frame(self) -> DataFrame:
        """The records, decided with regard to each other."""
        return self.alone if self.related is None else self.related.frame

    def origin(self, key: Sequence[str]) -> tuple[str, str] | None:
        """Return the table's columns of partitions and timestamps, which order records of a key in several partitions.

        Returns:
            None if the records of a key are in one partition, or the table has no timestamps.
        """
        partition, timestamp = map(self.decoding.metadata.get, ("kafka_partition", "kafka_timestamp"))
        is_divided = self.partitions > 1 and partition not in key
        return (partition, timestamp) if is_divided and partition and timestamp else None

    def unknown_schema_ids(
        self, most: int, known: Collection[int] = (), side: Literal["key", "value"] = "value"
    ) -> list[int | str]:
        return decode.foreign_schema_ids(self.alone, most, known, side, registered=self.decoding.registered)

    def first_faults(self, limit: int = 5, *, shows_keys: bool = False) -> list[tuple[int, int, str]]:
        return explain.first_faults(self.frame, self.decoding, limit, shows_keys=shows_keys)

    def quarantined(self, shown: Mapping[str, Sequence[str]]) -> Mapping[str, tuple[int, list[dict[str, Any]]]]:
        return staged_checks.quarantined(self.frame, shown)


@_raises_job_failed
@dataclass(frozen=True)
class SparkAttempt:
    """Dead letters that were decided again, as a checkpointed DataFrame."""

    frame: DataFrame
    count: int
    remaining: LetterSet

    @staticmethod
    def of(frame: DataFrame) -> SparkAttempt:
        """Return the attempt with its numbers."""
        return SparkAttempt(frame, *dead_letters.remaining(frame))

    def first_offsets(self) -> dict[int, int]:
        return dead_letters.first_offsets(self.frame)

    def without_record(self, most: int) -> list[Place]:
        return dead_letters.without_record(self.frame, most)


@dataclass(frozen=True)
class SparkMissing:
    """Dead letters that their table lacks, as a checkpointed DataFrame."""

    frame: DataFrame
    count: int


def _letters(rejected: Rejected) -> DataFrame:
    decided = rejected.decided
    return dead_letters.of_records(decided.frame, decided.decoding, rejected.origin)


@_raises_job_failed
class SparkLetters(_Jobs):
    """The tables of dead letters."""

    def read(self, ref: TableRef, topic_id: str, since: Positions, upto: Positions) -> pa.Table:
        return dead_letters.between(self._table(ref), topic_id, since, upto).toArrow()

    def missing(
        self, rejected: Sequence[Rejected], ref: TableRef, batch: Batch, rows: Target, place: Sequence[str]
    ) -> SparkMissing:
        of_range, table = [*map(_letters, rejected)], self._table(rows.ref, rows.branch)
        frame = dead_letters.missing(of_range, self._table(ref), batch, table, place)
        return SparkMissing(frame, frame.count())

    def discard(self, target: Target, batch: Batch, replaced_by: Any = None) -> None:
        if replaced_by is None:
            dead_letters.discard(self._session, target, batch)
        else:
            dead_letters.discard_earlier(replaced_by.frame, target, batch)

    def put(self, letters: Any, target: Target) -> None:
        dead_letters.append(_letters(letters) if isinstance(letters, Rejected) else letters.frame, target)

    def attempt(self, letters: Redrivable) -> SparkAttempt:
        match letters:
            case Redecided():
                frame = dead_letters.attempt(letters.decided.frame, letters.key)
            case Confirmed():
                attempt, pieces = letters.attempt.frame, [piece.frame for piece in letters.decided]
                frame = dead_letters.replaced(attempt, pieces, self._table(letters.ref), letters.key, letters.place)
            case ExistingRows():
                waiting, table = self._records(letters.waiting), self._table(letters.ref)
                frame = dead_letters.existing_rows(waiting, table, letters.place)
        return SparkAttempt.of(frame)

    def mark(self, attempt: Any, target: Target, topic_id: str) -> None:
        dead_letters.mark(attempt.frame, target, topic_id)


@_raises_job_failed
@dataclass(frozen=True)
class SparkDerived:
    """The result of a transform."""

    rows: DataFrame
    transform: Transform

    @cached_property
    def result(self) -> DataFrame:
        """The rows, without the metadata columns of the source."""
        return derive.own_columns(self.transform(self.rows))

    def avro_schema(self, name: str, columns: Sequence[str] | None = None) -> str:
        rows = self.result if columns is None else self.result.select(*columns)
        return avro_schema.avro_schema(rows.schema, name)

    def messages(self, key: tuple[int, str] | None, value: tuple[int, str]) -> pa.Table:
        return derive.messages(self.result, key, value)

    def lineage(self) -> Mapping[str, list[str]]:
        return column_lineage.columns_read(self.result, self.rows.columns)

    def reads(self, columns: Sequence[str]) -> bool:
        try:
            return bool(self.transform(self.rows.drop(*columns)).schema != self.transform(self.rows).schema)
        except TransformFailed:  # Whatever the transform raises without a column, it reads it.
            return True
        except LakehouseError:
            raise
        except Exception:
            return True


@_raises_job_failed
class SparkMaintenance(_Jobs):
    """Compaction, expiry and clean-up."""

    def compact(self, ref: TableRef, files: Compactable) -> Rewritten:
        return maintenance_procedures.compact(self._session, ref, files)

    def expire(self, ref: TableRef, older_than: datetime, retain_last: int) -> int:
        return maintenance_procedures.expire(self._session, ref, older_than, retain_last)

    def remove_orphans(self, catalog: str, ref: TableRef, older_than: datetime) -> int:
        return maintenance_procedures.remove_orphans(self._session, catalog, ref, older_than)

    def delete_rows(self, ref: TableRef, column: str, older_than: datetime) -> bool:
        return maintenance_procedures.delete_rows(self._session, ref, column, older_than)


@_raises_job_failed
class SparkEngine(_Jobs):
    """Reads, decides, writes and checks records with Spark."""

    @property
    def letters(self) -> SparkLetters:
        """The tables of dead letters."""
        return SparkLetters(self.client, self.settings, self.kafka)

    @property
    def maintenance(self) -> SparkMaintenance:
        """Compaction, expiry and clean-up."""
        return SparkMaintenance(self.client, self.settings, self.kafka)

    def keep(self, records: LogRange) -> LogRange:
        return replace(records, kept=f"kept_{secrets.token_hex(16)}")

    def release(self, records: LogRange) -> None:
        kafka_records.release(self._session, records.kept)

    def decide(
        self, records: Records, decoding: Decoding[Side], *, headers: bool = False, refused: str | None = None
    ) -> SparkDecided:
        instructions = with_codecs(decoding)
        frame = self._records(records, headers=headers or decoding.needs_headers)
        partitions = len((records.position if isinstance(records, WaitingLetters) else records.batch).end)
        if refused:
            decided = decode.refused(frame, instructions, refused, headers=headers)
            return SparkDecided(decided, instructions, partitions)
        decided = decode.decode(frame, instructions, headers=headers)
        if instructions.mode != "debezium":
            return SparkDecided(decided, instructions, partitions)

        def with_old_keys() -> DataFrame:
            with_headers = self._records(records, headers=True)
            return decode.decode(with_headers, instructions, headers=headers)

        is_log = isinstance(records, LogRange)
        related = related_events.RelatedEvents(self._session, decided, with_old_keys, instructions, of_log=is_log)
        return SparkDecided(decided, instructions, partitions, related)

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
        choice = "require" if required else self.client.native
        files = self._compiled(batch, decoding, table, on_begin, choice, letters)
        if isinstance(files, RowFiles) or required or not others:
            return files
        if not row_files.is_supported(batch, decoding, table, self.settings):
            return files
        on_begin()
        decided = self.decide(LogRange(batch), decoding, headers=True)
        return row_files.write(self._session, decided.frame, table, batch, files.reason)

    def _compiled(
        self,
        batch: Batch,
        decoding: Decoding[Side],
        table: Table,
        on_begin: Callable[[], None],
        choice: str,
        letters: LetterTable | None,
    ) -> RowFiles | NoRowFiles:
        """Write the rows of a batch by the compiled decoder, unless `choice` is `off`, or it does not support them."""
        assert self.kafka is not None
        if choice == "off":
            return NoRowFiles("lakehouse.yaml has `native: off`")
        instructions: Any = with_codecs(decoding)
        try:
            requests = job.requests(self.kafka.servers, batch, instructions, table)
        except Unsupported as error:
            return NoRowFiles(str(error))
        if reason := job.missing(self._session):
            if choice == "require":
                raise ConfigError(
                    f"The compiled decoder is required (`spark.native: require` in lakehouse.yaml, or "
                    f"`--compare-paths`), and {reason}. Nothing was read. Install it where the executors run "
                    f"(docs/native.md), or do not require it"
                )
            return NoRowFiles(reason)
        writes = letters is not None and job.writes_letters(letters.table)
        of_letters = (letters.table, LetterWriter.of(letters, instructions)) if letters and writes else None
        on_begin()
        return job.row_files(self._session, requests, self.kafka.native_login, batch, table, of_letters)

    def completes(self, trial: Trial) -> bool:
        match trial:
            case Reading():
                return kafka_records.is_readable(self._records(trial.records))
            case Deciding():
                return decode.is_decodable(trial.decided.alone)
            case Controls():
                control.decode_controls(self._session, with_codecs(trial.decoding), explained=trial.explained)
            case Checking():
                staged_checks.validate(self._session, trial.declared, trial.scope)
        return True

    def create_branch(self, ref: TableRef, branch: str, snapshot_id: int | None = None) -> None:
        try:
            write.create_branch(self._session, ref, branch, snapshot_id)
        except PySparkException as error:
            if COMMIT_FAILED not in str(error):
                raise
            raise CommitConflict(
                f"Other writers changed {ref} while branch '{branch}' was created. Nothing was written. Retry the run "
                f"or command"
            ) from error

    def write(
        self,
        decided: Any,
        target: Target,
        mode: Mode = "append",
        key: tuple[str, ...] = (),
        *,
        empty: bool = False,
        keeping: Batch | None = None,
    ) -> Written:
        if decided is None:
            write.nothing(self._session, target)
            return Written(Counts())
        origin, truncated = decided.origin(key), decided.is_truncated
        settings: Any = {"empty": empty, "origin": origin, "truncated": truncated, "keeping": keeping}
        return write.rows(decided.frame, target, mode, key, **settings)

    def count(self, question: Question[Answer]) -> Answer:
        result: Any
        match question:
            case NullKeys():
                result = write.null_keys(self._table(question.ref, question.branch), question.key)
            case LettersOf():
                result = dead_letters.letter_set(self._table(question.ref, question.branch), question.batch)
            case PoisonLetters():
                result = dead_letters.poisonous(self._table(question.ref), question.batch)
            case LostRows():
                result = lost_rows.lost_rows(self._session, question, [piece.frame for piece in question.decided])
            case Contents():
                result = ledger_counts.held(self._together(question.places), question.ranges)
            case Duplicates():
                result = ledger_counts.duplicates(self._places(question.places), question.allowed)
            case DuplicateKeys():
                rows = self._places(question.rows)
                result = ledger_counts.duplicate_keys(rows, question.rows.key, question.shown)
            case Logged():
                outcomes = self._together(question.outcomes) if question.outcomes else None
                result = ledger_counts.logged(self._records(LogRange(question.batch)), question.ranges, outcomes)
            case WrongNewest():
                letters = self._places(question.letters) if question.letters else None
                rows = self._places(question.rows)
                result = ledger_counts.wrong_newest(question.decided.frame, letters, rows, question.rows.key)
            case Ends():
                result = derive.ends(self._rows(question.rows))
            case IsEmpty():
                result = self._rows(question.rows).isEmpty()
            case ChangedColumns():
                result = derive.changed_columns(self._rows(question.rows), self._rows(question.earlier))
        return result

    def derive(self, rows: Rows, transform: Transform) -> SparkDerived:
        user_modules.ship(transform)
        return SparkDerived(self._rows(rows), transform)

    def check(
        self, declared: Mapping[str, Check], scope: Scope, shown: Mapping[str, list[str]]
    ) -> dict[str, CheckedRows]:
        return staged_checks.run(self._session, declared, scope, shown)

    def _together(self, tables: Sequence[Places]) -> DataFrame:
        return reduce(DataFrame.unionAll, [self._places(of).select(*places.NAMES) for of in tables])

    def _places(self, of: Places) -> DataFrame:
        snapshot = derive.published(self._session, of.ref, of.snapshot_id, {})
        if isinstance(of, RowPlaces):
            return ledger_counts.of_rows(snapshot, of.names, of.key)
        return dead_letters.of_topics(snapshot, of.topic_ids)

    def _rows(self, rows: Rows) -> DataFrame:
        match rows:
            case SnapshotRows():
                return derive.published(self._session, rows.ref, rows.snapshot_id, rows.names)
            case RowsBetween():
                return derive.rows_between(self._rows(rows.rows), rows.start, rows.end)
            case LateRows():
                derived = [(self._rows(snapshot), end) for snapshot, end in rows.derived]
                return derive.late_rows(self._rows(rows.rows), derived, rows.since)
            case FirstRows():
                return derive.first_rows(self._rows(rows.rows), rows.number)
            case RowsInColumnsOf():
                return derive.as_rows_of(self._rows(rows.columns_of), self._rows(rows.rows))
            case GroupRows():
                touched = derive.groups([*map(self._rows, rows.touched)], rows.group_by)
                parts = (derive.rows_of_touched_groups(self._rows(of), touched, rows.group_by) for of in rows.rows)
                return reduce(DataFrame.unionByName, parts)
