"""The columns of tables of dead letters.

They are those of Confluent's dead-letter queues (Confluent Cloud for Apache Flink, Error handling), except that headers
are a list, since Kafka allows repeated keys, and that the schema id, the number of attempts, the time of redrive and
the topic's id are added.

To add a column, add a row to COLUMNS, and compute it in spark/tables/dead_letters.py and in the engine in memory of the
simulation, by its name. Existing tables get it with their next dead letter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyiceberg.schema import Schema


@dataclass(frozen=True)
class LetterColumn:
    """One column, or one field of a column."""

    name: str
    type: Any
    """Its Iceberg type (Iceberg, JSON serialization: types)."""
    comment: str
    """The column's comment in the table."""

    @property
    def field(self) -> dict[str, Any]:
        """The field of a schema; the catalog assigns the ids."""
        return {"id": 1, "name": self.name, "type": self.type, "required": False, "doc": self.comment}


def _struct(fields: Sequence[LetterColumn]) -> dict[str, Any]:
    return {"type": "struct", "fields": [field.field for field in fields]}


HEADER = _struct([LetterColumn("key", "string", "Name"), LetterColumn("value", "binary", "Value")])
HEADERS = {"type": "list", "element-id": 1, "element": HEADER, "element-required": False}
DETAILS = {
    **{"type": "map", "key-id": 1, "key": "string"},
    **{"value-id": 1, "value": "string", "value-required": False},
}

RECORD: Sequence[LetterColumn] = (
    LetterColumn("topic", "string", "Kafka topic"),
    LetterColumn("partition", "int", "Kafka partition"),
    LetterColumn("offset", "long", "Kafka offset"),
    LetterColumn("timestamp", "timestamptz", "Kafka timestamp"),
    LetterColumn("timestamp_type", "string", "CreateTime or LogAppendTime"),
    LetterColumn("headers", HEADERS, "The record's headers, in order"),
    LetterColumn("key", "binary", "The message key's bytes"),
    LetterColumn("value", "binary", "The message value's bytes"),
)
"""The fields of the column `source_record`. Kafka timestamps are in milliseconds."""

RECORD_TYPE = _struct(RECORD)
"""The type of the column `source_record`."""

COLUMNS: Sequence[LetterColumn] = (
    LetterColumn("error_timestamp", "timestamptz", "Time at which the record became a dead letter"),
    LetterColumn("error_code", "int", "Number of the reason"),
    LetterColumn("error_reason", "string", "Stable name of the reason"),
    LetterColumn("error_message", "string", "The reason as a sentence"),
    LetterColumn("error_details", DETAILS, "More about it"),
    LetterColumn("processor", "string", "What set it aside"),
    LetterColumn("statement_name", "string", "The entry of lakehouse.yaml"),
    LetterColumn("affected_type", "string", "What lacks the record"),
    LetterColumn("affected_catalog", "string", "Its catalog"),
    LetterColumn("affected_database", "string", "Its namespace"),
    LetterColumn("affected_name", "string", "Its name"),
    LetterColumn("source_record", RECORD_TYPE, "The record as the broker has it"),
    LetterColumn("schema_id", "int", "Registry id that the value names"),
    LetterColumn("attempts", "int", "How often decoding was tried"),
    LetterColumn("redriven_timestamp", "timestamptz", "When it became a row after all"),
    LetterColumn("topic_id", "string", "Kafka's id of the topic"),
)

REASONS = {
    "null_value": "The value is null, which is no row, and no deletion unless the mode is upsert and keys are decoded",
    "not_framed": "The value is not in the Confluent wire format (a zero byte, then an id), nor is an id in its header",
    "unknown_schema": "The registry has no schema with the value's schema id that this table could use",
    "undecodable": "The value cannot be decoded with its schema",
    "bad_key": "A key column is missing: the message key cannot be read or does not fit the column, or the column is "
    "null in the value",
    "no_row": "The change event has no row after the change",
    "poison": "Decoding the record aborted the Spark job",
    "unknown_operation": "The operation of the change event is not one that changes a single row",
    "check": "The row fails a check that quarantines it",
    "unfit_schema": "The value does not decode, and its schema does not fit the table",
    "schema_limit": "The value's schema id was not looked up, because the batch has too many ids that the topic does "
    "not have. `lakehouse redrive` looks it up",
    "other_type": "The value has another record type than the topic, by the name in its schema",
    "key_mismatch": "The message key differs from the columns of `key` in the value",
    "truncate": "The source truncated the table, but partitions have no order. Set 'debezium: {truncate: ignore}'",
    "unchanged_value": "The change event omits an unchanged value, which neither the table nor an earlier event has",
    "out_of_range": "A date or time of the change event is infinite, or outside of years 1 to 9999",
}
"""Reasons for dead letters: a stable code and a sentence. Append new ones, because tables store their numbers."""

REASON_NUMBERS = {reason: number for number, reason in enumerate(REASONS, start=1)}
"""Values of the column `error_code` of dead letters."""

PLACE = ("source_record.partition", "source_record.offset")
"""The columns that identify a record within its topic, whose id is in `topic_id`."""


@cache
def letter_schema() -> Schema:
    """Return the columns as an Iceberg schema."""
    from pyiceberg.schema import Schema, assign_fresh_schema_ids
    from pyiceberg.types import NestedField

    fields = [{**column.field, "id": number} for number, column in enumerate(COLUMNS, 1)]
    return assign_fresh_schema_ids(Schema(*map(NestedField.model_validate, fields)))
