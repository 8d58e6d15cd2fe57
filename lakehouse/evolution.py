"""What a newer schema does to a table: each change with the rule that accepts or refuses it, and its statement.

Columns keep their field ids: a renamed column keeps its values, a dropped one stays and is null from then on. Rules
have the names that Confluent's Iceberg checks have (Confluent, Schema Registry: logical types, Iceberg comparison),
where there is one; more is accepted here. Types change as the Iceberg table specification allows (Schema Evolution).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakehouse import naming
from lakehouse.errors import DoesNotFit

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table.update.schema import UpdateSchema
    from pyiceberg.types import IcebergType, NestedField, StructType

ADDED, DROPPED, RENAMED, WIDENED = "FIELD_ADDED", "FIELD_DELETED", "FIELD_RENAMED", "TYPE_WIDENED"
MISMATCH, UNSUPPORTED, KEY_MISMATCH = "TYPE_MISMATCH", "UNSUPPORTED_TYPE_CHANGE", "MAP_KEY_TYPE_MISMATCH"
COLLISION = "FIELD_NAME_CASE_COLLISION"

WIDER = {("int", "long"), ("float", "double")}
"""Primitive types that may become wider (Iceberg table specification, Schema Evolution)."""


@dataclass(frozen=True)
class Change:
    """One difference. `path` is the column's as the table has it; `said` is a sentence; `statement` is what follows
    `ALTER TABLE <table>` in Spark, empty where the table stays as it is."""

    rule: str
    path: tuple[str, ...]
    accepted: bool
    said: str
    statement: str = ""
    new: Any = None


def changes(table: Schema, wanted: Schema, former: Mapping[str, tuple[str, ...]] | None = None) -> list[Change]:
    """How a table's columns differ from what a schema asks for, in the order in which they are made.

    Parameters: `former` are names that a field had before, by its dotted path in `wanted`.
    """
    return list(_of_struct(table.as_struct(), wanted.as_struct(), (), "", former or {}))


def refused(found: Sequence[Change]) -> list[Change]:
    """The changes that the table cannot take."""
    return [change for change in found if not change.accepted]


def apply(update: UpdateSchema, found: Sequence[Change]) -> None:
    """Make accepted changes in one commit.

    Raises: DoesNotFit when one is refused; nothing is changed.
    """
    if bad := refused(found):
        raise DoesNotFit("; ".join(f"{change.rule} at '{'.'.join(change.path)}': {change.said}" for change in bad))
    for change in found:
        match change.rule:
            case "FIELD_ADDED":
                update.add_column(change.path, change.new.field_type, doc=change.new.doc)
            case "FIELD_RENAMED":
                update.rename_column(change.path, change.new)
            case "TYPE_WIDENED":
                update.update_column(change.path, field_type=change.new)


def _of_struct(
    have: StructType, want: StructType, path: tuple[str, ...], logical: str, former: Mapping[str, tuple[str, ...]]
) -> Iterator[Change]:
    """Parameters: `path` is the struct's in the table, `logical` in the schema, with a dot behind it."""
    columns = {field.name: field for field in have.fields}
    folded = {field.name.lower(): field.name for field in have.fields}
    taken = {field.name for field in want.fields} & columns.keys()
    for field in want.fields:
        name = field.name
        found = columns.get(name)
        if found is None:
            before = [old for old in former.get(logical + name, ()) if old in columns and old not in taken]
            if before:
                found = columns[before[0]]
                taken.add(found.name)
                yield _renamed((*path, found.name), name)
        if found is not None:
            yield from _of_type(found.field_type, field.field_type, (*path, found.name), f"{logical}{name}", former)
        elif clash := folded.get(name.lower()):
            said = f"'{clash}' and '{name}' differ by case only, which Glue and Snowflake do not tell apart"
            yield Change(COLLISION, (*path, name), False, said)
        else:
            yield _added((*path, name), field)
    for name in columns.keys() - taken:
        if name not in {field.name for field in want.fields}:
            yield Change(DROPPED, (*path, name), True, "the column stays, and is null from now on")


def _of_type(
    have: IcebergType, want: IcebergType, path: tuple[str, ...], logical: str, former: Mapping[str, tuple[str, ...]]
) -> Iterator[Change]:
    from pyiceberg import types as t

    match have, want:
        case t.StructType(), t.StructType():
            yield from _of_struct(have, want, path, f"{logical}.", former)
        case t.ListType(), t.ListType():
            yield from _of_type(have.element_type, want.element_type, (*path, "element"), f"{logical}.element", former)
        case t.MapType(), t.MapType():
            if have.key_type != want.key_type:
                said = f"map keys are {have.key_type} and would be {want.key_type}; keys never change"
                yield Change(KEY_MISMATCH, (*path, "key"), False, said)
            yield from _of_type(have.value_type, want.value_type, (*path, "value"), f"{logical}.value", former)
        case _ if str(have) != str(want):
            yield _retyped(path, have, want)


def _retyped(path: tuple[str, ...], have: IcebergType, want: IcebergType) -> Change:
    from pyiceberg.types import DecimalType, PrimitiveType

    wider = (str(have), str(want)) in WIDER
    narrower = (str(want), str(have)) in WIDER
    if isinstance(have, DecimalType) and isinstance(want, DecimalType) and have.scale == want.scale:
        wider, narrower = want.precision > have.precision, want.precision < have.precision
    if wider:
        statement = f"ALTER COLUMN {naming.spark_identifier(*path)} TYPE {_sql(want)}"
        return Change(WIDENED, path, True, f"{have} becomes {want}", statement, want)
    if narrower:
        return Change(WIDENED, path, True, f"the column stays {have}, which holds every {want}")
    both = isinstance(have, PrimitiveType) and isinstance(want, PrimitiveType)
    rule = UNSUPPORTED if both else MISMATCH
    return Change(rule, path, False, f"the column is {_brief(have)} and would be {_brief(want)}")


def _added(path: tuple[str, ...], field: NestedField) -> Change:
    said = "optional, null in older rows"
    comment = f" COMMENT '{field.doc.replace(chr(39), chr(39) * 2)}'" if field.doc else ""
    statement = f"ADD COLUMN {naming.spark_identifier(*path)} {_sql(field.field_type)}{comment}"
    return Change(ADDED, path, True, said, statement, field)


def _renamed(path: tuple[str, ...], name: str) -> Change:
    statement = f"RENAME COLUMN {naming.spark_identifier(*path)} TO {naming.spark_identifier(name)}"
    return Change(RENAMED, path, True, f"'{path[-1]}' becomes '{name}' and keeps its values", statement, name)


def _brief(type_: IcebergType) -> str:
    """The type in an error: a struct's fields would not help."""
    return "a struct" if type_.is_struct else str(type_)


def _sql(type_: IcebergType) -> str:
    """A type as Spark SQL writes it (Iceberg, Spark: type compatibility)."""
    from pyiceberg import types as t

    match type_:
        case t.StructType():
            fields = (f"{naming.spark_identifier(field.name)}: {_sql(field.field_type)}" for field in type_.fields)
            return f"STRUCT<{', '.join(fields)}>"
        case t.ListType():
            return f"ARRAY<{_sql(type_.element_type)}>"
        case t.MapType():
            return f"MAP<{_sql(type_.key_type)}, {_sql(type_.value_type)}>"
    other = {"long": "BIGINT", "timestamptz": "TIMESTAMP", "timestamp": "TIMESTAMP_NTZ"}
    return other.get(str(type_), str(type_).upper())
