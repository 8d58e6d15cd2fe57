"""From the registry to the codecs that decode a topic's keys and values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehouse.config import Topic
from lakehouse.errors import SchemaError
from resources.schema_registry import SchemaRegistry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark.decode import AvroCodec, Codec


def value_codec(registry: SchemaRegistry, topic: Topic) -> AvroCodec:
    """The codec of the topic's values: the newest registered schema reads, every registered version may have written.

    Raises: SchemaError when no schema is registered; Unreachable.
    """
    return _avro(registry, f"{topic.name}-value")


def key_codec(registry: SchemaRegistry, topic: Topic) -> Codec | None:
    """The codec of the message key where the table needs it: an upsert's tombstone has nothing else to go by."""
    from spark.decode import StringCodec

    if topic.mode != "upsert":
        return None
    return _avro(registry, f"{topic.name}-key") if topic.key_format == "avro" else StringCodec(topic.key[0])


def with_foreign_writers(registry: SchemaRegistry, codec: AvroCodec, decoded: DataFrame) -> AvroCodec:
    """The codec, extended by schemas that records name by id though they are not of the topic's subject.

    Parameters: `decoded` as `codec` decoded it.
    Raises: Unreachable when the registry does not answer: that is never "unknown".
    """
    from dataclasses import replace

    from spark.decode import foreign_schema_ids

    found = {id_: s.text for id_ in foreign_schema_ids(decoded) if (s := registry.by_id(id_)) is not None}
    return replace(codec, writers={**codec.writers, **found})


def _avro(registry: SchemaRegistry, subject: str) -> AvroCodec:
    from spark.decode import AvroCodec

    newest = registry.latest(subject)
    if newest is None:
        raise SchemaError(
            f"The schema registry has no subject '{subject}', so there is nothing to decode with. Nothing was "
            f"ingested. Register the schema, or start the producer that does"
        )
    return AvroCodec({id_: version.text for id_, version in registry.versions(subject).items()}, newest.text)
