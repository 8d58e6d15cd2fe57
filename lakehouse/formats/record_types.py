"""Whether the record type that a schema describes is a topic's.

Records name their schema by its id, which may be any in the registry, and decoding goes by structure: an invoice would
become an order with nulls. Only a schema of the same record type may decode a topic's records.
"""

from __future__ import annotations

from collections.abc import Sequence

from lakehouse.formats import of_type
from lakehouse.formats.schema import RegisteredSchema


def is_named(schema: RegisteredSchema, record: str) -> bool:
    """Return whether a schema is of the record type that an entry in lakehouse.yaml names.

    Args:
        schema: The schema.
        record: The full name of the record or message, the name of a record without its namespace, or a title.
    """
    format_ = of_type(schema.type)
    return format_ is not None and format_.is_named(schema, record)


def is_same(schema: RegisteredSchema, versions: Sequence[RegisteredSchema], record: str = "") -> bool:
    """Return whether a schema of another subject is of the record type of a topic's own.

    Args:
        schema: The schema.
        versions: The versions of the topic's own schema.
        record: The record type that the topic's entry names, if it does.
    """
    format_ = of_type(schema.type)
    return format_ is not None and format_.is_same(schema, versions, record)
