"""What a new schema of a topic would do to its table and to what reads it: said before anything runs."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakehouse.config.loader import Config
from lakehouse.config.sources.derived import Derived
from lakehouse.config.topic import Topic
from lakehouse.core import naming
from lakehouse.core.errors import ConfigError, LakehouseError, SchemaError
from lakehouse.formats import with_schemas
from lakehouse.formats.columns import table_schema
from lakehouse.formats.evolution import Change, changes
from lakehouse.formats.format import MessageSchema
from lakehouse.formats.schema import RegisteredSchema, Shape

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

HARMLESS = ("OPTIONAL_FIELD_ADDED", "REQUIRED_FIELD_ADDED", "FIELD_REORDERED", "COMMENT_CHANGED")
"""Rules that leave every column as its readers know it."""


@dataclass(frozen=True)
class Plan:
    """The effect of a schema. `invalid` says why it can be no table at all; `new` that there is no table yet.

    `readers` are sentences: what reads a column that changes.
    """

    namespace: str
    table: str
    changes: tuple[Change, ...] = ()
    readers: tuple[str, ...] = ()
    new: bool = False
    invalid: str | None = None

    @property
    def accepted(self) -> bool:
        return self.invalid is None and all(change.accepted for change in self.changes)

    @property
    def statements(self) -> list[str]:
        """What ingestion will do, in one commit, as Spark SQL; nothing when it will refuse."""
        target = naming.spark_table(self.namespace, self.table)
        found = (change.ddl for change in self.changes if change.ddl)
        return [f"ALTER TABLE {target} {ddl}" for ddl in found] if self.accepted else []

    def to_json(self) -> dict[str, Any]:
        """The plan for programs; `statement` is null where there is nothing to do."""
        target = naming.spark_table(self.namespace, self.table)
        return {
            "table": f"{self.namespace}.{self.table}",
            "verdict": "accepted" if self.accepted else "refused",
            "new_table": self.new,
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
            "snowflake_table": _snowflake(self),
        }

    def lines(self) -> Iterator[str]:
        """The plan for people."""
        yield f"{self.namespace}.{self.table}: {'accepted' if self.accepted else 'refused'}"
        if self.invalid:
            yield f"  {self.invalid}"
        elif self.new:
            yield "  There is no table yet: it will have the schema's columns"
        elif not self.changes:
            yield "  Nothing changes"
        for change in self.changes:
            yield f"  {'accepted' if change.accepted else 'REFUSED'} {change}"
        yield from (f"  {statement};" for statement in self.statements)
        yield from (f"  {reader}" for reader in self.readers)
        if self.accepted:
            yield f"  Snowflake table {_snowflake(self)} follows when it is refreshed"


def plan(config: Config, topic: Topic, file: Path, table: Schema | None) -> Plan:
    """What ingestion would do with a topic's table when the schema in `file` is its newest.

    Parameters: `table` is the table's schema, or None when there is no table.
    Raises: ConfigError as `read` does. A schema that can be no table is no error but a refusal.
    """
    try:
        shape = read(file)
        wanted = as_table(shape, topic)
    except SchemaError as error:
        return Plan(config.namespace, topic.table, invalid=str(error))
    if table is None:
        return Plan(config.namespace, topic.table, new=True)
    found = tuple(changes(table, Shape(wanted.as_struct(), shape.former)))
    return Plan(config.namespace, topic.table, found, tuple(readers(config, topic, found)))


def registered(config: Config, topic: Topic, systems: Any) -> Plan:
    """What ingestion would do with a topic's table now: the plan for the newest schema in the registry.

    Raises: Unreachable. A schema that can be no table, or is missing, is no error but a refusal.
    """
    from lakehouse.pipeline.codecs import formats
    from lakehouse.pipeline.schema_decision import decide_schema

    topic, table = systems.catalog.resolve_table(config.namespace, topic)
    try:
        decision = decide_schema(topic, formats(systems.schema_registry, topic), table)
    except SchemaError as error:
        return Plan(config.namespace, topic.table, invalid=str(error))
    effects = tuple(readers(config, topic, decision.changes))
    return Plan(config.namespace, topic.table, decision.changes, effects, new=table is None)


def read(file: Path) -> Shape:
    """The columns of a schema file: Avro (.avsc), JSON Schema (.json) or Protobuf (.proto).

    Raises: ConfigError for any other suffix; SchemaError.
    """
    by_suffix = {format_.suffix: format_ for format_ in with_schemas()}
    if file.suffix not in by_suffix:
        raise ConfigError(f"{file}: a schema file ends with {', '.join(by_suffix)}. Rename it")
    format_ = by_suffix[file.suffix]
    versions = (RegisteredSchema(0, file.read_text(), format_.schema_type),)
    return format_.shape(MessageSchema(versions, versions))


def table_now(config: Config, topic: Topic) -> Schema | None:
    """The schema of the topic's table in the catalog; None when there is no table.

    Raises: LakehouseError when the catalog does not answer.
    """
    from lakehouse.cli.systems import connected

    try:
        with connected(config) as systems:
            _, table = systems.catalog.resolve_table(config.namespace, topic)
    except LakehouseError as error:
        raise LakehouseError(f"{error}. Or name the schema in use: --against FILE") from error
    return table.schema() if table else None


def as_table(shape: Shape, topic: Topic) -> Schema:
    """The schema of the table that ingestion makes for a topic whose records have this shape.

    Raises: SchemaError.
    """
    from pyiceberg.types import NestedField, StringType, StructType

    key = [NestedField(1, name, StringType(), required=False) for name in topic.key]
    return table_schema(topic.metadata.names, shape.struct, StructType(*key))


def readers(config: Config, topic: Topic, found: Sequence[Change]) -> Iterator[str]:
    """What lakehouse.yaml and the transforms of derived topics read of the columns that change."""
    touched = dict.fromkeys(change.at[0] for change in found if change.rule not in HARMLESS and change.at)
    for column in touched:
        if column in topic.key:
            yield f"Topic '{topic.name}': key has column '{column}'"
    for derived in config.topics.values():
        if not isinstance(derived.source, Derived) or derived.source.from_topic != topic.name:
            continue
        text = _source(derived.source.transform)
        for column in touched:
            if column in derived.source.group_by:
                yield f"Topic '{derived.name}': group_by reads column '{column}'"
            if re.search(rf"\b{re.escape(column)}\b", text):
                yield f"Topic '{derived.name}': transform {derived.source.transform} names column '{column}'"


def _source(transform: str) -> str:
    """The text of a transform's module; it is not run. Empty where there is none to read."""
    spec = importlib.util.find_spec(transform.partition(":")[0])
    return Path(spec.origin).read_text() if spec and spec.origin and spec.origin.endswith(".py") else ""


def _snowflake(plan: Plan) -> str:
    return ".".join(naming.snowflake_name(name) for name in (plan.namespace, plan.table))
