"""Columns that a table has besides its records' own: where in Kafka each row comes from.

Two naming schemes: `portable`, whose names every engine takes unquoted, and `confluent`, as Tableflow names them
(Confluent, Tableflow: metadata columns). Tableflow has a scheme called `PORTABLE` as well, whose names begin with
`cflt_metadata_`; these here begin with `kafka_`. Inside this project columns are called by their portable names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

Naming = Literal["portable", "confluent"]
Name = Literal[
    "topic", "partition", "headers", "offset", "timestamp", "timestamp_type", "raw_key", "raw_value", "schema_id",
]  # fmt: skip


COMMENTS: Mapping[Name, str] = {
    "topic": "Kafka topic of the record",
    "partition": "Kafka partition of the record",
    "headers": "Headers of the record, in order",
    "offset": "Kafka offset of the record",
    "timestamp": "Kafka timestamp of the record, milliseconds",
    "timestamp_type": "CreateTime (the producer's clock) or LogAppendTime (the broker's)",
    "raw_key": "The message key's bytes",
    "raw_value": "The message value's bytes",
    "schema_id": "Registry id of the schema the value was written with",
}
"""What each column says; the order is the table's."""

REQUIRED: tuple[Name, ...] = ("partition", "offset")
"""Without these, no row can be traced to its record."""


RAW: tuple[Name, ...] = ("headers", "raw_key", "raw_value")
"""What holds bytes of the record as they came, and with them the values of all columns."""


def internal(name: Name) -> str:
    """A metadata column's name inside this project: `offset` → `kafka_offset`."""
    return f"kafka_{name}"


def names(columns: Iterable[Name], naming: Naming) -> dict[str, str]:
    """The names in the table, by the names inside this project."""
    if naming == "portable":
        return {internal(name): internal(name) for name in columns}
    return {internal(name): "$$" + name.replace("_", "-") for name in columns}
