"""Comparison of record types of schemas.

Records refer to their schema by id, which may be any in the registry, and decoding compares structure only: an invoice
would become an order with nulls. Only a schema of the topic's record type may decode the topic's records.
"""

from collections.abc import Sequence

from lakehouse.formats import of_type
from lakehouse.formats.schema import RegisteredSchema


def is_named(schema: RegisteredSchema, record: str) -> bool:
    """Return whether a schema describes the record type that an entry in lakehouse.yaml names.

    Args:
        schema: The schema.
        record: The full name of an Avro record or Protobuf message, the name of an Avro record without its namespace,
            or the title of a JSON Schema.
    """
    format_ = of_type(schema.type)
    return format_ is not None and format_.is_named(schema, record)


def is_same(schema: RegisteredSchema, versions: Sequence[RegisteredSchema], record: str = "") -> bool:
    """Return whether a schema of another subject describes the record type of a topic.

    Args:
        schema: The schema of another subject.
        versions: The versions of the topic's schema.
        record: The record type that the topic's entry names; empty if it names none.
    """
    format_ = of_type(schema.type)
    return format_ is not None and format_.is_same(schema, versions, record)
