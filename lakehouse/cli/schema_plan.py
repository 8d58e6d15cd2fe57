"""Preview of the effect of a new schema on a topic's table and on the readers of its columns."""

import importlib.util
import json
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType, StructType

from lakehouse.config.model import Config, Topic
from lakehouse.config.sources import Derived
from lakehouse.core.errors import ConfigError, IncompatibleSettings, SchemaError, UnclearState
from lakehouse.core.tables.naming import TableRef
from lakehouse.formats import format_of, of_type, with_schemas
from lakehouse.formats.columns import table_schema
from lakehouse.formats.evolution import SchemaChange, changes, column_definition
from lakehouse.formats.format import RegisteredFormat
from lakehouse.formats.schema import RegisteredSchema, Shape
from lakehouse.pipeline.bookmark_owners import own_bookmark
from lakehouse.pipeline.schemas.declared_columns import require_columns
from lakehouse.pipeline.schemas.decoding import TopicSchemas, resolve_schemas, side_schema
from lakehouse.pipeline.schemas.schema_decision import (
    columns,
    columns_of_key,
    decide_schema,
    require_distinct_key,
    require_key,
    require_naming,
)
from lakehouse.readers import configured
from resources.protocols import RegistryClient, Resources

HARMLESS = ("OPTIONAL_FIELD_ADDED", "REQUIRED_FIELD_ADDED", "FIELD_REORDERED", "COMMENT_CHANGED")
"""Rules of changes that do not affect readers of existing columns."""


@dataclass(frozen=True)
class Plan:
    """The effect of a schema on a table."""

    ref: TableRef
    changes: tuple[SchemaChange, ...] = ()
    """Changes of columns, accepted and refused."""
    readers: tuple[str, ...] = ()
    """Sentences about columns of the message key, dropped properties, and what reads a changed column."""
    new_table: str | None = None
    """The Spark SQL equivalent of the table that ingestion will create; None if it exists."""
    invalid: str | None = None
    """The reason for which no table can have this schema, or None."""
    snowflake_table: str | None = None
    """The table's name in Snowflake; None if the environment has no Snowflake."""

    @property
    def is_accepted(self) -> bool:
        """True if ingestion accepts the schema."""
        return self.invalid is None and all(change.accepted for change in self.changes)

    @property
    def statements(self) -> list[str]:
        """The Spark SQL equivalent of the one commit that ingestion will make; empty if the schema is refused."""
        if not self.is_accepted:
            return []
        target = self.ref.spark_path()
        altered = [f"ALTER TABLE {target} {change.ddl}" for change in self.changes if change.ddl]
        return [self.new_table] if self.new_table else altered

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON values; `statement` is null for a change that needs no DDL."""
        target = self.ref.spark_path()
        return {
            "table": str(self.ref),
            "verdict": "accepted" if self.is_accepted else "refused",
            "new_table": self.new_table is not None,
            "create_table": self.new_table,
            "invalid": self.invalid,
            "changes": [
                {
                    "rule": change.rule,
                    "verdict": "accepted" if change.accepted else "refused",
                    "path": ".".join(change.path),
                    "detail": change.detail,
                    "reason": change.reason,
                    "statement": f"ALTER TABLE {target} {change.ddl}" if change.ddl else None,
                }
                for change in self.changes
            ],
            "readers": list(self.readers),
            "snowflake_table": self.snowflake_table,
        }

    def lines(self) -> Iterator[str]:
        """Yield the plan as lines of text."""
        yield f"{self.ref}: {'accepted' if self.is_accepted else 'refused'}"
        if self.invalid:
            yield f"  {self.invalid}"
        elif self.new_table:
            yield "  The table does not exist yet. Ingestion will create it:"
        elif not self.changes:
            yield "  No changes"
        for change in self.changes:
            yield f"  {'accepted' if change.accepted else 'REFUSED'} {change}"
        yield from (textwrap.indent(f"{statement};", "  ") for statement in self.statements)
        yield from (f"  {reader}" for reader in self.readers)
        if self.is_accepted and self.snowflake_table:
            yield f"  Snowflake table {self.snowflake_table} gets the change when it is refreshed"


def plan(
    config: Config, topic: Topic, file: Path, table: Schema | None, older: Sequence[RegisteredSchema] = ()
) -> Plan:
    """Return the plan for the schema in `file` as the newest of a topic.

    A schema that no table can have is a refusal, not an error.

    Args:
        table: The table's schema, or None if the table does not exist.
        older: The other versions of the topic's values, oldest first.
    """
    ref = topic.table_in(config.namespace)
    planned_for = partial(Plan, ref, snowflake_table=_in_snowflake(config, ref))
    try:
        schemas = read(file, topic, older)
        target = as_table(schemas, table)
        if table is not None:
            require_naming(topic, table, str(ref))
        schemas.deletion()
        require_distinct_key(schemas, [field.name for field in table.fields] if table else [])
        shape = Shape(target.as_struct(), schemas.previous_names)
        planned = tuple(changes(table, shape)) if table is not None else ()
        if not topic.key_format and topic.mode != "upsert":
            require_key(schemas)
            require_columns(topic, schemas, target, table, planned)
    except SchemaError as error:
        return planned_for(invalid=str(error))
    if table is None:
        return planned_for(new_table=creation(topic, ref, target), readers=tuple(notes(schemas)))
    planned = (*planned, *_dropped(table, read(file, topic), planned))
    return planned_for(planned, (*notes(schemas), *readers(config, topic, planned)))


def plan_registered(config: Config, topic: Topic, resources: Resources, file: Path | None = None) -> Plan:
    """Return the plan for the newest schema of a topic: the one in `file`, or else in the registry.

    A schema that is missing, or that no table can have, is a refusal, not an error.
    """
    ref, table = resources.catalog.chain(topic.table_in(config.namespace)).newest
    planned_for = partial(Plan, ref, snowflake_table=_in_snowflake(config, ref))
    registry: RegistryClient = resources.schema_registry
    alone = None
    if topic.source.upstream:
        try:
            own_bookmark(config, topic, resources, topic.topic)
        except (IncompatibleSettings, UnclearState) as error:
            return planned_for(invalid=str(error))
    try:
        if file and topic.value_schema:
            topic = topic.model_copy(update={"value_schema": _of_file(file, topic).text})
        elif file:
            with_file = _WithFile(registry, topic, _of_file(file, topic))
            registry, alone = with_file, _alone(topic, with_file.newest)
        decision = decide_schema(topic, resolve_schemas(registry, topic), table)
    except SchemaError as error:
        return planned_for(invalid=str(error))
    if decision.error and all(change.accepted for change in decision.changes):
        # Versions in conflict: no change of the table is refused.
        return planned_for(invalid=str(decision.error))
    planned = decision.changes
    if alone and table is not None:
        planned = (*planned, *_dropped(table.schema(), alone, planned))
    uses = (*notes(decision.schemas), *readers(config, topic, planned))
    created = creation(topic, ref, columns(topic, decision.schemas)) if table is None else None
    return planned_for(planned, uses, new_table=created)


def creation(topic: Topic, ref: TableRef, schema: Schema) -> str:
    """Return the Spark SQL equivalent of a new table, with a comment on its key, which Spark SQL has no clause for."""
    identity = {"append": "One row per record"}.get(topic.mode, f"One row per {', '.join(topic.key)}")
    lines = [f"CREATE TABLE {ref.spark_path()} (  -- {identity}"]
    lines += [f"  {column_definition(field)}," for field in schema.fields]
    lines[-1] = lines[-1].removesuffix(",")
    lines.append(") USING iceberg")
    if topic.partition_by:
        lines.append(f"PARTITIONED BY ({', '.join(topic.partition_by)})")
    written = f";\nALTER TABLE {ref.spark_path()} WRITE ORDERED BY {', '.join(topic.sort_by)}" if topic.sort_by else ""
    return "\n".join(lines) + written


def notes(schemas: TopicSchemas) -> Iterator[str]:
    """Yield sentences about the columns of the message key, and about properties that become no column."""
    yield from (f"Column '{name}' comes from the message key" for name in columns_of_key(schemas))
    [*_, newest] = schemas.value.versions or (None,)
    if newest and newest.type == "JSON":
        root = json.loads(newest.text)
        if isinstance(root, dict) and "properties" in root and root.get("additionalProperties") is not False:
            yield "Properties that the JSON Schema does not declare, but allows, are not stored"


@dataclass(frozen=True)
class _WithFile:
    """A schema registry in which the schema of a file is the newest version of a topic's values."""

    registry: RegistryClient
    topic: Topic
    schema: RegisteredSchema

    def versions(self, subject: str) -> list[RegisteredSchema]:
        versions = self.registry.versions(subject)
        return _with_newest(versions, self.newest) if subject == self.topic.subject("value") else versions

    @cached_property
    def newest(self) -> RegisteredSchema:
        """The schema with the references of the newest version, which a file cannot state."""
        versions = self.registry.versions(self.topic.subject("value"))
        return replace(self.schema, references=versions[-1].references if versions else ())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.registry, name)


def _with_newest(versions: Sequence[RegisteredSchema], newest: RegisteredSchema) -> list[RegisteredSchema]:
    """Return the versions after the registration of a schema. A registered schema does not become a new version."""
    return [*versions] if newest.fingerprint in {version.fingerprint for version in versions} else [*versions, newest]


def _dropped(table: Schema, alone: TopicSchemas, planned: Sequence[SchemaChange]) -> Iterator[SchemaChange]:
    """Yield the columns that the newest schema drops, which older versions still define."""
    target = as_table(alone, table)
    changed = {change.at for change in planned}
    for change in changes(table, Shape(target.as_struct(), alone.previous_names)):
        if change.rule == "FIELD_DELETED" and change.at not in changed:
            yield change


def read(file: Path, topic: Topic, older: Sequence[RegisteredSchema] = ()) -> TopicSchemas:
    """Return a schema file as the newest version of a topic's values: Avro (.avsc), JSON Schema (.json) or Protobuf."""
    return _alone(topic, *_with_newest(older, replace(_of_file(file, topic), id=len(older))))


def _alone(topic: Topic, *versions: RegisteredSchema) -> TopicSchemas:
    """Return versions of the schema of a topic's values, oldest first, without its keys."""
    format_ = of_type(versions[-1].type)
    assert format_ is not None, "files have a known type"
    return TopicSchemas(topic, side_schema(format_.name, versions, topic.record, conversions=topic.conversions), None)


def _of_file(file: Path, topic: Topic) -> RegisteredSchema:
    """Return the schema in a file.

    Raises:
        ConfigError: The values of the topic have no schema of this type.
        SchemaError: The file is not text.
    """
    by_suffix = {format_.suffix: format_.schema_type for format_ in with_schemas()}
    if file.suffix not in by_suffix:
        raise ConfigError(f"{file}: the suffix of a schema file must be {', '.join(by_suffix)}. Rename the file")
    values = format_of(topic.value_format)
    type_ = values.schema_type if isinstance(values, RegisteredFormat) else topic.value_schema and values.file_type
    if by_suffix[file.suffix] != type_:
        expected = next((suffix for suffix, of_suffix in by_suffix.items() if of_suffix == type_), "")
        remedy = f"Name a file with the suffix {expected}, or correct" if expected else "To use it, set"
        raise ConfigError(
            f"{file}: the values of topic '{topic.name}' have no such schema, because of `value_format: "
            f"{topic.value_format}`. {remedy} 'value_format' (or, for json, 'value_schema_file') in lakehouse.yaml"
        )
    try:
        return RegisteredSchema(0, file.read_text(), by_suffix[file.suffix])
    except UnicodeDecodeError as error:
        raise SchemaError(f"{file} is not text in UTF-8. Convert the file") from error


def as_table(schemas: TopicSchemas, table: Schema | None = None) -> Schema:
    """Return the schema of the table that ingestion creates for records of these schemas.

    Args:
        schemas: The schema of a topic's values. Columns that only its keys have are not known.
        table: The present table, whose key columns keep their types.
    """
    topic, types = schemas.topic, {field.name: field.field_type for field in table.fields} if table else {}
    key = [NestedField(1, name, types.get(name, StringType()), required=False) for name in topic.key]
    return table_schema(topic.metadata.names, schemas.struct, StructType(*key))


def readers(config: Config, topic: Topic, planned: Sequence[SchemaChange]) -> Iterator[str]:
    """Yield a sentence for each use of a changed column in lakehouse.yaml and the transforms of derived topics."""
    changed = dict.fromkeys(change.at[0] for change in planned if change.rule not in HARMLESS and change.at)
    for column in changed:
        if column in topic.key:
            yield f"Topic '{topic.name}': key has column '{column}'"
    for derived in config.topics.values():
        if not isinstance(derived.source, Derived) or derived.source.from_topic != topic.name:
            continue
        text = _source(derived.source.transform)
        for column in changed:
            if column in derived.source.group_by:
                yield f"Topic '{derived.name}': group_by reads column '{column}'"
            if re.search(rf"\b{re.escape(column)}\b", text):
                yield f"Topic '{derived.name}': transform {derived.source.transform} names column '{column}'"


def _source(transform: str) -> str:
    """Return the source of a transform's module without importing it; empty if there is none."""
    spec = importlib.util.find_spec(transform.partition(":")[0])
    return Path(spec.origin).read_text() if spec and spec.origin and spec.origin.endswith(".py") else ""


def _in_snowflake(config: Config, ref: TableRef) -> str | None:
    names = {reader.name: reader.table_name(ref) for reader in configured(config)}
    return names.get("snowflake")
