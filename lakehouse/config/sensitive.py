"""Sensitive columns: which values may leave a table.

Everything that shows values uses this module: previews, samples of checks, sums, findings, texts of errors. The key
`sensitive` of lakehouse.yaml names a column in any case, a field in it by its dotted path, or either by an earlier
name. If a field is sensitive, its whole column is hidden. A name that matches no column is refused, because a misspelt
name would show the values that it was meant to hide.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, get_args

from lakehouse.core.errors import ConfigError, LakehouseError, UnexpectedError
from lakehouse.core.table_protocol import PREVIOUS_NAMES
from lakehouse.core.tables import metadata_columns
from lakehouse.core.text import did_you_mean

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionField
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.types import IcebergType, NestedField

    from lakehouse.config.model import Topic
    from lakehouse.formats.evolution import Path

RAW = frozenset(
    name
    for naming in get_args(metadata_columns.Naming)
    for column in metadata_columns.registered().values()
    if column.is_raw
    for name in metadata_columns.names([column.name], naming).values()
)
"""Metadata columns with bytes of the record. They contain the value of every column, so they are never shown."""

MAX_NAMES = 40
"""Maximum number of columns that an error names."""


def visible_columns(topic: Topic, table: Table, schema: Schema | None = None) -> list[str]:
    """Return the names of the columns whose values may be shown, in order.

    Args:
        schema: An earlier schema of the table. Default: the current one.
    """
    hidden = hidden_ids(topic, table)
    return [
        field.name
        for field in (schema or table.schema()).fields
        if field.field_id not in hidden and field.name not in RAW
    ]


def hidden_ids(topic: Topic, table: Table) -> frozenset[int]:
    """Return the field ids of the columns that are sensitive or contain a sensitive field."""
    if not topic.sensitive:
        return frozenset()
    previous = previous_names(table)
    wanted = {name.casefold() for name in topic.sensitive}
    hidden, matched = set(), set()
    # A renamed column keeps its id, and Iceberg keeps every schema of the table.
    for schema in table.metadata.schemas:
        for field in schema.fields:
            if names := wanted & {name.casefold() for name in _names(field, previous)}:
                hidden.add(field.field_id)
                matched |= names
    if unmatched := [name for name in topic.sensitive if name.casefold() not in matched]:
        raise ConfigError(
            f"lakehouse.yaml: topic '{topic.name}': sensitive: table {'.'.join(table.name())} "
            f"{unknown_columns(unmatched, table.schema().fields)} Nothing was published or shown. Correct the name, "
            f"since a name that matches no column hides nothing"
        )
    return frozenset(hidden)


def previous_names(table: Table) -> Mapping[str, Sequence[str]]:
    """Return the earlier names of a table's columns and fields, by dotted path."""
    names: Mapping[str, Sequence[str]] = json.loads(table.properties.get(PREVIOUS_NAMES, "{}"))
    return names


def check_partitions(topic: Topic, table: Table) -> None:
    """Refuse partitions whose names contain sensitive values: file names appear in logs, messages and manifests."""
    hidden = hidden_ids(topic, table)
    if not hidden:
        return
    within = {id_: field.field_id for field in table.schema().fields for id_ in _ids(field)}
    unsafe = [field.name for field in table.spec().fields if within.get(field.source_id) in hidden and _shows(field)]
    if unsafe:
        raise ConfigError(
            f"Table {'.'.join(table.name())} is partitioned by {', '.join(unsafe)} of a sensitive column, so file "
            f"names contain its values. Nothing was published. Set `partition_by` of topic '{topic.name}' to "
            f"bucket(16, <column>) or to another column"
        )


def unmatched_names(
    names: Sequence[str], fields: Sequence[NestedField], previous: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return those of `names` that match no column of a schema.

    Args:
        names: Names of columns or dotted paths of fields.
        previous: Earlier names of columns and fields, by dotted path.
    """
    known = {name.casefold() for field in fields for name in _names(field, previous)}
    return [name for name in names if name.casefold() not in known]


def unknown_columns(names: Sequence[str], fields: Sequence[NestedField]) -> str:
    """Return the end of an error message: the columns that do not exist, those that do, and the nearest name."""
    hint = did_you_mean(names[0], [name for field in fields for name in _names(field, {})])
    existing = ", ".join(field.name for field in fields[:MAX_NAMES]) + (", …" if len(fields) > MAX_NAMES else "")
    quoted = ", ".join(f"'{name}'" for name in names)
    return f"has no column {quoted} among {existing}.{hint}"


@contextmanager
def hide_values(*topics: Topic) -> Iterator[None]:
    """Replace unexpected errors, whose texts may quote values, if one of the topics has sensitive columns.

    Raises:
        UnexpectedError: Instead of such an error; it keeps only the type and Spark's error class.
    """
    try:
        yield
    except LakehouseError:
        raise
    except Exception as error:
        if not any(topic.sensitive for topic in topics):
            raise
        raise UnexpectedError(topics[0].name, error) from None


def _names(
    field: NestedField,
    previous: Mapping[str, Sequence[str]],
    whole: Path = (),
    short: Path = (),
    *,
    implied: bool = False,
) -> Iterator[str]:
    """Yield every name of a field and of its nested fields, with and without the levels of lists and maps.

    Args:
        field: A column, or a field in one.
        previous: Earlier names of columns and fields, by dotted path.
        whole: The path to the field.
        short: The path without `element`, `key` and `value`.
        implied: True if the field itself is one of those three.
    """
    for name in (field.name, *previous.get(".".join((*whole, field.name)), ())):
        yield ".".join((*whole, name))
        if not implied:
            yield ".".join((*short, name))
    whole, short = (*whole, field.name), short if implied else (*short, field.name)
    for inner in _fields(field.field_type):
        yield from _names(inner, previous, whole, short, implied=not field.field_type.is_struct)


def _fields(type_: IcebergType) -> Sequence[NestedField]:
    from pyiceberg.types import ListType, MapType, StructType

    match type_:
        case StructType():
            return type_.fields
        case ListType():
            return (type_.element_field,)
        case MapType():
            return (type_.key_field, type_.value_field)
    return ()


def _ids(field: NestedField) -> Iterator[int]:
    """Yield the ids of a column and of its nested fields."""
    yield field.field_id
    for inner in _fields(field.field_type):
        yield from _ids(inner)


def _shows(field: PartitionField) -> bool:
    """Return whether the name of a partition reveals something of the value."""
    return not str(field.transform).startswith(("bucket", "void"))
