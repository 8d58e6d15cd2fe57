"""Decode JSON messages with Spark's own parser; reject those that do not match their schema, instead of reading
nulls."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.core.sql import SPARK
from lakehouse.formats.format import MessageSchema
from lakehouse.formats.json.json_explain import explain
from lakehouse.formats.json.json_format import JsonField, Kind, is_single, written
from lakehouse.formats.mistaken_format import frame_fault
from lakehouse.formats.schema import FRAME_BYTES, frame, schema_id
from spark.codecs.json_faults import INFINITE, has_infinite_text, struct_faults
from spark.codecs.json_numbers import has_fraction, with_marked_infinite, with_plain_integers
from spark.codecs.json_values import converted, with_unique_keys
from spark.decoding import framing_columns
from spark.decoding.conditions import is_true, none_of
from spark.decoding.decode import Codec
from spark.decoding.surrogates import has_lone_surrogate

OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": "__corrupt",
    # Spark accepts a superset of JSON by default.
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
    "prefersDecimal": "false",
}
"""Spark, JSON Files: data source options."""

VALUE, END, MARK = (f"{name}_{secrets.token_hex(8)}" for name in ("value", "end", "infinite"))
"""Random names that no message can contain; they differ by process."""

END_FIELD = JsonField(END, "long")
"""The field of the item that follows the object of a message (see `wrapped`)."""


def wrapped(text: Column) -> Column:
    """Return the text as the first of two items of a list in an object; the other is an object with the number 1.

    Spark ignores text after the first JSON value. Text that is not exactly one value breaks the list, makes it longer,
    or closes it before the second item.
    """
    return F.concat(F.lit(f'{{"{VALUE}":['), text, F.lit(f',{{"{END}":1}}]}}'))


def is_one_value(text: Column) -> Column:
    """Return whether a text is exactly one JSON value; null counts as no value."""
    parsed = F.try_parse_json(wrapped(text))
    items = F.try_variant_get(parsed, f"$.{VALUE}", "array<variant>")
    return F.try_variant_get(parsed, f"$.{VALUE}[1].{END}", "int").isNotNull() & is_true(F.size(items) == 2)


def decoder(schema: MessageSchema, reader: tuple[JsonField, ...]) -> JsonCodec:
    """Return the codec of objects, or values of one column, in the Confluent wire format."""
    writers = {version.id: written(reader, version, schema.column) for version in schema.versions}
    single = frozenset(version.id for version in schema.versions if schema.column and is_single(version))
    return JsonCodec(reader, writers, single)


@dataclass(frozen=True)
class JsonCodec(Codec):
    """Codec of JSON objects, in the Confluent wire format or, without `writers`, as bare text.

    Attributes:
        fields: The columns.
        writers: The fields for messages of each version, by registry id.
        single: The registry ids of versions whose messages are the value of the only column, and no objects.
    """

    fields: tuple[JsonField, ...]
    writers: Mapping[int, tuple[JsonField, ...]] | None = None
    single: frozenset[int] = frozenset()

    @property
    def columns(self) -> list[str]:
        return [field.name for field in self.fields]

    @property
    def json_columns(self) -> frozenset[str]:
        return frozenset(field.name for field in self.fields if field.kind == "text")

    @property
    def _others(self) -> dict[int, tuple[JsonField, ...]]:
        """The fields of versions whose numbers are not those of the columns."""
        return {id_: fields for id_, fields in (self.writers or {}).items() if fields != self.fields}

    @property
    def heads(self) -> frozenset[bytes] | None:
        return None if self.writers is None else frozenset(map(frame, self.writers))

    def decode(self, data: Column) -> Column:
        body = data if self.writers is None else framing_columns.body(data)
        text = F.try_validate_utf8(body.cast("string"))
        if self.single:
            member = F.concat(F.lit(f"{{{json.dumps(self.columns[0])}:"), text, F.lit("}"))
            is_member = is_true(self.schema_id(data).isin(*self.single))
            text = F.when(is_member, F.when(is_one_value(text), member)).otherwise(text)
        parsed = F.when(~has_lone_surrogate(text), _parsed(text, self.fields))
        writer = [self.schema_id(data).alias("writer")] if self._others else []
        return F.struct(parsed.alias("parsed"), text.alias("text"), *writer)

    def revised(self, decoded: str) -> Column:
        """Return the objects, parsed again if an integer may be written with a fraction or exponent.

        Such integers are valid (JSON Schema draft 6 and later, 6.1.1), but Spark's parser does not accept them. Fields
        without integers are parsed from the original text, because numbers of other types differ by their form:
        `1.0` in text, and `-0.0`.
        """
        integers, others = _parts(self.fields, True), _parts(self.fields, False)
        if not integers:
            return F.col(decoded)
        parsed = F.col(decoded)["parsed"]
        text = parsed["__corrupt"]
        again = _object(with_plain_integers(text), integers)
        if others:
            again = _joined(again, _object(text, others), self.fields)
        return F.col(decoded).withField("parsed", F.when(has_fraction(text), again).otherwise(parsed))

    def finished(self, decoded: str) -> tuple[Column, Column]:
        parsed = F.col(decoded)["parsed"]
        in_sql = f"try_element_at({decoded}.parsed.{VALUE}, 1)"
        value, end = F.expr(in_sql), F.try_element_at(parsed[VALUE], F.lit(2))[END]
        is_complete = (end == 1) & parsed["__corrupt"].isNull() & (F.size(parsed[VALUE]) == 2) & value.isNotNull()
        common = list(struct_faults(in_sql, self.fields))
        faults = [F.expr(fault) for fault in common]
        for id_, fields in self._others.items():
            of_writer = F.coalesce(F.col(decoded)["writer"] == id_, F.lit(False))
            faults += [of_writer & F.expr(fault) for fault in struct_faults(in_sql, fields) if fault not in common]
        if texts := _texts(self.fields):
            # Spark writes a number that exceeds a double as the text "Infinity", which text may equal.
            suspects = [F.expr(has_infinite_text(in_sql, texts))]
            for field in (field for field in texts if field.kind == "text"):
                # Spark computes an expression that the row contains, too, only once.
                in_row = F.contains(converted(value[field.name], field), F.lit(INFINITE))
                suspects.append(F.coalesce(in_row, F.lit(False)))
            is_marked = F.contains(F.to_json(_marked(F.col(decoded)["text"], texts)), F.lit(MARK))
            faults.append(F.coalesce(F.when(~none_of(suspects), is_marked), F.lit(False)))
        good = none_of([~F.coalesce(is_complete, F.lit(False)), *faults])
        return F.struct(*(converted(value[field.name], field).alias(field.name) for field in self.fields)), good

    def schema_id(self, data: Column) -> Column:
        if not self.writers:
            return F.lit(None).cast("int")
        return framing_columns.by_schema_id(data, self.writers, F.lit)

    def framed(self, data: Column) -> Column:
        return F.lit(True) if self.writers is None else framing_columns.is_framed(data)

    def explain(self, data: bytes) -> str | None:
        if self.writers is None:
            return frame_fault(data) or explain(data, 0, self.fields)
        fields = self.writers.get(id_ := schema_id(data) or 0)
        return explain(data, FRAME_BYTES, fields, is_single=id_ in self.single) if fields else None


def _parsed(text: Column, fields: tuple[JsonField, ...]) -> Column:
    """Return an object with these fields."""
    return _object(wrapped(text), fields)


def _object(text: Column, fields: tuple[JsonField, ...]) -> Column:
    """Return an object with these fields, whose text is wrapped."""
    value = T.ArrayType(_parsed_type(JsonField("", "struct", (*fields, END_FIELD))))
    members = {VALUE: value, "__corrupt": T.StringType()}
    schema = T.StructType([T.StructField(name, type_) for name, type_ in members.items()])
    return F.from_json(text, schema, OPTIONS)


def _parts(fields: tuple[JsonField, ...], with_integers: bool) -> tuple[JsonField, ...]:
    """Return the fields with integers or those without; fields that contain both are in either, with a part of their
    fields."""
    parts = []
    for field in fields:
        if not field.fields:
            parts += [field] if (field.kind == "long") == with_integers else []
        elif inner := _parts(field.fields, with_integers):
            parts.append(replace(field, fields=inner))
    return tuple(parts)


def _joined(integers: Column, others: Column, fields: tuple[JsonField, ...]) -> Column:
    """Return an object from the results of `_object` for the fields with integers and for those without."""
    joined = F.expr(f"(a, b) -> {_join(JsonField('', 'struct', (*fields, END_FIELD)), 'a', 'b')}")
    return F.struct(
        F.call_function("zip_with", integers[VALUE], others[VALUE], joined).alias(VALUE),
        F.coalesce(integers["__corrupt"], others["__corrupt"]).alias("__corrupt"),
    )


def _join(field: JsonField, one: str, other: str, level: int = 0) -> str:
    """Return the SQL expression of a field from its parts with integers and without."""
    if not _parts((field,), True):
        return other
    if not _parts((field,), False):
        return one
    if field.kind == "struct":
        names = {inner: SPARK.identifier(inner.name) for inner in field.fields}
        members = (
            f"{SPARK.literal(inner.name)}, {_join(inner, f'{one}.{name}', f'{other}.{name}', level)}"
            for inner, name in names.items()
        )
        return f"if({one} IS NULL, NULL, named_struct({', '.join(members)}))"
    a, b = f"a{level}", f"b{level}"
    joined = f"({a}, {b}) -> {_join(field.fields[0], a, b, level + 1)}"
    if field.kind == "list":
        return f"zip_with({one}, {other}, {joined})"
    pair = f"array(named_struct('a', {with_unique_keys(one)}, 'b', {with_unique_keys(other)}))"
    values = f"zip_with(map_values(p{level}.a), map_values(p{level}.b), {joined})"
    return f"transform({pair}, p{level} -> map_from_arrays(map_keys(p{level}.a), {values}))[0]"


def _marked(text: Column, texts: tuple[JsonField, ...]) -> Column:
    """Return an object with these fields, and with MARK in place of numbers that exceed a double."""
    value = F.try_element_at(_parsed(with_marked_infinite(text, MARK), texts)[VALUE], F.lit(1))
    return converted(value, JsonField("", "struct", texts))


def _texts(fields: tuple[JsonField, ...]) -> tuple[JsonField, ...]:
    """Return the fields with text or values of any type, and of nested fields only those."""
    return tuple(
        replace(field, fields=_texts(field.fields)) for field in fields if _has(field, "text") or _has(field, "string")
    )


def _has(field: JsonField, kind: Kind) -> bool:
    return field.kind == kind or any(_has(inner, kind) for inner in field.fields)


def _parsed_type(field: JsonField) -> T.DataType:
    """Return the type to parse: text for dates and times, and a variant for values of any type."""
    match field.kind:
        case "struct":
            return T.StructType([T.StructField(part.name, _parsed_type(part)) for part in field.fields])
        case "list":
            return T.ArrayType(_parsed_type(field.fields[0]))
        case "map":
            return T.MapType(T.StringType(), _parsed_type(field.fields[0]))
    scalars = {"long": T.LongType(), "double": T.DoubleType(), "boolean": T.BooleanType(), "text": T.VariantType()}
    return scalars.get(field.kind, T.StringType())
