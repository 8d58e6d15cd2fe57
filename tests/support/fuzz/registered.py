"""Schemas as serializers register them, in the registry that Confluent's client has for tests."""

from __future__ import annotations

from collections.abc import Iterator

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.serialization import MessageField, SerializationContext

from lakehouse.formats.schema import RegisteredSchema

CONTEXT = SerializationContext("fuzz", MessageField.VALUE)
SUBJECT = "fuzz-value"


def newest(client: SchemaRegistryClient) -> RegisteredSchema:
    """Return the newest version of the subject with its references."""
    version = client.get_latest_version(SUBJECT)
    references = tuple(dict(_references(client, version.schema)).items())
    return RegisteredSchema(version.schema_id, version.schema.schema_str, version.schema.schema_type, references)


def _references(client: SchemaRegistryClient, schema: Schema) -> Iterator[tuple[str, str]]:
    for reference in schema.references or ():
        version = client.get_version(reference.subject, reference.version)
        yield from _references(client, version.schema)
        yield reference.name, version.schema.schema_str
