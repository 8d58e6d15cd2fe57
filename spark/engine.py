"""The engine on Spark: the interface of lakehouse/pipeline/engine.py as jobs of Spark Connect.

Each operation is one or a few functions of this package, which take and return DataFrames.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache, reduce, wraps
from pkgutil import resolve_name
from typing import Any, Literal, TypeVar

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from lakehouse.config.checks import Check, Scope
from lakehouse.core.errors import LakehouseError
from lakehouse.core.offsets.batch import Batch, Positions
from lakehouse.core.offsets.ledger import LogContents, OffsetRange, RangeContents
from lakehouse.core.tables.naming import TableRef
from lakehouse.formats import format_of
from lakehouse.pipeline.engine_values import (
    CheckedRows,
    Decoding,
    FirstRows,
    GroupRows,
    JobFailed,
    LateRows,
    LetterOrigin,
    LetterPlaces,
    LetterSet,
    LogRange,
    Mode,
    Place,
    Records,
    RowPlaces,
    Rows,
    RowsBetween,
    RowsInColumnsOf,
    Side,
    SnapshotRows,
    Target,
    Transform,
    WaitingLetters,
    Written,
)
from resources.protocols import KafkaClient, SparkClient
from spark import avro_schema, column_lineage, derive
from spark import records as kafka_records
from spark.decoding import control, decode, explain
from spark.decoding.decode import Codec
from spark.tables import (
    dead_letters,
    ledger_counts,
    lost_rows,
    maintenance_procedures,
    places,
    staged_checks,
    write,
)

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
        assert self.kafka is not None
        frame = kafka_records.read_range(self._session, self.kafka.spark_options(), records.batch, headers=headers)
        return frame.filter(~places.in_log().is_one_of(records.left_out)) if records.left_out else frame

    def _table(self, ref: TableRef, branch: str | None = None) -> DataFrame:
        return self._session.table(ref.spark_path(branch) if branch else ref.spark_path())


@_raises_job_failed
@dataclass(frozen=True)
class SparkDecided:
    """Decided records, as the columns of spark.decoding.decoded. Each action reads and decides them again."""

    frame: DataFrame
    decoding: Decoding[Codec]

    def completes(self) -> bool:
        return decode.is_decodable(self.frame)

    def unknown_schema_ids(
        self, most: int, known: Collection[int] = (), side: Literal["key", "value"] = "value"
    ) -> list[int]:
        return decode.foreign_schema_ids(self.frame, most, known, side)

    def first_faults(self, limit: int = 5, *, shows_keys: bool = False) -> list[tuple[int, int, str]]:
        return explain.first_faults(self.frame, self.decoding, limit, shows_keys=shows_keys)

    def quarantined(self, check: str, columns: Sequence[str]) -> tuple[int, list[dict[str, Any]]]:
        return staged_checks.quarantined(self.frame, check, columns)


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


@_raises_job_failed
class SparkLetters(_Jobs):
    """The tables of dead letters."""

    def of_batch(self, ref: TableRef, batch: Batch, branch: str | None = None) -> LetterSet:
        return dead_letters.letter_set(self._table(ref, branch), batch)

    def poisonous(self, ref: TableRef, batch: Batch) -> list[Place]:
        return dead_letters.poisonous(self._table(ref), batch)

    def read(self, ref: TableRef, topic_id: str, since: Positions, upto: Positions) -> pa.Table:
        return dead_letters.between(self._table(ref), topic_id, since, upto).toArrow()

    def discard(self, target: Target, batch: Batch) -> None:
        dead_letters.discard(self._session, target, batch)

    def put(self, decided: Any, target: Target, origin: LetterOrigin) -> None:
        dead_letters.append(dead_letters.of_records(decided.frame, decided.decoding, origin), target)

    def missing(
        self,
        decided: Sequence[Any],
        origin: LetterOrigin,
        ref: TableRef,
        batch: Batch,
        rows: Target,
        place: Sequence[str],
    ) -> SparkMissing:
        of_range = [dead_letters.of_records(piece.frame, piece.decoding, origin) for piece in decided]
        frame = dead_letters.missing(of_range, self._table(ref), batch, self._session.table(rows.path), place)
        return SparkMissing(frame, frame.count())

    def discard_earlier(self, missing: Any, target: Target, batch: Batch) -> None:
        dead_letters.discard_earlier(missing.frame, target, batch)

    def put_missing(self, missing: Any, target: Target) -> None:
        dead_letters.append(missing.frame, target)

    def attempt(self, decided: Any, key: Sequence[str] = ()) -> SparkAttempt:
        return SparkAttempt.of(dead_letters.attempt(decided.frame, key))

    def confirm(
        self,
        attempt: Any,
        decided: Sequence[Any],
        ref: TableRef,
        key: Sequence[str],
        place: Sequence[str],
    ) -> SparkAttempt:
        pieces = [piece.frame for piece in decided]
        return SparkAttempt.of(dead_letters.replaced(attempt.frame, pieces, self._table(ref), key, place))

    def existing_rows(self, waiting: WaitingLetters, ref: TableRef, place: Sequence[str]) -> SparkAttempt:
        return SparkAttempt.of(dead_letters.existing_rows(self._records(waiting), self._table(ref), place))

    def mark(self, attempt: Any, target: Target, topic_id: str) -> None:
        dead_letters.mark(attempt.frame, target, topic_id)


@_raises_job_failed
class SparkLedger(_Jobs):
    """Counts of what a table, its dead letters and the topic's log have of the ranges in a ledger."""

    def contents(
        self, places: Sequence[RowPlaces | LetterPlaces], ranges: Sequence[OffsetRange]
    ) -> dict[OffsetRange | None, RangeContents]:
        return ledger_counts.held(self._together(places), ranges)

    def duplicates(self, places: RowPlaces | LetterPlaces, allowed: int = 1) -> list[tuple[int, int, int]]:
        return ledger_counts.duplicates(self._places(places), allowed)

    def duplicate_keys(self, places: RowPlaces, shown: Collection[str]) -> list[tuple[str, int]]:
        return ledger_counts.duplicate_keys(self._places(places), places.key, shown)

    def logged(
        self, batch: Batch, ranges: Sequence[OffsetRange], outcomes: Sequence[RowPlaces | LetterPlaces]
    ) -> tuple[dict[int, LogContents], list[tuple[int, int, int]]]:
        return ledger_counts.logged(
            self._records(LogRange(batch)), ranges, self._together(outcomes) if outcomes else None
        )

    def wrong_newest(self, decided: Any, letters: LetterPlaces | None, rows: RowPlaces) -> list[tuple[int, int, bool]]:
        letter_places = self._places(letters) if letters else None
        return ledger_counts.wrong_newest(decided.frame, letter_places, self._places(rows), rows.key)

    def _together(self, tables: Sequence[RowPlaces | LetterPlaces]) -> DataFrame:
        return reduce(DataFrame.unionAll, [self._places(of).select(*places.NAMES) for of in tables])

    def _places(self, of: RowPlaces | LetterPlaces) -> DataFrame:
        snapshot = derive.published(self._session, of.ref, of.snapshot_id, {})
        if isinstance(of, RowPlaces):
            return ledger_counts.of_rows(snapshot, of.names, of.key)
        return dead_letters.of_topics(snapshot, of.topic_ids)


@_raises_job_failed
@dataclass(frozen=True)
class SparkDerived:
    """The result of a transform."""

    rows: DataFrame
    result: DataFrame

    def avro_schema(self, name: str, columns: Sequence[str] | None = None) -> str:
        rows = self.result if columns is None else self.result.select(*columns)
        return avro_schema.avro_schema(rows.schema, name)

    def messages(self, key: tuple[int, str] | None, value: tuple[int, str]) -> pa.Table:
        return derive.messages(self.result, key, value)

    def lineage(self) -> Mapping[str, list[str]]:
        return column_lineage.columns_read(self.result, self.rows.columns)


@_raises_job_failed
class SparkDerivation(_Jobs):
    """Rows from which topics are derived, and the messages."""

    def ends(self, rows: Rows) -> Positions:
        return derive.ends(self._rows(rows))

    def is_empty(self, rows: Rows) -> bool:
        return self._rows(rows).isEmpty()

    def changed_columns(self, rows: Rows, earlier: Rows) -> list[str]:
        return derive.changed_columns(self._rows(rows), self._rows(earlier))

    def is_read(self, transform: Transform, rows: Rows, columns: Sequence[str]) -> bool:
        frame = self._rows(rows)
        try:
            return bool(transform(frame.drop(*columns)).schema != transform(frame).schema)
        except LakehouseError:
            raise
        except Exception:  # Whatever the transform raises without a column, it reads it.
            return True

    def derive(self, rows: Rows, transform: Transform) -> SparkDerived:
        frame = self._rows(rows)
        return SparkDerived(frame, derive.own_columns(transform(frame)))

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


@_raises_job_failed
class SparkMaintenance(_Jobs):
    """Compaction, expiry and clean-up."""

    def compact(self, ref: TableRef, target_bytes: int, small_bytes: int) -> Mapping[str, int]:
        return maintenance_procedures.compact(self._session, ref, target_bytes, small_bytes)

    def compact_deletes(self, ref: TableRef) -> Mapping[str, int]:
        return maintenance_procedures.compact_deletes(self._session, ref)

    def compact_manifests(self, ref: TableRef) -> Mapping[str, int]:
        return maintenance_procedures.compact_manifests(self._session, ref)

    def expire(self, ref: TableRef, older_than: datetime, retain_last: int) -> Mapping[str, int]:
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
    def ledger(self) -> SparkLedger:
        """Counts for the ledger."""
        return SparkLedger(self.client, self.settings, self.kafka)

    @property
    def derivation(self) -> SparkDerivation:
        """Rows and messages of derived topics."""
        return SparkDerivation(self.client, self.settings, self.kafka)

    @property
    def maintenance(self) -> SparkMaintenance:
        """Compaction, expiry and clean-up."""
        return SparkMaintenance(self.client, self.settings, self.kafka)

    def is_readable(self, records: LogRange) -> bool:
        return kafka_records.is_readable(self._records(records))

    def decide(
        self, records: Records, decoding: Decoding[Side], *, headers: bool = False, refused: str | None = None
    ) -> SparkDecided:
        instructions = with_codecs(decoding)
        frame = self._records(records, headers=headers or decoding.needs_headers)
        if refused:
            return SparkDecided(decode.refused(frame, instructions, refused, headers=headers), instructions)
        return SparkDecided(decode.decode(frame, instructions, headers=headers), instructions)

    def require_decoder(self, decoding: Decoding[Side], *, explained: bool) -> None:
        control.decode_controls(self._session, with_codecs(decoding), explained=explained)

    def create_branch(self, ref: TableRef, branch: str, snapshot_id: int | None = None) -> None:
        write.create_branch(self._session, ref, branch, snapshot_id)

    def write_nothing(self, target: Target) -> None:
        write.nothing(self._session, target)

    def write(self, decided: Any, target: Target, mode: Mode, key: tuple[str, ...], *, empty: bool) -> Written:
        return write.rows(decided.frame, target, mode, key, empty=empty)

    def lost_rows(
        self,
        base: int | None,
        target: Target,
        decided: Sequence[Any],
        batch: Batch,
        key: Sequence[str],
        place: Sequence[str],
    ) -> list[Place]:
        pieces = [piece.frame for piece in decided]
        return lost_rows.lost_rows(self._session, base, target, pieces, batch, key, place)

    def null_keys(self, ref: TableRef, branch: str, key: Sequence[str]) -> int:
        return write.null_keys(self._table(ref, branch), key)

    def check(
        self, declared: Mapping[str, Check], scope: Scope, shown: Mapping[str, list[str]]
    ) -> dict[str, CheckedRows]:
        return staged_checks.run(self._session, declared, scope, shown)

    def validate(self, declared: Mapping[str, Check], scope: Scope) -> None:
        staged_checks.validate(self._session, declared, scope)
