"""Metadata columns: the origin in Kafka of each row.

Three naming schemes: `portable`, whose names every engine accepts unquoted, and Tableflow's two (Confluent, Tableflow:
metadata columns): `confluent`, which Tableflow calls DEFAULT, and `confluent_portable`, which it calls PORTABLE. The
code uses the names of `portable`.

To add a column, add a row to COLUMNS; a separate distribution declares its row as an entry point of the group
`lakehouse.metadata_columns`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from lakehouse.core.registry import implementations

Naming = Literal["portable", "confluent", "confluent_portable"]


@dataclass(frozen=True)
class MetadataColumn:
    """One metadata column."""

    name: str
    """Its name in lakehouse.yaml."""
    comment: str
    """The column's comment in the table."""
    type: Any
    """Its Iceberg type (Iceberg, JSON serialization: types)."""
    expression: str
    """Its value in Spark SQL, over a record (Structured Streaming and Kafka, schema of the source) and `schema_id`."""
    is_raw: bool = False
    """Whether it contains unparsed bytes of the record, and thereby values of other columns."""
    needs_headers: bool = False
    """Whether Spark has to read the headers."""


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
"""This project's columns, in the table's order."""

TABLEFLOW_ONLY = ("leader_epoch",)
"""Columns that only Tableflow writes (Confluent, Tableflow: metadata columns)."""

REQUIRED = ("partition", "offset")
"""Columns that identify the record of a row."""


@cache
def registered() -> Mapping[str, MetadataColumn]:
    """Return this project's and installed distributions' columns by name, in the table's order."""
    return implementations(COLUMNS, "lakehouse.metadata_columns")


def internal(name: str) -> str:
    """Return a metadata column's portable name: `offset` → `kafka_offset`."""
    return f"kafka_{name}"


def names(columns: Iterable[str], naming: Naming) -> dict[str, str]:
    """Return the names in the table by portable name."""
    in_table: Mapping[Naming, Callable[[str], str]] = {
        "portable": internal,
        "confluent": lambda name: "$$" + name.replace("_", "-"),
        "confluent_portable": lambda name: f"cflt_metadata_{name}",
    }
    return {internal(name): in_table[naming](name) for name in columns}
