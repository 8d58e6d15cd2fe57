"""Fields of two versions of a Protobuf message: which are one field, and which are so no longer.

A field is the same as long as it has its number, whatever its name (Protocol Buffers, Updating a message type). One
that has its name under a new number is the same, too, as long as neither number belongs to another field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lakehouse.core.errors import SchemaError

if TYPE_CHECKING:
    from lakehouse.formats.protobuf import Field

WIDER = {("int", "long"), ("int", "decimal"), ("long", "decimal"), ("float", "double")}
"""Kinds whose values all fit another kind, as (from, to)."""


def fits(written: Field, wanted: Field) -> bool:
    """Return whether values of one field are values of another one's kind."""
    return written.kind == wanted.kind or (written.kind, wanted.kind) in WIDER


def partners(wanted: Sequence[Field], written: Sequence[Field]) -> Mapping[str, Field]:
    """Return what a writer has of the wanted fields, by their names: the field of the same number, else of the name."""
    by_number, by_name = {f.number: f for f in written}, {f.name: f for f in written}
    found = {field.name: by_number[field.number] for field in wanted if field.number in by_number}
    taken = {field.number for field in found.values()}
    for field in wanted:
        other = by_name.get(field.name)
        if field.name not in found and other and other.number not in taken:
            found[field.name] = other
    return found


def merged(newer: tuple[Field, ...], older: tuple[Field, ...], within: str = "") -> tuple[Field, ...]:
    """Return the newer fields with the names that they had, then the older ones that are none of them.

    Args:
        newer: The fields of a message in newer versions.
        older: Those in an older version.
        within: The path of the message, with a dot behind it; empty at the top.

    Raises:
        SchemaError: Values of the older version would be lost, or become another field's.
    """
    found, fields = partners(newer, older), []
    for field in newer:
        path, old = f"{within}{field.name}", found.get(field.name)
        if old and old.name != field.name:
            _require_free_name(field, old, older, path)
            if old.name not in field.former:
                field = replace(field, former=(*field.former, old.name))
        if old and old.number != field.number and not fits(old, field):
            raise SchemaError(
                f"Protobuf field '{path}' is of type {field.kind} with number {field.number}, and was of type "
                f"{old.kind} with number {old.number} in an older version (UNSUPPORTED_TYPE_CHANGE). Values of the "
                f"older version would be lost. Give the new field another name"
            )
        if old and old.kind == field.kind:
            field = replace(field, fields=merged(field.fields, old.fields, f"{path}."))
        fields.append(field)
    names, kept = {field.name.lower(): field.name for field in newer}, {field.number for field in found.values()}
    dropped = [field for field in older if field.number not in kept]
    for field in dropped:
        if name := names.get(field.name.lower()):
            raise SchemaError(
                f"Protobuf field '{within}{field.name}' of an older version is '{within}{name}' with another number in "
                f"a newer one (CASE_COLLISION). Column names differ by more than case. Give the new field another name"
            )
    return (*fields, *dropped)


def _require_free_name(field: Field, old: Field, older: Sequence[Field], path: str) -> None:
    """Refuse a new name that was another field's: a table may hold values of both fields under it."""
    for other in older:
        if other.name.lower() == field.name.lower() and other.number != field.number:
            raise SchemaError(
                f"Protobuf field '{path}' has number {field.number}, which was '{old.name}' in an older version, where "
                f"'{other.name}' had number {other.number} (NAME_REUSED). One column would hold values of two fields. "
                f"Give the field a name that no version has had"
            )
