"""Decide about a topic's newest schema: accept it, decode with an older version, roll over to a new table, or
refuse."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import StructType

from lakehouse.config import sensitive
from lakehouse.config.model import Topic
from lakehouse.core.errors import IncompatibleSchema, SchemaError
from lakehouse.core.tables import metadata_columns
from lakehouse.core.tables.naming import TableRef
from lakehouse.core.text import similar_name
from lakehouse.formats import evolution, format_of
from lakehouse.formats.columns import table_schema
from lakehouse.formats.evolution import SchemaChange
from lakehouse.formats.schema import Shape
from lakehouse.pipeline.schemas import recorded_settings, schema_fingerprints
from lakehouse.pipeline.schemas.declared_columns import require_columns
from lakehouse.pipeline.schemas.decoding import KEPT, TopicSchemas, older_versions, with_versions
from lakehouse.pipeline.schemas.recorded_settings import RecordedSettings, rolls_over
from resources.iceberg.catalog import Catalog

Action = Literal["accept", "use_older", "roll_over", "refuse"]


@dataclass(frozen=True)
class SchemaDecision:
    """Decision about the newest schema of a topic.

    Attributes:
        action: `accept` the schema, decode with an older version (`use_older`), `roll_over` to a new table, or
            `refuse`.
        schemas: The schemas that decode records; by `use_older`, those of the newest version that fits the table.
        changes: The differences between the table and the newest schema.
        error: Why the newest schema or the settings do not fit the table; None if they fit.
    """

    action: Action
    schemas: TopicSchemas
    changes: tuple[SchemaChange, ...] = ()
    error: IncompatibleSchema | None = None

    def require_readable(self) -> TopicSchemas:
        """Return the schemas that decode records into the present table.

        Raises:
            IncompatibleSchema: The records go to a new table, or the schema is refused.
        """
        if self.error is not None and self.action != "use_older":
            raise self.error
        return self.schemas


def decide_schema(
    topic: Topic, newest: TopicSchemas, table: Table | None, *, is_adopted: bool = False
) -> SchemaDecision:
    """Compare the newest schema and the settings of a topic with its table, and apply the topic's `on_incompatible`.

    Nothing is changed.

    Args:
        topic: The topic.
        newest: The schemas with the columns of the newest version.
        table: The table; None if it does not exist yet.
        is_adopted: Whether an operator states that rows of unknown settings have those of the topic.

    Raises:
        NewerFormat: Another release stored the settings of the table.
        SchemaError: The schema cannot become a table, lakehouse.yaml names a column that records or the table lack, or
            an adopted table has its metadata columns under other names.
    """
    decision = _decision(topic, newest, table, is_adopted=is_adopted)
    if decision.action != "refuse":
        changed = None if decision.action == "roll_over" else table
        changes = decision.changes if decision.action == "accept" else ()
        new, present = columns(topic, decision.schemas), changed.schema() if changed else None
        require_distinct_key(decision.schemas, [field.name for field in present.fields] if present else [])
        require_columns(topic, decision.schemas, new, present, changes, changed)
    return decision


def _decision(topic: Topic, newest: TopicSchemas, table: Table | None, *, is_adopted: bool) -> SchemaDecision:
    require_key(newest)
    newest.deletion()
    if is_adopted and table is not None and RecordedSettings.stored(table) is None:
        require_naming(topic, table.schema(), ".".join(table.name()))
    elif different := recorded_settings.conflict(topic, table, newest):
        return SchemaDecision("roll_over" if rolls_over(topic, different) else "refuse", newest, (), different)
    if conflict := _conflict(topic, newest, table):
        return conflict
    if table is None:
        return SchemaDecision("accept", newest)
    changes = schema_changes(topic, newest, table)
    try:
        evolution.require_accepted(changes, ".".join(table.name()))
    except IncompatibleSchema as error:
        if topic.on_incompatible == "new_table":
            return SchemaDecision("roll_over", newest, changes, error)
        if topic.on_incompatible == "dead_letter":
            for older in older_versions(newest):
                if all(change.accepted for change in schema_changes(topic, older, table)):
                    return SchemaDecision("use_older", older, changes, error)
        return SchemaDecision("refuse", newest, changes, error)
    return SchemaDecision("accept", newest, changes)


def require_key(schemas: TopicSchemas) -> None:
    """Require that the records of a topic have the columns of its `key`.

    Raises:
        SchemaError: Neither values nor keys have one of them.
    """
    topic, of_value = schemas.topic, [field.name for field in schemas.struct.fields]
    of_key = schemas.key.columns if schemas.key else []
    if missing := next((name for name in topic.key if name not in (*of_value, *of_key)), None):
        keys = f" and the keys {', '.join(of_key)}" if of_key else ""
        raise SchemaError(
            f"Topic '{topic.name}' declares the key column '{missing}', which its records do not have: the values have "
            f"the columns {', '.join(of_value)}{keys}. Nothing was ingested. Correct 'key' in lakehouse.yaml"
        )


def columns_of_key(schemas: TopicSchemas) -> list[str]:
    """Return the key columns that no value has, so that they contain the message key."""
    of_value = {field.name for field in schemas.struct.fields}
    return [name for name in schemas.topic.key if name not in of_value]


def require_distinct_key(schemas: TopicSchemas, present: Collection[str]) -> None:
    """Require that a new column of the message key, whose name is only in lakehouse.yaml, is no misspelled field.

    Raises:
        SchemaError: A field of the values has nearly the same name.
    """
    topic, fields = schemas.topic, [field.name for field in schemas.struct.fields]
    if not (topic.effective_key_format and format_of(topic.effective_key_format).is_scalar):
        return
    for name in columns_of_key(schemas):
        if name not in present and (similar := similar_name(name, fields)):
            raise SchemaError(
                f"Topic '{topic.name}' declares the key column '{name}', and its values have '{similar}': the message "
                f"key would become a column of its own. Nothing was ingested. Write `key: {similar}` in "
                f"lakehouse.yaml, or a name for the message key that no field resembles, such as 'message_key'"
            )


def require_naming(topic: Topic, table: Schema, name: str) -> None:
    """Require that a table has no offsets under a name that the topic's `metadata.naming` does not give them.

    Rows are found by their offsets: a replay would add those of such a table again, and a derivation would omit them.

    Args:
        topic: The topic.
        table: The columns of the table that contains its records.
        name: The name of that table.

    Raises:
        SchemaError: The table has such a column.
    """
    expected = topic.metadata.names[metadata_columns.internal("offset")]
    comment = metadata_columns.registered()["offset"].comment
    columns = {column.name: column for column in table.fields}
    for naming in get_args(metadata_columns.Naming):
        [other] = metadata_columns.names(("offset",), naming).values()
        # Beside the topic's own column, only the comment distinguishes a metadata column from a field of this name.
        if other == expected or other not in columns or (expected in columns and columns[other].doc != comment):
            continue
        remedy = (
            "Choose another `table`" if expected in columns else f"Set `naming: {naming}`, or choose another `table`"
        )
        raise SchemaError(
            f"Table {name} has offsets of records in column '{other}', but topic '{topic.name}' declares `metadata` "
            f"with `naming: {topic.metadata.naming}`, so they would be looked for in '{expected}'. Nothing was "
            f"changed. {remedy} to ingest the topic again"
        )


def _conflict(topic: Topic, newest: TopicSchemas, table: Table | None) -> SchemaDecision | None:
    """Apply `on_incompatible` if versions cannot share columns with the newest one; None if the table has none of them.

    Raises:
        SchemaError: There is no table yet, or the newest version alone cannot become one.
    """
    if not newest.conflicts:
        return None
    is_unusable = newest.registered[-1].id in newest.conflicts
    reason = next(iter(newest.conflicts.values()))
    if table is None or (is_unusable and topic.on_incompatible != "dead_letter"):
        if topic.on_incompatible == "stop" or is_unusable:
            raise SchemaError(reason)
        return None
    # A table with rows, but without fingerprints, may have rows of any version.
    ids = schema_fingerprints.known_ids(table) or newest.conflicts.keys()
    if not is_unusable and (table.current_snapshot() is None or ids.isdisjoint(newest.conflicts)):
        return None
    error = IncompatibleSchema(
        f"Versions of the schema of table {'.'.join(table.name())} cannot share columns, and nothing was changed: "
        f"{reason}, or set 'on_incompatible' to 'dead_letter' or 'new_table'"
    )
    if topic.on_incompatible == "new_table":
        return SchemaDecision("roll_over", newest, (), error)
    if topic.on_incompatible == "dead_letter":
        older = with_versions(newest, ids)
        if ids.isdisjoint(older.conflicts) and all(change.accepted for change in schema_changes(topic, older, table)):
            return SchemaDecision("use_older", older, (), error)
    return SchemaDecision("refuse", newest, (), error)


def ensure_table(
    catalog: Catalog, topic: Topic, ref: TableRef, schemas: TopicSchemas, existing: Table | None = None
) -> Table:
    """Create or alter a topic's table: its columns, partition spec and sort order.

    Args:
        catalog: The Iceberg catalog.
        topic: The topic.
        ref: The table.
        schemas: The schemas that define the columns.
        existing: The table as loaded before the schemas were read; None if it did not exist.

    Raises:
        CommitConflict: Another writer altered the table since.
        ConfigError: An entry of `sensitive` is not a column.
        SchemaError: The schema does not fit the table.
        UnclearState: The table does not exist, and another one continues it.
    """
    if existing is None and topic.on_incompatible == "new_table":
        catalog.require_no_successor(ref)
    properties = RecordedSettings.of(topic).properties()
    table = catalog.ensure_table(ref, columns(topic, schemas), schemas.previous_names, existing, properties)
    catalog.apply_layout(table, topic.partition_by, topic.sort_by)
    sensitive.check_partitions(topic, table)
    return table


def columns(topic: Topic, schemas: TopicSchemas) -> Schema:
    """Return the columns of a topic's table.

    Raises:
        SchemaError: The schema cannot become a table.
    """
    key = schemas.key.shape.struct if schemas.key else None
    return _columns(tuple(topic.metadata.names.items()), schemas.struct, key)


@lru_cache(maxsize=KEPT)
def _columns(metadata: tuple[tuple[str, str], ...], value: StructType, key: StructType | None) -> Schema:
    return table_schema(dict(metadata), value, key)


def schema_changes(topic: Topic, schemas: TopicSchemas, table: Table) -> tuple[SchemaChange, ...]:
    """Return the differences between a table and the columns of schemas."""
    shape = Shape(columns(topic, schemas).as_struct(), schemas.previous_names)
    return tuple(evolution.changes(table.schema(), shape, table.specs().values()))
