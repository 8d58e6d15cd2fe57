"""The columns of a table: its records' own, then the message key's, then metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from lakehouse.core.errors import SchemaError
from lakehouse.core.metadata import internal, registered
from lakehouse.formats.budget import MAX_NESTING, Budget, require_nesting

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.types import IcebergType, NestedField, StructType


COMMENT_BYTES, CUT = 255, "…"


def table_schema(metadata: Mapping[str, str], value: StructType, key: StructType | None) -> Schema:
    """Return the schema of a topic's table, every column optional, with fresh field ids.

    Args:
        metadata: The names of the metadata columns in the table by their internal ones.
        value: The columns of message values.
        key: The columns of message keys. A column that both have is the value's.

    Raises:
        SchemaError: Two columns have one name (upper and lower case are one), or there are too many.
    """
    from pyiceberg.schema import Schema, assign_fresh_schema_ids
    from pyiceberg.types import NestedField

    own = {field.name: field for field in value.fields}
    fields = [*value.fields, *(field for field in (key.fields if key else ()) if field.name not in own)]
    require_nesting("table's", max(map(_nesting, (field.field_type for field in fields)), default=0), MAX_NESTING)
    Budget("combined key and value").spend_field(assign_fresh_schema_ids(Schema(*fields)).highest_field_id)
    for name, column in registered().items():
        if table_name := metadata.get(internal(name)):
            about = {"id": 1, "name": table_name, "type": column.type, "required": False, "doc": column.comment}
            fields.append(NestedField.model_validate(about))
    distinct(fields)
    fields = [field.model_copy(update={"doc": glue_comment(field.doc)}) for field in fields]
    return assign_fresh_schema_ids(Schema(*fields))


def glue_comment(doc: str | None) -> str | None:
    """A field's description as AWS Glue takes it (AWS Glue API, Column: CommentString): one line of few bytes."""
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


def distinct(fields: Sequence[NestedField]) -> None:
    """Spark, Glue and Snowflake do not tell upper from lower case; the project's own columns have names too.

    Raises: SchemaError when two fields have one name, or one has none.
    """
    if any(not field.name for field in fields):
        after = [field.name for field in fields if field.name][:1]
        beside = f" beside '{after[0]}'" if after else ""
        raise SchemaError(f"A field{beside} has an empty name, which Iceberg does not take. Rename it in the schema")
    folded: dict[str, str] = {}
    for field in fields:
        other = folded.setdefault(field.name.lower(), field.name)
        if other != field.name:
            raise SchemaError(f"Columns '{other}' and '{field.name}' differ by case only; rename one in the schema")
    if len(folded) < len(fields):
        names = [field.name for field in fields]
        twice = next(name for name in names if names.count(name) > 1)
        raise SchemaError(
            f"Two columns are called '{twice}', a name that every table has or the schema repeats; rename the field"
        )
