"""Partition specs and sort orders in the syntax of lakehouse.yaml: `day(kafka_timestamp)`, `bucket(16, id)`,
`price desc` (Iceberg table specification, Partition transforms)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakehouse.core.errors import SchemaError

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.transforms import Transform

_TERM = re.compile(
    r"(?:(?P<name>year|month|day|hour|bucket|truncate)\((?:(?P<width>\d+), *)?(?P<of>[^(),]+)\))|[^(),]+"
)
_WIDE = ("bucket", "truncate")


@dataclass(frozen=True)
class Term:
    """A column, or a transform of it. `width` is the number of buckets or the truncated length."""

    column: str
    transform: str = "identity"
    width: int | None = None
    descending: bool = False

    @property
    def name(self) -> str:
        """Name of the partition field: Iceberg's default, plus the width, since field names are never reused and a
        table may have fields of several widths."""
        suffix = {"identity": "", "truncate": "_trunc"}.get(self.transform, f"_{self.transform}")
        return self.column + suffix + (f"_{self.width}" if self.width else "")

    @property
    def text(self) -> str:
        """The term in the syntax of lakehouse.yaml."""
        arguments = f"{self.width}, {self.column}" if self.width else self.column
        transformed = self.column if self.transform == "identity" else f"{self.transform}({arguments})"
        return f"{transformed} desc" if self.descending else transformed

    @property
    def iceberg(self) -> Transform[Any, Any]:
        """The transform in pyiceberg."""
        from pyiceberg.transforms import parse_transform

        return parse_transform(f"{self.transform}[{self.width}]" if self.width else self.transform)


def parse(text: str, *, ordered: bool = False) -> Term:
    """Parse one term; with `ordered`, it may end in `asc` or `desc`.

    Raises:
        ValueError: The term is invalid.
    """
    direction = re.fullmatch(r"(.*?) +(asc|desc)", text.strip()) if ordered else None
    if ordered and (other := re.fullmatch(r"(.*?) +(?!(?:asc|desc)$)((?i:asc|desc))\w*", text.strip())):
        raise ValueError(f"'{text}' has no valid direction. Write '{other[1]} {other[2].lower()}'")
    term = _TERM.fullmatch(direction[1] if direction else text.strip())
    if term is None or (term["name"] in _WIDE) != (term["width"] is not None):
        raise ValueError(f"'{text}' is not a column or transform. Write {_correction(text)}")
    return Term(
        (term["of"] or term[0]).strip(),
        term["name"] or "identity",
        int(term["width"]) if term["width"] else None,
        direction is not None and direction[2] == "desc",
    )


def _correction(text: str) -> str:
    """Return a valid term that resembles an invalid one, or else examples."""
    if plural := re.fullmatch(r"(year|month|day|hour)s\(([^(),]+)\)", text.strip()):
        return f"{plural[1]}({plural[2]})"
    if swapped := re.fullmatch(r"(bucket|truncate)\(([^(),]+), *(\d+)\)", text.strip()):
        return f"{swapped[1]}({swapped[3]}, {swapped[2]})"
    return "column, day(column) or bucket(16, column)"


def require_columns(schemas: Sequence[Schema], partition_by: tuple[str, ...], sort_by: tuple[str, ...]) -> None:
    """Require that a table can be partitioned and sorted so.

    Args:
        schemas: The columns that it will have, of which the first schema with a name counts.
        partition_by: The terms of the partition spec.
        sort_by: The terms of the sort order.

    Raises:
        SchemaError: A column does not exist, or its type does not support its transform.
    """
    for term in (*map(parse, partition_by), *(parse(text, ordered=True) for text in sort_by)):
        _field(next((schema for schema in schemas if term.column in schema.column_names), schemas[0]), term)


def changes(table: Table, partition_by: tuple[str, ...], sort_by: tuple[str, ...]) -> list[str]:
    """Return a phrase for each of the partition spec and the sort order of a table that `apply_layout` would change."""
    schema, order = table.schema(), table.sort_order().fields
    parts = [_term(schema, f.source_id, f.transform) for f in table.spec().fields if str(f.transform) != "void"]
    sorted_by = [_term(schema, f.source_id, f.transform, f.direction.value == "desc") for f in order]
    declared = [term.text for term in map(parse, partition_by)]
    declared_order = [parse(text, ordered=True).text for text in sort_by]
    phrases = []
    if sorted(parts) != sorted(declared):
        phrases.append(f"`partition_by` from {_list(parts)} to {_list(declared)}")
    if sorted_by != declared_order:
        phrases.append(f"`sort_by` from {_list(sorted_by)} to {_list(declared_order)}")
    return phrases


def _term(schema: Schema, field_id: int, transform: Transform[Any, Any], descending: bool = False) -> str:
    """Return a transform of a table's column in the syntax of lakehouse.yaml."""
    name, _, width = str(transform).rstrip("]").partition("[")
    return Term(schema.find_column_name(field_id) or "", name, int(width) if width else None, descending).text


def _list(terms: Sequence[str]) -> str:
    return f"`[{', '.join(terms)}]`"


def apply_layout(table: Table, partition_by: tuple[str, ...], sort_by: tuple[str, ...]) -> None:
    """Set the partition spec and sort order of a table for new files; existing files are unchanged."""
    schema = table.schema()
    parts = {_field(schema, term): term for term in map(parse, partition_by)}
    order = {(*_field(schema, term), term.descending): term for term in (parse(t, ordered=True) for t in sort_by)}
    existing = {(f.source_id, str(f.transform)): f.name for f in table.spec().fields if str(f.transform) != "void"}
    if parts.keys() != existing.keys():
        names = _names(table, parts)
        try:
            with table.update_spec() as spec:
                for field in existing.keys() - parts.keys():
                    spec.remove_field(existing[field])
                for field, term in parts.items():
                    if field not in existing:
                        spec.add_field(term.column, term.iceberg, names[field])
        except ValueError as error:
            raise SchemaError(
                f"Table {'.'.join(table.name())} cannot be partitioned by {', '.join(partition_by)}: {error}. Nothing "
                f"was changed. Correct 'partition_by' in lakehouse.yaml"
            ) from error
    sorted_by = [(f.source_id, str(f.transform), f.direction.value == "desc") for f in table.sort_order().fields]
    if list(order) != sorted_by:
        with table.update_sort_order() as update:
            for term in order.values():
                (update.desc if term.descending else update.asc)(term.column, term.iceberg)


def _names(table: Table, parts: Mapping[tuple[int, str], Term]) -> dict[tuple[int, str], str]:
    """Return names of partition fields that differ from all columns and from all fields the table ever had."""
    used = {f.name: (f.source_id, str(f.transform)) for spec in table.specs().values() for f in spec.fields}
    columns = {field.name: (field.field_id, "identity") for field in table.schema().fields}
    names: dict[tuple[int, str], str] = {}
    for field, term in parts.items():
        name, number = term.name, 1
        while (columns | used).get(name, field) != field:
            number += 1
            name = f"{term.name}_{number}"
        names[field] = name
    return names


def _field(schema: Schema, term: Term) -> tuple[int, str]:
    """Return the id of the source column, and the transform."""
    try:
        source = schema.find_field(term.column)
    except ValueError as error:
        known = ", ".join(field.name for field in schema.fields)
        raise SchemaError(
            f"There is no column '{term.column}' to partition or sort by. Nothing was changed. Correct 'partition_by' "
            f"or 'sort_by' in lakehouse.yaml, with one of the columns {known}"
        ) from error
    if not term.iceberg.can_transform(source.field_type):
        raise SchemaError(
            f"Column '{term.column}' is a {source.field_type}: {term.transform} does not apply to it. Correct "
            f"'partition_by' or 'sort_by' in lakehouse.yaml"
        )
    return source.field_id, str(term.iceberg)
