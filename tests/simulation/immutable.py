"""Work that pyiceberg repeats on values that never change, done once: its results are the same.

Metadata models are frozen, so a deep copy of one may share its frozen parts. Manifests are written once, under a name
that no simulation uses again, so each is parsed once. Avro readers and writers depend on schemas only.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyiceberg.avro.file
import pyiceberg.table.snapshots
from pyiceberg.avro.file import AvroFileHeader
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestFile, ManifestWriter, read_manifest_list
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import MetadataLogEntry, Snapshot, SnapshotLogEntry
from pyiceberg.table.sorting import SortOrder
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from tests.simulation.world import replaced

FROZEN = (Schema, PartitionSpec, SortOrder, Snapshot, SnapshotLogEntry, MetadataLogEntry, SnapshotRef)


def by_schemas(function: Callable[..., Any], schemas: int) -> Callable[..., Any]:
    """Return a function that computes its result once for the same schema objects, which are its last arguments."""
    known: dict[tuple[int, ...], tuple[Any, ...]] = {}

    @functools.wraps(function)
    def once(*arguments: Any, **keywords: Any) -> Any:
        decisive = [*arguments, *keywords.values()][:schemas]
        key = tuple(map(id, decisive))
        if key not in known:
            # The schemas are kept, so that no other object gets their ids.
            known[key] = (function(*arguments, **keywords), *decisive)
        return known[key][0]

    return once


_parse = functools.cache(lambda text: AvroSchemaConversion().avro_to_iceberg(json.loads(text)))
_entry_schemas: dict[tuple[int, str], Schema] = {}
_with_partition = ManifestWriter._with_partition


def _entry_schema(self: ManifestWriter, format_version: int) -> Schema:
    key = format_version, str(self._spec)
    if key not in _entry_schemas:
        _entry_schemas[key] = _with_partition(self, format_version)
    return _entry_schemas[key]


AVRO = {
    pyiceberg.avro.file: {
        "resolve_reader": by_schemas(pyiceberg.avro.file.resolve_reader, 2),
        "resolve_writer": by_schemas(pyiceberg.avro.file.resolve_writer, 2),
        "construct_writer": by_schemas(pyiceberg.avro.file.construct_writer, 1),
    },
    AvroFileHeader: {"get_schema": lambda self: _parse(self.meta["avro.schema"])},
    ManifestWriter: {"_with_partition": _entry_schema},
}


@contextmanager
def parsed_once() -> Iterator[None]:
    """Share frozen models between copies, and parse each manifest once."""
    entries: dict[tuple[str, bool], list[ManifestEntry]] = {}
    lists: dict[str, tuple[ManifestFile, ...]] = {}
    fetch = ManifestFile.fetch_manifest_entry

    @functools.wraps(fetch)
    def fetch_once(self: ManifestFile, io: FileIO, discard_deleted: bool = True) -> list[ManifestEntry]:
        key = self.manifest_path, discard_deleted
        if key not in entries:
            entries[key] = fetch(self, io, discard_deleted)
        return list(entries[key])

    def list_once(io: FileIO, manifest_list: str) -> tuple[ManifestFile, ...]:
        if manifest_list not in lists:
            lists[manifest_list] = tuple(read_manifest_list(io.new_input(manifest_list)))
        return lists[manifest_list]

    shared: dict[Any, dict[str, Any]] = AVRO | {
        model: {"__deepcopy__": lambda self, memo=None: self} for model in FROZEN
    }
    shared[ManifestFile] = {"fetch_manifest_entry": fetch_once}
    shared[pyiceberg.table.snapshots] = {"_manifests": list_once}
    with replaced(shared):
        yield
