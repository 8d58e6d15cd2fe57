"""Columns of decoded records: the table's own, and technical ones about each record.

The technical columns have a generated prefix, so that fields of messages may have any name. They are not fields of one
struct, because Spark computes a field again wherever it is used, and `reason` reads every column.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from pyspark.sql import Column
from pyspark.sql import functions as F

PREFIX = f"lakehouse_{secrets.token_hex(8)}_"
"""Prefix of the technical columns. It differs by process, so that no schema can have a field with it."""


def record(field: str) -> Column:
    """Return a technical column.

    Args:
        field: One of
            partition, offset, timestamp, timestamp_type, key, value, headers: as in the broker; headers only if they
            were requested.
            framed_key, framed_value: with the schema id of the headers as prefix, if they have one.
            schema_id: the registry id of the schema that decoded the value, or null.
            filtered: true if the record belongs to another table.
            tombstone: true if the record deletes the row of its key.
            reason: why the record is a dead letter, a key of REASONS (lakehouse.core.tables.letter_columns); null if it
                is not one.
            check: the quarantining check that the row fails, or null.
            snapshot_start: true if the record is the first change event of a snapshot of the source.
            truncate: true if the record deletes all rows.
            truncated: true if a later one of the records makes it irrelevant: a change event that deletes all rows, or
                the next one of its key if this one omits a value that is unknown.
    """
    return F.col(PREFIX + field)


def table_columns(columns: Iterable[str]) -> list[str]:
    """Return the names of the columns of the table."""
    return [name for name in columns if not name.startswith(PREFIX)]
