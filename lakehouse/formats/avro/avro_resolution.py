"""Avro schema resolution: the pairs of writer and reader types, refused ones, and the schemas that Spark reads with.

Spark reads with Avro for Java, which pairs types of unions by position and structure, ignores logical types, and
promotes numbers to types that do not represent all of them exactly. Therefore Spark does not get the registered
schemas: `schemas` rewrites both for one writer, with a unique name for each pair of types, and with a type that matches
nothing in place of each type with values that must not be read.

Avro for Java drops the bits of an `int` beyond 32, which serializers write without an error (fastavro). An `int` and a
`long` have the same encoding, so Spark reads each `int` as a `long`, and spark.codecs.avro_values checks its range.
"""

import json
from collections.abc import Callable
from itertools import count
from typing import Any

from pydantic import JsonValue

from lakehouse.formats.avro.avro_types import MAX_PRECISION, RecordField, Type, default_branch, digits, partners

LONG_DIGITS, LONG_BYTES = 18, 8
"""Maximum digits of a decimal that Spark stores as a long (org.apache.spark.sql.types.Decimal), and bytes of a long."""

PROMOTIONS = frozenset(
    {("int", "long"), ("int", "double"), ("float", "double"), ("string", "bytes"), ("bytes", "string")}
)
"""Promotions that preserve every value (Avro specification, Schema Resolution)."""

WIDE = "value"
"""Name of the field of an `int` that is a record (`is_split`)."""

LOSSY = frozenset({("int", "float"), ("long", "float"), ("long", "double")})
"""Promotions that Avro allows but that may change the value."""

EMPTY = "[]"
"""A default for which Avro for Java makes a list of the field's own type, and fails if that is a union
(org.apache.avro.io.FastReaderBuilder)."""

SPARK_LOGICAL = frozenset(
    ["date", "decimal"] + [f"{zone}timestamp-{unit}" for zone in ("", "local-") for unit in ("millis", "micros")]
)
"""Logical types with a column type."""


def target(wrote: Type, branch: Type, reads: Type) -> Type | None:
    """Return the reader's branch for values of a writer's branch; None if there is none.

    Types that are the only ones on both sides match whatever their names; among several branches, names decide.

    Args:
        wrote: The writer's type.
        branch: One of its branches.
        reads: The reader's type at the same place.
    """
    if len(reads.branches) == 1 and (len(wrote.branches) == 1 or not branch.name):
        return reads.branches[0]
    return reads.partner(wrote, branch)


def fault(wrote: Type, reads: Type) -> str | None:
    """Return the reason why values of one branch cannot be read as another, or None.

    Inner types of the branches are not compared.
    """
    kinds = wrote.kind, reads.kind
    if kinds == ("enum", "string"):
        return None
    if kinds in LOSSY:
        return f"{wrote.kind} does not always fit {reads.kind}"
    if (wrote.kind != reads.kind and kinds not in PROMOTIONS) or _meaning(wrote) != _meaning(reads):
        return f"{described(wrote)} is not {described(reads)}"
    if wrote.kind == "fixed" and wrote.size != reads.size:
        return f"fixed of {wrote.size} bytes is not fixed of {reads.size}"
    if wrote.kind == "record":
        paired = partners(wrote.fields, reads.fields)
        lacking = [field for field in reads.fields if field.name not in paired]
        if name := next((field.name for field in lacking if field.default is None), None):
            return f"the record has no '{name}', which has no default in the reader schema"
        unread = (field.name for field in lacking if field.default == EMPTY and len(field.type.branches) > 1)
        if name := next(unread, None):
            return f"the record has no '{name}', whose default is an empty array in a union of several types"
    return None


def read_by(wrote: Type, reads: Type) -> dict[str, RecordField]:
    """Return the reader's fields by the names of the writer's fields."""
    paired = partners(wrote.fields, reads.fields)
    return {paired[field.name].name: field for field in reads.fields if field.name in paired}


def is_split(place: Type) -> bool:
    """Return whether an `int` has to differ from a `long` in Spark's schema, because the union has both.

    It is a record with the field WIDE then, which has the same encoding.
    """
    return {"int", "long"} <= {branch.kind for branch in place.branches}


def is_widened(wrote: Type, branch: Type, reads: Type, to: Type) -> bool:
    """Return whether all values that a writer has for a reader's long or double are ints."""
    if branch.kind != "int" or to.kind not in ("long", "double"):
        return False
    return [other for other in wrote.branches if target(wrote, other, reads) is to] == [branch]


def described(type_: Type) -> str:
    """Return the description of a branch for messages."""
    if type_.logical == "decimal":
        return f"decimal of scale {type_.scale} on {type_.kind}"
    return type_.logical or type_.name or type_.kind


def _meaning(type_: Type) -> tuple[str, int] | None:
    """Return a key that is equal for types between which Spark converts exactly, such as two units of timestamps."""
    if not type_.logical:
        return None
    return type_.logical.replace("timestamp-millis", "timestamp-micros"), type_.scale


def schemas(writer: Type, reader: Type, end: str, size: int) -> tuple[str, str] | None:
    """Return the writer and reader schema with which Spark reads records of one writer.

    Reading fails exactly for values that must not be read. In Spark the reader schema has the same type for all
    writers.

    Args:
        end: The name of a field to append to both schemas.

    Returns:
        Both schemas as JSON, or None if no record of the writer can be read.
    """
    if fault(writer, reader):
        return None
    rewriting = _Rewriting()
    both, ending = rewriting.pair(writer, reader), rewriting.fixed(size)
    for schema in both:
        schema["fields"].append({"name": end, "type": ending})
    return json.dumps(both[0]), json.dumps(both[1])


class _Rewriting:
    """Rewriting of one writer's schema and the reader's."""

    def __init__(self) -> None:
        self.names = (f"t{n}" for n in count())

    def fixed(self, size: int = 1) -> dict[str, Any]:
        """Return a type that matches only itself."""
        return {"type": "fixed", "name": next(self.names), "size": size}

    def place(self, wrote: Type, reads: Type) -> tuple[Any, Any]:
        written: list[Any] = []
        read: dict[int, Any] = {}
        for branch in wrote.inner if wrote.kind == "union" else (wrote,):
            to = None if branch.kind == "null" else target(wrote, branch, reads)
            if branch.kind == "null":
                written.append("null")
            elif to is None or fault(branch, to):
                written.append(self.fixed())
            elif to.kind == "int":
                one = read[id(to)] = self.integer(reads)
                written.append(one)
            else:
                one, read[id(to)] = self.pair(branch, to)
                written.append("long" if is_widened(wrote, branch, reads, to) else one)
        branches = [read[id(branch)] if id(branch) in read else self.lacked(reads, branch) for branch in reads.branches]
        return written if wrote.kind == "union" else written[0], _nullable(reads, branches)

    def integer(self, place: Type) -> Any:
        """Return the type of an int at a place of the reader's schema."""
        if not is_split(place):
            return "long"
        return {"type": "record", "name": next(self.names), "fields": [{"name": WIDE, "type": "long"}]}

    def pair(self, wrote: Type, reads: Type) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return both schemas of a branch that is read as another one."""
        match wrote.kind:
            case "record":
                return self.records(wrote, reads)
            case "array" | "map":
                key = "items" if wrote.kind == "array" else "values"
                one, other = self.place(wrote.inner[0], reads.inner[0])
                return {"type": wrote.kind, key: one}, {"type": wrote.kind, key: other}
            case "enum":
                name = next(self.names)
                # In Spark an enum is text. For a text column the writer's symbols are read unchanged.
                return _enum(wrote, name), _enum(wrote if reads.kind == "string" else reads, name)
            case "fixed":
                fixed = self.fixed(wrote.size)
                return fixed, fixed | _logical(reads)
        # Logical types that differ in unit only are one type in Spark, which reads the writer's unit.
        return {"type": wrote.kind}, {"type": reads.kind, **_logical(reads if reads.logical == "decimal" else wrote)}

    def records(self, wrote: Type, reads: Type) -> tuple[dict[str, Any], dict[str, Any]]:
        name, readers = next(self.names), read_by(wrote, reads)
        written, read = [], {}
        for field in wrote.fields:
            if column := readers.get(field.name):
                one, other = self.place(field.type, column.type)
                written.append({"name": column.name, "type": one})
                read[column.name] = {"name": column.name, "type": other}
            else:
                written.append(self.skipped(field))
        fields = [read.get(field.name) or self.lacking(field) for field in reads.fields]
        record = {"type": "record", "name": name}
        return {**record, "fields": written}, {**record, "fields": fields}

    def lacking(self, field: RecordField) -> dict[str, Any]:
        """Return a field that only the reader has."""
        default = {} if field.default is None else {"default": _default(field.type, json.loads(field.default))}
        branches = [self.lacked(field.type, branch) for branch in field.type.branches]
        is_bare = field.default == EMPTY and len(branches) == 1
        # In Spark the type of an array differs from that of a union around it in whether null is possible only.
        type_ = branches[0] if is_bare else _nullable(field.type, branches)
        return {"name": field.name, "type": type_, **default}

    def lacked(self, place: Type, branch: Type) -> Any:
        """Return a branch of a place that only the reader has."""
        return self.integer(place) if branch.kind == "int" else self.branch(branch, self.lacking)

    def skipped(self, field: RecordField) -> dict[str, Any]:
        """Return a field that only the writer has."""
        inner = field.type.inner if field.type.kind == "union" else (field.type,)
        branches = [self.branch(branch, self.skipped) for branch in inner]
        return {"name": field.name, "type": branches if field.type.kind == "union" else branches[0]}

    def branch(self, type_: Type, field: Callable[[RecordField], dict[str, Any]]) -> dict[str, Any]:
        """Return a branch that only one of the two schemas has; `field` rewrites the fields and inner types of it."""
        match type_.kind:
            case "record":
                fields = [field(part) for part in type_.fields]
                return {"type": "record", "name": next(self.names), "fields": fields}
            case "array" | "map":
                key = "items" if type_.kind == "array" else "values"
                return {"type": type_.kind, key: field(RecordField("", type_.inner[0]))["type"]}
            case "enum":
                return _enum(type_, next(self.names))
            case "fixed":
                return self.fixed(type_.size) | _logical(type_)
        return {"type": type_.kind, **_logical(type_)}


def _nullable(place: Type, branches: list[Any]) -> Any:
    """Return the reader's branches in the form that Spark decodes to the type of the column."""
    return ["null", *branches] if place.nullable else branches


def _default(place: Type, value: JsonValue) -> JsonValue:
    """Return a default for the type that Spark reads at a place."""
    branch = default_branch(place, value)
    match value:
        case dict() if branch and branch.kind == "record":
            types = {field.name: field.type for field in branch.fields}
            return {name: _default(types[name], part) if name in types else part for name, part in value.items()}
        case dict() if branch:
            return {key: _default(branch.inner[0], part) for key, part in value.items()}
        case list() if branch:
            return [_default(branch.inner[0], part) for part in value]
    return {WIDE: value} if branch and branch.kind == "int" and is_split(place) else value


def _enum(type_: Type, name: str) -> dict[str, Any]:
    """Return an enum without its default, which Avro would read in place of a symbol that the reader lacks."""
    return {"type": "enum", "name": name, "symbols": list(type_.symbols)}


def _logical(type_: Type) -> dict[str, Any]:
    """Return the logical type for Spark.

    Writers may exceed the precision of a decimal, and Spark would cut such a value to its last 8 bytes if the precision
    fits a long. Therefore Spark gets a higher precision, and the caller checks the digits.
    """
    if type_.logical not in SPARK_LOGICAL:
        return {}
    if type_.logical != "decimal":
        return {"logicalType": type_.logical}
    precision, most = type_.precision, digits(type_.size) if type_.kind == "fixed" else MAX_PRECISION
    if precision <= LONG_DIGITS and not (type_.kind == "fixed" and type_.size <= LONG_BYTES):
        precision = min(MAX_PRECISION, most)
    return {"logicalType": "decimal", "precision": precision, "scale": type_.scale}
