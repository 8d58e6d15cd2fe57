"""Merging of the versions of an Avro schema into one type for the values of all versions."""

import json
from dataclasses import replace

from lakehouse.core.errors import SchemaError
from lakehouse.formats.avro.avro_types import Field, Type, partners, union


def merged(new: Type, old: Type) -> Type:
    """Return the newer type with the parts that only the older version has.

    The branches of a union keep their positions of the older version, because columns are named by position; new
    branches follow, and those that the newer version dropped remain.
    """
    if new == old:
        return new
    if len(new.branches) == len(old.branches) == 1:
        return union(new.nullable, [_pair(new.branches[0], old.branches[0])])
    paired = [(new.partner(old, before), before) for before in old.branches]
    added = [branch for branch in new.branches if not any(branch is after for after, _ in paired)]
    return union(new.nullable, [*(_pair(after, before) if after else before for after, before in paired), *added])


def _pair(new: Type, old: Type) -> Type:
    if new.kind != old.kind:
        return new
    if new.name:
        aliases = _distinct(*new.aliases, *old.aliases, without=new.name)
        new = replace(new, aliases=aliases, origin=old.origin or old.name)
    match new.kind:
        case "array" | "map":
            return replace(new, inner=(merged(new.inner[0], old.inner[0]),))
        case "enum":
            return replace(new, symbols=_distinct(*new.symbols, *old.symbols))
        case "record":
            return replace(new, fields=tuple(_fields(new, old)))
    return new


def _fields(new: Type, old: Type) -> list[Field]:
    """Return the newer record's fields, then dropped ones. Fields that one version lacks have a default, or null."""
    paired = partners(old.fields, new.fields)
    names = {before.name: name for name, before in paired.items()}
    fields = []
    for field in new.fields:
        before = paired.get(field.name)
        former = [alias for alias in field.aliases if before is None or alias not in before.aliases]
        if reused := next((alias for alias in former if names.get(alias, field.name) != field.name), None):
            raise SchemaError(
                f"Field '{field.name}' of Avro record '{new.name}' has the alias '{reused}', which is also the name of "
                f"another field (NAME_REUSED). Values of '{reused}' in older versions could belong to either of them. "
                f"Give the other field a name that no version has used"
            )
        if before is None:
            fields.append(field if field.default is not None else _optional(field))
            continue
        aliases = _distinct(*field.aliases, before.name, *before.aliases, without=field.name)
        type_ = merged(field.type, before.type)
        default = field.default
        if default is not None and _default_kind(field.type, default) != _default_kind(type_, default):
            raise SchemaError(
                f"The default of Avro field '{field.name}' belongs to another branch of its union in older versions of "
                f"the schema (BRANCH_CHANGED). Remove the default, or make it null"
            )
        fields.append(replace(field, type=type_, aliases=aliases))
    remaining = {before.name for before in paired.values()}
    return fields + [_optional(before) for before in old.fields if before.name not in remaining]


def _optional(field: Field) -> Field:
    return replace(field, type=union(True, field.type.branches), default="null")


def _default_kind(type_: Type, default: str) -> str | None:
    """Return the name of the branch to which Avro for Java assigns a default: the first with its JSON type."""
    value = json.loads(default)
    return next((branch.name or branch.kind for branch in type_.branches if _json(branch) == _json_of(value)), None)


def _json(type_: Type) -> str:
    kinds = {"array": "list", "map": "dict", "record": "dict", "boolean": "bool"}
    numbers = dict.fromkeys(("int", "long", "float", "double"), "number")
    return (kinds | numbers).get(type_.kind, "str")


def _json_of(value: object) -> str:
    name = type(value).__name__
    return "number" if name in ("int", "float") else name


def _distinct(*names: str, without: str | None = None) -> tuple[str, ...]:
    return tuple(name for name in dict.fromkeys(names) if name != without)
