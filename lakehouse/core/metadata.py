"""Columns that a table has besides its records' own: where in Kafka each row comes from.

Two naming schemes: `portable`, whose names every engine takes unquoted, and `confluent`, as Tableflow names them
(Confluent, Tableflow: metadata columns). Tableflow has a scheme called `PORTABLE` as well, whose names begin with
`cflt_metadata_`; these here begin with `kafka_`. Inside this project columns are called by their portable names.

To add a column, add a row to COLUMNS. A separate distribution names its row as an entry point of the group
`lakehouse.metadata_columns`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from lakehouse.core.registry import implementations

Naming = Literal["portable", "confluent"]


@dataclass(frozen=True)
class MetadataColumn:
    """One column.

    `name` is what lakehouse.yaml calls it, and `comment` what the table says of it. `type` is its type (Iceberg, JSON
    serialization: types). `expression` is its value in Spark SQL, over a record as Spark reads it (Structured Streaming
    and Kafka, schema of the source) and `schema_id`. One that `is_raw` holds bytes of the record as they came, and with
    them the values of all columns. Spark reads headers only where a column that `needs_headers` asks for them.
    """

    name: str
    comment: str
    type: Any
    expression: str
    is_raw: bool = False
    needs_headers: bool = False


HEADER = {
    "type": "struct",
    "fields": [
        {"id": 1, "name": "key", "type": "string", "required": False},
        {"id": 1, "name": "value", "type": "binary", "required": False},
    ],
}
HEADERS = {"type": "list", "element-id": 1, "element": HEADER, "element-required": False}
CLOCK = "CASE timestampType WHEN 0 THEN 'CreateTime' WHEN 1 THEN 'LogAppendTime' END"

COLUMNS: Sequence[MetadataColumn] = (
    MetadataColumn("topic", "Kafka topic of the record", "string", "topic"),
    MetadataColumn("partition", "Kafka partition of the record", "int", "partition"),
    MetadataColumn("headers", "Headers of the record, in order", HEADERS, "headers", is_raw=True, needs_headers=True),
    MetadataColumn("offset", "Kafka offset of the record", "long", "offset"),
    MetadataColumn("timestamp", "Kafka timestamp of the record, milliseconds", "timestamptz", "timestamp"),
    MetadataColumn(
        "timestamp_type", "CreateTime (the producer's clock) or LogAppendTime (the broker's)", "string", CLOCK
    ),
    MetadataColumn("raw_key", "The message key's bytes", "binary", "key", is_raw=True),
    MetadataColumn("raw_value", "The message value's bytes", "binary", "value", is_raw=True),
    MetadataColumn("schema_id", "Registry id of the schema the value was written with", "int", "schema_id"),
)
"""The columns of this project, in the table's order."""

REQUIRED = ("partition", "offset")
"""Without these, no row can be traced to its record."""


@cache
def registered() -> Mapping[str, MetadataColumn]:
    """Return all columns by name, in the table's order: this project's and those of installed distributions.

    Raises:
        ConfigError: Two columns have the same name.
    """
    return implementations(COLUMNS, "lakehouse.metadata_columns")


def internal(name: str) -> str:
    """A metadata column's name inside this project: `offset` → `kafka_offset`."""
    return f"kafka_{name}"


def names(columns: Iterable[str], naming: Naming) -> dict[str, str]:
    """The names in the table, by the names inside this project."""
    if naming == "portable":
        return {internal(name): internal(name) for name in columns}
    return {internal(name): "$$" + name.replace("_", "-") for name in columns}
