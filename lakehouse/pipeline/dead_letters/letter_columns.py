"""The columns of tables of dead letters.

They are those of Confluent's dead-letter queues (Confluent Cloud for Apache Flink, Error handling), except that headers
are a list, since Kafka allows repeated keys, and that the schema id, the number of attempts, the time of redrive and
the topic's id are added.
"""

from functools import cache

from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.types import (
    BinaryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)


@cache
def letter_schema() -> Schema:
    """Return the columns of a table of dead letters; Kafka timestamps are in milliseconds."""

    def fields(*columns: tuple[str, IcebergType, str]) -> list[NestedField]:
        # The catalog assigns the ids.
        return [NestedField(n, name, type_, required=False, doc=doc) for n, (name, type_, doc) in enumerate(columns, 1)]

    text, number, time = StringType(), IntegerType(), TimestamptzType()
    header = StructType(*fields(("key", text, "Name"), ("value", BinaryType(), "Value")))
    record = StructType(
        *fields(
            ("topic", text, "Kafka topic"),
            ("partition", number, "Kafka partition"),
            ("offset", LongType(), "Kafka offset"),
            ("timestamp", time, "Kafka timestamp"),
            ("timestamp_type", text, "CreateTime or LogAppendTime"),
            ("headers", ListType(1, header, element_required=False), "The record's headers, in order"),
            ("key", BinaryType(), "The message key's bytes"),
            ("value", BinaryType(), "The message value's bytes"),
        )
    )
    details = MapType(1, text, 2, text, value_required=False)
    columns = fields(
        ("error_timestamp", time, "Time at which the record became a dead letter"),
        ("error_code", number, "Number of the reason"),
        ("error_reason", text, "Stable name of the reason"),
        ("error_message", text, "The reason as a sentence"),
        ("error_details", details, "More about it"),
        ("processor", text, "What set it aside"),
        ("statement_name", text, "The entry of lakehouse.yaml"),
        ("affected_type", text, "What lacks the record"),
        ("affected_catalog", text, "Its catalog"),
        ("affected_database", text, "Its namespace"),
        ("affected_name", text, "Its name"),
        ("source_record", record, "The record as the broker has it"),
        ("schema_id", number, "Registry id that the value names"),
        ("attempts", number, "How often decoding was tried"),
        ("redriven_timestamp", time, "When it became a row after all"),
        ("topic_id", text, "Kafka's id of the topic"),
    )
    return assign_fresh_schema_ids(Schema(*columns))
