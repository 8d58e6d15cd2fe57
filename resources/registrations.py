"""Compare what a reader's catalog registers with a table as it was loaded: a registration must never move back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from resources.catalog import Catalog

if TYPE_CHECKING:
    from pyiceberg.table import Table


def is_newer(catalog: Catalog, registered: str, table: Table) -> bool:
    """Return whether a metadata file describes a later state of a table than `table` as it was loaded.

    A table's metadata log names the files before it, but only the last hundred. Beyond these the sequence number
    decides, which every commit of rows increases and nothing decreases (Iceberg table spec, sequence numbers).

    Args:
        catalog: Where the table is stored.
        registered: The location of the metadata file that the reader's catalog points to.
        table: The table as loaded, perhaps some time ago.
    """
    from pyiceberg.table import StaticTable

    if registered in {table.metadata_location, *_log(table)}:
        return False
    try:
        other = StaticTable.from_metadata(registered, catalog.file_io())
    except FileNotFoundError:  # maintenance removes old metadata files, never the newest
        return False
    if table.metadata_location in _log(other):
        return True
    ours, theirs = table.metadata, other.metadata
    return (theirs.last_sequence_number, theirs.last_updated_ms) > (ours.last_sequence_number, ours.last_updated_ms)


def _log(table: Table) -> set[str]:
    return {entry.metadata_file for entry in table.metadata.metadata_log}
