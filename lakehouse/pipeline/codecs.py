"""From the registry to how a topic's records are decoded, and what columns they have."""

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

    from spark.decode import Codec, Decoding


FOREIGN_WRITERS = 64
"""So many schemas of other subjects decode besides the topic's own: each is a part of every query."""

EXAMINED_CHARACTERS = 10 * MAX_CHARACTERS
"""Of all schemas of other subjects that are parsed or compiled at one time."""


@dataclass(frozen=True)
class Lookup:
    """How much the registry is asked about schema ids that the topic does not have: the number of ids, and for how many
    seconds. Whoever produces a record chooses its id, so that a batch may name millions."""

    ids: int
    seconds: float


BATCH = Lookup(64, 60)
"""For each batch, again and again."""

BY_HAND = Lookup(10_000, 600)
"""For what somebody started, such as `lakehouse redrive`."""


@dataclass(frozen=True)
class Side:
    """One side of a topic's messages: its schema, the columns, and what decodes it."""

    schema: MessageSchema
    shape: Shape
    codec: Codec

    @property
    def versions(self) -> tuple[RegisteredSchema, ...]:
        """The schemas that messages may be written with, oldest first."""
        return self.schema.versions


@dataclass(frozen=True)
class Formats:
    """Both sides of a topic's messages. `foreign` are schemas of other subjects, which are the first of the value's
    versions. Of schema ids, `others` are of record types that are not this topic's, `unfit` of versions that do not say
    what the columns are, and `absent` of no usable schema, where the registry was not asked about every other."""

    topic: Topic
    value: Side
    key: Side | None
    foreign: tuple[RegisteredSchema, ...] = ()
    others: frozenset[int] = frozenset()
    unfit: frozenset[int] = frozenset()
    absent: frozenset[int] | None = None

    @property
    def struct(self) -> StructType:
        """The value's own columns; of a change event, those of the row.

        Raises: SchemaError when a change event's schema has no `after`.
        """
        struct = self.value.shape.struct
        if self.topic.mode != "debezium":
            return struct
        from pyiceberg.types import StructType

        after = [field.field_type for field in struct.fields if field.name == "after"]
        if not after or not isinstance(after[0], StructType):
            raise SchemaError(
                f"The schema of '{self.topic.subject('value')}' is no Debezium envelope: it has no record 'after'. "
                f"Set another 'mode' than debezium"
            )
        return after[0]

    @property
    def former(self) -> dict[str, tuple[str, ...]]:
        """Names that columns had before, by their dotted path in the table."""
        within = "after." if self.topic.mode == "debezium" else ""
        former = {**self.value.shape.former, **(self.key.shape.former if self.key and not within else {})}
        return {path.removeprefix(within): names for path, names in former.items() if path.startswith(within)}

    @property
    def fingerprints(self) -> dict[str, str]:
        """What tells each registered schema from any other, by its id."""
        versions = (*self.value.versions, *(self.key.versions if self.key else ()))
        return {str(version.id): version.fingerprint for version in versions if version.id}

    def decoding(self) -> Decoding:
        """How records become rows."""
        from spark.decode import Decoding

        own = [field.name for field in self.struct.fields]
        from_key = [name for name in (self.key.codec.columns if self.key else ()) if name not in own]
        return Decoding(
            value=self.value.codec,
            key=self.key.codec if self.key else None,
            columns=(*own, *from_key),
            key_columns=self.topic.key,
            mode=self.topic.mode,
            registered=isinstance(format_of(self.topic.value_format), RegisteredFormat),
            others=self.others,
            unfit=self.unfit,
            absent=self.absent,
            several=bool(self.topic.record),
            metadata=self.topic.metadata.names,
            quarantine={name: check.fails for name, check in self.topic.quarantine.items()},
        )


def formats(registry: SchemaRegistry, topic: Topic) -> Formats:
    """How the topic's messages are encoded: the newest registered schema reads, each registered one may have written.

    Raises: SchemaError when no schema is registered, or it cannot become columns; Unreachable.
    """
    value = _side(registry, topic, topic.value_format, "value")
    key = _side(registry, topic, topic.decoded_key, "key") if topic.decoded_key else None
    return Formats(topic, value, key)


def with_foreign_writers(registry: SchemaRegistry, known: Formats, decoded: DataFrame, lookup: Lookup) -> Formats:
    """Extend the formats by schemas that records name by id though they are not of the topic's subjects.

    A schema of another record type decodes nothing: its records are another table's where the topic's entry names the
    record type that is its own, and dead letters where it names none. Ids beyond the limits are never taken for
    unknown: `absent` then tells which are.

    Args:
        registry: the schema registry.
        known: the formats so far, which say of every id that they do not have that it is unknown.
        decoded: the records, as `known` decoded them.
        lookup: how much the registry is asked.

    Raises:
        Unreachable: The registry does not answer: that is never "unknown".
    """
    from spark.decode import foreign_schema_ids

    assert known.absent is None
    known = _with_foreign_keys(registry, known, decoded, lookup)
    # Where records are kept, an answer of a minute ago will do: `lakehouse redrive` asks again.
    answered = registry.not_found() if lookup == BATCH and known.topic.errors == "log" else frozenset()
    named = foreign_schema_ids(decoded, lookup.ids + 1, answered)
    beyond = len(named) > lookup.ids
    foreign, others, absent = list(known.foreign), set(known.others), set(answered)
    examined, used = 0, sum(schema.characters for schema in foreign)
    deadline = time.monotonic() + lookup.seconds
    own = known.value.versions[len(known.foreign) :]
    schemas = {id_: _foreign(registry, id_, deadline) for id_ in named[: lookup.ids]}
    for id_, schema in schemas.items():
        if schema is None:
            absent.add(id_)
            continue
        examined += schema.characters
        if examined > EXAMINED_CHARACTERS:
            beyond = True
        elif not ((format_ := of_type(schema.type)) and format_.is_readable(schema)):
            absent.add(id_)
        elif known.topic.record and not record_types.is_named(schema, known.topic.record):
            others.add(id_)
        elif not _is_harmless(known.topic.value_format, known.topic.record, schema):
            absent.add(id_)
        elif not _is_own(registry, known.topic, "value", schema, own):
            others.add(id_)
        elif len(foreign) == FOREIGN_WRITERS or used + schema.characters > MAX_CHARACTERS:
            beyond = True
        else:
            foreign.append(schema)
            used += schema.characters
    found = replace(known, others=frozenset(others), absent=frozenset(absent) if beyond else None)
    if len(foreign) == len(known.foreign):
        return found
    # What the columns are is said by the topic's own subject alone.
    value = side(known.topic.value_format, (*foreign, *own), known.topic.record, known.value.schema.read_by)
    return replace(found, foreign=tuple(foreign), value=value)


def _with_foreign_keys(registry: SchemaRegistry, known: Formats, decoded: DataFrame, lookup: Lookup) -> Formats:
    """The same for keys. Those of a schema that is not usable, or beyond the limits, stay what they are."""
    from spark.decode import foreign_schema_ids

    name = known.topic.decoded_key
    if known.key is None or name is None or not isinstance(format_of(name), RegisteredFormat):
        return known
    of_subject = known.key.versions
    answered = registry.not_found() if lookup == BATCH and known.topic.errors == "log" else frozenset()
    skipped = {version.id for version in of_subject} | answered
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
    return replace(known, key=side(name, (*foreign, *of_subject), "", known.key.schema.read_by))


def _foreign(registry: SchemaRegistry, id_: int, deadline: float) -> RegisteredSchema | None:
    """The schema of an id; None where there is none, or it refers to more than is read."""
    try:
        return registry.by_id(id_, deadline)
    except SchemaError:
        return None


def _is_harmless(name: str, record: str, schema: RegisteredSchema) -> bool:
    """Whether records of a schema that somebody registered elsewhere may be decoded: one that could be no table, such
    as one that contains itself, may cost more than there is."""
    format_ = format_of(name)
    if not isinstance(format_, RegisteredFormat) or schema.type != format_.schema_type:
        return False
    if not format_.is_readable(schema):
        return False
    try:
        side(name, [schema], record)
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
    """Whether a schema that the topic's subject does not list is of its record type, or was of the subject once.

    Raises: Unreachable.
    """
    if record_types.is_same(schema, versions, topic.record if which == "value" else ""):
        return True
    format_ = of_type(schema.type)
    return bool(format_ and format_.names_are_optional) and topic.subject(which) in registry.subjects(schema.id)


def before_newest(known: Formats) -> Iterator[Formats]:
    """The formats as they were before the newest version of the value's schema, before the one before, and so on.

    Records of versions left out are still known, and do not decode where the older schema cannot read them.
    """
    versions = known.value.versions
    for count in range(len(versions) - 1, 0, -1):
        older = side(known.topic.value_format, versions, known.topic.record, versions[:count])
        yield replace(known, value=older, unfit=frozenset(version.id for version in versions[count:]))


def side(
    name: str, versions: Sequence[RegisteredSchema], record: str = "", read_by: Sequence[RegisteredSchema] = ()
) -> Side:
    """What the versions of a schema make of one side of a message.

    Parameters: `name` is the format's; `read_by` are the versions that say what the columns are, where not all do.
    Raises: SchemaError when the newest cannot become columns; ConfigError for an unknown format.
    """
    return _read(format_of(name), MessageSchema(tuple(versions), tuple(read_by or versions), record))


def _side(registry: SchemaRegistry, topic: Topic, name: str, which: Literal["key", "value"]) -> Side:
    format_ = format_of(name)
    if isinstance(format_, RegisteredFormat):
        return side(name, _versions(registry, topic, which), topic.record if which == "value" else "")
    if format_.file_type and which == "value" and topic.value_schema:
        return side(name, [RegisteredSchema(0, topic.value_schema, format_.file_type)])
    column = (topic.key[0] if topic.key else "key") if which == "key" else "value"
    return _read(format_, MessageSchema(column=column))


def _read(format_: Format, schema: MessageSchema) -> Side:
    reader = format_.reader(schema)
    return Side(schema, format_.columns(reader), resolve_name(format_.decoder)(schema, reader))


def _versions(registry: SchemaRegistry, topic: Topic, which: Literal["key", "value"]) -> list[RegisteredSchema]:
    """The versions of a subject that may have written this side, oldest first."""
    subject = topic.subject(which)
    versions = registry.versions(subject)
    if not versions:
        raise SchemaError(
            f"The schema registry has no subject '{subject}', so there is nothing to decode with. Nothing was "
            f"ingested. Register the schema, or start the producer that does"
        )
    record = topic.record if which == "value" else ""
    return [version for version in versions if not record or record_types.is_named(version, record)]
