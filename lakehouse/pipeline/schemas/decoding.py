"""Resolve the schemas of a topic's keys and values: its columns, and the codecs that decode its records."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.types import BooleanType, IntegerType, LongType, StringType, StructType

from lakehouse import formats
from lakehouse.config.model import Topic
from lakehouse.core.errors import SchemaError
from lakehouse.core.tables.metadata_columns import internal, registered
from lakehouse.formats import evolution, format_of, of_type
from lakehouse.formats.format import Conversions, MessageSchema, RegisteredFormat
from lakehouse.formats.json.connect_payload import with_payload
from lakehouse.formats.schema import Guids, RegisteredSchema, Shape
from lakehouse.pipeline.engine_values import Decoding, Side
from resources.protocols import RegistryClient

KEPT = 100
"""Maximum number of parsed schemas that are kept: batches of the same topic read the same ones."""


@dataclass(frozen=True)
class SideSchema:
    """Schema of the key or value of a topic's messages.

    Attributes:
        side: The format, the registered versions, and which of them define the columns.
        shape: The columns.
    """

    side: Side
    shape: Shape

    @property
    def schema(self) -> MessageSchema:
        """The registered versions, and which of them define the columns."""
        return self.side.schema

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in order."""
        return [field.name for field in self.shape.struct.fields]

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
        reads_header_ids: Whether schema ids are read from headers, which costs time.
        guids: Schema ids by GUID, beyond those of the versions.
        conflicts: Reasons, by id, why schemas cannot share columns with the others. Their records are dead letters.
        registered: All versions of the value's subject, oldest first, with those in conflict.
    """

    topic: Topic
    value: SideSchema
    key: SideSchema | None
    foreign: tuple[RegisteredSchema, ...] = ()
    other_type_ids: frozenset[int] = frozenset()
    unfit_ids: frozenset[int] = frozenset()
    unusable_ids: frozenset[int] | None = None
    reads_header_ids: bool = True
    guids: Guids = Guids()
    conflicts: Mapping[int, str] = field(default_factory=dict)
    registered: tuple[RegisteredSchema, ...] = ()

    @property
    def struct(self) -> StructType:
        """The columns of the value; for change events, those of the row.

        Raises:
            SchemaError: The schema of a change event has no field `after`.
        """
        struct = self.value.shape.struct
        if self.topic.mode != "debezium":
            return struct
        after = [field.field_type for field in struct.fields if field.name == "after"]
        if not after or not isinstance(after[0], StructType):
            raise SchemaError(
                f"The schema of '{self.topic.subject('value')}' is not a Debezium envelope: it has no record 'after'. "
                f"Nothing was ingested. Set a 'mode' other than debezium in lakehouse.yaml"
            )
        return after[0]

    def deletion(self) -> tuple[str, str] | None:
        """Return the column, and its value as text, of records that delete the row of their key; None if undeclared.

        Raises:
            SchemaError: The values have no such column of text, booleans or integers, or it never has that value.
        """
        if not (deletion := self.topic.delete):
            return None
        types = {field.name: field.field_type for field in self.struct.fields}
        match types.get(deletion.column):
            case StringType():
                is_possible = True
            case BooleanType():
                is_possible = deletion.value in ("true", "false")
            case IntegerType() | LongType():
                is_possible = re.fullmatch("0|-?[1-9][0-9]*", deletion.value) is not None
            case _:
                is_possible = False
        if not is_possible:
            raise SchemaError(
                f"Topic '{self.topic.name}' declares that '{deletion.value}' in the column '{deletion.column}' marks "
                f"deletions, and its values have no column of text, booleans or integers with this name and value. "
                f"Nothing was ingested. Correct 'delete' in lakehouse.yaml: the columns are {', '.join(types)}"
            )
        return deletion.column, deletion.value

    @property
    def previous_names(self) -> dict[str, tuple[str, ...]]:
        """Previous names of renamed columns, by the dotted path of the column in the table."""
        within = "after." if self.topic.mode == "debezium" else ""
        previous_names = {
            **self.value.shape.previous_names,
            **(self.key.shape.previous_names if self.key and not within else {}),
        }
        return {path.removeprefix(within): names for path, names in previous_names.items() if path.startswith(within)}

    @property
    def known_guids(self) -> Guids:
        """Schema ids by GUID."""
        versions = (*self.registered, *self.value.versions, *(self.key.versions if self.key else ()))
        of_versions = {version.guid: version.id for version in versions if version.guid}
        return replace(self.guids, ids=of_versions | dict(self.guids.ids))

    @property
    def fingerprints(self) -> dict[str, str]:
        """Fingerprint of each registered schema, by schema id."""
        versions = (*self.value.versions, *(self.key.versions if self.key else ()))
        return {str(version.id): version.fingerprint for version in versions if version.id}

    def decoding(self, partitions: int = 1) -> Decoding[Side]:
        """Return the instructions that decode records into rows.

        Args:
            partitions: The number of the topic's partitions, whose records have no order among each other.
        """
        truncate = self.topic.debezium.truncate
        value_columns = [field.name for field in self.struct.fields]
        from_key = [name for name in (self.key.columns if self.key else ()) if name not in value_columns]
        may_have_ids = any(
            isinstance(format_of(side.side.format), RegisteredFormat) for side in (self.value, self.key) if side
        )
        metadata_columns = registered().items()
        is_column_of_headers = any(
            column.needs_headers for name, column in metadata_columns if internal(name) in self.topic.metadata.names
        )
        return Decoding(
            value=self.value.side,
            key=self.key.side if self.key else None,
            columns=(*value_columns, *from_key),
            key_columns=self.topic.key,
            mode=self.topic.mode,
            deletion=self.deletion(),
            registered=isinstance(format_of(self.topic.value_format), RegisteredFormat),
            other_type_ids=self.other_type_ids,
            unfit_ids=self.unfit_ids,
            unusable_ids=self.unusable_ids,
            needs_headers=may_have_ids or is_column_of_headers,
            reads_header_ids=may_have_ids and self.reads_header_ids,
            guids=self.known_guids,
            conflicts=self.conflicts,
            has_other_types=bool(self.topic.record),
            metadata=self.topic.metadata.names,
            unavailable=self.topic.debezium.unavailable_value,
            truncate="refuse" if truncate == "apply" and partitions > 1 else truncate,
            quarantine={name: check.test for name, check in self.topic.quarantine.items()},
        )


def resolve_schemas(registry: RegistryClient, topic: Topic) -> TopicSchemas:
    """Return the schemas of a topic: the newest version defines the columns, and every version decodes its own records.

    Versions that cannot share columns with newer ones are in `conflicts`; see `decide_schema`.

    Raises:
        SchemaError: No schema is registered, or none can become columns.
        Unreachable: The registry does not answer.
    """
    _require_declared_keys(registry, topic)
    key = _key(registry, topic)
    if not isinstance(format_of(topic.value_format), RegisteredFormat):
        return TopicSchemas(topic, _side(registry, topic, topic.value_format, "value"), key)
    versions = _versions(registry, topic, "value")
    try:
        value = topic_side(topic, "value", versions)
    except SchemaError:
        value, conflicts = _consistent(topic, versions)
        return TopicSchemas(topic, value, key, conflicts=conflicts, registered=tuple(versions))
    return TopicSchemas(topic, value, key, registered=tuple(versions))


def _require_declared_keys(registry: RegistryClient, topic: Topic) -> None:
    """Require that keys are not text by default although they have a schema.

    The tombstones of such keys would delete no rows.

    Raises:
        SchemaError: The topic declares no `key_format`, and the registry has a schema of its keys.
    """
    if topic.key_format or topic.mode != "upsert" or not (versions := registry.versions(topic.subject("key"))):
        return
    format_ = formats.of_type(versions[-1].type)
    remedy = f"Write 'key_format: {format_.name}'" if format_ else "Write 'key_format'"
    raise SchemaError(
        f"Topic '{topic.name}' declares no format of its message keys, which are no text: the registry has their "
        f"schema '{topic.subject('key')}'. Nothing was ingested. {remedy} in lakehouse.yaml, or 'key_format: none' if "
        f"the values have the columns of 'key'"
    )


def with_versions(known: TopicSchemas, ids: Collection[int]) -> TopicSchemas:
    """Return the schemas with the columns of the versions with these ids, and of others that can share the columns."""
    first = [version for version in known.registered if version.id in ids]
    value, conflicts = _consistent(known.topic, known.registered, first)
    return replace(known, value=value, conflicts=conflicts)


def _consistent(
    topic: Topic, versions: Sequence[RegisteredSchema], first: Sequence[RegisteredSchema] = ()
) -> tuple[SideSchema, dict[int, str]]:
    """Return the schema of versions that can share columns, and the reasons, by id, why the others cannot.

    Versions are added one by one: those in `first`, then from the newest to the oldest.

    Raises:
        SchemaError: No version can become columns.
    """
    included: list[RegisteredSchema] = []
    side, conflicts = None, {}
    for version in [*first, *(other for other in reversed(versions) if other not in first)]:
        candidates = [other for other in versions if other in included or other == version]
        try:
            side = topic_side(topic, "value", candidates)
            included = candidates
        except SchemaError as error:
            conflicts[version.id] = str(error)
    if side is None:
        raise SchemaError(conflicts[versions[-1].id])
    return side, conflicts


def older_versions(known: TopicSchemas) -> Iterator[TopicSchemas]:
    """Yield the schemas with the columns of ever older versions of the value, beginning with the second newest.

    The newer versions are still known. Their records become dead letters if the older schema cannot read them, or if
    the version has fields without a column.
    """
    versions = known.value.versions
    for count in range(len(versions) - 1, 0, -1):
        older = topic_side(known.topic, "value", versions, versions[:count])
        unfit_ids = frozenset(version.id for version in versions[count:])
        conflicts = {**known.conflicts, **without_columns(known.topic, older, versions[count:])}
        yield replace(known, value=older, unfit_ids=unfit_ids, conflicts=conflicts)


def without_columns(
    topic: Topic, side: SideSchema, others: Sequence[RegisteredSchema], which: Literal["key", "value"] = "value"
) -> dict[int, str]:
    """Return the reasons, by id, why schemas that do not define the columns have values that no column would contain.

    Args:
        topic: The topic.
        side: The schema of its keys or values.
        others: The schemas that do not define its columns.
        which: The side.
    """
    reasons = {}
    table = assign_fresh_schema_ids(Schema(*side.shape.struct.fields))
    read_by = side.schema.read_by
    for other in others:
        try:
            # As an older version than the newest, because the names and aliases of that one pair the fields.
            shape = topic_side(topic, which, [*read_by, other, read_by[-1]]).shape
        except SchemaError as error:
            reasons[other.id] = str(error)
            continue
        added = (change for change in evolution.changes(table, shape) if evolution.adds_field(change))
        # Of a change event, only the row after the change has columns.
        is_event = which == "value" and topic.mode == "debezium"
        paths = [change.path for change in added if not is_event or change.path[0] == "after"]
        if paths:
            reasons[other.id] = f"the table has no column for its field '{'.'.join(paths[0])}'"
    return reasons


def topic_side(
    topic: Topic,
    which: Literal["key", "value"],
    versions: Sequence[RegisteredSchema],
    read_by: Sequence[RegisteredSchema] = (),
) -> SideSchema:
    """Return the schema of a topic's keys or values, as `side_schema` does."""
    name, record = (topic.value_format, topic.record) if which == "value" else (topic.effective_key_format, "")
    assert name is not None, "the keys have a schema"
    column = topic.key[0] if which == "key" and len(topic.key) == 1 else ""
    return side_schema(name, versions, record, read_by, topic.conversions, column)


def side_schema(
    name: str,
    versions: Sequence[RegisteredSchema],
    record: str = "",
    read_by: Sequence[RegisteredSchema] = (),
    conversions: Conversions | None = None,
    column: str = "",
) -> SideSchema:
    """Return the schema of a key or value.

    Args:
        name: The name of the format.
        versions: The versions, oldest first.
        record: The full name of the record type; empty for the first one.
        read_by: The versions that define the columns; all if empty.
        conversions: Those of the topic; none if omitted.
        column: The name of the column of a message that is one value; empty if messages have several columns.

    Raises:
        SchemaError: The newest version cannot become columns.
        ConfigError: The format is unknown.
    """
    conversions = conversions or Conversions()
    schema = MessageSchema(tuple(versions), tuple(read_by or versions), record, column, conversions)
    return _read(name, schema)


def _side(registry: RegistryClient, topic: Topic, name: str, which: Literal["key", "value"]) -> SideSchema:
    format_ = format_of(name)
    if isinstance(format_, RegisteredFormat):
        return topic_side(topic, which, _versions(registry, topic, which))
    if format_.file_type and which == "value" and topic.value_schema:
        text = with_payload(topic.value_schema) if topic.mode == "debezium" else topic.value_schema
        return side_schema(name, [RegisteredSchema(0, text, format_.file_type)])
    column = (topic.key[0] if topic.key else "key") if which == "key" else "value"
    return _read(name, MessageSchema(column=column))


def _key(registry: RegistryClient, topic: Topic) -> SideSchema | None:
    """Return the schema of the keys; None if they are not decoded: change events may have keys without a schema.

    Raises:
        SchemaError: No schema is registered, or none can become columns.
    """
    name = topic.effective_key_format
    is_chosen = bool(topic.key_format) or topic.mode != "debezium"
    if name is None or not (
        is_chosen or not isinstance(format_of(name), RegisteredFormat) or registry.versions(topic.subject("key"))
    ):
        return None
    try:
        return _side(registry, topic, name, "key")
    except SchemaError as error:
        if topic.mode == "debezium":
            raise
        raise SchemaError(
            f"The keys of topic '{topic.name}' cannot be decoded: {error}, or write 'key_format: none' in "
            f"lakehouse.yaml if the values have the columns of 'key'"
        ) from error


@lru_cache(maxsize=KEPT)
def _read(name: str, schema: MessageSchema) -> SideSchema:
    return SideSchema(Side(name, schema), format_of(name).shape(schema))


def _as_record(version: RegisteredSchema, column: str) -> RegisteredSchema:
    format_ = formats.of_type(version.type)
    return format_.as_record(version, column) if format_ else version


def _versions(registry: RegistryClient, topic: Topic, which: Literal["key", "value"]) -> list[RegisteredSchema]:
    """Return the versions of a subject that may have written this side of the messages, oldest first."""
    subject = topic.subject(which)
    versions = registry.versions(subject)
    if not versions:
        raise SchemaError(
            f"The schema registry has no subject '{subject}', so records cannot be decoded. Nothing was ingested. "
            f"Register the schema, or start the producer that registers it"
        )
    record = topic.record if which == "value" else ""
    named = [version for version in versions if not record or formats.is_named(version, record)]
    if not named:
        newest = versions[-1]
        if (format_ := of_type(newest.type)) and not format_.is_readable(newest):
            # Raise the error of the schema itself.
            topic_side(topic, which, [newest])
        raise SchemaError(
            f"No version of subject '{subject}' describes the record type '{record}'. Nothing was ingested. Correct "
            f"'record' of topic '{topic.name}' in lakehouse.yaml, or register a schema of that type"
        )
    if which == "key" and len(topic.key) == 1:
        # Serializers write a key of one value as that value.
        return [_as_record(version, topic.key[0]) for version in named]
    return named
