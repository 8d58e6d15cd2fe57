"""Columns of a topic's table: those of message values, then of message keys, then metadata."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from lakehouse.core.errors import SchemaError
from lakehouse.core.tables.metadata_columns import internal, registered
from lakehouse.formats.budget import MAX_NESTING, Budget, require_nesting

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.types import IcebergType, NestedField, StructType


COMMENT_BYTES, CUT = 255, "…"


def table_schema(metadata: Mapping[str, str], value: StructType, key: StructType | None) -> Schema:
    """Return the schema of a topic's table, every column optional, with fresh field ids.

    Args:
        metadata: Names of the metadata columns in the table by their internal names.
        value: Columns of message values.
        key: Columns of message keys. Where both have a column of the same name, the value's is used.
    """
    from pyiceberg.schema import Schema, assign_fresh_schema_ids
    from pyiceberg.types import NestedField, StructType

    names = {field.name for field in value.fields}
    fields = [*value.fields, *(field for field in (key.fields if key else ()) if field.name not in names)]
    require_nesting("table's", max(map(_nesting, (field.field_type for field in fields)), default=0), MAX_NESTING)
    distinct(fields)
    [(path, count), *_] = Counter(_paths(StructType(*fields), "")).most_common(1) or [("", 0)]
    if count > 1:
        raise SchemaError(
            f"Two columns have the path '{path}', because one has a dot in its name and the other is nested. Iceberg "
            f"cannot distinguish them. Rename one in the schema"
        )
    Budget("combined key and value").spend_field(assign_fresh_schema_ids(Schema(*fields)).highest_field_id)
    for name, column in registered().items():
        if table_name := metadata.get(internal(name)):
            field = {"id": 1, "name": table_name, "type": column.type, "required": False, "doc": column.comment}
            fields.append(NestedField.model_validate(field))
    distinct(fields)
    fields = [field.model_copy(update={"doc": glue_comment(field.doc)}) for field in fields]
    return assign_fresh_schema_ids(Schema(*fields))


def glue_comment(doc: str | None) -> str | None:
    """Return a field's description as one line within the limit of AWS Glue (AWS Glue API, Column: CommentString)."""
    line = " ".join("".join(c if c.isprintable() or c.isspace() else " " for c in doc or "").split())
    encoded = line.encode(errors="ignore")
    if len(encoded) > COMMENT_BYTES:
        line = encoded[: COMMENT_BYTES - len(CUT.encode())].decode(errors="ignore") + CUT
    return line or None


def _nesting(type_: IcebergType) -> int:
    from pyiceberg.types import ListType, MapType, StructType

    match type_:
        case StructType():
            return 1 + max((_nesting(field.field_type) for field in type_.fields), default=0)
        case ListType():
            return 1 + _nesting(type_.element_type)
        case MapType():
            return 1 + max(_nesting(type_.key_type), _nesting(type_.value_type))
    return 0


def _paths(type_: IcebergType, path: str) -> Iterator[str]:
    """Yield the names that Iceberg finds columns by, in lower case: those of nested ones are joined by dots."""
    from pyiceberg.types import ListType, MapType, StructType

    match type_:
        case StructType():
            inner = [(field.name.lower(), field.field_type) for field in type_.fields]
        case ListType():
            inner = [("element", type_.element_type)]
        case MapType():
            inner = [("key", type_.key_type), ("value", type_.value_type)]
        case _:
            inner = []
    for name, part in inner:
        yield path + name
        yield from _paths(part, f"{path}{name}.")


def distinct(fields: Sequence[NestedField]) -> None:
    """Require distinct names, ignoring case, because Spark, Glue and Snowflake do not distinguish case."""
    if any(not field.name for field in fields):
        named = [field.name for field in fields if field.name][:1]
        beside = f" beside '{named[0]}'" if named else ""
        raise SchemaError(f"A field{beside} has an empty name, which Iceberg does not allow. Rename it in the schema")
    folded: dict[str, str] = {}
    in_java: dict[str, str] = {}
    for field in fields:
        if not field.name.isascii() and any("\ud800" <= character <= "\udfff" for character in field.name):
            raise SchemaError(f"The name {ascii(field.name)} of a field is not valid UTF-8. Rename it in the schema")
        for key, known in ((field.name.lower(), folded), (_as_in_java(field.name), in_java)):
            other = known.setdefault(key, field.name)
            if other != field.name:
                raise SchemaError(f"Columns '{other}' and '{field.name}' differ by case only. Rename one in the schema")
    if len(folded) < len(fields):
        names = [field.name for field in fields]
        duplicate = next(name for name in names if names.count(name) > 1)
        raise SchemaError(
            f"Two columns are named '{duplicate}': the schema repeats the name, or a metadata column has it. "
            f"Rename the field in the schema, or choose other names of metadata columns in lakehouse.yaml, such as "
            f"'metadata: {{naming: confluent}}'"
        )


def _as_in_java(name: str) -> str:
    """Return a key that is equal for names that Spark does not distinguish (java.lang.String, equalsIgnoreCase).

    Java compares the upper case of each letter, so that the micro sign equals the Greek letter.
    """
    if name.isascii():
        return name.lower()
    upper = (letter.upper() if len(letter.upper()) == 1 else letter for letter in name)
    return "".join(letter.lower()[0] for letter in upper)
