"""The versions of an Avro schema as one type that holds what every version wrote."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from lakehouse.core.errors import SchemaError
from lakehouse.formats.avro_types import Field, Type, partners, union


def merged(new: Type, old: Type) -> Type:
    """A type with what an older version has and the newer lacks.

    The branches of a union keep the place that they had in the older version, because columns are named by it; newer
    ones follow, and those that the newer version dropped stay.
    """
    if new == old:
        return new
    ours, theirs = new.branches, old.branches
    if len(ours) == len(theirs) == 1:
        return union(new.nullable, [_pair(ours[0], theirs[0])])
    paired = [(new.partner(old, was), was) for was in theirs]
    newer = [branch for branch in ours if not any(branch is here for here, _ in paired)]
    return union(new.nullable, [*(_pair(here, was) if here else was for here, was in paired), *newer])


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
    """The newer record's fields, then those it dropped. What one of them lacks is null there without a default."""
    paired = partners(old.fields, new.fields)
    found = []
    for here in new.fields:
        was = paired.get(here.name)
        if was is None:
            found.append(here if here.default is not None else _optional(here))
            continue
        aliases = _distinct(*here.aliases, was.name, *was.aliases, without=here.name)
        type_ = merged(here.type, was.type)
        if here.default is not None and _default_kind(here.type, here.default) != _default_kind(type_, here.default):
            raise SchemaError(
                f"The default of Avro field '{here.name}' is of another branch of its union in older versions of the "
                f"schema. Remove the default, or make it null"
            )
        found.append(replace(here, type=type_, aliases=aliases))
    kept = {was.name for was in paired.values()}
    return found + [_optional(was) for was in old.fields if was.name not in kept]


def _optional(field: Field) -> Field:
    return replace(field, type=union(True, field.type.branches), default="null")


def _default_kind(type_: Type, default: str) -> str | None:
    """The branch that Avro for Java takes a default for: the first of its kind of JSON."""
    value = json.loads(default)
    return next((branch.name or branch.kind for branch in type_.branches if _json(branch) == _json_of(value)), None)


def _json(type_: Type) -> str:
    kinds = {"array": "list", "map": "dict", "record": "dict", "boolean": "bool"}
    numbers = dict.fromkeys(("int", "long", "float", "double"), "number")
    return (kinds | numbers).get(type_.kind, "str")


def _json_of(value: Any) -> str:
    name = type(value).__name__
    return "number" if name in ("int", "float") else name


def _distinct(*names: str, without: str | None = None) -> tuple[str, ...]:
    return tuple(name for name in dict.fromkeys(names) if name != without)
