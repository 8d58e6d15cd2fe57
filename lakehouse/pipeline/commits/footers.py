"""Footers of the Parquet files that a commit added: numbers that neither the engine's counts nor Iceberg's have.

A footer is the end of a file, so its cost does not depend on the number of rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pyarrow.parquet as pq
from pyarrow import ArrowInvalid
from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

Bounds = tuple[int, int]
"""The minimum and the maximum of a column."""


@dataclass(frozen=True)
class AddedFile:
    """A data file or delete file that a snapshot added."""

    file: DataFile
    """The file as the manifest describes it."""
    rows: int | None
    """The number of rows in its footer; None if the file is missing or not readable."""
    bounds: Mapping[str, Bounds] = field(default_factory=dict)
    """The bounds of columns, of those for which the footer has statistics of all rows."""

    @property
    def is_broken(self) -> bool:
        """True if it is missing or does not have the rows that the manifest counts."""
        return self.rows != self.file.record_count

    @property
    def has_rows(self) -> bool:
        """True if it contains rows, and not the positions of deleted ones."""
        return self.file.content == DataFileContent.DATA

    def is_within(self, place: Sequence[str], extent: Mapping[int, Bounds]) -> bool:
        """Return whether its rows may all be of the records of a batch.

        Args:
            place: The columns with the partition and the offset of a row.
            extent: The first offset (inclusive) and the end (exclusive) of each partition.
        """
        if not place or any(column not in self.bounds for column in place):
            return True
        (first, last), (lowest, highest) = (self.bounds[column] for column in place)
        ranges = [offsets for partition, offsets in extent.items() if first <= partition <= last]
        is_known = first in extent and last in extent
        return is_known and lowest >= min(start for start, _ in ranges) and highest < max(end for _, end in ranges)


def added_files(table: Table, snapshot: Snapshot) -> list[DataFile]:
    """Return the data files and delete files that a snapshot added."""
    return [
        entry.data_file
        for manifest in snapshot.manifests(table.io)
        if manifest.added_snapshot_id == snapshot.snapshot_id
        for entry in manifest.fetch_manifest_entry(table.io)
        if entry.status == ManifestEntryStatus.ADDED
    ]


def read(table: Table, snapshot: Snapshot, columns: Sequence[str] = ()) -> list[AddedFile]:
    """Return the files that a snapshot added, with their footers and the bounds of columns of integers."""
    with ThreadPoolExecutor(max_workers=8) as pool:
        return [*pool.map(lambda file: _read(table, file, columns), added_files(table, snapshot))]


def _read(table: Table, file: DataFile, columns: Sequence[str]) -> AddedFile:
    try:
        with table.io.new_input(file.file_path).open() as opened:
            footer = pq.read_metadata(opened)
    except (FileNotFoundError, ArrowInvalid):
        return AddedFile(file, None)
    bounds = {column: bounds for column in columns if (bounds := _bounds(footer, column))}
    return AddedFile(file, footer.num_rows, bounds)


def _bounds(footer: pq.FileMetaData, column: str) -> Bounds | None:
    """Return the bounds of a column, given by its dotted path; None if a row group has no statistics of it."""
    paths = [footer.schema.column(index).path for index in range(footer.num_columns)]
    if column not in paths or not footer.num_rows:
        return None
    index = paths.index(column)
    groups = (footer.row_group(number).column(index).statistics for number in range(footer.num_row_groups))
    statistics = [group for group in groups if group is None or group.num_values or not group.has_null_count]
    if not statistics or any(group is None or not group.has_min_max for group in statistics):
        return None
    return min(group.min for group in statistics), max(group.max for group in statistics)
