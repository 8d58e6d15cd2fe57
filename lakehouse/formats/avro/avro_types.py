"""Avro schemas as trees of types, in which each reference by name is replaced by the type, and merged versions.

Source: Apache Avro 1.12 specification, Schema Declaration, Names and Logical Types.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from lakehouse.core.errors import SchemaError
from lakehouse.formats.budget import MAX_DEPTH, Budget, require_json
from lakehouse.formats.schema import RegisteredSchema

if TYPE_CHECKING:
    from pydantic import JsonValue


MAX_BRANCHES = 64
"""Maximum branches of a union."""

MAX_PRECISION = 38
"""Maximum digits of a decimal (Iceberg table specification, Primitive types)."""

MAX_NUMBERS = {"float": float.fromhex("0x1.fffffep127"), "double": sys.float_info.max}
"""Largest numbers of the floating-point types (IEEE 754)."""

ZONED_TIMESTAMP, VARIABLE_DECIMAL = "io.debezium.time.ZonedTimestamp", "io.debezium.data.VariableScaleDecimal"
"""Logical types of text and records, which lakehouse.formats.avro.connect_types declares."""

LOGICAL = {
    "int": {"date", "time-millis"},
    "long": {"time-micros"}
    | {f"{zone}timestamp-{unit}" for zone in ("", "local-") for unit in ("millis", "micros", "nanos")},
    "string": {ZONED_TIMESTAMP},
    "record": {VARIABLE_DECIMAL},
}
"""Logical types by the type they annotate. Of the others only `decimal` changes a value."""


@dataclass(frozen=True)
class Type:
    """A type at one place of a schema.

    `kind` is a primitive type, `record`, `enum`, `fixed`, `array`, `map`, `union`, or `recursive` in place of a record
    that contains itself. `name` and `aliases` are full names. `logical` is `decimal` or one of LOGICAL, and None if the
    schema has no valid one. `inner` contains the type of an array's items or a map's values, or the branches of a
    union. `origin` is the name that a merged type had in the oldest version.
    """

    kind: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    logical: str | None = None
    precision: int = 0
    scale: int = 0
    size: int = 0
    symbols: tuple[str, ...] = ()
    fields: tuple[RecordField, ...] = ()
    inner: tuple[Type, ...] = ()
    origin: str = ""

    @property
    def branches(self) -> tuple[Type, ...]:
        """Types of non-null values."""
        return tuple(branch for branch in (self.inner if self.kind == "union" else (self,)) if branch.kind != "null")

    @property
    def nullable(self) -> bool:
        """True if a value can be null."""
        return any(branch.kind == "null" for branch in (self.inner if self.kind == "union" else (self,)))

    def partner(self, wrote: Type, branch: Type) -> Type | None:
        """Return the branch for values of a branch of another version, independently of their positions in the unions.

        Primitive types, arrays and maps match by kind, named types by full name, then by alias.

        Args:
            wrote: The other version's type at the same place.
            branch: One of its branches.
        """
        partner = self._matching(branch)
        if partner is None or not branch.name:
            return partner
        # If several branches match the same one, the branch of the same name has precedence.
        rivals = [other for other in wrote.branches if other.name and self._matching(other) is partner]
        first = next((other for other in rivals if other.name == partner.name), rivals[0])
        return partner if first is branch else None

    def _matching(self, branch: Type) -> Type | None:
        same = [other for other in self.branches if other.kind == branch.kind]
        if branch.name:
            by_name = [other for other in same if other.name == branch.name]
            same = by_name or [other for other in same if branch.name in other.aliases]
        return same[0] if same else None


@dataclass(frozen=True)
class RecordField:
    """A field of a record. `default` is JSON text, or None if there is no valid default."""

    name: str
    type: Type
    aliases: tuple[str, ...] = ()
    default: str | None = None
    doc: Any = None


PRIMITIVES = {kind: Type(kind) for kind in ("null", "boolean", "int", "long", "float", "double", "bytes", "string")}
NULL = PRIMITIVES["null"]


def union(nullable: bool, branches: Sequence[Type]) -> Type:
    """Return the union of the branches, or the branch if there is only one."""
    inner = (NULL, *branches) if nullable else tuple(branches)
    return inner[0] if len(inner) == 1 else Type("union", inner=inner)


def partners(wrote: Sequence[RecordField], reads: Sequence[RecordField]) -> dict[str, RecordField]:
    """Pair the fields of two versions of a record: by name, then by alias, then by a name that differs by case only.

    Names of columns are case-insensitive, so a field renamed in case only is the same column.

    Returns:
        The fields of `wrote` by the name of their partner in `reads`.
    """
    unpaired = {field.name: field for field in wrote}
    pairs = {field.name: unpaired.pop(field.name) for field in reads if field.name in unpaired}
    for column in reads:
        alias = next((alias for alias in column.aliases if alias in unpaired), None)
        if alias and column.name not in pairs:
            pairs[column.name] = unpaired.pop(alias)
    folded = {name.lower(): name for name in reversed(unpaired)}
    for column in reads:
        if column.name not in pairs and (name := folded.pop(column.name.lower(), None)):
            pairs[column.name] = unpaired.pop(name)
    return pairs


def digits(size: int) -> int:
    """Return the number of digits that always fit a decimal of `size` bytes (Avro specification, Decimal)."""
    return math.floor(math.log10(2) * (8 * size - 1)) if size else 0


def accepts(type_: Type, default: JsonValue) -> bool:
    """Return whether a JSON value is a valid default of a type (Avro specification, Complex Types: Records).

    Raises:
        ValueError: It is, but readers would read another value: a number that exceeds the type, or half of a surrogate
            pair.
    """
    match type_.kind:
        case "union":
            return any(accepts(branch, default) for branch in type_.inner)
        case "null":
            return default is None
        case "boolean":
            return isinstance(default, bool)
        case "int" | "long":
            bits = 31 if type_.kind == "int" else 63
            return isinstance(default, int) and not isinstance(default, bool) and -(2**bits) <= default < 2**bits
        case "float" | "double":
            if not isinstance(default, int | float) or isinstance(default, bool):
                return False
            if not abs(default) <= MAX_NUMBERS[type_.kind]:
                raise ValueError(f"exceeds a {type_.kind}")
            return True
        case "string":
            if isinstance(default, str) and any("\ud800" <= character <= "\udfff" for character in default):
                raise ValueError("is not valid UTF-8")
            return isinstance(default, str)
        case "bytes":
            return isinstance(default, str) and all(ord(character) < 256 for character in default)
        case "fixed":
            return isinstance(default, str) and accepts(Type("bytes"), default) and len(default) == type_.size
        case "enum":
            return default in type_.symbols
        case "array":
            return isinstance(default, list) and all(accepts(type_.inner[0], item) for item in default)
        case "map":
            if not isinstance(default, dict):
                return False
            return all(accepts(PRIMITIVES["string"], key) and accepts(type_.inner[0], default[key]) for key in default)
        case "record" if isinstance(default, dict):
            values = ((field, default.get(field.name)) for field in type_.fields)
            return all(field.default if field.name not in default else accepts(field.type, v) for field, v in values)
    return False


@lru_cache(maxsize=256)
def parse(schema: RegisteredSchema) -> Type:
    """Return the type of a schema and the schemas it refers to."""
    texts = [text for _, text in schema.references] + [schema.text]
    parser, root = _Parser(), NULL
    try:
        require_json("Avro", texts)
        for text in texts:
            root = parser.type(json.loads(text), "", 1)
        require_bounded(root)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise SchemaError(f"The Avro schema is not valid: {type(error).__name__} {error}. Correct it") from error
    return root


def require_bounded(root: Type) -> None:
    """Check the size of a type, expanded into columns."""
    _spend(root, Budget("Avro"))


def _spend(type_: Type, budget: Budget) -> None:
    branches = type_.branches
    if len(branches) > 1:
        budget.spend_field(len(branches))
    for branch in branches:
        match branch.kind:
            case "recursive":
                raise SchemaError(
                    f"Avro record '{branch.name}' contains itself, but Iceberg has no recursive types. Remove the "
                    f"recursion, or register the field as a string"
                )
            case "enum":
                budget.spend_entries(len(branch.symbols))
            case "array" | "map":
                budget.spend_field(2 if branch.kind == "map" else 1)
                with budget.level():
                    _spend(branch.inner[0], budget)
            case "record":
                budget.spend_field(len(branch.fields))
                with budget.level():
                    for part in branch.fields:
                        _spend(part.type, budget)


@dataclass
class _Parser:
    """A parser of the texts of one schema, in order. `named` has None for a record that is being parsed."""

    named: dict[str, Type | None] = field(default_factory=dict)

    def type(self, schema: Any, namespace: str, depth: int) -> Type:
        if depth > MAX_DEPTH:
            raise SchemaError(f"The Avro schema nests deeper than {MAX_DEPTH} types. Flatten it")
        if isinstance(schema, list):
            return self.union(schema, namespace, depth)
        if isinstance(schema, str):
            return self.reference(schema, namespace)
        match schema["type"]:
            case "record" | "error" | "enum" | "fixed":
                return self.define(schema, namespace, depth)
            case "array":
                return Type("array", inner=(self.type(schema["items"], namespace, depth + 1),))
            case "map":
                return Type("map", inner=(self.type(schema["values"], namespace, depth + 1),))
            case str() as primitive if primitive in PRIMITIVES:
                return Type(primitive, **_logical(schema, primitive))
            case other:
                return self.type(other, namespace, depth + 1)

    def union(self, schema: list[Any], namespace: str, depth: int) -> Type:
        if len(schema) > MAX_BRANCHES:
            raise SchemaError(f"An Avro union has {len(schema)} branches, more than {MAX_BRANCHES}. Split it")
        branches = tuple(self.type(branch, namespace, depth + 1) for branch in schema)
        keys = [(branch.kind, branch.name) for branch in branches]
        if invalid := next((key for key in keys if keys.count(key) > 1 or key[0] == "union"), None):
            raise SchemaError(
                f"An Avro union has '{invalid[1] or invalid[0]}' more than once, or in another union. Correct it"
            )
        return Type("union", inner=branches)

    def reference(self, name: str, namespace: str) -> Type:
        if name in PRIMITIVES:
            return PRIMITIVES[name]
        for full in (f"{namespace}.{name}", name):
            if full in self.named:
                return self.named[full] or Type("recursive", name=full)
        raise SchemaError(
            f"Avro type '{name}' has no Iceberg column type, and no type of that name is defined. Correct its name"
        )

    def define(self, schema: dict[str, Any], namespace: str, depth: int) -> Type:
        """Return a named type; nested types inherit its namespace (Avro specification, Names)."""
        name, kind = schema["name"], schema["type"]
        namespace = name.rpartition(".")[0] if "." in name else schema.get("namespace", namespace) or ""
        full = _full(name, namespace)
        if full in self.named:
            raise SchemaError(f"The Avro schema defines '{full}' twice. Rename one of them")
        self.named[full] = None
        aliases = tuple(_full(alias, namespace) for alias in schema.get("aliases") or ())
        if kind == "enum":
            symbols = _names(schema["symbols"], full)
            type_ = Type(kind, full, aliases, symbols=symbols)
        elif kind == "fixed":
            type_ = Type(kind, full, aliases, size=_number(schema, "size"), **_logical(schema, kind))
        else:
            _names([field["name"] for field in schema["fields"]], full)
            fields = tuple(self.field(field, namespace, depth) for field in schema["fields"])
            type_ = Type("record", full, aliases, fields=fields, **_logical(schema, kind))
        self.named[full] = type_
        return type_

    def field(self, schema: dict[str, Any], namespace: str, depth: int) -> RecordField:
        type_ = self.type(schema["type"], namespace, depth + 1)
        aliases = tuple(schema.get("aliases") or ())
        try:
            has_default = "default" in schema and accepts(type_, schema["default"])
        except ValueError as error:
            raise SchemaError(
                f"The default of Avro field '{schema['name']}' {error}, so records without the field would get another "
                f"value. Correct the default"
            ) from error
        default = json.dumps(schema["default"]) if has_default else None
        return RecordField(schema["name"], type_, aliases, default, schema.get("doc"))


def _names(names: Sequence[str], within: str) -> tuple[str, ...]:
    """Return the names of one type's fields or symbols as a tuple."""
    for name in names:
        if not _is_name(name):
            raise SchemaError(f"'{within}' has a field or symbol '{name}', which is not a valid Avro name. Rename it")
    if len(set(names)) < len(names):
        raise SchemaError(f"'{within}' has two fields or symbols with the same name. Rename one of them")
    return tuple(names)


def _is_name(name: str) -> bool:
    """Return whether Avro for Java accepts a field or symbol name (org.apache.avro.NameValidator.UTF_VALIDATOR)."""
    letters = [c == "_" or c.isalpha() or (c.isdecimal() and place > 0) for place, c in enumerate(name)]
    return bool(letters) and all(letters) and max(name) <= "\uffff"


def _number(schema: dict[str, Any], name: str) -> int:
    number = schema[name]
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise ValueError(f"{name} is not a natural number")
    return number


def _logical(schema: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return the logical type's arguments of Type; empty if it is not valid (Avro specification, Logical Types)."""
    logical = schema.get("logicalType")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        room = digits(schema["size"]) if kind == "fixed" else math.inf
        if type(precision) is int and type(scale) is int and 0 <= scale <= precision and 1 <= precision <= room:
            return {"logical": logical, "precision": precision, "scale": scale}
    if logical == VARIABLE_DECIMAL and kind == "record":
        # Its scale is that of the column.
        return {"logical": logical, "precision": MAX_PRECISION, "scale": _number(schema, "scale")}
    return {"logical": logical} if isinstance(logical, str) and logical in LOGICAL.get(kind, ()) else {}


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


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


def _fields(new: Type, old: Type) -> list[RecordField]:
    """Return the newer record's fields, then dropped ones. Fields that one version lacks have a default, or null."""
    paired = partners(old.fields, new.fields)
    names = {before.name: name for name, before in paired.items()}
    fields = []
    for after in new.fields:
        before = paired.get(after.name)
        former = [alias for alias in after.aliases if before is None or alias not in before.aliases]
        if reused := next((alias for alias in former if names.get(alias, after.name) != after.name), None):
            raise SchemaError(
                f"Field '{after.name}' of Avro record '{new.name}' has the alias '{reused}', which is also the name of "
                f"another field (NAME_REUSED). Values of '{reused}' in older versions could belong to either of them. "
                f"Give the other field a name that no version has used"
            )
        if before is None:
            fields.append(after if after.default is not None else _optional(after))
            continue
        aliases = _distinct(*after.aliases, before.name, *before.aliases, without=after.name)
        type_ = merged(after.type, before.type)
        default = after.default
        if default is not None and _default_kind(after.type, default) != _default_kind(type_, default):
            raise SchemaError(
                f"The default of Avro field '{after.name}' belongs to another branch of its union in older versions of "
                f"the schema (BRANCH_CHANGED). Remove the default, or make it null"
            )
        fields.append(replace(after, type=type_, aliases=aliases))
    remaining = {before.name for before in paired.values()}
    return fields + [_optional(before) for before in old.fields if before.name not in remaining]


def _optional(field: RecordField) -> RecordField:
    return replace(field, type=union(True, field.type.branches), default="null")


def _default_kind(type_: Type, default: str) -> str | None:
    branch = default_branch(type_, json.loads(default))
    return None if branch is None else branch.name or branch.kind


def default_branch(type_: Type, value: object) -> Type | None:
    """Return the branch to which Avro for Java assigns a default: the first with its JSON type; None for null."""
    return next((branch for branch in type_.branches if _json(branch) == _json_of(value)), None)


def _json(type_: Type) -> str:
    kinds = {"array": "list", "map": "dict", "record": "dict", "boolean": "bool"}
    numbers = dict.fromkeys(("int", "long", "float", "double"), "number")
    return (kinds | numbers).get(type_.kind, "str")


def _json_of(value: object) -> str:
    name = type(value).__name__
    return "number" if name in ("int", "float") else name


def _distinct(*names: str, without: str | None = None) -> tuple[str, ...]:
    return tuple(name for name in dict.fromkeys(names) if name != without)
