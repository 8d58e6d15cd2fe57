"""Partitions of a table and the locations of their files, for the driver and the tasks of the compiled decoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.partitioning import PartitionKey, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.locations import LocationProvider
from pyiceberg.typedef import Record
from pyiceberg.types import IcebergType, PrimitiveType


@dataclass(frozen=True)
class Places:
    """The partitions of a table, and where new files are."""

    provider: LocationProvider
    spec: PartitionSpec
    schema: Schema

    def partition(self, values: Sequence[bytes | None]) -> Record:
        """Return a partition.

        Args:
            values: The serialized values of its fields; None for null (Iceberg specification, Appendix D).
        """
        types = [field.field_type for field in self.spec.partition_type(self.schema).fields]
        return Record(*map(_value, types, values))

    def folder(self, values: Sequence[bytes | None]) -> str:
        """Return the part of a location that names a partition; empty for a table without partitions."""
        return self.spec.partition_to_path(self.partition(values), self.schema)

    def location(self, file: str, folder: str) -> str:
        """Return the location of a new file with rows of a partition, which its folder names."""
        key = _Named([], self.spec, self.schema, folder) if folder else None
        return self.provider.new_data_location(file, key)


def _value(type_: IcebergType, value: bytes | None) -> Any:
    assert isinstance(type_, PrimitiveType), "no other types have partition values"
    return None if value is None else from_bytes(type_, value)


@dataclass(frozen=True)
class _Named(PartitionKey):
    """The partition in a location. pyiceberg's own class has only one field of a source."""

    folder: str

    def to_path(self) -> str:
        return self.folder
