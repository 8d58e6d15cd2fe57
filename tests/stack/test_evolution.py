"""Schemas that change, version by version and interleaved: what the table becomes, and what it keeps."""

import json
from decimal import Decimal

import pytest
from support import Stream, framed, register, registry

from lakehouse.core.errors import DoesNotFit
from lakehouse.pipeline.replay import Redriven, redrive, replay


def schema(*fields, **record):
    """A record schema of fields given as (name, type) or (name, type, more)."""
    made = [{"name": f[0], "type": f[1], **(f[2] if len(f) > 2 else {})} for f in fields]
    return json.dumps({"type": "record", "name": "R", "fields": made, **record})


def stream_of(resources, level, **settings):
    stream = Stream(resources, partitions=1, settings={"key": [], **settings})
    registry().set_compatibility(subject_name=f"{stream.name}-value", level=level)
    return stream


def put(stream, text, *records):
    """Register a schema, and produce records with it."""
    schema_id = stream.schema(text)
    stream.produce([{"value": framed(schema_id, text, record)} for record in records])


def values(stream, *columns):
    return [tuple(row[column] for column in columns) for row in stream.rows()]


V1 = schema(("a", "int"), ("b", "string"))


@pytest.mark.parametrize("level", ["NONE", "BACKWARD", "FORWARD", "FULL"])
def test_a_field_with_a_default_may_come_under_every_compatibility(resources, level):
    stream = stream_of(resources, level)
    put(stream, V1, {"a": 1, "b": "x"})
    stream.ingest()
    newer = schema(("c", ["null", "long"], {"default": None}), ("a", "int"), ("b", "string"))
    put(stream, newer, {"a": 2, "b": "y", "c": 2**40})
    put(stream, V1, {"a": 3, "b": "z"})
    stream.ingest()

    assert values(stream, "a", "b", "c") == [(1, "x", None), (2, "y", 2**40), (3, "z", None)]
    assert stream.dead_letters() == []


def test_a_renamed_column_keeps_its_values_and_its_id(resources):
    stream = stream_of(resources, "NONE")
    put(stream, V1, {"a": 1, "b": "x"})
    stream.ingest()
    before = stream.table().schema().find_field("a").field_id
    newer = schema(("amount", "long", {"aliases": ["a"]}), ("b", "string"))
    put(stream, newer, {"amount": 2**40, "b": "y"})
    put(stream, V1, {"a": 3, "b": "z"})
    stream.ingest()

    assert values(stream, "amount", "b") == [(1, "x"), (2**40, "y"), (3, "z")]
    assert stream.table().schema().find_field("amount").field_id == before
    assert "a" not in stream.table().schema().column_names


def test_a_dropped_field_is_still_filled_by_who_still_writes_it(resources):
    stream = stream_of(resources, "NONE")
    put(stream, V1, {"a": 1, "b": "x"})
    stream.ingest()
    newer = schema(("a", "int"))
    put(stream, newer, {"a": 2})
    put(stream, V1, {"a": 3, "b": "z"})
    stream.ingest()

    assert values(stream, "a", "b") == [(1, "x"), (2, None), (3, "z")]


def test_nested_records_lists_and_maps_change_in_place(resources):
    def nested(*fields):
        inner = {"type": "record", "name": "I", "fields": [{"name": n, "type": t} for n, t in fields]}
        return schema(("one", inner), ("many", {"type": "array", "items": "I"}), ("by", {"type": "map", "values": "I"}))

    stream = stream_of(resources, "NONE")
    old = {"x": 1}
    put(stream, nested(("x", "int")), {"one": old, "many": [old], "by": {"k": old}})
    stream.ingest()
    new = {"x": 2**40, "y": "new"}
    put(stream, nested(("y", "string"), ("x", "long")), {"one": new, "many": [new], "by": {"k": new}})
    put(stream, nested(("x", "int")), {"one": old, "many": [], "by": {}})
    stream.ingest()

    was = {"x": 1, "y": None}
    assert values(stream, "one", "many", "by") == [
        (was, [was], [("k", was)]),
        (new, [new], [("k", new)]),
        (was, [], []),
    ]


@pytest.mark.parametrize(
    ("type_", "value", "rule"),
    [
        ("string", "s", "UNSUPPORTED_TYPE_CHANGE a"),
        ("double", 0.5, "UNSUPPORTED_TYPE_CHANGE a"),
        ({"type": "array", "items": "int"}, [1], "TYPE_MISMATCH a"),
    ],
)
def test_what_the_table_cannot_take_stops_and_changes_nothing(resources, type_, value, rule):
    stream = stream_of(resources, "NONE")
    put(stream, V1, {"a": 1, "b": "x"})
    stream.ingest()
    before = stream.rows(), stream.table().schema()
    put(stream, schema(("a", type_), ("b", "string"), ("c", ["null", "int"])), {"a": value, "b": "y", "c": 1})

    with pytest.raises(DoesNotFit, match=rule):
        stream.ingest()
    assert (stream.rows(), stream.table().schema()) == before


def test_records_of_a_schema_that_does_not_fit_are_dead_letters_by_policy(resources):
    stream = stream_of(resources, "NONE", on_incompatible="dead_letter")
    put(stream, V1, {"a": 1, "b": "x"})
    stream.ingest()
    odd = schema(("a", "string"), ("b", "string"))
    put(stream, odd, {"a": "one", "b": "y"})
    put(stream, V1, {"a": 3, "b": "z"})
    stream.ingest()

    assert values(stream, "a", "b") == [(1, "x"), (3, "z")]
    assert [letter["error_reason"] for letter in stream.dead_letters()] == ["unfit_schema"]
    fixed = schema(("a", "long"), ("b", "string"))
    put(stream, fixed, {"a": 2**40, "b": "w"})
    stream.ingest()
    assert values(stream, "a", "b") == [(1, "x"), (3, "z"), (2**40, "w")]


def test_dead_letters_and_ranges_are_read_again_by_the_schema_that_fits(resources):
    positive = {"type": "range", "column": "a", "min": 1, "severity": "quarantine"}
    settings = {"on_incompatible": "dead_letter", "errors": "log", "checks": {"positive": positive}}
    stream = stream_of(resources, "NONE", **settings)
    put(stream, V1, {"a": 0, "b": "x"}, {"a": 1, "b": "y"})
    stream.ingest()
    put(stream, schema(("a", "string"), ("b", "string")), {"a": "one", "b": "z"})
    stream.ingest()
    assert (values(stream, "a", "b"), len(stream.dead_letters())) == ([(1, "y")], 2)

    assert redrive(stream.namespace, stream.topic, stream.systems) == Redriven(tried=2, landed=0)
    replay(stream.namespace, stream.topic, stream.systems, "earliest")
    assert values(stream, "a", "b") == [(1, "y")]


def test_a_schema_of_another_subject_does_not_bring_back_one_that_does_not_fit(resources):
    stream = stream_of(resources, "NONE", on_incompatible="dead_letter")
    put(stream, V1, {"a": 1, "b": "x"})
    stream.ingest()
    put(stream, schema(("a", "string"), ("b", "string")), {"a": "one", "b": "y"})
    other = schema(("a", "int"), ("b", "string"), doc="elsewhere")
    elsewhere = register(f"elsewhere-{stream.name}", other)
    stream.produce([{"value": framed(elsewhere, other, {"a": 3, "b": "z"})}])
    stream.ingest()

    assert values(stream, "a", "b") == [(1, "x"), (3, "z")]
    assert len(stream.dead_letters()) == 1


def test_bytes_after_or_short_of_a_record_make_it_undecodable(resources):
    stream = stream_of(resources, "NONE")
    both = schema(("a", "int"), ("b", ["null", "string"]))
    good = framed(stream.schema(both), both, {"a": 7, "b": "word"})
    bad = [good + b"\x00", good + b"GARBAGE!", good + good, *(good[:n] for n in range(6, len(good)))]
    stream.produce([{"value": value} for value in (good, *bad)])
    stream.ingest()

    assert values(stream, "a", "b") == [(7, "word")]
    assert [letter["value"] for letter in stream.dead_letters()] == bad


def test_a_bomb_beside_a_good_record(resources):
    stream = stream_of(resources, "NONE")
    text = schema(("a", "int"), ("many", {"type": "array", "items": "int"}))
    schema_id = stream.schema(text)
    bomb = b"\x00" + schema_id.to_bytes(4, "big") + b"\x02" + b"\x80\xc4\xaf\xa0\x0b"
    good = framed(schema_id, text, {"a": 1, "many": [1]})
    stream.produce([{"value": value} for value in (bomb, good)])
    stream.ingest()

    assert values(stream, "a", "many") == [(1, [1])]
    assert [letter["value"] for letter in stream.dead_letters()] == [bomb]


def test_a_decimal_with_more_digits_than_its_type_is_a_dead_letter(resources):
    def money(precision):
        return schema(("a", {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": 1}))

    stream = stream_of(resources, "NONE")
    schema_id = stream.schema(money(18))
    # The bytes of a decimal do not say how many digits its type has.
    amounts = [Decimal("0.5"), Decimal(2**64 + 5).scaleb(-1), Decimal("-99999999999999999.9"), Decimal("1e17")]
    stream.produce([{"value": framed(schema_id, money(38), {"a": amount})} for amount in amounts])
    stream.ingest()

    assert values(stream, "a") == [(amounts[0],), (amounts[2],)]
    assert len(stream.dead_letters()) == 2


def test_text_that_is_not_utf8_is_a_dead_letter_wherever_it_stands(resources):
    texts = {"type": "map", "values": {"type": "array", "items": "string"}}
    text = schema(("a", "string"), ("many", ["null", texts]))
    stream = stream_of(resources, "NONE")
    good = framed(stream.schema(text), text, {"a": "grün", "many": {"key": ["value"]}})
    bad = [good.replace(*swap) for swap in ((b"\xc3\xbc", b"\xc3\x28"), (b"key", b"k\xffy"), (b"value", b"v\x80lue"))]
    stream.produce([{"value": value} for value in (*bad, good)])
    stream.ingest()

    assert [row["a"] for row in stream.rows()] == ["grün"]
    assert [letter["value"] for letter in stream.dead_letters()] == bad
