"""Write the rows of a batch to data files in one pass, which also keeps the records that are no rows.

Spark writes one table at a time. Therefore it writes a private one, in a catalog in the memory of the Spark server that
only the session has. It has the columns of the batch's table with their field ids, the records that are no rows, and a
partition for each of both. The files with rows become files of the batch's table by their entries in the manifest, and
the other records are collected. Ingestion deletes no files (lakehouse/deploy/aws/iam_policies.py), so the other files
of the private table are removed with orphaned ones.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehouse.core.offsets.batch import Batch
from lakehouse.core.sql import SPARK
from lakehouse.core.tables import letter_columns
from lakehouse.core.tables.naming import PRIVATE_CATALOG
from lakehouse.pipeline.engine_values import CountsLost, Decoding
from lakehouse.pipeline.row_files import NoRowFiles, RowFiles
from lakehouse.pipeline.spilled_records import SpilledRecords, is_small
from spark.decoding.decoded import PREFIX, record
from spark.native.task import SPILLED
from spark.tables import dead_letters
from spark.tables.observed_counts import observed_counts
from spark.tables.other_records import RECORD, collected, may_be_kept
from spark.tables.write import observe, table_rows, written

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

_LOG = logging.getLogger(__name__)

NAMESPACE = f"{PRIVATE_CATALOG}.batches"

IS_ROW = PREFIX + "is_row"
"""A column of a private table that, as RECORD, the batch's table lacks."""

FIRST_ID = 2_000_000_000
"""The field id of the first of these two columns, which the files with rows have as well.

A column of the batch's table must never get one of the ids, because readers would take the values for its own. Ids from
2,147,483,447 are reserved (Iceberg specification, Reserved Field IDs).
"""


def is_supported(batch: Batch, decoding: Decoding[Any], table: Table, settings: Mapping[str, str]) -> bool:
    """Return whether the rows of a batch can be written in one pass.

    Args:
        batch: The offsets.
        decoding: The instructions.
        table: The table.
        settings: The settings of the session.
    """
    has_catalog = f"spark.sql.catalog.{PRIVATE_CATALOG}" in settings
    return not is_small(batch) and decoding.mode == "append" and has_catalog and table.format_version == 2


def write(spark: SparkSession, decoded: DataFrame, table: Table, batch: Batch, reason: str) -> RowFiles | NoRowFiles:
    """Write the rows of a batch to data files that no snapshot has.

    Args:
        spark: The session.
        decoded: The decoded records, with headers; see spark.decoding.decode.
        table: The table.
        batch: The offsets of the records.
        reason: Why the compiled decoder did not decide about them.

    Returns:
        The files and the other records of the batch. No files if the others have more than SPILLED_BYTES bytes, and
        for RETRY_SECONDS afterwards.
    """
    if not (may_be_kept(spark, batch.topic) and _has_catalog(spark)):
        return NoRowFiles(reason)
    name = f"{NAMESPACE}.{SPARK.identifier(uuid.uuid4().hex)}"
    created = _create_metadata(table)
    register = f"CALL {PRIVATE_CATALOG}.system.register_table(table => ?, metadata_file => ?)"
    spark.sql(register, args=[name.partition(".")[2], created])
    try:
        private = spark.table(name)
        observation, observed = observe(decoded)
        is_row = record("reason").isNull() & ~record("filtered") & ~record("ignored_header_id")
        other = F.when(~is_row, dead_letters.source_record(batch.topic))
        of_table = private.schema.fields[:-2]
        records = table_rows(observed, decoded.schema, of_table, is_row.alias(IS_ROW), other.alias(RECORD))
        records.writeTo(name).append()
        log = spark.table(f"{name}.metadata_log_entries").orderBy("timestamp", "latest_sequence_number").select("file")
        *_, (newest,) = log.collect()
        files, number = _written(table, newest)
        others = collected(spark.table(name).filter(~F.col(IS_ROW)), batch.topic) if number else SPILLED.empty_table()
    finally:
        spark.sql(f"DROP TABLE {name}")
    if others is None:
        return NoRowFiles(reason)
    rows = sum(file.record_count for file in files)
    outcomes = None
    with suppress(CountsLost):
        outcomes = written(observed_counts(observation), rows=rows)
    return RowFiles(files, rows, SpilledRecords(batch, others), reason, outcomes)


_AVAILABLE: WeakKeyDictionary[SparkSession, bool] = WeakKeyDictionary()
"""Whether the server has the driver of the catalog, by session."""


def _has_catalog(spark: SparkSession) -> bool:
    """Create the namespace of private tables, and return whether the server has the driver of their catalog."""
    if spark not in _AVAILABLE:
        try:
            spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {NAMESPACE}")
            _AVAILABLE[spark] = True
        except PySparkException as error:
            _AVAILABLE[spark] = False
            cause = str(error).partition("\n")[0]
            _LOG.warning("Batches with dead letters are read twice: the Spark server needs sqlite-jdbc (%s)", cause)
    return _AVAILABLE[spark]


def _create_metadata(table: Table) -> str:
    """Create the metadata file of a private table without snapshots, and return its location."""
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema, assign_fresh_schema_ids
    from pyiceberg.serializers import ToOutputFile
    from pyiceberg.transforms import IdentityTransform

    types = {IS_ROW: "boolean", RECORD: letter_columns.RECORD_TYPE}
    fields = [{"id": 1, "name": name, "type": type_, "required": False} for name, type_ in types.items()]
    columns = Schema.model_validate({"type": "struct", "fields": fields})
    added = assign_fresh_schema_ids(columns, count(FIRST_ID).__next__)
    metadata, spec = table.metadata, table.spec()
    kind = PartitionField(added.find_field(IS_ROW).field_id, FIRST_ID, IdentityTransform(), IS_ROW)
    # Without a shuffle, each task writes a file of each kind at once.
    is_plain = spec.is_unpartitioned() and table.sort_order().is_unsorted
    order = {"write.distribution-mode": "none", "write.spark.fanout.enabled": "true"} if is_plain else {}
    properties = {name: value for name, value in metadata.properties.items() if name.startswith("write.")}
    private = metadata.model_copy(
        update={
            "table_uuid": uuid.uuid4(),
            "schemas": [Schema(*table.schema().fields, *added.fields, schema_id=0)],
            "current_schema_id": 0,
            "last_column_id": added.highest_field_id,
            "partition_specs": [PartitionSpec(*spec.fields, kind, spec_id=0)],
            "default_spec_id": 0,
            "last_partition_id": FIRST_ID,
            "properties": properties | order | {"gc.enabled": "false"},
            "current_snapshot_id": None,
            "snapshots": [],
            "snapshot_log": [],
            "metadata_log": [],
            "refs": {},
            "statistics": [],
            "partition_statistics": [],
        }
    )
    location = table.location_provider().new_metadata_location(f"00000-{private.table_uuid}.metadata.json")
    ToOutputFile.table_metadata(private, table.io.new_output(location))
    return location


def _written(table: Table, metadata_file: str) -> tuple[list[DataFile], int]:
    """Return the files with rows as files of the batch's table, and the number of other records.

    Args:
        table: The batch's table.
        metadata_file: The location of the metadata of the private table.
    """
    from pyiceberg.serializers import FromInputFile

    snapshot = FromInputFile.table_metadata(table.io.new_input(metadata_file)).current_snapshot()
    manifests = snapshot.manifests(table.io) if snapshot else []
    written = [entry.data_file for of in manifests for entry in of.fetch_manifest_entry(table.io)]
    others = sum(file.record_count for file in written if not file.partition[-1])
    return [_of_table(file, table) for file in written if file.partition[-1]], others


def _of_table(file: DataFile, table: Table) -> DataFile:
    """Return a file with rows as a file of the batch's table: in its partition, with statistics of its columns."""
    from pyiceberg.manifest import DataFile
    from pyiceberg.typedef import Record

    values: dict[str, Any] = {}
    for name in (
        "content",
        "file_path",
        "file_format",
        "record_count",
        "file_size_in_bytes",
        "column_sizes",
        "value_counts",
        "null_value_counts",
        "nan_value_counts",
        "lower_bounds",
        "upper_bounds",
        "key_metadata",
        "split_offsets",
        "sort_order_id",
    ):
        value = getattr(file, name)
        if isinstance(value, Mapping):
            value = {field_id: of_field for field_id, of_field in value.items() if field_id < FIRST_ID}
        values[name] = value
    partition = Record(*(file.partition[place] for place in range(len(table.spec().fields))))
    entry = DataFile.from_args(partition=partition, equality_ids=None, **values)
    entry.spec_id = table.metadata.default_spec_id
    return entry
