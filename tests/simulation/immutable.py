"""Work that libraries repeat on values that never change, done once: its results are the same.

Nothing changes metadata, so a deep copy of it is the same object. Manifests are written once, under a name
that no simulation uses again, so each is parsed once. A test compares the traces of schedules with and
without this module.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import getrandbits
from typing import Any
from uuid import UUID, SafeUUID

import pyarrow.parquet
import pyiceberg.catalog
import pyiceberg.table.metadata
import pyiceberg.table.snapshots
from dagster._config.pythonic_config import resource
from pydantic import BaseModel
from pyiceberg.expressions import AlwaysFalse, visitors
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DataFile,
    ManifestEntry,
    ManifestFile,
    ManifestWriter,
    ManifestWriterV2,
    read_manifest_list,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import ManifestGroupPlanner
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Snapshot

from tests.simulation.systems.memory_files import MemoryFile
from tests.simulation.world import INHERITED, replaced

KNOWN = 2000
"""Maximum number of results that are kept: more are of schedules that have ended."""


def by(key: Callable[..., Any], function: Callable[..., Any], *, has_ids: bool = False) -> Callable[..., Any]:
    """Return a function that computes its result once for each key of its arguments.

    Args:
        key: Returns a key.
        function: The function.
        has_ids: Whether keys have ids of objects: the arguments are kept, so that no other object gets them.
    """
    known: dict[Any, Any] = {}
    kept: list[Any] = []

    @functools.wraps(function)
    def once(*arguments: Any, **keywords: Any) -> Any:
        of = key(*arguments, **keywords)
        if (result := known.get(of, known)) is not known:
            return result
        result = function(*arguments, **keywords)
        if len(known) == KNOWN:
            known.clear()
            kept.clear()
        known[of] = result
        if has_ids:
            kept.append((arguments, keywords))
        return result

    return once


def by_identity(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that computes its result once for the same arguments."""
    return by(lambda *arguments, **keywords: tuple(map(id, (*arguments, *keywords.values()))), function, has_ids=True)


def with_values(metadata: TableMetadataV2, *, update: Any = None, deep: bool = False) -> TableMetadataV2:
    """Return metadata with other values. Without any, it is its own copy, since nothing changes metadata."""
    if not update:
        return metadata
    fields = metadata.__pydantic_fields_set__
    changed, set_attribute = object.__new__(TableMetadataV2), object.__setattr__
    set_attribute(changed, "__dict__", metadata.__dict__ | update)
    set_attribute(changed, "__pydantic_fields_set__", fields if fields >= update.keys() else fields | update.keys())
    set_attribute(changed, "__pydantic_extra__", None)
    set_attribute(changed, "__pydantic_private__", None)
    return changed


def newest_by_id(metadata: TableMetadataV2, snapshot_id: int) -> Snapshot | None:
    """Return a snapshot by its id. The newest ones are searched first, since most searches are for them."""
    for snapshot in reversed(metadata.snapshots):
        if snapshot.snapshot_id == snapshot_id:
            return snapshot
    return None


def _equal(model: Any, other: Any) -> bool:
    return type(model) is type(other) and model.__dict__ == other.__dict__


_text = by_identity(repr)


def _filter_key(planner: ManifestGroupPlanner, spec_id: int | None = None) -> tuple[Any, ...]:
    struct, options = planner.table_metadata.schema().as_struct(), tuple(planner.options.items())
    spec = planner.table_metadata.specs()[spec_id] if spec_id is not None else None
    # Which manifests of a table without partitions are read depends only on whether any row is searched for.
    is_for_partitions = spec is not None and not spec.fields
    row_filter = planner.row_filter == AlwaysFalse() if is_for_partitions else _text(planner.row_filter)
    return struct, spec, row_filter, planner.case_sensitive, options


def _file_key(evaluator: _InclusiveMetricsEvaluator, file: DataFile) -> tuple[Any, ...]:
    counts = file.value_counts, file.null_value_counts, file.nan_value_counts, file.lower_bounds, file.upper_bounds
    return id(evaluator), file.record_count, *map(id, counts)


def _provider_key(location: str, properties: Any) -> tuple[Any, ...]:
    return location, *map(properties.get, LOCATION_PROPERTIES)


def _class_key(resource_class: type, fields_to_omit: set[str]) -> tuple[Any, ...]:
    return resource_class, *sorted(fields_to_omit)


def _values_key(schema: object, values: dict[str, Any]) -> tuple[Any, ...]:
    return id(schema), repr(values)


LOCATION_PROPERTIES = (
    *("write.data.path", "write.metadata.path", "write.object-storage.enabled", "write.py-location-provider.impl"),
    "write.object-storage.partitioned-paths",
)
"""The properties of a table that decide the locations of its files."""

FILTERS = (
    *("_build_partition_projection", "_build_manifest_evaluator"),
    *("_build_partition_evaluator", "_build_metrics_evaluator"),
)

PURE: dict[Any, dict[str, Any]] = {
    pyiceberg.table.metadata: {
        "assign_fresh_schema_ids": by_identity(pyiceberg.table.metadata.assign_fresh_schema_ids),
    },
    ManifestGroupPlanner: {name: by(_filter_key, vars(ManifestGroupPlanner)[name]) for name in FILTERS},
    visitors: {"residual_evaluator_of": by_identity(visitors.residual_evaluator_of)},
    _InclusiveMetricsEvaluator: {"eval": by(_file_key, _InclusiveMetricsEvaluator.eval, has_ids=True)},
    pyiceberg.catalog: {"load_location_provider": by(_provider_key, pyiceberg.catalog.load_location_provider)},
    ManifestWriter: {
        "_with_partition": by(
            lambda self, version: (version, id(self._schema), self._spec), ManifestWriter._with_partition, has_ids=True
        )
    },
    ManifestWriterV2: {
        "_meta": property(
            by(lambda self: (id(self._schema), self._spec), vars(ManifestWriterV2)["_meta"].fget, has_ids=True)
        )
    },
    pyarrow.parquet: {"read_metadata": by(lambda file: file.getvalue(), pyarrow.parquet.read_metadata)},
    Schema: {"as_struct": by_identity(Schema.as_struct)},
    PartitionSpec: {"partition_type": by_identity(PartitionSpec.partition_type)},
    resource: {
        "infer_schema_from_config_class": by(_class_key, resource.infer_schema_from_config_class),
        "_curry_config_schema": by(_values_key, resource._curry_config_schema, has_ids=True),
    },
}
"""Functions of libraries whose result depends on their arguments only, which are computed once."""


def attributes() -> dict[Any, dict[str, Any]]:
    """Return what finds attributes of models as those of other objects are found.

    pydantic finds private ones by `__getattr__`. With this method, every attribute of every model takes longer.
    """
    models = [BaseModel]
    for model in models:
        models += model.__subclasses__()
    private = {m: {name: _private(name) for name in vars(m).get("__private_attributes__", ())} for m in models}
    return private | {BaseModel: {"__getattr__": INHERITED}}


def _private(name: str) -> property:
    return property(lambda self: self.__pydantic_private__[name])


METADATA: dict[Any, dict[str, Any]] = {
    FromInputFile: {"table_metadata": MemoryFile.metadata},
    TableMetadataV2: {"model_copy": with_values, "snapshot_by_id": newest_by_id, "__eq__": _equal},
    SnapshotRef: {"__eq__": _equal},
}
"""Methods of models that do the same in less time, because the models have no private attributes and do not change."""


@contextmanager
def computed_once() -> Iterator[None]:
    """Share frozen models between copies, compute results once that depend on them only, and draw cheap identifiers."""
    with replaced(METADATA | IDENTIFIERS), replaced(PURE), replaced(attributes()):
        yield


@contextmanager
def parsed_once() -> Iterator[None]:
    """Parse each manifest once."""
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

    manifests: dict[Any, dict[str, Any]] = {
        ManifestFile: {"fetch_manifest_entry": fetch_once},
        pyiceberg.table.snapshots: {"_manifests": list_once},
    }
    with replaced(manifests):
        yield


VERSION_4 = 0x8000 << 48 | 4 << 76
"""The bits of the variant and the version (RFC 4122, 4.4)."""

RANDOM_BITS = ~(0xC000 << 48 | 0xF000 << 64)
UNKNOWN = SafeUUID.unknown


def uuid4() -> UUID:
    """Return a random UUID."""
    identifier = object.__new__(UUID)
    object.__setattr__(identifier, "int", getrandbits(128) & RANDOM_BITS | VERSION_4)
    object.__setattr__(identifier, "is_safe", UNKNOWN)
    return identifier


IDENTIFIERS: dict[Any, dict[str, Any]] = {
    uuid: {"uuid4": uuid4},
    pyiceberg.table.metadata: {"_generate_snapshot_id": lambda: getrandbits(63)},
}
"""Functions that return a random number, and nothing else."""
