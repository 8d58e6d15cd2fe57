"""Compare what a reader registers with a table: a registration never moves back, nor over what others committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehouse.core.errors import UnclearState

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

    from resources.catalog import Catalog


def is_current(reader: str, registered: str, catalog: Catalog, namespace: str, table: Table) -> bool:
    """Return whether a metadata file describes a table as it was loaded, or a later state of it.

    A table's metadata log names the files before it, but only the last hundred. Beyond these the sequence number
    decides, which every commit of rows increases and nothing decreases (Iceberg table spec, sequence numbers).

    Args:
        reader: What people call the reader that registers the file.
        registered: The location of the file.
        catalog: The catalog of the table.
        namespace: The table's namespace.
        table: The table as loaded, perhaps some time ago.

    Raises:
        UnclearState: The file has a snapshot that the table never had: somebody committed through the reader.
    """
    from pyiceberg.table import StaticTable

    if registered == table.metadata_location:
        return True
    if registered in _log(table):
        return False
    newest = catalog.load(namespace, table.name()[-1]) or table
    if registered in {newest.metadata_location, *_log(newest)}:
        return True
    try:
        other = StaticTable.from_metadata(registered, catalog.file_io())
    except FileNotFoundError:  # maintenance removes old metadata files, never the newest
        return False
    ours, theirs = table.metadata, other.metadata
    if theirs.table_uuid != ours.table_uuid:
        return False
    _require_own(reader, other, newest, namespace)
    return (_sequence_number(theirs), theirs.last_updated_ms) > (_sequence_number(ours), ours.last_updated_ms)


def _sequence_number(metadata: TableMetadata) -> int:
    """The last sequence number; tables of format version 1 have none (Iceberg specification, Sequence Numbers)."""
    return 0 if metadata.format_version == 1 else metadata.last_sequence_number


def _require_own(reader: str, other: Table, newest: Table, namespace: str) -> None:
    shown, kept = other.metadata.current_snapshot_id, newest.metadata.snapshots
    if shown is None or shown in {snapshot.snapshot_id for snapshot in kept}:
        return
    # A snapshot from before all that are kept may have been the table's own.
    if _sequence_number(other.metadata) < min((snapshot.sequence_number or 0 for snapshot in kept), default=0):
        return
    name = f"{namespace}.{newest.name()[-1]}"
    raise UnclearState(
        f"{reader} shows {name} at snapshot {shown}, which the table does not have: somebody wrote through that "
        f"catalog. It was left untouched. Copy the rows that you need, drop the table there without its files, and "
        f"materialize it again"
    )


def _log(table: Table) -> set[str]:
    return {entry.metadata_file for entry in table.metadata.metadata_log}
