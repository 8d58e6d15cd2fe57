"""Resolve the schemas of a topic's keys and values: its columns, and the codecs that decode its records."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Literal

from lakehouse.config.topic import Topic
from lakehouse.core.errors import SchemaError
from lakehouse.formats import format_of, of_type, record_types
from lakehouse.formats.budget import MAX_CHARACTERS
from lakehouse.formats.format import Format, MessageSchema, RegisteredFormat
from lakehouse.formats.schema import RegisteredSchema, Shape
from resources.schema_registry import SchemaRegistry

if TYPE_CHECKING:
    from pyiceberg.types import StructType
    from pyspark.sql import DataFrame

    from spark.decoding.decode import Codec, Decoding


FOREIGN_WRITERS = 64
"""Maximum number of schemas of other subjects per topic. Each adds an expression to every query."""

EXAMINED_CHARACTERS = 10 * MAX_CHARACTERS
"""Maximum total size, in characters, of the schemas of other subjects that are parsed or compiled per lookup."""


@dataclass(frozen=True)
class Lookup:
    """Limits on looking up schema ids that the topic's subjects do not have.

    Producers choose the ids in their records, so a batch may contain millions of them.

    Attributes:
        ids: The maximum number of ids.
        seconds: The maximum duration.
    """

    ids: int
    seconds: float


BATCH = Lookup(64, 60)
"""Limits for each ingested batch."""

BY_HAND = Lookup(10_000, 600)
"""Limits for commands that an operator runs, such as `lakehouse redrive`."""


@dataclass(frozen=True)
class SideSchema:
    """Schema of the key or value of a topic's messages.

    Attributes:
        schema: The registered versions, and which of them define the columns.
        shape: The columns.
        codec: The codec that decodes messages into the columns.
    """

    schema: MessageSchema
    shape: Shape
    codec: Codec

    @property
    def versions(self) -> tuple[RegisteredSchema, ...]:
        """The schemas that messages may be written with, oldest first."""
        return self.schema.versions


@dataclass(frozen=True)
class TopicSchemas:
    """Schemas of the keys and values of a topic's messages.

    Attributes:
        topic: The topic as declared in lakehouse.yaml.
        value: The schema of the values.
        key: The schema of the keys; None if keys are not decoded.
        foreign: Schemas of other subjects, which are the first of the value's versions.
        other_type_ids: Ids of schemas of record types that are not this topic's.
        unfit_ids: Ids of versions that do not define the columns.
        unusable_ids: Ids that the registry has no usable schema for; None if the registry was asked about every id.
    """

    topic: Topic
    value: SideSchema
    key: SideSchema | None
    foreign: tuple[RegisteredSchema, ...] = ()
    other_type_ids: frozenset[int] = frozenset()
    unfit_ids: frozenset[int] = frozenset()
    unusable_ids: frozenset[int] | None = None

    @property
    def struct(self) -> StructType:
        """The columns of the value; for change events, those of the row.

        Raises:
            SchemaError: The schema of a change event has no field `after`.
        """
        struct = self.value.shape.struct
        if self.topic.mode != "debezium":
            return struct
        from pyiceberg.types import StructType

        after = [field.field_type for field in struct.fields if field.name == "after"]
        if not after or not isinstance(after[0], StructType):
            raise SchemaError(
                f"The schema of '{self.topic.subject('value')}' is not a Debezium envelope: it has no record 'after'. "
                f"Nothing was ingested. Set a 'mode' other than debezium in lakehouse.yaml"
            )
        return after[0]

    @property
    def former(self) -> dict[str, tuple[str, ...]]:
        """Previous names of renamed columns, by the dotted path of the column in the table."""
        within = "after." if self.topic.mode == "debezium" else ""
        former = {**self.value.shape.former, **(self.key.shape.former if self.key and not within else {})}
        return {path.removeprefix(within): names for path, names in former.items() if path.startswith(within)}

    @property
    def fingerprints(self) -> dict[str, str]:
        """Fingerprint of each registered schema, by schema id."""
        versions = (*self.value.versions, *(self.key.versions if self.key else ()))
        return {str(version.id): version.fingerprint for version in versions if version.id}

    def decoding(self) -> Decoding:
        """Return the instructions that decode records into rows."""
        from spark.decoding.decode import Decoding

        value_columns = [field.name for field in self.struct.fields]
        from_key = [name for name in (self.key.codec.columns if self.key else ()) if name not in value_columns]
        return Decoding(
            value=self.value.codec,
            key=self.key.codec if self.key else None,
            columns=(*value_columns, *from_key),
            key_columns=self.topic.key,
            mode=self.topic.mode,
            registered=isinstance(format_of(self.topic.value_format), RegisteredFormat),
            other_type_ids=self.other_type_ids,
            unfit_ids=self.unfit_ids,
            unusable_ids=self.unusable_ids,
            has_other_types=bool(self.topic.record),
            metadata=self.topic.metadata.names,
            quarantine={name: check.failure_condition for name, check in self.topic.quarantine.items()},
        )


def resolve_schemas(registry: SchemaRegistry, topic: Topic) -> TopicSchemas:
    """Return the schemas of a topic: the newest version defines the columns, and every version decodes its own records.

    Raises:
        SchemaError: No schema is registered, or it cannot become columns.
        Unreachable: The registry does not answer.
    """
    value = _side(registry, topic, topic.value_format, "value")
    key = _side(registry, topic, topic.effective_key_format, "key") if topic.effective_key_format else None
    return TopicSchemas(topic, value, key)


def with_foreign_writers(
    registry: SchemaRegistry, known: TopicSchemas, decoded: DataFrame, lookup: Lookup
) -> TopicSchemas:
    """Extend the schemas by those of other subjects whose ids occur in the records.

    A schema of another record type decodes nothing. If the topic declares its record type, such records belong to
    another table; otherwise they are dead letters. Ids beyond the limits are not treated as unknown: only those in
    `unusable_ids` are.

    Args:
        registry: The schema registry.
        known: The schemas so far, which treat all other ids as unknown.
        decoded: The records, decoded with `known`.
        lookup: Limits on the lookup.

    Raises:
        Unreachable: The registry does not answer. A missing answer is never treated as an unknown id.
    """
    from spark.decoding.decode import foreign_schema_ids

    assert known.unusable_ids is None
    known = _with_foreign_keys(registry, known, decoded, lookup)
    # Dead letters keep the records, so a cached answer suffices: `lakehouse redrive` queries the registry again.
    missing_ids = registry.not_found() if lookup == BATCH and known.topic.errors == "log" else frozenset()
    ids = foreign_schema_ids(decoded, lookup.ids + 1, missing_ids)
    is_limited = len(ids) > lookup.ids
    foreign, other_type_ids, unusable_ids = list(known.foreign), set(known.other_type_ids), set(missing_ids)
    examined, used = 0, sum(schema.characters for schema in foreign)
    deadline = time.monotonic() + lookup.seconds
    own_versions = known.value.versions[len(known.foreign) :]
    schemas = {id_: _foreign(registry, id_, deadline) for id_ in ids[: lookup.ids]}
    for id_, schema in schemas.items():
        if schema is None:
            unusable_ids.add(id_)
            continue
        examined += schema.characters
        if examined > EXAMINED_CHARACTERS:
            is_limited = True
        elif not ((format_ := of_type(schema.type)) and format_.is_readable(schema)):
            unusable_ids.add(id_)
        elif known.topic.record and not record_types.is_named(schema, known.topic.record):
            other_type_ids.add(id_)
        elif not _is_harmless(known.topic.value_format, known.topic.record, schema):
            unusable_ids.add(id_)
        elif not _is_own(registry, known.topic, "value", schema, own_versions):
            other_type_ids.add(id_)
        elif len(foreign) == FOREIGN_WRITERS or used + schema.characters > MAX_CHARACTERS:
            is_limited = True
        else:
            foreign.append(schema)
            used += schema.characters
    extended = replace(
        known, other_type_ids=frozenset(other_type_ids), unusable_ids=frozenset(unusable_ids) if is_limited else None
    )
    if len(foreign) == len(known.foreign):
        return extended
    # Only the topic's own subject defines the columns.
    value = side_schema(
        known.topic.value_format, (*foreign, *own_versions), known.topic.record, known.value.schema.read_by
    )
    return replace(extended, foreign=tuple(foreign), value=value)


def _with_foreign_keys(
    registry: SchemaRegistry, known: TopicSchemas, decoded: DataFrame, lookup: Lookup
) -> TopicSchemas:
    """Extend the key's schemas in the same way. Keys with unusable schemas, or beyond the limits, remain bad keys."""
    from spark.decoding.decode import foreign_schema_ids

    name = known.topic.effective_key_format
    if known.key is None or name is None or not isinstance(format_of(name), RegisteredFormat):
        return known
    of_subject = known.key.versions
    missing_ids = registry.not_found() if lookup == BATCH and known.topic.errors == "log" else frozenset()
    skipped = {version.id for version in of_subject} | missing_ids
    deadline, used = time.monotonic() + lookup.seconds, 0
    foreign: list[RegisteredSchema] = []
    for id_ in foreign_schema_ids(decoded, lookup.ids, skipped, "key"):
        schema = _foreign(registry, id_, deadline)
        if schema is None or len(foreign) == FOREIGN_WRITERS or used + schema.characters > MAX_CHARACTERS:
            continue
        if not _is_harmless(name, "", schema):
            continue
        if _is_own(registry, known.topic, "key", schema, of_subject):
            foreign.append(schema)
            used += schema.characters
    if not foreign:
        return known
    return replace(known, key=side_schema(name, (*foreign, *of_subject), "", known.key.schema.read_by))


def _foreign(registry: SchemaRegistry, id_: int, deadline: float) -> RegisteredSchema | None:
    """Return the schema of an id; None if the registry has none or it exceeds the reference limits."""
    try:
        return registry.by_id(id_, deadline)
    except SchemaError:
        return None


def _is_harmless(name: str, record: str, schema: RegisteredSchema) -> bool:
    """Return whether records of a schema registered under another subject may be decoded.

    A schema that cannot become a table, such as a recursive one, may need unlimited time or memory.
    """
    format_ = format_of(name)
    if not isinstance(format_, RegisteredFormat) or schema.type != format_.schema_type:
        return False
    if not format_.is_readable(schema):
        return False
    try:
        side_schema(name, [schema], record)
    except SchemaError:
        return False
    return True


def _is_own(
    registry: SchemaRegistry,
    topic: Topic,
    which: Literal["key", "value"],
    schema: RegisteredSchema,
    versions: Sequence[RegisteredSchema],
) -> bool:
    """Return whether a schema of another subject has this topic's record type, or was once of the topic's subject.

    Raises:
        Unreachable: The registry does not answer.
    """
    if record_types.is_same(schema, versions, topic.record if which == "value" else ""):
        return True
    format_ = of_type(schema.type)
    return bool(format_ and format_.names_are_optional) and topic.subject(which) in registry.subjects(schema.id)


def older_versions(known: TopicSchemas) -> Iterator[TopicSchemas]:
    """Yield the schemas with the columns of ever older versions of the value, beginning with the second newest.

    The newer versions are still known. Their records become dead letters if the older schema cannot read them.
    """
    versions = known.value.versions
    for count in range(len(versions) - 1, 0, -1):
        older = side_schema(known.topic.value_format, versions, known.topic.record, versions[:count])
        yield replace(known, value=older, unfit_ids=frozenset(version.id for version in versions[count:]))


def side_schema(
    name: str, versions: Sequence[RegisteredSchema], record: str = "", read_by: Sequence[RegisteredSchema] = ()
) -> SideSchema:
    """Return the schema of a key or value.

    Args:
        name: The name of the format.
        versions: The versions, oldest first.
        record: The full name of the record type; empty for the first one.
        read_by: The versions that define the columns; all if empty.

    Raises:
        SchemaError: The newest version cannot become columns.
        ConfigError: The format is unknown.
    """
    return _read(format_of(name), MessageSchema(tuple(versions), tuple(read_by or versions), record))


def _side(registry: SchemaRegistry, topic: Topic, name: str, which: Literal["key", "value"]) -> SideSchema:
    format_ = format_of(name)
    if isinstance(format_, RegisteredFormat):
        return side_schema(name, _versions(registry, topic, which), topic.record if which == "value" else "")
    if format_.file_type and which == "value" and topic.value_schema:
        return side_schema(name, [RegisteredSchema(0, topic.value_schema, format_.file_type)])
    column = (topic.key[0] if topic.key else "key") if which == "key" else "value"
    return _read(format_, MessageSchema(column=column))


def _read(format_: Format, schema: MessageSchema) -> SideSchema:
    reader = format_.reader(schema)
    return SideSchema(schema, format_.columns(reader), resolve_name(format_.decoder)(schema, reader))


def _versions(registry: SchemaRegistry, topic: Topic, which: Literal["key", "value"]) -> list[RegisteredSchema]:
    """Return the versions of a subject that may have written this side of the messages, oldest first."""
    subject = topic.subject(which)
    versions = registry.versions(subject)
    if not versions:
        raise SchemaError(
            f"The schema registry has no subject '{subject}', so records cannot be decoded. Nothing was ingested. "
            f"Register the schema, or start the producer that registers it"
        )
    record = topic.record if which == "value" else ""
    named = [version for version in versions if not record or record_types.is_named(version, record)]
    if not named:
        newest = versions[-1]
        if (format_ := of_type(newest.type)) and not format_.is_readable(newest):
            # Raise the error of the schema itself.
            side_schema(topic.value_format, [newest], record)
        raise SchemaError(
            f"No version of subject '{subject}' describes the record type '{record}'. Nothing was ingested. Correct "
            f"'record' of topic '{topic.name}' in lakehouse.yaml, or register a schema of that type"
        )
    return named
