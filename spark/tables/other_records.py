"""The records of a batch that become no rows, beside its rows in one table, and their collection."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakehouse.core.offsets.batch import Batch
from lakehouse.pipeline.spilled_records import SPILLED_BYTES
from spark.decoding.decoded import PREFIX
from spark.native.task import SPILLED
from spark.tables import dead_letters

RECORD = PREFIX + "record"
"""The column with the record, as dead letters have it; null beside a row."""

MIN_OFFSETS = 20_000
"""Minimum number of offsets of a range that is written by a private table, which costs a small one too much time: see
spark.tables.row_files. A smaller one is cached."""


def is_small(batch: Batch | None) -> bool:
    """Return whether a range has fewer offsets; false if there is none."""
    return batch is not None and batch.offsets < MIN_OFFSETS


def collected(others: DataFrame) -> pa.Table | None:
    """Return the records in RECORD; None if they have more than SPILLED_BYTES bytes."""
    records = dead_letters.source_records(others, RECORD)
    of_headers = F.aggregate("headers", F.lit(0), lambda total, header: total + _bytes(header["key"], header["value"]))
    [(total,)] = records.agg(F.sum(_bytes(F.col("key"), F.col("value")) + F.coalesce(of_headers, F.lit(0)))).collect()
    return None if (total or 0) > SPILLED_BYTES else records.select(*SPILLED.names).toArrow().cast(SPILLED)


def _bytes(first: Column, second: Column) -> Column:
    return F.coalesce(F.octet_length(first), F.lit(0)) + F.coalesce(F.octet_length(second), F.lit(0))
