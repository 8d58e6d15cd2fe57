"""Comparison of a table's columns with a newer schema: the changes, their rules, and whether the table can follow.

Iceberg identifies columns by id, so that columns can be renamed and dropped without rewriting a row (Iceberg table
specification, Schema Evolution). Fields are paired by name, then by their earlier names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lakehouse.core.errors import IncompatibleSchema
from lakehouse.core.sql import SPARK
from lakehouse.core.table_protocol import UNION_BRANCH
from lakehouse.formats.json import json_text
from lakehouse.formats.schema import Shape

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table.update.schema import UpdateSchema
    from pyiceberg.types import IcebergType, NestedField, StructType

Path = tuple[str, ...]
"""Names from the top-level column down; a list's elements are `element`, a map's values `value`."""

_sql = SPARK.identifier

Rule = Literal[
    "OPTIONAL_FIELD_ADDED",
    "REQUIRED_FIELD_ADDED",
    "FIELD_DELETED",
    "FIELD_RENAMED",
    "FIELD_REORDERED",
    "TYPE_WIDENED",
    "NON_NULLABLE_TO_NULLABLE",
    "COMMENT_CHANGED",
    "TYPE_MISMATCH",
    "UNSUPPORTED_TYPE_CHANGE",
    "TYPE_NARROWED",
    "DECIMAL_SCALE_CHANGED",
    "MAP_KEY_TYPE_MISMATCH",
    "CASE_COLLISION",
    "NAME_REUSED",
    "BRANCH_CHANGED",
    "ENCODING_CHANGED",
    "PARTITION_FIELD",
]
"""Name of a rule, from the checks of schemas for Iceberg tables in Confluent's schema-registry where they have one."""

REFUSED: Mapping[Rule, str] = {
    "TYPE_MISMATCH": "a column cannot change between value, struct, list and map",
    "UNSUPPORTED_TYPE_CHANGE": "Iceberg widens only int to long, float to double and the digits of a decimal",
    "TYPE_NARROWED": "values in the table may not fit; keep the wider type in the schema",
    "DECIMAL_SCALE_CHANGED": "the scale is fixed when the column is created",
    "MAP_KEY_TYPE_MISMATCH": "the type of a map's keys cannot change",
    "CASE_COLLISION": "Spark, Glue and Snowflake do not distinguish upper and lower case; rename it by an alias",
    "NAME_REUSED": "a renamed field's old name is another field's; give the other a name that no version has used",
    "BRANCH_CHANGED": "a member of a union keeps the branch in its comment; register deleted versions again",
    "ENCODING_CHANGED": 'a column cannot change between text (`a`) and JSON text (`"a"`); its comment states which',
    "PARTITION_FIELD": "a partition field has this name, and Iceberg keeps it for good; name the field otherwise",
}
"""Reasons by rule that a table cannot follow."""

ACCEPTED: Mapping[Rule, str] = {
    "OPTIONAL_FIELD_ADDED": "existing rows have null",
    "REQUIRED_FIELD_ADDED": "existing rows have null, since columns are optional",
    "FIELD_DELETED": "the column keeps its values and is null in new rows",
    "FIELD_RENAMED": "rows keep their values under the new name",
    "FIELD_REORDERED": "columns are matched by name and keep their order in the table",
    "TYPE_WIDENED": "every value fits the wider type",
    "NON_NULLABLE_TO_NULLABLE": "every row stays valid",
    "COMMENT_CHANGED": "no value changes",
}
"""Effects on rows by rule that a table can follow."""


@dataclass(frozen=True)
class SchemaChange:
    """One difference between a table and a schema.

    `path` is the path of the column in the schema; `at` is its path in the table, or for an added column that of its
    struct. `ddl` follows `ALTER TABLE <name>` in Spark SQL and is empty if there is nothing to alter. `detail` is the
    difference, such as the two types. `type`, `doc` and `name` are the new values of attributes that change.
    """

    rule: Rule
    path: Path
    at: Path
    detail: str = ""
    ddl: str = ""
    type: IcebergType | None = None
    doc: str | None = None
    name: str | None = None

    @property
    def accepted(self) -> bool:
        """True if the table can follow."""
        return self.rule in ACCEPTED

    @property
    def reason(self) -> str:
        """Reason of the refusal, or the effect on rows."""
        return (ACCEPTED if self.accepted else REFUSED)[self.rule]

    def __str__(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.rule} {'.'.join(self.path) or 'the row'}{detail}: {self.reason}"


def changes(table: Schema, shape: Shape, specs: Iterable[PartitionSpec] = ()) -> list[SchemaChange]:
    """Return all differences between a table and a shape, in the shape's order; deleted fields last.

    Args:
        table: The columns of the table.
        shape: The columns that it is compared with.
        specs: The partition specs that the table has ever had.
    """
    fields = [field for spec in specs for field in spec.fields]
    differences = _struct(table.as_struct(), shape.struct, (), (), shape.previous_names)
    return [_unlike_partition_fields(change, table, fields) for change in differences]


def _unlike_partition_fields(change: SchemaChange, table: Schema, fields: Sequence[PartitionField]) -> SchemaChange:
    """Return a change, which is refused if a column would get the name of a partition field.

    Iceberg compares columns with the fields of all specs. Only an identity field may have the name of its own column.
    """
    if len(change.path) > 1 or change.rule not in ("OPTIONAL_FIELD_ADDED", "REQUIRED_FIELD_ADDED", "FIELD_RENAMED"):
        return change
    source = table.find_field(change.at[0]).field_id if change.rule == "FIELD_RENAMED" else None
    of_name = [field for field in fields if field.name == change.path[0]]
    if all(str(field.transform) in ("identity", "void") and field.source_id == source for field in of_name):
        return change
    return SchemaChange("PARTITION_FIELD", change.path, change.at)


def require_accepted(differences: Sequence[SchemaChange], table: str) -> None:
    """Require that a table can follow all changes."""
    if refused := [str(change) for change in differences if not change.accepted]:
        raise IncompatibleSchema(
            f"The newest schema does not fit table {table}: {'; '.join(refused)}. The table was not changed. "
            f"Register a compatible schema, or set 'on_incompatible': 'dead_letter' keeps the columns and turns "
            f"records that do not fit them into dead letters, 'new_table' continues in a new table"
        )


def adds_field(change: SchemaChange) -> bool:
    """Return whether a change adds a field; the branch of a union that a schema adds is none."""
    is_branch = (change.doc or "").startswith(UNION_BRANCH)
    return change.rule in ("OPTIONAL_FIELD_ADDED", "REQUIRED_FIELD_ADDED") and not is_branch


def apply(update: UpdateSchema, differences: Sequence[SchemaChange]) -> None:
    """Stage the accepted changes for one schema commit. Columns keep their ids, and so rows their values."""
    for change in differences:
        match change.rule:
            case "OPTIONAL_FIELD_ADDED" | "REQUIRED_FIELD_ADDED":
                assert change.type is not None
                update.add_column((*change.at, change.path[-1]), change.type, change.doc)
            case "FIELD_RENAMED":
                assert change.name is not None
                update.rename_column(change.at, change.name)
            case "TYPE_WIDENED":
                update.update_column(change.at, field_type=change.type)
            case "NON_NULLABLE_TO_NULLABLE":
                update.make_column_optional(change.at)
            case "COMMENT_CHANGED":
                update.update_column(change.at, doc=change.doc)


def _struct(
    old: StructType, new: StructType, at: Path, path: Path, previous_names: Mapping[str, Path]
) -> Iterator[SchemaChange]:
    partners = _partners(old, new, path, previous_names)
    partnered = {column.field_id: name for name, column in partners.items()}
    deleted = [column.name for column in old.fields if column.field_id not in partnered]
    folded = {name.lower(): name for name in deleted}
    for field in new.fields:
        field_path, partner = (*path, field.name), partners.get(field.name)
        if other := folded.get(field.name.lower()):
            yield SchemaChange("CASE_COLLISION", field_path, at, f"the table has '{other}'")
        elif partner is not None:
            yield from _field(partner, field, (*at, partner.name), field_path, previous_names)
        elif reused := next((name for name in previous_names.get(".".join(field_path), ()) if name in partners), None):
            yield SchemaChange("NAME_REUSED", field_path, at, f"was '{reused}', which is another field now")
        else:
            rule: Rule = "REQUIRED_FIELD_ADDED" if field.required else "OPTIONAL_FIELD_ADDED"
            ddl = f"ADD COLUMN {_sql(*field_path)} {_spark_type(field.field_type)}{_comment(field.doc)}"
            yield SchemaChange(rule, field_path, at, _short(field.field_type), ddl, field.field_type, field.doc)
    shared = [field.name for field in new.fields if field.name in partners]
    if shared != [partnered[column.field_id] for column in old.fields if column.field_id in partnered]:
        yield SchemaChange("FIELD_REORDERED", path, at, ", ".join(shared))
    for name in deleted:
        yield SchemaChange("FIELD_DELETED", (*path, name), (*at, name))


def _partners(
    old: StructType, new: StructType, path: Path, previous_names: Mapping[str, Path]
) -> dict[str, NestedField]:
    """Return the table's columns by the name of their field in the shape; equal names have precedence."""
    columns = {column.name: column for column in old.fields}
    partners = {field.name: columns.pop(field.name) for field in new.fields if field.name in columns}
    for field in new.fields:
        before = () if field.name in partners else previous_names.get(".".join((*path, field.name)), ())
        if name := next((name for name in before if name in columns), None):
            partners[field.name] = columns.pop(name)
    return partners


def _field(
    old: NestedField, new: NestedField, at: Path, path: Path, previous_names: Mapping[str, Path]
) -> Iterator[SchemaChange]:
    if old.name != new.name:
        # In Spark SQL the rename comes first, so the statements after it use the new name.
        ddl = f"RENAME COLUMN {_sql(*path[:-1], old.name)} TO {_sql(new.name)}"
        yield SchemaChange("FIELD_RENAMED", path, at, f"was '{old.name}'", ddl, name=new.name)
    if old.required and not new.required:
        yield SchemaChange("NON_NULLABLE_TO_NULLABLE", path, at, ddl=f"ALTER COLUMN {_sql(*path)} DROP NOT NULL")
    if new.doc and new.doc != old.doc:
        ddl = f"ALTER COLUMN {_sql(*path)}{_comment(new.doc)}"
        yield SchemaChange("COMMENT_CHANGED", path, at, ddl=ddl, doc=new.doc)
    yield from _encoding(old, new, path)
    yield from _type(old.field_type, new.field_type, at, path, previous_names)


def _encoding(old: NestedField, new: NestedField, path: Path) -> Iterator[SchemaChange]:
    """Yield the change if a column of the same type changes from text to JSON text, or the reverse."""
    before, after = json_text.marked(old.doc), json_text.marked(new.doc)
    if before != after and not _unlike(old.field_type, new.field_type):
        inner = tuple(filter(None, (after or before or "").split(".")))
        detail = "JSON text to text" if after is None else "text to JSON text"
        yield SchemaChange("ENCODING_CHANGED", (*path, *inner), (), detail)


def _type(
    old: IcebergType, new: IcebergType, at: Path, path: Path, previous_names: Mapping[str, Path]
) -> Iterator[SchemaChange]:
    from pyiceberg.types import ListType, MapType, PrimitiveType, StructType

    match old, new:
        case StructType(), StructType():
            yield from _union(old, new, path) or _struct(old, new, at, path, previous_names)
        case ListType(), ListType():
            yield from _field(
                old.element_field, new.element_field, (*at, "element"), (*path, "element"), previous_names
            )
        case MapType(), MapType():
            if _unlike(old.key_type, new.key_type):
                yield SchemaChange("MAP_KEY_TYPE_MISMATCH", path, at, f"{old.key_type} to {new.key_type}")
            yield from _field(old.value_field, new.value_field, (*at, "value"), (*path, "value"), previous_names)
        case PrimitiveType(), PrimitiveType():
            if old != new:
                yield _primitive(old, new, at, path)
        case _:
            yield SchemaChange("TYPE_MISMATCH", path, at, f"{_short(old)} to {_short(new)}")


def _union(old: StructType, new: StructType, path: Path) -> list[SchemaChange]:
    """Return the refused changes of a union, whose members have the name of their branch in their comments.

    The order of branches does not identify them: it is that of the oldest version that the registry still has.
    """
    before, after = (
        {field.name: (field.doc or "").removeprefix(UNION_BRANCH) for field in struct.fields}
        if struct.fields and all((field.doc or "").startswith(UNION_BRANCH) for field in struct.fields)
        else None
        for struct in (old, new)
    )
    if before is None and after is None:
        return []
    if before is None or after is None:
        return [SchemaChange("TYPE_MISMATCH", path, (), "record to union" if after else "union to record")]
    moved = [name for name in after if before.get(name, after[name]) != after[name]]
    return [SchemaChange("BRANCH_CHANGED", (*path, name), (), f"{before[name]} to {after[name]}") for name in moved]


def _primitive(old: IcebergType, new: IcebergType, at: Path, path: Path) -> SchemaChange:
    from pyiceberg.types import DecimalType

    types = f"{old} to {new}"
    if isinstance(old, DecimalType) and isinstance(new, DecimalType) and old.scale != new.scale:
        return SchemaChange("DECIMAL_SCALE_CHANGED", path, at, types)
    if _widens(old, new):
        ddl = f"ALTER COLUMN {_sql(*path)} TYPE {_spark_type(new)}"
        return SchemaChange("TYPE_WIDENED", path, at, types, ddl, new)
    return SchemaChange("TYPE_NARROWED" if _widens(new, old) else "UNSUPPORTED_TYPE_CHANGE", path, at, types)


def _widens(old: IcebergType, new: IcebergType) -> bool:
    """Return whether Iceberg can promote the old type (Iceberg table specification, version 2: Schema Evolution)."""
    from pyiceberg.types import DecimalType

    if isinstance(old, DecimalType) and isinstance(new, DecimalType):
        return old.scale == new.scale and old.precision < new.precision
    return (str(old), str(new)) in {("int", "long"), ("float", "double")}


def _unlike(old: IcebergType, new: IcebergType) -> bool:
    """Return whether two types differ in more than field ids and comments."""
    return _spark_type(old) != _spark_type(new)


def _short(type_: IcebergType) -> str:
    return str(type_) if type_.is_primitive else type(type_).__name__.removesuffix("Type").lower()


def _comment(doc: str | None) -> str:
    return f" COMMENT {SPARK.literal(doc)}" if doc else ""


def column_definition(field: NestedField) -> str:
    """Return a column in `CREATE TABLE` of Spark SQL."""
    required = " NOT NULL" if field.required else ""
    return f"{_sql(field.name)} {_spark_type(field.field_type)}{required}{_comment(field.doc)}"


def _spark_type(type_: IcebergType) -> str:
    """Return the type in Spark SQL (Iceberg, Spark: type compatibility)."""
    from pyiceberg.types import ListType, MapType, StructType

    match type_:
        case StructType():
            fields = (f"{_sql(f.name)}: {_spark_type(f.field_type)}{_comment(f.doc)}" for f in type_.fields)
            return f"STRUCT<{', '.join(fields)}>"
        case ListType():
            return f"ARRAY<{_spark_type(type_.element_type)}>"
        case MapType():
            return f"MAP<{_spark_type(type_.key_type)}, {_spark_type(type_.value_type)}>"
    names = {"long": "BIGINT", "timestamptz": "TIMESTAMP", "timestamp": "TIMESTAMP_NTZ", "uuid": "STRING"}
    text = str(type_)
    return "BINARY" if text.startswith("fixed") else names.get(text, text.upper().replace(", ", ","))
