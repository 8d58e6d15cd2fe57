"""The columns of decoded records: the table's own, and others that say where each record is from and what it is.

The others begin with a name that is generated, so that a field of a message may have any name. They are columns, and no
fields of one struct, because Spark computes a field again wherever it is used, and `reason` looks at every column.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from pyspark.sql import Column
from pyspark.sql import functions as F

PREFIX = f"lakehouse_{secrets.token_hex(8)}_"
"""What the others begin with. Every process has another, so that no schema can have a field of such a name."""


def record(field: str) -> Column:
    """Return a column that is not the table's.

    Args:
        field: One of
            partition, offset, timestamp, timestamp_type, key, value, headers: as the broker has them; headers where
                they were asked for.
            schema_id: the registry id of the schema that the value was decoded with, else null.
            filtered: whether the record belongs to another table.
            tombstone: whether the record deletes the row of its key.
            reason: why the record is a dead letter, a key of spark.decode.REASONS; null where it is not.
            check: the quarantining check that the row fails, else null.
    """
    return F.col(PREFIX + field)


def own(columns: Iterable[str]) -> list[str]:
    """Return the names of the columns that are the table's."""
    return [name for name in columns if not name.startswith(PREFIX)]
