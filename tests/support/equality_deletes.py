"""Equality deletes, which Flink writes and pyiceberg cannot: rows of earlier files with equal values are deleted."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestWriter, ManifestWriterV2
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import Record


class _DeleteManifestWriter(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _Deletes(_FastAppendFiles):
    def new_manifest_writer(self, spec: PartitionSpec) -> ManifestWriter:
        output = self.new_manifest_output()
        return _DeleteManifestWriter(spec, self.schema(), output, self._snapshot_id, self._compression)


def delete_equal(table: Table, column: str, value: object) -> None:
    """Commit the deletion of all rows with a value, as Flink does."""
    schema = table.schema().select(column)
    path = f"{table.location()}/data/{uuid.uuid4()}.parquet"
    with table.io.new_output(path).create() as file:
        pq.write_table(pa.table({column: [value]}).cast(schema_to_pyarrow(schema)), file)
    deleted = DataFile.from_args(
        content=DataFileContent.EQUALITY_DELETES,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=len(table.io.new_input(path)),
        equality_ids=[field.field_id for field in schema.fields],
    )
    deleted.spec_id = table.spec().spec_id
    with table.transaction() as transaction, _Deletes(Operation.OVERWRITE, transaction, table.io) as update:
        update.append_data_file(deleted)
