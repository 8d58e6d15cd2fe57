"""How records of one Avro schema become values of another: what is paired, what is refused, and what Spark reads with.

Avro for Java, by which Spark reads, pairs types of unions by their place and structure, ignores logical types, and
promotes numbers to types that do not hold all of them. So it does not get the registered schemas: `schemas` rewrites
both for one writer, with a name of its own for each pair of types, and a type that matches nothing in place of one
whose values must not be read.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from typing import Any

from lakehouse.formats.avro_columns import is_long
from lakehouse.formats.avro_types import MAX_PRECISION, Field, Type, digits, partners

LONG_DIGITS, LONG_BYTES = 18, 8
"""Up to so many digits a decimal is a long in Spark (org.apache.spark.sql.types.Decimal), which has so many bytes."""

PROMOTIONS = frozenset(
    {("int", "long"), ("int", "double"), ("float", "double"), ("string", "bytes"), ("bytes", "string")}
)
"""Promotions that keep each value (Avro specification, Schema Resolution)."""

LOSSY = frozenset({("int", "float"), ("long", "float"), ("long", "double")})
"""Promotions that Avro makes though the value may not survive."""

SPARK_LOGICAL = frozenset(
    ["date", "decimal"] + [f"{zone}timestamp-{unit}" for zone in ("", "local-") for unit in ("millis", "micros")]
)
"""Logical types that have a column type of their own."""


def target(wrote: Type, branch: Type, reads: Type) -> Type | None:
    """The branch of one place that takes values of another's, if there is one.

    A type that is alone on both sides is the column's, whatever it is called; among several it is known by its name.

    Args:
        wrote: the writer's type in the place.
        branch: one of its branches.
        reads: the reader's type in the place.
    """
    if len(reads.branches) == 1 and (len(wrote.branches) == 1 or not branch.name):
        return reads.branches[0]
    return reads.partner(wrote, branch)


def fault(wrote: Type, reads: Type) -> str | None:
    """Why no value of a branch is read as one of another, leaving aside what is within them; None where it is."""
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
        lacking = (field.name for field in reads.fields if field.name not in paired and field.default is None)
        if name := next(lacking, None):
            return f"the record has no '{name}', which has no default in the schema that reads it"
    return None


def read_by(wrote: Type, reads: Type) -> dict[str, Field]:
    """The field of one record that reads each field of another, by the names that were written."""
    paired = partners(wrote.fields, reads.fields)
    return {paired[field.name].name: field for field in reads.fields if field.name in paired}


def described(type_: Type) -> str:
    """A branch in words."""
    if type_.logical == "decimal":
        return f"decimal of scale {type_.scale} on {type_.kind}"
    return type_.logical or type_.name or type_.kind


def _meaning(type_: Type) -> tuple[str, int] | None:
    """What a value means: the same for types between which Spark converts exactly, such as two units of a moment."""
    if not type_.logical:
        return None
    return type_.logical.replace("timestamp-millis", "timestamp-micros"), type_.scale


def schemas(writer: Type, reader: Type, end: str, size: int) -> tuple[str, str] | None:
    """The schemas with which Spark reads records: as they were written, and as they are to be read.

    A value that must not be read fails when Avro comes to it, and no other does. In Spark the second has the same type
    for every writer.

    Args:
        writer: the type that records were written with.
        reader: the type of the columns.
        end: the name of a field to put behind the others of both.
        size: its length in bytes.

    Returns:
        None where no record of the writer can be read.
    """
    if fault(writer, reader):
        return None
    rewriting = _Rewriting()
    both, ending = rewriting.pair(writer, reader), rewriting.fixed(size)
    for schema in both:
        schema["fields"].append({"name": end, "type": ending})
    return json.dumps(both[0]), json.dumps(both[1])


class _Rewriting:
    """One writer's schema and the reader's, written anew from place to place."""

    def __init__(self) -> None:
        self.names = (f"t{n}" for n in count())

    def fixed(self, size: int = 1) -> dict[str, Any]:
        """A type that only matches itself."""
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
            else:
                one, read[id(to)] = self.pair(branch, to)
                written.append(one)
        every = [read[id(branch)] if id(branch) in read else self.branch(branch) for branch in reads.branches]
        return written if wrote.kind == "union" else written[0], self.readable(reads, every)

    def pair(self, wrote: Type, reads: Type) -> tuple[dict[str, Any], dict[str, Any]]:
        """Two branches of which one is read as the other."""
        match wrote.kind:
            case "record":
                return self.records(wrote, reads)
            case "array" | "map":
                key = "items" if wrote.kind == "array" else "values"
                one, other = self.place(wrote.inner[0], reads.inner[0])
                return {"type": wrote.kind, key: one}, {"type": wrote.kind, key: other}
            case "enum":
                name = next(self.names)
                # In Spark an enum is text: the writer's own, where the column is of text.
                return _enum(wrote, name), _enum(wrote if reads.kind == "string" else reads, name)
            case "fixed":
                found = self.fixed(wrote.size)
                return found, found | _logical(reads)
        # Two logical types of one meaning are one type in Spark, which reads the unit that was written.
        return {"type": wrote.kind}, {"type": reads.kind, **_logical(reads if reads.logical == "decimal" else wrote)}

    def records(self, wrote: Type, reads: Type) -> tuple[dict[str, Any], dict[str, Any]]:
        name, readers = next(self.names), read_by(wrote, reads)
        written, read = [], {}
        for field in wrote.fields:
            if here := readers.get(field.name):
                one, other = self.place(field.type, here.type)
                written.append({"name": here.name, "type": one})
                read[here.name] = {"name": here.name, "type": other}
            else:
                written.append(self.skipped(field))
        fields = [read.get(field.name) or self.lacking(field) for field in reads.fields]
        record = {"type": "record", "name": name}
        return {**record, "fields": written}, {**record, "fields": fields}

    def lacking(self, field: Field) -> dict[str, Any]:
        """A field that only the reader has."""
        default = {} if field.default is None else {"default": json.loads(field.default)}
        type_ = self.readable(field.type, [self.branch(branch) for branch in field.type.branches])
        return {"name": field.name, "type": type_, **default}

    def readable(self, place: Type, branches: list[Any]) -> Any:
        """The reader's branches, so that Spark makes of them what the columns are."""
        if has_spare(place):
            branches = [*branches, self.fixed()]
        return ["null", *branches] if place.nullable else branches

    def skipped(self, field: Field) -> dict[str, Any]:
        """A field that only the writer has."""
        inner = field.type.inner if field.type.kind == "union" else (field.type,)
        branches = [self.branch(branch, self.skipped) for branch in inner]
        return {"name": field.name, "type": branches if field.type.kind == "union" else branches[0]}

    def branch(self, type_: Type, field: Callable[[Field], dict[str, Any]] | None = None) -> dict[str, Any]:
        """A branch that only one of the two has; `field` rewrites a field, and so any place, within it."""
        field = field or self.lacking
        match type_.kind:
            case "record":
                fields = [field(part) for part in type_.fields]
                return {"type": "record", "name": next(self.names), "fields": fields}
            case "array" | "map":
                key = "items" if type_.kind == "array" else "values"
                return {"type": type_.kind, key: field(Field("", type_.inner[0]))["type"]}
            case "enum":
                return _enum(type_, next(self.names))
            case "fixed":
                return self.fixed(type_.size) | _logical(type_)
        return {"type": type_.kind, **_logical(type_)}


def has_spare(place: Type) -> bool:
    """Whether Spark gets a branch more than a union has.

    Of an int and a long alone it makes one long, whatever they mean.
    """
    return sorted(branch.kind for branch in place.branches) == ["int", "long"] and not is_long(place)


def _enum(type_: Type, name: str) -> dict[str, Any]:
    default = {} if type_.default is None else {"default": type_.default}
    return {"type": "enum", "name": name, "symbols": list(type_.symbols), **default}


def _logical(type_: Type) -> dict[str, Any]:
    """The logical type as Spark gets it.

    Nothing in a record says that its decimals have no more digits than its schema allows, and Spark would cut a longer
    value to its last 8 bytes where a decimal fits a long. Those get more digits; who reads them has to look.
    """
    if type_.logical not in SPARK_LOGICAL:
        return {}
    if type_.logical != "decimal":
        return {"logicalType": type_.logical}
    precision, most = type_.precision, digits(type_.size) if type_.kind == "fixed" else MAX_PRECISION
    if precision <= LONG_DIGITS and not (type_.kind == "fixed" and type_.size <= LONG_BYTES):
        precision = min(MAX_PRECISION, most)
    return {"logicalType": "decimal", "precision": precision, "scale": type_.scale}
