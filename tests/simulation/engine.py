"""The simulated engine: the semantics of the Spark jobs in `spark/` on rows in memory.

It replaces the functions of `spark/` that read Kafka, decode and write; everything that they return and all that calls
them is production code. Reads are lazy, as in Spark: each action on a DataFrame reads Kafka again. A write commits to
Iceberg as Iceberg's Java library does, with pyiceberg's metadata code.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any

from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import (
    Operation,
    Snapshot,
    SnapshotSummaryCollector,
    Summary,
    update_snapshot_summaries,
)
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate
from pyiceberg.typedef import Record as PartitionRecord
from pyspark.errors import PySparkException

import spark.decoding.decode
import spark.decoding.explain
import spark.records
import spark.tables.dead_letters
import spark.tables.maintenance_procedures
import spark.tables.write
from lakehouse.core.offsets.batch import Batch
from lakehouse.core.offsets.counts import Counts
from lakehouse.core.tables.table_ref import TableRef
from spark.tables.decision import Decision
from spark.tables.write import Target, Written
from tests.simulation.catalog import MemoryIcebergCatalog
from tests.simulation.kafka import MemoryKafka, Record
from tests.simulation.memory_files import data_rows, delete_data, old_data, write_data
from tests.simulation.world import World, replaced


class SparkConnectError(PySparkException):
    """The engine failed, or its answer was lost."""

    def __init__(self, cause: str):
        super().__init__(message=cause)


@dataclass(frozen=True)
class Row:
    """A row of a topic's table: the record that it was decoded from."""

    record: Record


@dataclass(frozen=True)
class Letter:
    """A row of the table of dead letters."""

    record: Record
    reason: str
    attempts: int = 1
    landed: bool = False


class MemorySpark:
    """The client protocol of resources.spark.spark.Spark, and its own session."""

    def __init__(self, world: World, kafka: MemoryKafka, iceberg: MemoryIcebergCatalog):
        self.world, self.kafka, self.iceberg = world, kafka, iceberg

    def session(self, settings: Mapping[str, str]) -> MemorySpark:
        """Return the session."""
        return self

    def with_own_session(self) -> MemorySpark:
        """Return the same session: sessions have no state here."""
        return self

    def close(self) -> None:
        """Close nothing."""

    def table(self, path: str) -> Rows:
        """Return the rows of a table or branch."""
        _, namespace, name, *branch = path.replace("`", "").split(".")
        return Rows(self, TableRef(namespace, name), branch[0].removeprefix("branch_") if branch else "main")

    # What jobs do

    def job(self, name: str, effect: Callable[[], Any]) -> Any:
        """Run a job: it may fail, its answer may be lost, and it may run on after its client was killed."""
        return self.world.call(f"spark.{name}", effect, SparkConnectError)

    def load(self, ref: TableRef) -> Table:
        """Load a table, as Spark does."""
        return self.iceberg._load(ref.identifier)

    def rows(self, ref: TableRef, branch: str = "main", snapshot_id: int | None = None) -> list[Any]:
        """Return the rows of a table, a branch or a snapshot."""
        table = self.load(ref)
        if snapshot_id is None:
            snapshot_id = self.head(ref, branch)
        return [row for file in data_files(table, snapshot_id) for row in data_rows(file.file_path)]

    def files(self, ref: TableRef) -> list[DataFile]:
        """Return the data files of main."""
        table = self.load(ref)
        return data_files(table, table.metadata.current_snapshot_id)

    def head(self, ref: TableRef, branch: str) -> int | None:
        """Return the snapshot of a branch.

        Raises:
            SparkConnectError: The branch does not exist.
        """
        refs = self.load(ref).metadata.refs
        if branch == "main" and not refs:
            return None
        if branch not in refs:
            raise SparkConnectError(f"branch {branch} does not exist")
        return refs[branch].snapshot_id

    def commit(
        self,
        target: Target,
        planned: int | None,
        add: Sequence[Any] = (),
        keep: Callable[[Any], bool] | None = None,
        change: Callable[[Any], Any] | None = None,
    ) -> int:
        """Commit to a branch, and return the number of deleted or updated rows.

        Iceberg begins a branch that was dropped meanwhile again at the head of main. An append is committed to
        whatever the branch has by now; a job that deletes rows is refused if the branch has moved.

        Args:
            target: The branch, and the properties of the snapshot.
            planned: The snapshot that the job read.
            add: Rows to append.
            keep: Decides about each existing row; None if none is deleted.
            change: Returns an existing row as it is updated, or the row itself.
        """
        table = self.load(target.ref)
        refs, current = table.metadata.refs, table.metadata.current_snapshot_id
        head = refs[target.branch].snapshot_id if target.branch in refs else current
        if (keep or change) and head != planned:
            raise SparkConnectError("the table changed while the job ran")
        changed, removed, rewritten = 0, [], []
        for file in data_files(table, head) if keep or change else ():
            before = data_rows(file.file_path)
            after = [change(row) if change else row for row in before if keep is None or keep(row)]
            if list(before) != after:
                removed.append(file)
                rewritten += after
                changed += sum(row not in after for row in before)
        properties = dict(target.properties)
        if change:
            properties["spark.merge-into.num-target-rows-inserted"] = "0"
            properties["spark.merge-into.num-target-rows-updated"] = str(changed)
        added = [data_file(self, table, rows) for rows in (rewritten, list(add)) if rows]
        self.commit_files(table, target.branch, head, added, removed, properties)
        return changed

    def commit_files(
        self,
        table: Table,
        branch: str,
        parent_id: int | None,
        added: Sequence[DataFile],
        removed: Sequence[DataFile] = (),
        properties: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Commit a snapshot with pyiceberg's manifests, summaries and metadata."""
        metadata, id_ = table.metadata, table.metadata.new_snapshot_id()
        sequence_number, base = metadata.next_sequence_number(), f"{table.location()}/metadata/{uuid.uuid4()}"
        collector = SnapshotSummaryCollector()
        for file in added:
            collector.add_file(file, table.schema())
        for file in removed:
            collector.remove_file(file, table.schema())
        parent = table.snapshot_by_id(parent_id) if parent_id else None
        manifests = parent.manifests(table.io) if parent else []
        removed_paths = {file.file_path for file in removed}
        entries = (
            [entry for manifest in manifests for entry in manifest.fetch_manifest_entry(table.io)] if removed else []
        )
        written = []
        for number, changes in enumerate((entries, added)):
            if not changes:
                continue
            location = f"{base}-m{number}.avro"
            with write_manifest(2, table.spec(), table.schema(), table.io.new_output(location), id_, "null") as writer:
                for change in changes:
                    if isinstance(change, DataFile):
                        writer.add(ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, data_file=change))
                    elif change.data_file.file_path in removed_paths:
                        writer.delete(change)
                    else:
                        writer.existing(change)
            written.append(writer.to_manifest_file())
        location = f"{base}-list.avro"
        with write_manifest_list(
            2, table.io.new_output(location), id_, parent_id, sequence_number, "null"
        ) as list_writer:
            list_writer.add_manifests([*written, *(() if removed else manifests)])
        operation = Operation.OVERWRITE if removed else Operation.APPEND
        summary = update_snapshot_summaries(
            Summary(operation, **collector.build(), **properties), parent.summary if parent else None
        )
        snapshot = Snapshot(
            snapshot_id=id_,
            parent_snapshot_id=parent_id,
            sequence_number=sequence_number,
            manifest_list=location,
            summary=summary,
            schema_id=metadata.current_schema_id,
        )
        reference = SetSnapshotRefUpdate(
            ref_name=branch,
            type="branch",
            snapshot_id=id_,
            max_ref_age_ms=None,
            max_snapshot_age_ms=None,
            min_snapshots_to_keep=None,
        )
        self.iceberg.commit_now(table, (), (AddSnapshotUpdate(snapshot=snapshot), reference))


@dataclass(frozen=True)
class Rows:
    """A lazy DataFrame of the rows of a table or branch."""

    spark: MemorySpark
    ref: TableRef
    branch: str
    snapshot_id: int | None = None

    def collect(self) -> list[Any]:
        """Read the rows."""
        return self.spark.job("read table", lambda: self.spark.rows(self.ref, self.branch, self.snapshot_id))


@dataclass(frozen=True)
class Records:
    """A lazy DataFrame of records, from Kafka or from dead letters."""

    spark: MemorySpark
    batch: Batch
    letters: Rows | None = None
    left_out: frozenset[tuple[int, int]] = frozenset()

    def read(self) -> list[Record]:
        """Read the records."""
        if self.letters:
            letters = self.spark.rows(self.letters.ref, "main", self.letters.snapshot_id)
            pending = (letter.record for letter in letters if not letter.landed and letter.reason != "poison")
            return [record for record in pending if is_of(record, self.batch.topic_id, {}, self.batch.end)]
        try:
            records = self.spark.kafka.read(self.batch)
            return [record for record in records if (record.partition, record.offset) not in self.left_out]
        except LookupError as error:
            raise SparkConnectError(f"failOnDataLoss: {error}") from error


@dataclass(frozen=True)
class Outcome:
    """The decoded form of a record."""

    record: Record
    reason: str | None


@dataclass(frozen=True)
class Decoded:
    """A lazy DataFrame of decoded records."""

    records: Records
    decoding: Any
    forced_reason: str | None = None

    def outcomes(self) -> list[Outcome]:
        """Read and decode the records; a poisonous one aborts the job."""
        return [Outcome(record, self.forced_reason or self._reason(record)) for record in self.records.read()]

    def _reason(self, record: Record) -> str | None:
        decoding = self.decoding
        if record.value is None:
            return None if decoding.mode == "upsert" else "null_value"
        if record.is_poison:
            raise SparkConnectError("the executor ran out of memory")
        if record.schema_id in decoding.other_type_ids:
            return "other_type"
        if record.schema_id not in decoding.value.writers:
            limited = decoding.unusable_ids is not None and record.schema_id not in decoding.unusable_ids
            return "schema_limit" if limited else "unknown_schema"
        return "undecodable" if record.is_garbage else None


# spark.records, spark.decoding.decode, spark.decoding.explain


def read_range(spark: MemorySpark, kafka: Mapping[str, str], batch: Batch, *, headers: bool = False) -> Records:
    """Return the records of a batch."""
    return Records(spark, batch)


def decode(records: Records, decoding: Any) -> Decoded:
    """Return decoded records."""
    return Decoded(records, decoding)


def refused(records: Records, decoding: Any, reason: str) -> Decoded:
    """Return records as dead letters with one reason."""
    return Decoded(records, decoding, reason)


def is_readable(records: Records) -> bool:
    """Return whether Spark can read the records."""
    records.spark.job("is_readable", records.read)
    return True


def is_decodable(decoded: Decoded) -> bool:
    """Return whether decoding does not abort the job."""
    try:
        decoded.records.spark.job("is_decodable", decoded.outcomes)
    except PySparkException:
        return False
    return True


def foreign_schema_ids(decoded: Decoded, most: int, known: Any = (), side: str = "value") -> list[int]:
    """Return the unknown schema ids in records."""
    outcomes = decoded.records.spark.job("foreign_schema_ids", decoded.outcomes)
    ids = {o.record.schema_id for o in outcomes if o.reason == "unknown_schema"}
    return sorted(ids - set(known))[:most] if side == "value" else []


def first_faults(decoded: Decoded, decoding: Any, limit: int = 5, *, shows_keys: bool = False) -> list[Any]:
    """Return the first records that do not decode."""
    outcomes = decoded.records.spark.job("first_faults", decoded.outcomes)
    return [(o.record.partition, o.record.offset, o.reason) for o in outcomes if o.reason][:limit]


# spark.tables.write


def create_branch(spark: MemorySpark, ref: TableRef, branch: str) -> None:
    """Create a branch at the head of main; in a table without snapshots, at an empty snapshot."""

    def create() -> None:
        table = spark.load(ref)
        if branch in table.metadata.refs:
            raise SparkConnectError(f"branch {branch} already exists")
        if (head := table.metadata.current_snapshot_id) is None:
            spark.commit_files(table, branch, None, [])
        else:
            table.manage_snapshots().create_branch(head, branch).commit()

    spark.job("create_branch", create)


def nothing(spark: MemorySpark, target: Target) -> None:
    """Commit an empty snapshot."""
    planned = spark.job("plan", lambda: spark.head(target.ref, target.branch))
    spark.job("commit", lambda: spark.commit(target, planned))


def append(decoded: Decoded, target: Target) -> Written:
    """Append the good rows."""
    spark, outcomes = decoded.records.spark, _planned(decoded, target)
    good = [o.record for o in outcomes if o.reason is None]
    spark.job("commit", lambda: spark.commit(target, None, [Row(record) for record in good]))
    return _written(outcomes, rows=len(good))


def dedup(decoded: Decoded, target: Target, key: tuple[str, ...], empty: bool) -> Written:
    """Append the first good record of each key that the table lacks."""
    spark, outcomes = decoded.records.spark, _planned(decoded, target)
    good = [o.record for o in outcomes if o.reason is None]
    present = set() if empty else {row.record.key for row in spark.rows(target.ref, target.branch)}
    first = {record.key: record for record in reversed(_in_order(good)) if record.key not in present}
    spark.job("commit", lambda: spark.commit(target, None, [Row(record) for record in first.values()]))
    return _written(outcomes, rows=len(first), deduplicated=len(good) - len(first))


def upsert(decoded: Decoded, target: Target, key: tuple[str, ...], empty: bool) -> Written:
    """Replace the row of each key by its newest good record, in two commits; a tombstone deletes the row."""
    spark, outcomes = decoded.records.spark, _planned(decoded, target)
    good = _in_order([o.record for o in outcomes if o.reason is None])
    identity = _identity(key)
    newest = {identity(record): record for record in good}
    rows = [Row(record) for record in newest.values() if record.value is not None]
    if empty:
        spark.job("commit", lambda: spark.commit(target, None, rows))
    else:
        head = spark.job("plan", lambda: spark.head(target.ref, target.branch))
        keep = lambda row: identity(row.record) not in newest  # noqa: E731
        spark.job("commit deletes", lambda: spark.commit(target.deleting(), head, keep=keep))
        spark.job("plan", lambda: spark.head(target.ref, target.branch))
        spark.job("commit", lambda: spark.commit(target.completing(), None, rows))
    tombstones = len(newest) - len(rows)
    return _written(outcomes, rows=len(rows), tombstones=tombstones, superseded=len(good) - len(newest))


def _planned(decoded: Decoded, target: Target) -> list[Outcome]:
    """Read the records for a write to a branch, which must exist."""
    spark = decoded.records.spark

    def plan() -> list[Outcome]:
        spark.head(target.ref, target.branch)
        return decoded.outcomes()

    return spark.job("read", plan)


def _identity(key: tuple[str, ...]) -> Callable[[Record], Any]:
    if key == ("kafka_partition", "kafka_offset"):
        return lambda record: (record.partition, record.offset)
    return lambda record: record.key


def _in_order(records: Sequence[Record]) -> list[Record]:
    return sorted(records, key=lambda record: (record.offset, record.at, record.partition))


def _written(outcomes: Sequence[Outcome], **counts: int) -> Written:
    dead = [o for o in outcomes if o.reason]
    return Written(
        Counts(consumed=len(outcomes), dead_letters=len(dead), **counts),
        unknown_schema=sum(o.reason == "unknown_schema" for o in dead),
        dead_digest=_digest(o.record for o in dead),
    )


def _digest(records: Any) -> int:
    return functools.reduce(lambda digest, r: digest ^ (r.partition * 1_000_003 + r.offset + 7) ** 3, records, 0)


# spark.tables.dead_letters


def of_batch(decoded: Decoded, decoding: Any, topic: Any, ref: TableRef, batch: Batch) -> Decoded:
    """Return the records that are dead letters."""
    return decoded


def decision(letters: Rows, batch: Batch) -> Decision:
    """Return the set of a batch's records in a table of dead letters."""
    of = [letter for letter in letters.collect() if is_of(letter.record, batch.topic_id, batch.start, batch.end)]
    return Decision(len(of), _digest(letter.record for letter in of), sum(letter.landed for letter in of))


def discard(spark: MemorySpark, target: Target, batch: Batch) -> None:
    """Delete the dead letters of a batch."""
    planned = spark.job("plan", lambda: spark.head(target.ref, target.branch))
    keep = lambda letter: not is_of(letter.record, batch.topic_id, batch.start, batch.end)  # noqa: E731
    spark.job("commit deletes", lambda: spark.commit(target.deleting(), planned, keep=keep))


def append_letters(letters: Decoded, target: Target) -> None:
    """Append dead letters."""
    spark, outcomes = letters.records.spark, _planned(letters, target)
    rows = [Letter(o.record, o.reason) for o in outcomes if o.reason]
    spark.job("commit", lambda: spark.commit(target, None, rows))


def waiting(spark: MemorySpark, letters: TableRef, snapshot_id: int, position: Batch) -> Records:
    """Return the dead letters of a snapshot that are not rows yet."""
    return Records(spark, position, Rows(spark, letters, "main", snapshot_id))


def poisonous(letters: Rows, batch: Batch) -> list[tuple[int, int]]:
    """Return the partition and offset of each poisonous record of a batch."""
    poison = (letter.record for letter in letters.collect() if letter.reason == "poison")
    return [(r.partition, r.offset) for r in poison if is_of(r, batch.topic_id, batch.start, batch.end)]


def without(records: Records, places: Sequence[tuple[int, int]]) -> Records:
    """Return the records that have none of these partitions and offsets."""
    return replace(records, left_out=frozenset(places))


@dataclass(frozen=True)
class Tried:
    """A checkpointed DataFrame of dead letters that were decoded again."""

    spark: MemorySpark
    outcomes: Sequence[Outcome]


def attempt(decoded: Decoded) -> Tried:
    """Decide once which dead letters decode now."""
    spark = decoded.records.spark
    return Tried(spark, spark.job("attempt", decoded.outcomes))


def existing_rows(waiting: Records, table: Rows, partition: str, offset: str) -> Tried:
    """Return the dead letters whose records are rows, by partition and offset."""
    spark = waiting.spark

    def existing() -> list[Outcome]:
        places = {(row.record.partition, row.record.offset) for row in spark.rows(table.ref, table.branch)}
        return [Outcome(r, None) for r in waiting.read() if (r.partition, r.offset) in places]

    return Tried(spark, spark.job("existing_rows", existing))


def first_offsets(tried: Tried) -> dict[int, int]:
    """Return the first offset by partition of the dead letters that decode."""
    first: dict[int, int] = {}
    for record in (o.record for o in tried.outcomes if o.reason is None):
        first[record.partition] = min(record.offset, first.get(record.partition, record.offset))
    return first


def staying(tried: Tried) -> tuple[int, Decision]:
    """Return the number of dead letters, and the set of those that do not decode."""
    stay = [o.record for o in tried.outcomes if o.reason]
    return len(tried.outcomes), Decision(len(stay), _digest(stay))


def mark(tried: Tried, target: Target, topic_id: str) -> None:
    """Count one more attempt at each dead letter, and mark those that are rows now."""
    spark = tried.spark
    by_place = {(o.record.topic_id, o.record.partition, o.record.offset): o for o in tried.outcomes}

    def change(letter: Letter) -> Letter:
        outcome = by_place.get((letter.record.topic_id, letter.record.partition, letter.record.offset))
        if outcome is None or letter.landed:
            return letter
        return replace(letter, attempts=letter.attempts + 1, landed=outcome.reason is None)

    planned = spark.job("plan", lambda: spark.head(target.ref, target.branch))
    spark.job("commit", lambda: spark.commit(target, planned, change=change))


def is_of(record: Record, topic_id: str, start: Mapping[int, int], end: Mapping[int, int]) -> bool:
    """Return whether a record is of a topic and a range of offsets."""
    p = record.partition
    return record.topic_id == topic_id and p in end and start.get(p, 0) <= record.offset < end[p]


# spark.tables.maintenance_procedures


def compact(spark: MemorySpark, ref: TableRef, target_bytes: int, small_bytes: int) -> dict[str, int]:
    """Rewrite all data files into one; refused if another commit removed one of them meanwhile."""
    planned = spark.job("plan compaction", lambda: {f.file_path for f in spark.files(ref)})

    def rewrite() -> None:
        table = spark.load(ref)
        files = [file for file in spark.files(ref) if file.file_path in planned]
        if len(files) < len(planned):
            raise SparkConnectError("a file to rewrite was removed")
        rows = [row for file in files for row in data_rows(file.file_path)]
        added = [data_file(spark, table, rows)] if rows else []
        spark.commit_files(table, "main", table.metadata.current_snapshot_id, added, files)

    if len(planned) > 1:
        spark.job("commit compaction", rewrite)
    return {"rewritten_data_files_count": len(planned), "added_data_files_count": 1}


def compact_files(spark: MemorySpark, ref: TableRef) -> dict[str, int]:
    """Rewrite nothing: there are no delete files, and few manifests."""
    return dict.fromkeys(
        (f"{which}_{what}_count" for which in ("rewritten", "added") for what in ("delete_files", "manifests")), 0
    )


def expire(spark: MemorySpark, ref: TableRef, older_than: datetime, retain_last: int) -> dict[str, int]:
    """Expire older snapshots, except the last ones of each branch and those of tags, and delete their data files."""

    def expire() -> dict[str, int]:
        table = spark.load(ref)
        kept = {s.snapshot_id for s in table.metadata.snapshots if s.timestamp_ms >= older_than.timestamp() * 1000}
        for head in table.metadata.refs.values():
            snapshot, number = table.snapshot_by_id(head.snapshot_id), 0
            while snapshot and number < (retain_last if head.snapshot_ref_type == "branch" else 1):
                kept.add(snapshot.snapshot_id)
                snapshot, number = table.snapshot_by_id(snapshot.parent_snapshot_id or 0), number + 1
        expired = [s for s in table.metadata.snapshots if s.snapshot_id not in kept]
        if expired:
            files = {f.file_path for s in expired for f in data_files(table, s.snapshot_id)}
            spark.iceberg.expire(table, {s.snapshot_id for s in expired})
            delete_data(files - referenced(spark.load(ref)))
        return {"deleted_data_files_count": len(expired)}

    return spark.job("expire", expire)


def remove_orphans(spark: MemorySpark, catalog: str, ref: TableRef, older_than: datetime) -> int:
    """Delete data files that no snapshot refers to."""

    def remove() -> int:
        table = spark.load(ref)
        orphans = old_data(table.location(), older_than.timestamp()) - referenced(table)
        delete_data(orphans)
        return len(orphans)

    return spark.job("remove_orphans", remove)


def delete_rows(spark: MemorySpark, ref: TableRef, column: str, older_than: datetime) -> bool:
    """Delete rows whose time is before `older_than`."""
    keep = lambda row: row.record.at >= older_than.timestamp()  # noqa: E731
    planned = spark.job("plan", lambda: spark.head(ref, "main"))
    if all(map(keep, spark.rows(ref))):
        return False
    spark.job("delete rows", lambda: spark.commit(Target(ref, "main", {}), planned, keep=keep))
    return True


# Files


def data_files(table: Table, snapshot_id: int | None) -> list[DataFile]:
    """Return the data files of a snapshot."""
    snapshot = table.snapshot_by_id(snapshot_id) if snapshot_id else None
    manifests = snapshot.manifests(table.io) if snapshot else []
    return [entry.data_file for manifest in manifests for entry in manifest.fetch_manifest_entry(table.io)]


def referenced(table: Table) -> set[str]:
    """Return the data files of all snapshots."""
    return {file.file_path for snapshot in table.metadata.snapshots for file in data_files(table, snapshot.snapshot_id)}


def data_file(spark: MemorySpark, table: Table, rows: Sequence[Any]) -> DataFile:
    """Write a data file, and describe it as Spark does: no column contains a null."""
    path = f"{table.location()}/data/{uuid.uuid4()}.parquet"
    size = write_data(path, rows, spark.world.now())
    fields = [field.field_id for field in table.schema().fields]
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=PartitionRecord(),
        record_count=len(rows),
        file_size_in_bytes=size,
        value_counts=dict.fromkeys(fields, len(rows)),
        null_value_counts=dict.fromkeys(fields, 0),
    )
    file.spec_id = table.metadata.default_spec_id
    return file


REPLACED = {
    spark.records: {"read_range": read_range, "is_readable": is_readable},
    spark.decoding.decode: {
        "decode": decode,
        "refused": refused,
        "is_decodable": is_decodable,
        "foreign_schema_ids": foreign_schema_ids,
    },
    spark.decoding.explain: {"first_faults": first_faults},
    spark.tables.write: {
        "create_branch": create_branch,
        "nothing": nothing,
        "append": append,
        "dedup": dedup,
        "upsert": upsert,
    },
    spark.tables.dead_letters: {
        "of_batch": of_batch,
        "decision": decision,
        "discard": discard,
        "append": append_letters,
        "waiting": waiting,
        "poisonous": poisonous,
        "without": without,
        "attempt": attempt,
        "existing_rows": existing_rows,
        "first_offsets": first_offsets,
        "staying": staying,
        "mark": mark,
    },
    spark.tables.maintenance_procedures: {
        "compact": compact,
        "compact_deletes": compact_files,
        "compact_manifests": compact_files,
        "expire": expire,
        "remove_orphans": remove_orphans,
        "delete_rows": delete_rows,
    },
}
"""The functions that are simulated, by module; nothing outside of `spark/`."""


def simulated_engine() -> AbstractContextManager[None]:
    """Replace the jobs of `spark/`."""
    return replaced(REPLACED)
