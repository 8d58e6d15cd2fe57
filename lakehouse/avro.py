"""Avro schemas as Iceberg columns, the way Spark's from_avro decodes them, and the one schema that reads a topic.

Sources: Apache Avro 1.12 specification; Spark, "Apache Avro Data Source Guide" (supported types for Avro → Spark SQL);
Iceberg table specification, "Appendix A: Avro". docs/types.md has the table of types.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakehouse.budget import MAX_DEPTH, Budget, require_json
from lakehouse.columns import distinct
from lakehouse.errors import SchemaError
from lakehouse.schema import RegisteredSchema, Shape

if TYPE_CHECKING:
    from pyiceberg.types import IcebergType, StructType

END = "__end"
"""The field that stands after the others in every writer's schema and in the reader's: what ends a body."""

MAX_PRECISION = 38
"""Digits of a decimal (Iceberg table specification, Primitive types)."""

LONG_DIGITS, LONG_BYTES = 18, 8
"""Up to so many digits a decimal is a long in Spark (org.apache.spark.sql.types.Decimal), which has so many bytes."""

MAX_BRANCHES = 64
"""Of a union."""

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
LOSSY = frozenset({("int", "float"), ("long", "float"), ("long", "double")})
"""Promotions that Avro makes though the value may not survive (Avro specification, Schema Resolution)."""

MOMENTS = frozenset(
    ["date", "time-millis", "time-micros"]
    + [f"{zone}timestamp-{unit}" for zone in ("", "local-") for unit in ("millis", "micros", "nanos")]
)
"""Logical types of numbers that mean something else in another logical type."""

LOGICAL = {
    "int": {"date"},
    "long": {f"{zone}timestamp-{unit}" for zone in ("", "local-") for unit in ("millis", "micros")},
    "bytes": {"decimal"},
    "fixed": {"decimal"},
}
"""Logical types that have a column type of their own, by what they annotate. Others leave the type as it is."""


def shape(schemas: Sequence[RegisteredSchema]) -> Shape:
    """The columns of a subject's records: those of `reader(schemas)`.

    Parameters: `schemas` are the subject's versions, newest last.
    Raises: SchemaError for what is no record, is recursive, has a type that Iceberg lacks, two columns of one name
    (upper and lower case are one), or more of anything than the limits above.
    """
    return _Columns(_read(schemas)).shape()


def reader(schemas: Sequence[RegisteredSchema]) -> str:
    """The schema that reads records of every version: the newest, and what older versions had besides.

    Fields that the newest dropped follow the others, optional; an enum has the symbols of all versions; a field that
    an older version lacks is null there unless it has a default. A field renamed by alias is not a dropped one.
    Parameters: `schemas` are the subject's versions, newest last.
    Raises: SchemaError.
    """
    types = _read(schemas)
    types.drop_reused_aliases()
    return types.text()


def inlined(schema: RegisteredSchema) -> str:
    """The schema with the types it refers to under other subjects, in one text.

    Raises: SchemaError.
    """
    return _Types.parse(schema).text()


def misread(writer: str, reader: str) -> str | None:
    """Why records of `writer` must not be read with `reader` though Avro would: values would change in silence.

    Avro's resolution ignores logical types (1 ms would become 1 µs) and promotes long to double. What Avro itself
    refuses is not looked for: from_avro says so for each record.
    Parameters: texts as `inlined` and `reader` give them.
    """
    wrote, reads = (_Types.parse(RegisteredSchema(0, text)) for text in (writer, reader))
    return next(_Resolution(wrote, reads).faults(wrote.root, reads.root, ""), None)


def ended(schema: str, size: int) -> str:
    """A record schema with END behind its fields, for bodies that `size` known bytes were appended to."""
    parsed = json.loads(schema)
    end = {"name": END, "type": {"type": "fixed", "name": END, "namespace": "", "size": size}}
    return json.dumps({**parsed, "fields": [*parsed["fields"], end]})


def with_long_decimals(schema: str) -> str:
    """The schema with decimals of more than 18 digits where Spark would cut a longer value to its last 8 bytes.

    Nothing in a record says that its decimals have no more digits than the schema allows; whoever reads with this
    schema has to look.
    """

    def lengthen(node: Any) -> Any:
        if isinstance(node, list):
            return [lengthen(item) for item in node]
        if not isinstance(node, dict):
            return node
        node = {
            key: lengthen(value) if key in ("type", "fields", "items", "values") else value
            for key, value in node.items()
        }
        if node.get("logicalType") == "decimal" and node["precision"] <= LONG_DIGITS:
            size = node.get("size", MAX_PRECISION)
            if size > LONG_BYTES:
                node["precision"] = min(MAX_PRECISION, len(str(2 ** (8 * size - 1))) - 1)
        return node

    return json.dumps(lengthen(json.loads(schema)))


def field_names(schema: str) -> list[str]:
    """The top-level fields of a record schema, in order.

    Raises: SchemaError when the schema is not a record, the only shape that has columns.
    """
    parsed = json.loads(schema)
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise SchemaError("The Avro schema is not a record, so it has no columns. Wrap the value in a record")
    return [field["name"] for field in parsed["fields"]]


@dataclass
class _Types:
    """A schema taken apart: every named type once, by full name, and everywhere else nothing but its name."""

    root: Any = None
    named: dict[str, dict[str, Any]] = field(default_factory=dict)

    @staticmethod
    def parse(schema: RegisteredSchema) -> _Types:
        texts = [text for _, text in schema.references] + [schema.text]
        types = _Types()
        try:
            require_json("Avro", texts)
            for text in texts:
                types.root = types._type(json.loads(text), "", 1)
            types.require_bounded()
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise SchemaError(f"The Avro schema is not valid: {type(error).__name__} {error}. Correct it") from error
        return types

    def text(self) -> str:
        return json.dumps(self._whole(self.root, set()))

    def require_bounded(self) -> None:
        """Expand the types as columns will be, and count.

        Raises:
            SchemaError: There are too many, or a record contains itself.
        """
        self._expand(self.root, Budget("Avro"), [])

    def drop_reused_aliases(self) -> None:
        """Remove former names that another field has now: Avro would find two fields of one name in the writer."""
        for definition in self.named.values():
            names = {field["name"] for field in definition.get("fields", ())}
            for renamed in definition.get("fields", ()):
                if aliases := [alias for alias in renamed.pop("aliases", ()) if alias not in names]:
                    renamed["aliases"] = aliases

    def record(self, name: Any) -> dict[str, Any] | None:
        """The record of that name; None for any other type."""
        found = self.named.get(name) if isinstance(name, str) else None
        return found if found and found["type"] == "record" else None

    def plain(self, type_: Any) -> dict[str, Any]:
        """The type as a definition, whatever its spelling; not for unions."""
        return self.named.get(type_, {"type": type_}) if isinstance(type_, str) else type_

    def _type(self, schema: Any, namespace: str, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise SchemaError(f"The Avro schema nests deeper than {MAX_DEPTH} types. Flatten it")
        if isinstance(schema, list):
            if len(schema) > MAX_BRANCHES:
                raise SchemaError(f"An Avro union has {len(schema)} branches, more than {MAX_BRANCHES}. Split it")
            return [self._type(branch, namespace, depth + 1) for branch in schema]
        if isinstance(schema, str):
            return self._name(schema, namespace)
        match schema["type"]:
            case "record" | "error" | "enum" | "fixed":
                return self._define(schema, namespace, depth)
            case "array":
                return {**schema, "items": self._type(schema["items"], namespace, depth + 1)}
            case "map":
                return {**schema, "values": self._type(schema["values"], namespace, depth + 1)}
            case str() as primitive if primitive in PRIMITIVES:
                return schema
            case other:
                return self._type(other, namespace, depth + 1)

    def _name(self, name: str, namespace: str) -> str:
        if name in PRIMITIVES:
            return name
        for full in (f"{namespace}.{name}", name):
            if full in self.named:
                return full
        raise SchemaError(f"Avro type '{name}' has no Iceberg column type, and no type of that name is defined")

    def _define(self, schema: dict[str, Any], namespace: str, depth: int) -> str:
        """Names as the Avro specification resolves them (Names): a namespace is inherited."""
        name = schema["name"]
        namespace = name.rpartition(".")[0] if "." in name else schema.get("namespace", namespace) or ""
        full = _full(name, namespace)
        if full in self.named:
            raise SchemaError(f"The Avro schema defines '{full}' twice. Rename one of them")
        rest = {key: value for key, value in schema.items() if key not in ("namespace", "aliases")}
        self.named[full] = definition = rest | {"name": full}
        if aliases := schema.get("aliases"):
            definition["aliases"] = [_full(alias, namespace) for alias in aliases]
        if schema["type"] in ("record", "error"):
            definition["type"] = "record"
            definition["fields"] = [
                {**field, "type": self._type(field["type"], namespace, depth + 1)} for field in schema["fields"]
            ]
        return full

    def _expand(self, type_: Any, budget: Budget, open_: list[str]) -> None:
        """Count a type and what is in it. `open_` are the records it is in."""
        branches = _branches(type_)
        if len(branches) > 1:
            budget.spend_field(len(branches))
        for branch in branches:
            definition = self.plain(branch)
            match definition["type"]:
                case "enum":
                    budget.spend_entries(len(definition["symbols"]))
                case "array":
                    budget.spend_field()
                    with budget.level():
                        self._expand(definition["items"], budget, open_)
                case "map":
                    budget.spend_field(2)
                    with budget.level():
                        self._expand(definition["values"], budget, open_)
                case "record":
                    name = definition["name"]
                    if name in open_:
                        raise SchemaError(f"Avro record '{name}' contains itself; Iceberg has no recursive types")
                    budget.spend_field(len(definition["fields"]))
                    with budget.level():
                        for field_ in definition["fields"]:
                            self._expand(field_["type"], budget, [*open_, name])

    def _whole(self, type_: Any, defined: set[str]) -> Any:
        """The type with each named type defined where it is first used."""
        match type_:
            case list():
                return [self._whole(branch, defined) for branch in type_]
            case str() if type_ in self.named and type_ not in defined:
                defined.add(type_)
                definition = dict(self.named[type_])
                if "." not in type_:
                    definition["namespace"] = ""
                if definition["type"] == "record":
                    definition["fields"] = [
                        {**field, "type": self._whole(field["type"], defined)} for field in definition["fields"]
                    ]
                return definition
            case {"type": "array"}:
                return {**type_, "items": self._whole(type_["items"], defined)}
            case {"type": "map"}:
                return {**type_, "values": self._whole(type_["values"], defined)}
        return type_


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _branches(type_: Any) -> list[Any]:
    """What a value can be besides null."""
    return [branch for branch in (type_ if isinstance(type_, list) else [type_]) if branch != "null"]


def _read(schemas: Sequence[RegisteredSchema]) -> _Types:
    newest, *older = (_Types.parse(schema) for schema in reversed(schemas))
    if newest.record(newest.root) is None:
        raise SchemaError("The Avro schema is not a record, so it has no columns. Wrap the value in a record")
    for version in older:
        _Merge(newest, version).types(newest.root, version.root)
    newest.require_bounded()
    return newest


@dataclass
class _Merge:
    """What an older version of a schema has and the newer lacks, added to the newer."""

    new: _Types
    old: _Types
    done: set[tuple[str, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.new.named |= {name: type_ for name, type_ in self.old.named.items() if name not in self.new.named}

    def types(self, new: Any, old: Any) -> None:
        ours, theirs = _branches(new), _branches(old)
        if len(ours) == len(theirs) == 1:
            self.pair(ours[0], theirs[0])
        else:
            for name in ours:
                if isinstance(name, str) and name in theirs:
                    self.pair(name, name)

    def pair(self, new: Any, old: Any) -> None:
        a, b = self.new.plain(new), self.old.plain(old)
        if a["type"] != b["type"] or (a.get("name"), b.get("name")) in self.done:
            return
        match a["type"]:
            case "array":
                self.types(a["items"], b["items"])
            case "map":
                self.types(a["values"], b["values"])
            case "enum":
                a["symbols"] = list(dict.fromkeys([*a["symbols"], *b["symbols"]]))
            case "record":
                self.done.add((a["name"], b["name"]))
                self.fields(a, b)

    def fields(self, record: dict[str, Any], older: dict[str, Any]) -> None:
        now = {field["name"]: field for field in record["fields"]}
        renamed = {alias: field for field in record["fields"] for alias in field.get("aliases", ())}
        kept = set()
        for was in older["fields"]:
            here = now.get(was["name"]) or renamed.get(was["name"])
            if here is None:
                optional = ["null", *_branches(was["type"])]
                record["fields"].append({**was, "type": optional, "default": None})
                continue
            kept.add(here["name"])
            here["aliases"] = list(dict.fromkeys([*here.get("aliases", ()), *was.get("aliases", ())]))
            self.types(here["type"], was["type"])
        for name in now.keys() - kept:
            if "default" not in now[name]:
                now[name] |= {"type": ["null", *_branches(now[name]["type"])], "default": None}


@dataclass
class _Resolution:
    """Where Avro's resolution of a writer's schema to a reader's would change values in silence."""

    writer: _Types
    reader: _Types
    done: set[tuple[str, str]] = field(default_factory=set)

    def faults(self, wrote: Any, reads: Any, path: str) -> Iterator[str]:
        for branch in _branches(wrote):
            a = self.writer.plain(branch)
            found = [list(self.pair(a, self.reader.plain(other), path)) for other in self.candidates(a, reads)]
            if found and all(found):
                yield found[0][0]

    def candidates(self, wrote: Mapping[str, Any], reads: Any) -> list[Any]:
        """The reader's branches that Avro could choose: of the same type, else of one the value promotes to."""
        same = [b for b in _branches(reads) if self.reader.plain(b)["type"] == wrote["type"]]
        numbers = ("int", "long", "float", "double")
        wider = numbers[numbers.index(wrote["type"]) + 1 :] if wrote["type"] in numbers else ()
        return same or [b for b in _branches(reads) if self.reader.plain(b)["type"] in wider]

    def pair(self, wrote: Mapping[str, Any], reads: Mapping[str, Any], path: str) -> Iterator[str]:
        before, after = wrote["type"], reads["type"]
        if (before, after) in LOSSY:
            yield f"{path or 'value'}: {before} does not always fit {after}"
        if (meant := _meaning(wrote)) and (means := _meaning(reads)) and meant != means:
            yield f"{path or 'value'}: {meant} is not {means}"
        match before:
            case "array":
                yield from self.faults(wrote["items"], reads["items"], f"{path}.element")
            case "map":
                yield from self.faults(wrote["values"], reads["values"], f"{path}.value")
            case "record" if (wrote["name"], reads["name"]) not in self.done:
                self.done.add((wrote["name"], reads["name"]))
                ours = {name: field for field in reads["fields"] for name in (field["name"], *field.get("aliases", ()))}
                for theirs in wrote["fields"]:
                    if here := ours.get(theirs["name"]):
                        yield from self.faults(theirs["type"], here["type"], f"{path}.{here['name']}".lstrip("."))


def _meaning(type_: Mapping[str, Any]) -> str | None:
    logical = type_.get("logicalType")
    if logical == "decimal":
        return f"decimal of scale {type_.get('scale', 0)}"
    return logical if logical in MOMENTS else None


class _Columns:
    """One walk over a schema's types: columns, and the former names of fields by path."""

    def __init__(self, types: _Types) -> None:
        self.types = types
        self.former: dict[str, tuple[str, ...]] = {}
        self.fields = 0

    def shape(self) -> Shape:
        try:
            return Shape(self.struct(self.types.named[self.types.root], ""), self.former)
        except (KeyError, TypeError, ValueError) as error:
            # An attribute has a value of another type than Avro gives it, such as a number as `doc`.
            raise SchemaError(f"The Avro schema is not valid: {type(error).__name__} {error}. Correct it") from error

    def next_id(self) -> int:
        """Field ids are replaced when the table has its own; here they need only differ."""
        self.fields += 1
        return self.fields

    def struct(self, record: Mapping[str, Any], path: str) -> StructType:
        from pyiceberg.types import NestedField, StructType

        fields = []
        for column in record["fields"]:
            at = f"{path}{column['name']}"
            if aliases := column.get("aliases"):
                self.former[at] = tuple(aliases)
            type_ = self.type(column["type"], at)
            fields.append(NestedField(self.next_id(), column["name"], type_, required=False, doc=column.get("doc")))
        if not fields and path:
            raise SchemaError(
                f"The Avro record at '{path.rstrip('.')}' has no fields, and Iceberg has no empty structs"
            )
        distinct(fields)
        return StructType(*fields)

    def type(self, schema: Any, path: str) -> IcebergType:
        """The type Spark decodes to: logical types as such, enums as strings, fixed as binary, unions as below."""
        from pyiceberg import types as t

        if isinstance(schema, list):
            return self.union(schema, path)
        definition = self.types.plain(schema)
        kind = definition["type"]
        logical = definition.get("logicalType")
        match kind, logical if logical in LOGICAL.get(kind, ()) else None:
            case _, "decimal":
                precision = definition["precision"]
                if not 1 <= precision <= MAX_PRECISION:
                    raise SchemaError(f"Avro decimal({precision}) has more than Iceberg's {MAX_PRECISION} digits")
                return t.DecimalType(precision, definition.get("scale", 0))
            case _, "date":
                return t.DateType()
            case _, "timestamp-millis" | "timestamp-micros":
                return t.TimestamptzType()
            case _, "local-timestamp-millis" | "local-timestamp-micros":
                return t.TimestampType()
            case "record", _:
                return self.struct(definition, f"{path}.")
            case "array", _:
                element = self.type(definition["items"], f"{path}.element")
                return t.ListType(self.next_id(), element, element_required=False)
            case "map", _:
                value = self.type(definition["values"], f"{path}.value")
                return t.MapType(self.next_id(), t.StringType(), self.next_id(), value, value_required=False)
        plain = {
            "boolean": t.BooleanType,
            "int": t.IntegerType,
            "long": t.LongType,
            "float": t.FloatType,
            "double": t.DoubleType,
            "bytes": t.BinaryType,
            "fixed": t.BinaryType,
            "string": t.StringType,
            "enum": t.StringType,
        }
        if kind not in plain:
            raise SchemaError(f"Avro type '{kind}' has no Iceberg column type")
        return plain[kind]()

    def union(self, schema: list[Any], path: str) -> IcebergType:
        """Null makes a column optional, int|long is long, float|double is double, any other union is a struct with a
        field `member<n>` a branch, of which one is set (Spark, Avro Data Source Guide)."""
        from pyiceberg import types as t

        branches = _branches(schema) or ["null"]
        if len(branches) == 1:
            return self.type(branches[0], path)
        kinds = {self.types.plain(branch)["type"] for branch in branches}
        if kinds == {"int", "long"}:
            return t.LongType()
        if kinds == {"float", "double"}:
            return t.DoubleType()
        members = []
        for i, branch in enumerate(branches):
            type_ = self.type(branch, f"{path}.member{i}")
            members.append(t.NestedField(self.next_id(), f"member{i}", type_, required=False))
        return t.StructType(*members)
