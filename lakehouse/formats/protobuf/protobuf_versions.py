"""Merging of the fields of two versions of a Protobuf message.

Fields with the same number are the same field, whatever their names (Protocol Buffers, Updating a message type). Fields
with the same name and different numbers are the same too, if neither number belongs to another field.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lakehouse.core.errors import SchemaError
from lakehouse.formats.protobuf.protobuf_fields import Field

WIDER = {("int", "long"), ("int", "decimal"), ("long", "decimal"), ("float", "double")}
"""Pairs (from, to) of kinds such that every value of one fits the other."""


def fits(written: Field, wanted: Field) -> bool:
    """Return whether all values of a written field fit the kind of the wanted field."""
    return written.kind == wanted.kind or (written.kind, wanted.kind) in WIDER


def partners(wanted: Sequence[Field], written: Sequence[Field]) -> Mapping[str, Field]:
    """Return the written fields by the names of their wanted fields: paired by number, then by name."""
    by_number, by_name = {f.number: f for f in written}, {f.name: f for f in written}
    pairs = {field.name: by_number[field.number] for field in wanted if field.number in by_number}
    paired = {field.number for field in pairs.values()}
    for field in wanted:
        other = by_name.get(field.name)
        if field.name not in pairs and other and other.number not in paired:
            pairs[field.name] = other
    return pairs


def merged(newer: tuple[Field, ...], older: tuple[Field, ...], within: str = "") -> tuple[Field, ...]:
    """Return the newer fields with their former names, then the fields that only the older version has.

    Args:
        newer: The fields of a message in newer versions.
        older: The fields in an older version.
        within: The path of the message with a trailing dot; empty at the top.

    Raises:
        SchemaError: Values of the older version would be lost, or assigned to another field.
    """
    pairs, fields = partners(newer, older), []
    for field in newer:
        path, old = f"{within}{field.name}", pairs.get(field.name)
        if old and old.name != field.name:
            _require_free_name(field, old, older, path)
            if old.name not in field.previous_names:
                field = replace(field, previous_names=(*field.previous_names, old.name))
        if old and old.number != field.number and not fits(old, field):
            raise SchemaError(
                f"Protobuf field '{path}' is of type {field.kind} with number {field.number}, and was of type "
                f"{old.kind} with number {old.number} in an older version (UNSUPPORTED_TYPE_CHANGE). Values of the "
                f"older version would be lost. Give the new field another name"
            )
        if old and old.kind == field.kind:
            field = replace(field, fields=merged(field.fields, old.fields, f"{path}."))
        fields.append(field)
    names, remaining = {field.name.lower(): field.name for field in newer}, {field.number for field in pairs.values()}
    dropped = [field for field in older if field.number not in remaining]
    for field in dropped:
        if name := names.get(field.name.lower()):
            raise SchemaError(
                f"Protobuf field '{within}{field.name}' of an older version is '{within}{name}' with another number in "
                f"a newer one, but column names are case-insensitive (CASE_COLLISION). Give the new field another name"
            )
    return (*fields, *dropped)


def _require_free_name(field: Field, old: Field, older: Sequence[Field], path: str) -> None:
    """Refuse a new name that another field had, because a table may contain values of both fields under it."""
    for other in older:
        if other.name.lower() == field.name.lower() and other.number != field.number:
            raise SchemaError(
                f"Protobuf field '{path}' has number {field.number}, which was '{old.name}' in an older version, where "
                f"'{other.name}' had number {other.number} (NAME_REUSED). One column would contain values of two "
                f"fields. Give the field a name that no version has used"
            )
