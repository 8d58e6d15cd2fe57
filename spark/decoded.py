"""The columns of decoded records: the table's own, and one struct that says where each record is from and what it is.

The struct's name is generated, so that a field of a message may have any name.
"""

from __future__ import annotations

import secrets

from pyspark.sql import Column
from pyspark.sql import functions as F

RECORD = f"lakehouse_{secrets.token_hex(8)}"
"""The name of the struct. Every process has another, so that no schema can have a field of that name.

Its fields:
    partition, offset, timestamp, timestamp_type, key, value, headers: as the broker has them; headers where asked for.
    schema_id: the registry id of the schema that the value was decoded with, else null.
    filtered: whether the record belongs to another table.
    tombstone: whether the record deletes the row of its key.
    reason: why the record is a dead letter, a key of spark.decode.REASONS; null where it is not.
    check: the quarantining check that the row fails, else null.
"""


def record(field: str) -> Column:
    """Return a field of the struct."""
    return F.col(f"{RECORD}.{field}")
