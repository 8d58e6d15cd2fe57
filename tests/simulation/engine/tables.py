"""The tables of the simulated engine: rows in memory, which it reads and commits as Spark does.

A write commits to Iceberg as Iceberg's Java library does, with pyiceberg's metadata code.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

from pyiceberg.exceptions import NoSuchTableError, RESTError
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

from lakehouse.core.tables.naming import TableRef
from lakehouse.pipeline.engine_values import JobFailed, Target
from tests.simulation.systems.catalog import MemoryIcebergCatalog
from tests.simulation.systems.cluster import MemoryCluster
from tests.simulation.systems.kafka import MemoryKafka, Record
from tests.simulation.systems.memory_files import data_rows, write_data
from tests.simulation.world import World

OnWrite = Callable[[str, Mapping[str, str], Sequence[DataFile]], Sequence[DataFile]]


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
    recovered: bool = False


class MemoryTables:
    """Tables whose rows are in memory.

    Attributes:
        on_write: Returns the files of a commit, given by its branch and properties, as a faulty engine commits them.
    """

    def __init__(self, world: World, kafka: MemoryKafka | MemoryCluster, iceberg: MemoryIcebergCatalog):
        self.world, self.kafka, self.iceberg = world, kafka, iceberg
        self.on_write: OnWrite = lambda branch, properties, files: files

    def job(self, name: str, effect: Callable[[], Any]) -> Any:
        """Run a job: it may fail, its response may be lost, and it may run on after its client was killed."""

        def run() -> Any:
            try:
                return effect()
            except RESTError as error:
                raise JobFailed(f"{type(error).__name__}: {error}") from error

        return self.world.call(f"spark.{name}", run, self.iceberg.lost_job(name))

    def load(self, ref: TableRef) -> Table:
        """Load a table.

        Raises:
            JobFailed: It does not exist.
        """
        try:
            return self.iceberg._load(ref.identifier)
        except NoSuchTableError as error:
            raise JobFailed(f"[TABLE_OR_VIEW_NOT_FOUND] {error}") from error

    def rows(self, ref: TableRef, branch: str = "main", snapshot_id: int | None = None) -> list[Any]:
        """Return the rows of a table, a branch or a snapshot.

        Raises:
            JobFailed: The snapshot has expired, or a file was lost.
        """
        table = self.load(ref)
        if snapshot_id is None:
            snapshot_id = self.head(ref, branch)
        elif table.metadata.snapshot_by_id(snapshot_id) is None:
            raise JobFailed(f"cannot find snapshot {snapshot_id}")
        try:
            return [row for file in data_files(table, snapshot_id) for row in data_rows(file.file_path)]
        except FileNotFoundError as error:
            raise JobFailed(f"file {error} does not exist") from error

    def files(self, ref: TableRef) -> list[DataFile]:
        """Return the data files of main."""
        table = self.load(ref)
        return data_files(table, table.metadata.current_snapshot_id)

    def head(self, ref: TableRef, branch: str) -> int | None:
        """Return the snapshot of a branch.

        Raises:
            JobFailed: The branch does not exist.
        """
        refs = self.load(ref).metadata.refs
        if branch == "main" and branch not in refs:
            return None
        if branch not in refs:
            raise JobFailed(f"branch {branch} does not exist")
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
            raise JobFailed("the table changed while the job ran")
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
        added = [data_file(self.world, table, rows) for rows in (rewritten, list(add)) if rows]
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
        added = self.on_write(branch, properties, added)
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
        entries: list[ManifestEntry] = (
            [entry for manifest in manifests for entry in manifest.fetch_manifest_entry(table.io)] if removed else []
        )
        written = []
        both: tuple[Sequence[ManifestEntry | DataFile], ...] = entries, added
        for number, changes in enumerate(both):
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
        before = parent.summary if parent else None
        totals = _totals(operation, (*collector.build().items(),), before and (*map(before.get, TOTALS),))
        summary = Summary(operation, **totals, **properties)
        snapshot = Snapshot(
            snapshot_id=id_,
            parent_snapshot_id=parent_id,
            sequence_number=sequence_number,
            manifest_list=location,
            summary=summary,
            schema_id=metadata.current_schema_id,
        )
        ref = metadata.refs.get(branch)
        head = branch_at(branch, id_, ref.max_ref_age_ms if ref else None)
        self.iceberg.commit_now(table, (), (AddSnapshotUpdate(snapshot=snapshot), head))


def branch_at(name: str, snapshot_id: int, max_age_ms: int | None = None) -> SetSnapshotRefUpdate:
    """Return the update that sets the head and the age limit of a branch."""
    return SetSnapshotRefUpdate(
        ref_name=name,
        type="branch",
        snapshot_id=snapshot_id,
        max_ref_age_ms=max_age_ms,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
    )


def data_files(table: Table, snapshot_id: int | None) -> list[DataFile]:
    """Return the data files of a snapshot."""
    snapshot = table.snapshot_by_id(snapshot_id) if snapshot_id else None
    manifests = snapshot.manifests(table.io) if snapshot else []
    return [entry.data_file for manifest in manifests for entry in manifest.fetch_manifest_entry(table.io)]


def referenced(table: Table) -> set[str]:
    """Return the data files of all snapshots."""
    return {file.file_path for snapshot in table.metadata.snapshots for file in data_files(table, snapshot.snapshot_id)}


def data_file(world: World, table: Table, rows: Sequence[Any]) -> DataFile:
    """Write a data file, and describe it as Spark does: no column contains a null."""
    path = f"{table.location()}/data/{uuid.uuid4()}.parquet"
    size = write_data(path, rows, world.now())
    fields = tuple(field.field_id for field in table.schema().fields)
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=PartitionRecord(),
        record_count=len(rows),
        file_size_in_bytes=size,
        value_counts=_counts(fields, len(rows)),
        null_value_counts=_counts(fields, 0),
    )
    file.spec_id = table.metadata.default_spec_id
    return file


TOTALS = (
    *("total-data-files", "total-delete-files", "total-records", "total-files-size"),
    *("total-position-deletes", "total-equality-deletes"),
)
"""The properties of a summary that continue those of the snapshot before."""


@cache
def _totals(
    operation: Operation, changes: Iterable[tuple[str, str]], before: Sequence[str | None] | None
) -> Mapping[str, str]:
    """Return a snapshot's changes and totals, given the totals of the snapshot before."""
    previous = None if before is None else {name: n for name, n in zip(TOTALS, before, strict=True) if n is not None}
    return update_snapshot_summaries(Summary(operation, **dict(changes)), previous).additional_properties


@cache
def _counts(fields: Sequence[int], number: int) -> Mapping[int, int]:
    """Return a number for each field; the same object for the same numbers."""
    return dict.fromkeys(fields, number)
