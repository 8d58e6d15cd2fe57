"""Run the compiled decoder as a job of Spark, whose tasks write data files that no snapshot has yet."""

from __future__ import annotations

import base64
import json
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakehouse import DISTRIBUTION
from lakehouse.core.errors import LakehouseError
from lakehouse.core.offsets.batch import Batch
from lakehouse.core.tables import letter_columns
from lakehouse.pipeline.engine_values import Decoding, JobFailed
from lakehouse.pipeline.row_files import FAILED, LetterFiles, NoRowFiles, RowFiles
from lakehouse.pipeline.spilled_records import SPILLED_BYTES, SpilledRecords
from resources.iceberg.rest_client import VendedFiles
from spark.codecs.avro_codec import AvroCodec
from spark.decoding.decode import Codec
from spark.native import plan, task
from spark.native.letters import LetterWriter
from spark.native.metrics_modes import MOST_CHARACTERS, collectors, has_long_bounds
from spark.native.places import Places
from spark.native.plan import Unsupported

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

_LOG = logging.getLogger(__name__)

VERSION = version(DISTRIBUTION)
"""The version of the decoder that these requests are for."""

OFFSETS_A_TASK = 1_000_000
"""Maximum number of offsets of a request, of one partition or several, which becomes one file."""

MAX_TASKS = 64
"""Number of requests beyond which they have more offsets."""

RETRY_SECONDS = 600
"""Time after which the decoder is tried again for a topic whose tasks failed."""

MAX_CAUSE = 300
"""Maximum characters of the cause of a failure, which snapshots keep."""

MAX_SECONDS = 240
"""Maximum duration of a request. A task handles several if there are more of them than cores: an operation of Spark
without a task that ended is cancelled after `stall_seconds`, and the reference decoder reads the batch then."""

STORAGE = (
    *("s3.endpoint", "s3.region", "client.region", "s3.role-arn", "s3.role-session-name"),
    *("s3.access-key-id", "s3.secret-access-key", "s3.session-token"),
)
"""Properties of files that tasks get. Without credentials that the catalog issues, the environment of the executors has
them."""

PARQUET = "write.parquet."
PROVIDERS = frozenset({"write.location-provider.impl", "write.py-location-provider.impl"})
"""Properties of tables with classes that decide about locations of files, in Java and in Python."""

SETTINGS: Mapping[str, str] = {"write.parquet.compression-codec": "zstd"}
"""Properties of tables for Parquet files that the decoder implements."""


def requests(servers: str, batch: Batch, decoding: Decoding[Codec], table: Table) -> list[str]:
    """Return the requests of the tasks that write a batch.

    Args:
        servers: The addresses of the brokers, with commas between.
        batch: The offsets.
        decoding: The instructions.
        table: The table.

    Raises:
        Unsupported: Only Spark's own decoder reads such a batch, or writes such a table.
    """
    codec = decoding.value
    reasons = {
        f"the mode is {decoding.mode}": decoding.mode != "append",
        "message keys are decoded": decoding.key is not None,
        "checks quarantine rows": bool(decoding.quarantine),
        "schema ids are in headers": decoding.reads_header_ids,
    }
    if reason := next((reason for reason, applies in reasons.items() if applies), _unwritable(table)):
        raise Unsupported(reason)
    if not isinstance(codec, AvroCodec):
        raise Unsupported("the values are not in Avro")
    schema = table.schema()
    layout = plan.layout(codec.writers, codec.reader, schema, decoding.metadata, decoding.key_columns) | {
        "partition": plan.partition_fields(table.spec(), schema),
        "sort": plan.sort_fields(table.sort_order(), schema),
    }
    common = {
        "bootstrap": servers.split(","),
        "topic": batch.topic,
        "topic_id": base64.urlsafe_b64decode(batch.topic_id + "==").hex(),
        "layout": layout,
        "most_seconds": MAX_SECONDS,
    }
    return [json.dumps({**common, "ranges": ranges}) for ranges in divided(batch)]


def writes_letters(table: Table) -> bool:
    """Return whether tasks write files of a table of dead letters: it has the columns of this release, and no
    partitions, order or settings that another program declared."""
    columns = letter_columns.letter_schema().as_struct()
    is_plain = table.spec().is_unpartitioned() and table.sort_order().is_unsorted
    try:
        return is_plain and table.schema().as_struct() == columns and not _unwritable(table)
    except Unsupported:
        return False


def _unwritable(table: Table) -> str | None:
    """Return why tasks do not write files of a table.

    Raises:
        Unsupported: A setting of its statistics is not valid.
    """
    settings = {name: value for name, value in table.properties.items() if name.startswith(PARQUET)}
    if settings.items() - SETTINGS.items():
        return "the table has settings of Parquet files"
    if table.properties.keys() & PROVIDERS:
        return "the table has its own provider of locations"
    if has_long_bounds(table):
        return f"bounds of text or bytes have more than {MOST_CHARACTERS} characters"
    if _valid_seconds(table) < MAX_SECONDS:
        return f"the catalog issues credentials of files for less than {MAX_SECONDS} s"
    return None


def _valid_seconds(table: Table) -> float:
    """Return the seconds until the credentials of a table's files end, after a renewal if it is necessary."""
    return table.io.renew() if isinstance(table.io, VendedFiles) else math.inf


_VERSIONS: WeakKeyDictionary[SparkSession, str | None] = WeakKeyDictionary()
"""The version of the decoder that executors have, by session; None if they have none, or not this project."""


def missing(spark: SparkSession) -> str:
    """Return why executors do not have the decoder; empty if they have it. They are asked once in a session."""
    if spark not in _VERSIONS:
        try:
            [(_VERSIONS[spark],)] = spark.range(0, 1, 1, 1).mapInArrow(task.version, task.VERSION_SCHEMA).collect()
        except PySparkException as error:
            _LOG.warning("Executors cannot tell the version of the compiled decoder: %s", _cause(error))
            _VERSIONS[spark] = None
    installed = _VERSIONS[spark]
    if installed is None:
        return "executors do not have it"
    return "" if installed == VERSION else f"executors have version {installed} of it, not {VERSION}"


def divided(batch: Batch) -> list[list[tuple[int, int, int]]]:
    """Return the ranges that each task reads: partition, first offset (inclusive) and end (exclusive).

    Tasks have nearly the same number of offsets. Their number is a power of two, as that of cores often is, so that no
    core waits for the last task of another. A partition is divided between tasks, because the number of partitions is
    often less than that of cores.
    """
    number = min(MAX_TASKS, 1 << (math.ceil(batch.offsets / OFFSETS_A_TASK) - 1).bit_length())
    size = math.ceil(batch.offsets / number)
    tasks: list[list[tuple[int, int, int]]] = [[]]
    room = size
    for partition, end in sorted(batch.end.items()):
        at = batch.start[partition]
        while at < end:
            if not room:
                tasks.append([])
                room = size
            upto = min(end, at + room)
            tasks[-1].append((partition, at, upto))
            room -= upto - at
            at = upto
    return tasks


_FAILURES: WeakKeyDictionary[SparkSession, dict[str, tuple[float, str]]] = WeakKeyDictionary()
"""The newest failure of a topic's tasks, and when it happened, by session and topic."""


def row_files(
    spark: SparkSession,
    requests: Sequence[str],
    login: Callable[[], str],
    batch: Batch,
    table: Table,
    letters: tuple[Table, LetterWriter] | None,
) -> RowFiles | NoRowFiles:
    """Write the rows of a batch to data files. After a failure of a topic, it is not tried for RETRY_SECONDS.

    Args:
        spark: The session.
        requests: The requests of the tasks.
        login: Returns the login as JSON text (native/src/connection.rs).
        batch: The offsets.
        table: The table.
        letters: The table of dead letters and what writes its files; None if dead letters are among the other records.

    Returns:
        The files, or the reason why there are none: a task failed, or too many records do not become rows.
    """
    failures = _FAILURES.setdefault(spark, {})
    at, failure = failures.get(batch.topic, (-RETRY_SECONDS, ""))
    if time.monotonic() - at < RETRY_SECONDS:
        return NoRowFiles(failure)
    try:
        return _row_files(spark, requests, login(), batch, table, letters)
    except (JobFailed, LakehouseError, PySparkException) as error:
        failure = f"{FAILED}: {_cause(error)}"
        failures[batch.topic] = time.monotonic(), failure
        _LOG.warning("The reference decoder reads the batch of '%s': %s", batch.topic, failure)
    return NoRowFiles(failure)


def _cause(error: Exception) -> str:
    """Return the cause of a failure without values of records, which texts of Spark may quote: snapshots keep it."""
    if isinstance(error, PySparkException):
        return error.getCondition() or type(error).__name__
    return (str(error).strip() or type(error).__name__).splitlines()[0][:MAX_CAUSE]


def _row_files(
    spark: SparkSession,
    requests: Sequence[str],
    login: str,
    batch: Batch,
    table: Table,
    letters: tuple[Table, LetterWriter] | None,
) -> RowFiles:
    places = Places(table.location_provider(), table.spec(), table.schema())
    letter_table, writer = letters or (table, None)
    # Spark shows the values of a local relation in no plan, in its UI and its event log neither. It does not redact
    # settings of sessions in its event log.
    secrets = {"login": login, "storage": _storage(table), "letter_storage": _storage(letter_table)}
    columns = {name: [secret] * len(requests) for name, secret in secrets.items()}
    tasks = spark.createDataFrame(pa.table({"id": range(len(requests)), **columns}))
    work = task.write(requests, places, batch.topic, writer)
    outcomes = tasks.mapInArrow(work, task.OUTCOME_SCHEMA).toArrow()
    rows = outcomes.to_pylist()
    if fault := next((row["fault"] for row in rows if row["fault"]), None):
        raise JobFailed(fault)
    if len(rows) != len(requests):
        raise JobFailed(f"{len(rows)} tasks have outcomes, expected {len(requests)}")
    if sum(len(row["spilled"]) for row in rows) > SPILLED_BYTES:
        raise JobFailed(f"records with more than {SPILLED_BYTES:,} bytes do not become rows")
    spilled = pa.concat_tables([pa.ipc.open_stream(row["spilled"]).read_all() for row in rows])
    files = [_data_file(table, places, file) for row in rows for file in row["files"]]
    of_letters = [_data_file(letter_table, writer.places, file) for row in rows for file in row["letters"] if writer]
    number = sum(file.record_count for file in files)
    written = LetterFiles(letter_table, of_letters) if of_letters else None
    return RowFiles(files, number, SpilledRecords(batch, spilled), letters=written)


def _storage(table: Table) -> str:
    return json.dumps({name: str(table.io.properties[name]) for name in STORAGE if name in table.io.properties})


def _data_file(table: Table, places: Places, file: Mapping[str, Any]) -> DataFile:
    """Return the entry of a file in a manifest, with the statistics that its footer has, and bounds of numbers."""
    from pyiceberg.conversions import to_bytes
    from pyiceberg.io.pyarrow import (
        MetricModeTypes,
        data_file_statistics_from_parquet_metadata,
        parquet_path_to_id_mapping,
    )
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.schema import sanitize_column_names

    plans, ids = collectors(table), parquet_path_to_id_mapping(sanitize_column_names(table.schema()))
    try:
        statistics = data_file_statistics_from_parquet_metadata(
            pq.read_metadata(pa.BufferReader(file["footer"])), plans, ids
        )
    except (OverflowError, ValueError) as error:
        # Its bounds are values of Python, whose times end with the year 9999. The text may quote a value.
        raise JobFailed("a bound of a column exceeds Python's types") from error
    if statistics.record_count != file["rows"]:
        raise JobFailed(f"a data file has {statistics.record_count} rows, expected {file['rows']}")
    entries = statistics.to_serialized_dict()
    for column in file["bounds"]:
        id_ = ids[column["path"]]
        type_, mode = plans[id_].iceberg_type, plans[id_].mode.type
        if mode != MetricModeTypes.NONE:
            entries["nan_value_counts"][id_] = column["nans"]
        if mode in (MetricModeTypes.TRUNCATE, MetricModeTypes.FULL) and column["lower"] is not None:
            entries["lower_bounds"][id_] = to_bytes(type_, column["lower"])
            entries["upper_bounds"][id_] = to_bytes(type_, column["upper"])
    entry = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=file["path"],
        file_format=FileFormat.PARQUET,
        partition=places.partition(file["partition"]),
        file_size_in_bytes=file["bytes"],
        sort_order_id=table.sort_order().order_id or None,
        equality_ids=None,
        key_metadata=None,
        **entries,
    )
    entry.spec_id = table.metadata.default_spec_id
    return entry
