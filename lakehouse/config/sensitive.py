"""Which columns of a table may be shown outside of it: `sensitive` of lakehouse.yaml against the table's columns.

Everything that shows values asks here: previews, samples of checks, sums, findings, texts of errors. A column is named
in any case, by the dotted path of a field in it, or by a name that it or the field had before. A column is hidden
whole, also where only a field of it is sensitive. A name that no column has or had is refused, because a misspelt name
would show what it was meant to hide.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakehouse.core import metadata
from lakehouse.core.errors import ConfigError, LakehouseError, Unforeseen
from lakehouse.core.words import did_you_mean

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionField
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.types import IcebergType, NestedField

    from lakehouse.config.topic import Topic
    from lakehouse.formats.evolution import Path

FORMER = "lakehouse.former-names"
"""The table property with the names that columns had before the table was made, as JSON: by dotted path, a list."""

RAW = frozenset(
    name
    for naming in ("portable", "confluent")
    for column in metadata.registered().values()
    if column.is_raw
    for name in metadata.names([column.name], naming).values()
)
"""Metadata columns with bytes of the record: they hold every column's value, and are never shown."""

MOST_NAMED = 40
"""Columns that an error names."""


def shown(topic: Topic, table: Table, schema: Schema | None = None) -> list[str]:
    """Return the names of the columns whose values may be shown, in order.

    Args:
        schema: The table's columns as they were at another time; by default as they are now.

    Raises:
        ConfigError: A name in `sensitive` is none that a column has or had.
    """
    hidden = hidden_ids(topic, table)
    return [
        field.name
        for field in (schema or table.schema()).fields
        if field.field_id not in hidden and field.name not in RAW
    ]


def hidden_ids(topic: Topic, table: Table) -> frozenset[int]:
    """Return the field ids of the columns that are sensitive, or have a sensitive field.

    Raises:
        ConfigError: A name in `sensitive` is none that a column has or had.
    """
    if not topic.sensitive:
        return frozenset()
    former = json.loads(table.properties.get(FORMER, "{}"))
    wanted = {name.casefold() for name in topic.sensitive}
    hidden, found = set(), set()
    # A column keeps its id when it is renamed, and Iceberg keeps every schema that the table had.
    for schema in table.metadata.schemas:
        for field in schema.fields:
            if matched := wanted & {name.casefold() for name in _names(field, former)}:
                hidden.add(field.field_id)
                found |= matched
    if never := [name for name in topic.sensitive if name.casefold() not in found]:
        raise ConfigError(
            f"lakehouse.yaml: topic '{topic.name}': sensitive: table {'.'.join(table.name())} "
            f"{unknown(never, table.schema().fields)} Nothing was published or shown. Correct the name, since one "
            f"that matches nothing hides nothing"
        )
    return frozenset(hidden)


def check(topic: Topic, table: Table) -> None:
    """Refuse partitions whose names hold sensitive values: file names are in logs, messages and manifests.

    Raises:
        ConfigError: The table is partitioned by a sensitive column in another way than by buckets of its hash, or
            `sensitive` names no column.
    """
    hidden = hidden_ids(topic, table)
    if not hidden:
        return
    within = {id_: field.field_id for field in table.schema().fields for id_ in _ids(field)}
    telling = [field.name for field in table.spec().fields if within.get(field.source_id) in hidden and _tells(field)]
    if telling:
        raise ConfigError(
            f"Table {'.'.join(table.name())} is partitioned by {', '.join(telling)} of a sensitive column, so names of "
            f"files hold its values. Nothing was published. Set `partition_by` of topic '{topic.name}' to "
            f"bucket(16, <column>) or to another column"
        )


def missing(names: Sequence[str], fields: Sequence[NestedField], former: Mapping[str, Sequence[str]]) -> list[str]:
    """Return those of `names` that name no column of a schema.

    Args:
        fields: The columns of the schema.
        former: Names that columns and fields had before, by dotted path.
    """
    there = {name.casefold() for field in fields for name in _names(field, former)}
    return [name for name in names if name.casefold() not in there]


def unknown(names: Sequence[str], fields: Sequence[NestedField]) -> str:
    """Say that something has no columns of those names, which it has instead, and the nearest to the first name."""
    hint = did_you_mean(names[0], [name for field in fields for name in _names(field, {})])
    there = ", ".join(field.name for field in fields[:MOST_NAMED]) + (", …" if len(fields) > MOST_NAMED else "")
    quoted = ", ".join(f"'{name}'" for name in names)
    return f"has no column {quoted} among {there}.{hint}"


@contextmanager
def unquoted(*topics: Topic) -> Iterator[None]:
    """Replace unforeseen errors, whose texts may quote values, where one of the topics has sensitive columns.

    Raises:
        Unforeseen: In place of such an error, with its type and Spark's name for it; nothing else of it is kept.
    """
    try:
        yield
    except LakehouseError:
        raise
    except Exception as error:
        if not any(topic.sensitive for topic in topics):
            raise
        raise Unforeseen(topics[0].name, error) from None


def _names(
    field: NestedField,
    former: Mapping[str, Sequence[str]],
    whole: Path = (),
    short: Path = (),
    *,
    implied: bool = False,
) -> Iterator[str]:
    """Yield every name of a field and of the fields in it, as dotted paths: with what lists and maps add, and without.

    Args:
        field: A column, or a field in one.
        former: Names that columns and fields had before, by dotted path.
        whole: The path to the field.
        short: The same without `element`, `key` and `value`.
        implied: The field is one of those three.
    """
    for name in (field.name, *former.get(".".join((*whole, field.name)), ())):
        yield ".".join((*whole, name))
        if not implied:
            yield ".".join((*short, name))
    whole, short = (*whole, field.name), short if implied else (*short, field.name)
    for inner in _fields(field.field_type):
        yield from _names(inner, former, whole, short, implied=not field.field_type.is_struct)


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
    """The ids of a column and of the fields in it."""
    yield field.field_id
    for inner in _fields(field.field_type):
        yield from _ids(inner)


def _tells(field: PartitionField) -> bool:
    """Whether the name of a partition tells something of the value."""
    return not str(field.transform).startswith(("bucket", "void"))
