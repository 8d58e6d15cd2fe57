"""Comparison of a reader's registration with its table, so that it neither regresses nor hides foreign commits."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from pyiceberg.serializers import FromInputFile

from lakehouse.core.errors import UnclearState
from lakehouse.core.tables.naming import TableRef

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

    from resources.iceberg.catalog import Catalog


def is_current(reader: str, registered: str, catalog: Catalog, table: Table, *, is_own: bool | None = None) -> bool:
    """Return whether a metadata file describes a table as it was loaded, or a later state of it.

    A table's metadata log lists the files before it, but only the last hundred. Beyond these the sequence number
    decides, which every commit of rows increases and nothing decreases (Iceberg table spec, sequence numbers).

    Args:
        reader: Name of the reader in messages.
        registered: Location of the file that the reader registers.
        catalog: The catalog of the table.
        table: The table, possibly loaded some time ago.
        is_own: Whether this program registered the file; None if unknown.

    Raises:
        UnclearState: The file is of another table, or has a snapshot that the table never had, which was committed
            through the reader.
    """
    if registered == table.metadata_location:
        return True
    if registered in _log(table):
        return False
    newest = catalog.load(TableRef(*table.name())) or table
    if registered in {newest.metadata_location, *_log(newest)}:
        return True
    registered_table = catalog.table_at(registered, TableRef(*table.name()))
    if registered_table is None:
        return False
    expected, actual = table.metadata, registered_table.metadata
    if actual.table_uuid != expected.table_uuid:
        raise UnclearState(
            f"{reader} registers another Iceberg table as {TableRef(*table.name())} (uuid {actual.table_uuid}, not "
            f"{expected.table_uuid}). It was left unchanged. Drop it there, without its files, to publish this one"
        )
    if not is_own:
        _require_no_foreign_commit(reader, registered_table, newest, may_be_own=is_own is None)
    return (_sequence_number(actual), actual.last_updated_ms) > (_sequence_number(expected), expected.last_updated_ms)


def _sequence_number(metadata: TableMetadata) -> int:
    """Return the last sequence number; format version 1 has none (Iceberg specification, Sequence Numbers)."""
    return 0 if metadata.format_version == 1 else metadata.last_sequence_number


def _require_no_foreign_commit(reader: str, registered_table: Table, newest: Table, *, may_be_own: bool) -> None:
    current, snapshots = registered_table.current_snapshot(), newest.metadata.snapshots
    shown = current.snapshot_id if current else None
    # A snapshot that expired may be the parent of one that remains.
    known = {id_ for snapshot in snapshots for id_ in (snapshot.snapshot_id, snapshot.parent_snapshot_id)}
    if current is None or shown in known:
        return
    # A snapshot older than all remaining ones may have been the table's own before it expired. The file may have newer
    # ones, which were staged.
    oldest = min((snapshot.sequence_number or 0 for snapshot in snapshots), default=0)
    is_older = (current.sequence_number or 0) < oldest
    if may_be_own and is_older and _may_precede_log(newest, _sequence_number(registered_table.metadata)):
        return
    raise UnclearState(
        f"{reader} shows {TableRef(*newest.name())} at snapshot {shown}, which the table does not have: another writer "
        f"committed through that catalog. It was left unchanged. Copy the rows that you need, drop the table there "
        f"without its files, and materialize it again"
    )


def _may_precede_log(table: Table, sequence_number: int) -> bool:
    """Return whether a metadata file with this sequence number may be the table's own, although its log lacks it."""
    for entry in table.metadata.metadata_log:
        # Maintenance removes old metadata files.
        with suppress(FileNotFoundError):
            oldest = FromInputFile.table_metadata(table.io.new_input(entry.metadata_file))
            return sequence_number <= _sequence_number(oldest)
    return True


def _log(table: Table) -> set[str]:
    return {entry.metadata_file for entry in table.metadata.metadata_log}
