"""Changes of schemas, version by version and interleaved, and the tables that result."""

import json
from decimal import Decimal

import pytest

from lakehouse.core.errors import IncompatibleSchema
from lakehouse.pipeline.replay import Redriven, redrive, replay
from tests.support.topics import Stream, framed, register, registry


def schema(*fields, **record):
    """Return a record schema of fields, each as (name, type) or (name, type, other attributes)."""
    declared = [{"name": f[0], "type": f[1], **(f[2] if len(f) > 2 else {})} for f in fields]
    return json.dumps({"type": "record", "name": "R", "fields": declared, **record})


def create_stream(resources, level, **settings):
    stream = Stream(resources, partitions=1, settings={"key": [], **settings})
    registry().set_compatibility(subject_name=f"{stream.name}-value", level=level)
    return stream


def produce(stream, text, *records):
    """Register a schema and produce records with it."""
    schema_id = stream.schema(text)
    stream.produce([{"value": framed(schema_id, text, record)} for record in records])


def values(stream, *columns):
    return [tuple(row[column] for column in columns) for row in stream.rows()]


V1 = schema(("a", "int"), ("b", "string"))


@pytest.mark.parametrize("level", ["NONE", "FULL"])
def test_new_field_with_default_is_added_at_each_level(resources, level):
    stream = create_stream(resources, level)
    produce(stream, V1, {"a": 1, "b": "x"})
    stream.ingest()
    newer = schema(("c", ["null", "long"], {"default": None}), ("a", "int"), ("b", "string"))
    produce(stream, newer, {"a": 2, "b": "y", "c": 2**40})
    produce(stream, V1, {"a": 3, "b": "z"})
    stream.ingest()

    assert values(stream, "a", "b", "c") == [(1, "x", None), (2, "y", 2**40), (3, "z", None)]
    assert stream.dead_letters() == []


def test_renamed_column_keeps_values_and_field_id(resources):
    stream = create_stream(resources, "NONE")
    produce(stream, V1, {"a": 1, "b": "x"})
    stream.ingest()
    before = stream.table().schema().find_field("a").field_id
    newer = schema(("amount", "long", {"aliases": ["a"]}), ("b", "string"))
    produce(stream, newer, {"amount": 2**40, "b": "y"})
    produce(stream, V1, {"a": 3, "b": "z"})
    stream.ingest()

    assert values(stream, "amount", "b") == [(1, "x"), (2**40, "y"), (3, "z")]
    assert stream.table().schema().find_field("amount").field_id == before
    assert "a" not in stream.table().schema().column_names


def test_dropped_field_keeps_values_of_older_schemas(resources):
    stream = create_stream(resources, "NONE")
    produce(stream, V1, {"a": 1, "b": "x"})
    stream.ingest()
    newer = schema(("a", "int"))
    produce(stream, newer, {"a": 2})
    produce(stream, V1, {"a": 3, "b": "z"})
    stream.ingest()

    assert values(stream, "a", "b") == [(1, "x"), (2, None), (3, "z")]


def test_nested_fields_are_widened_and_added(resources):
    def nested(*fields):
        inner = {"type": "record", "name": "I", "fields": [{"name": n, "type": t} for n, t in fields]}
        return schema(("one", inner), ("many", {"type": "array", "items": "I"}), ("by", {"type": "map", "values": "I"}))

    stream = create_stream(resources, "NONE")
    old = {"x": 1}
    produce(stream, nested(("x", "int")), {"one": old, "many": [old], "by": {"k": old}})
    stream.ingest()
    new = {"x": 2**40, "y": "new"}
    produce(stream, nested(("y", "string"), ("x", "long")), {"one": new, "many": [new], "by": {"k": new}})
    produce(stream, nested(("x", "int")), {"one": old, "many": [], "by": {}})
    stream.ingest()

    expected = {"x": 1, "y": None}
    assert values(stream, "one", "many", "by") == [
        (expected, [expected], [("k", expected)]),
        (new, [new], [("k", new)]),
        (expected, [], []),
    ]


def test_ingest_unsupported_type_change_stops_and_keeps_table(resources):
    stream = create_stream(resources, "NONE")
    produce(stream, V1, {"a": 1, "b": "x"})
    stream.ingest()
    before = stream.rows(), stream.table().schema()
    produce(stream, schema(("a", "string"), ("b", "string"), ("c", ["null", "int"])), {"a": "s", "b": "y", "c": 1})

    with pytest.raises(IncompatibleSchema, match="UNSUPPORTED_TYPE_CHANGE a"):
        stream.ingest()
    assert (stream.rows(), stream.table().schema()) == before


def test_incompatible_records_are_dead_letters_by_policy(resources):
    stream = create_stream(resources, "NONE", on_incompatible="dead_letter")
    produce(stream, V1, {"a": 1, "b": "x"})
    stream.ingest()
    incompatible = schema(("a", "string"), ("b", "string"))
    produce(stream, incompatible, {"a": "one", "b": "y"})
    produce(stream, V1, {"a": 3, "b": "z"})
    stream.ingest()

    assert values(stream, "a", "b") == [(1, "x"), (3, "z")]
    assert [letter["error_reason"] for letter in stream.dead_letters()] == ["unfit_schema"]
    fixed = schema(("a", "long"), ("b", "string"))
    produce(stream, fixed, {"a": 2**40, "b": "w"})
    stream.ingest()
    assert values(stream, "a", "b") == [(1, "x"), (3, "z"), (2**40, "w")]


def test_redrive_and_replay_use_the_compatible_schema(resources):
    positive = {"type": "range", "column": "a", "min": 1, "severity": "quarantine"}
    settings = {"on_incompatible": "dead_letter", "errors": "log", "checks": {"positive": positive}}
    stream = create_stream(resources, "NONE", **settings)
    produce(stream, V1, {"a": 0, "b": "x"}, {"a": 1, "b": "y"})
    stream.ingest()
    produce(stream, schema(("a", "string"), ("b", "string")), {"a": "one", "b": "z"})
    stream.ingest()
    assert (values(stream, "a", "b"), len(stream.dead_letters())) == ([(1, "y")], 2)

    assert redrive(stream.namespace, stream.topic, stream.systems) == Redriven(attempted=2, recovered=0)
    replay(stream.namespace, stream.topic, stream.systems, "earliest")
    assert values(stream, "a", "b") == [(1, "y")]


def test_schema_of_other_subject_keeps_incompatible_one_rejected(resources):
    stream = create_stream(resources, "NONE", on_incompatible="dead_letter")
    produce(stream, V1, {"a": 1, "b": "x"})
    stream.ingest()
    produce(stream, schema(("a", "string"), ("b", "string")), {"a": "one", "b": "y"})
    other = schema(("a", "int"), ("b", "string"), doc="elsewhere")
    elsewhere = register(f"elsewhere-{stream.name}", other)
    stream.produce([{"value": framed(elsewhere, other, {"a": 3, "b": "z"})}])
    stream.ingest()

    assert values(stream, "a", "b") == [(1, "x"), (3, "z")]
    assert len(stream.dead_letters()) == 1


def test_record_with_missing_or_extra_bytes_is_dead_letter(resources):
    stream = create_stream(resources, "NONE")
    both = schema(("a", "int"), ("b", ["null", "string"]))
    good = framed(stream.schema(both), both, {"a": 7, "b": "word"})
    bad = [good + b"\x00", good + b"GARBAGE!", good + good, *(good[:n] for n in range(6, len(good)))]
    stream.produce([{"value": value} for value in (good, *bad)])
    stream.ingest()

    assert values(stream, "a", "b") == [(7, "word")]
    assert [letter["value"] for letter in stream.dead_letters()] == bad


def test_oversized_array_is_dead_letter_next_to_good_row(resources):
    stream = create_stream(resources, "NONE")
    text = schema(("a", "int"), ("many", {"type": "array", "items": "int"}))
    schema_id = stream.schema(text)
    bomb = b"\x00" + schema_id.to_bytes(4, "big") + b"\x02" + b"\x80\xc4\xaf\xa0\x0b"
    good = framed(schema_id, text, {"a": 1, "many": [1]})
    stream.produce([{"value": value} for value in (bomb, good)])
    stream.ingest()

    assert values(stream, "a", "many") == [(1, [1])]
    assert [letter["value"] for letter in stream.dead_letters()] == [bomb]


def test_decimal_exceeding_precision_is_dead_letter(resources):
    def money(precision):
        return schema(("a", {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": 1}))

    stream = create_stream(resources, "NONE")
    schema_id = stream.schema(money(18))
    # The bytes of a decimal do not contain its precision.
    amounts = [Decimal("0.5"), Decimal(2**64 + 5).scaleb(-1), Decimal("-99999999999999999.9"), Decimal("1e17")]
    stream.produce([{"value": framed(schema_id, money(38), {"a": amount})} for amount in amounts])
    stream.ingest()

    assert values(stream, "a") == [(amounts[0],), (amounts[2],)]
    assert len(stream.dead_letters()) == 2


def test_invalid_utf8_is_dead_letter_at_any_depth(resources):
    texts = {"type": "map", "values": {"type": "array", "items": "string"}}
    text = schema(("a", "string"), ("many", ["null", texts]))
    stream = create_stream(resources, "NONE")
    good = framed(stream.schema(text), text, {"a": "grün", "many": {"key": ["value"]}})
    bad = [good.replace(*swap) for swap in ((b"\xc3\xbc", b"\xc3\x28"), (b"key", b"k\xffy"), (b"value", b"v\x80lue"))]
    stream.produce([{"value": value} for value in (*bad, good)])
    stream.ingest()

    assert [row["a"] for row in stream.rows()] == ["grün"]
    assert [letter["value"] for letter in stream.dead_letters()] == bad
