"""Look up the schemas of other subjects that a topic's records refer to."""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

from lakehouse import formats
from lakehouse.config.model import Topic
from lakehouse.core.errors import SchemaError, Unreachable
from lakehouse.formats import format_of, of_type
from lakehouse.formats.budget import MAX_CHARACTERS
from lakehouse.formats.format import RegisteredFormat
from lakehouse.formats.schema import Guids, RegisteredSchema
from lakehouse.pipeline.engine import Decided
from lakehouse.pipeline.schemas.decoding import TopicSchemas, topic_side, without_columns
from resources.protocols import RegistryClient

FOREIGN_WRITERS = 64
"""Maximum number of schemas of other subjects per topic. Each adds an expression to every query."""

EXAMINED_CHARACTERS = 10 * MAX_CHARACTERS
"""Maximum total size, in characters, of the schemas of other subjects that are parsed or compiled per lookup."""


EXPLAINED_IDS = 5
"""Maximum number of schema ids that are looked up to explain values of a format without schemas."""


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


def with_foreign_writers(
    registry: RegistryClient, known: TopicSchemas, decided: Decided, lookup: Lookup
) -> TopicSchemas:
    """Extend the schemas by those of other subjects whose ids occur in the records.

    A schema of another record type decodes nothing. If the topic declares its record type, such records belong to
    another table; otherwise they are dead letters. Ids beyond the limits are not treated as unknown: only those in
    `unusable_ids` are.

    Args:
        registry: The schema registry.
        known: The schemas so far, which treat all other ids as unknown.
        decided: The records, decoded with `known`.
        lookup: Limits on the lookup.

    Raises:
        Unreachable: The registry does not answer. A missing answer is never treated as an unknown id.
    """
    assert known.unusable_ids is None
    known = _with_foreign_keys(registry, known, decided, lookup)
    if not isinstance(format_of(known.topic.value_format), RegisteredFormat):
        return _with_frames(registry, known, decided)
    # Dead letters keep the records, so a cached response suffices: `lakehouse redrive` queries the registry again.
    missing_ids = registry.not_found() if lookup == BATCH and known.topic.errors == "log" else frozenset()
    unknown = decided.unknown_schema_ids(lookup.ids + 1, missing_ids)
    is_limited = len(unknown) > lookup.ids
    foreign, other_type_ids, unusable_ids = list(known.foreign), set(known.other_type_ids), set(missing_ids)
    examined, used = 0, sum(schema.characters for schema in foreign)
    deadline = time.monotonic() + lookup.seconds
    own_versions = known.value.versions[len(known.foreign) :]
    known, ids = _with_guids(registry, known, unknown[: lookup.ids], deadline)
    own_ids = {version.id for version in (*own_versions, *known.registered)}
    schemas = {id_: _foreign(registry, id_, deadline) for id_ in ids if id_ not in own_ids}
    for id_, schema in schemas.items():
        if schema is None:
            unusable_ids.add(id_)
            continue
        examined += schema.characters
        if examined > EXAMINED_CHARACTERS:
            is_limited = True
        elif not ((format_ := of_type(schema.type)) and format_.is_readable(schema)):
            unusable_ids.add(id_)
        elif known.topic.record and not formats.is_named(schema, known.topic.record):
            other_type_ids.add(id_)
        elif not _is_harmless(known.topic, "value", schema):
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
    value = topic_side(known.topic, "value", (*foreign, *own_versions), known.value.schema.read_by)
    conflicts = {**known.conflicts, **without_columns(known.topic, known.value, foreign)}
    return replace(extended, foreign=tuple(foreign), value=value, conflicts=conflicts)


def _with_frames(registry: RegistryClient, known: TopicSchemas, decided: Decided) -> TopicSchemas:
    """Add the reason why values that begin with the id of a schema do not decode: their format has no schemas.

    The reason only completes a message, so a registry that does not answer is no error.
    """
    reasons = dict(known.conflicts)
    for id_ in decided.unknown_schema_ids(EXPLAINED_IDS):
        with suppress(SchemaError, Unreachable):
            schema = registry.by_id(id_) if isinstance(id_, int) else None
            if schema and (format_ := of_type(schema.type)):
                reasons[schema.id] = (
                    f"it begins with the frame of schema id {id_}, which the registry has as {schema.type}: write "
                    f"'value_format: {format_.name}'"
                )
    return replace(known, conflicts=reasons)


def _with_guids(
    registry: RegistryClient, known: TopicSchemas, unknown: Sequence[int | str], deadline: float
) -> tuple[TopicSchemas, list[int]]:
    """Return the schemas with the ids of GUIDs, and all ids."""
    guids, fault, ids = dict(known.guids.ids), known.guids.fault, list[int]()
    for id_or_guid in unknown:
        id_ = id_or_guid if isinstance(id_or_guid, int) else None
        if isinstance(id_or_guid, str) and not fault:
            try:
                id_ = registry.id_of(id_or_guid, deadline)
            except SchemaError as error:
                fault = str(error)
            if id_ is not None:
                guids[id_or_guid] = id_
        if id_ is not None:
            ids.append(id_)
    return replace(known, guids=Guids(guids, fault)), [*dict.fromkeys(ids)]


def _with_foreign_keys(registry: RegistryClient, known: TopicSchemas, decided: Decided, lookup: Lookup) -> TopicSchemas:
    """Extend the key's schemas in the same way. Keys with unusable schemas, or beyond the limits, remain bad keys."""
    name = known.topic.effective_key_format
    if known.key is None or name is None or not isinstance(format_of(name), RegisteredFormat):
        return known
    keys = known.key
    of_subject = keys.versions
    missing_ids = registry.not_found() if lookup == BATCH and known.topic.errors == "log" else frozenset()
    skipped = {version.id for version in of_subject} | missing_ids
    deadline, used = time.monotonic() + lookup.seconds, 0
    foreign: list[RegisteredSchema] = []
    unknown = decided.unknown_schema_ids(lookup.ids, skipped, "key")
    known, ids = _with_guids(registry, known, unknown, deadline)
    for id_ in (id_ for id_ in ids if id_ not in skipped):
        schema = _foreign(registry, id_, deadline)
        if schema is None or len(foreign) == FOREIGN_WRITERS or used + schema.characters > MAX_CHARACTERS:
            continue
        if not _is_harmless(known.topic, "key", schema):
            continue
        if not _is_own(registry, known.topic, "key", schema, of_subject):
            continue
        # A key with a field that the topic's keys lack is that of another thing.
        if not without_columns(known.topic, keys, [schema], "key"):
            foreign.append(schema)
            used += schema.characters
    if not foreign:
        return known
    return replace(known, key=topic_side(known.topic, "key", (*foreign, *of_subject), keys.schema.read_by))


def _foreign(registry: RegistryClient, id_: int, deadline: float) -> RegisteredSchema | None:
    """Return the schema of an id; None if the registry has none or it exceeds the reference limits."""
    try:
        return registry.by_id(id_, deadline)
    except SchemaError:
        return None


def _is_harmless(topic: Topic, which: Literal["key", "value"], schema: RegisteredSchema) -> bool:
    """Return whether records of a schema registered under another subject may be decoded.

    A schema that cannot become a table, such as a recursive one, may need unlimited time or memory.
    """
    name = topic.value_format if which == "value" else topic.effective_key_format
    format_ = format_of(name or "")
    if not isinstance(format_, RegisteredFormat) or schema.type != format_.schema_type:
        return False
    if not format_.is_readable(schema):
        return False
    try:
        topic_side(topic, which, [schema])
    except SchemaError:
        return False
    return True


def _is_own(
    registry: RegistryClient,
    topic: Topic,
    which: Literal["key", "value"],
    schema: RegisteredSchema,
    versions: Sequence[RegisteredSchema],
) -> bool:
    """Return whether a schema of another subject has this topic's record type, or was once of the topic's subject.

    Raises:
        Unreachable: The registry does not answer.
    """
    if formats.is_same(schema, versions, topic.record if which == "value" else ""):
        return True
    format_ = of_type(schema.type)
    return bool(format_ and format_.names_are_optional) and topic.subject(which) in registry.subjects(schema.id)
