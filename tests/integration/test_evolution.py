"""Changes of schemas, version by version and interleaved, and the tables that result."""

import json
from decimal import Decimal

from lakehouse.pipeline.redrive import Redriven, redrive
from lakehouse.pipeline.replay import replay
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


def test_new_field_with_default_is_added_at_strictest_level(resources):
    """tests/contract/test_formats.py adds fields without a compatibility level."""
    stream = create_stream(resources, "FULL")
    produce(stream, V1, {"a": 1, "b": "x"})
    stream.ingest()
    newer = schema(("c", ["null", "long"], {"default": None}), ("a", "int"), ("b", "string"))
    produce(stream, newer, {"a": 2, "b": "y", "c": 2**40})
    produce(stream, V1, {"a": 3, "b": "z"})
    stream.ingest()

    assert values(stream, "a", "b", "c") == [(1, "x", None), (2, "y", 2**40), (3, "z", None)]
    assert stream.dead_letters() == []


def test_renamed_and_dropped_fields_keep_values_and_field_id(resources):
    stream = create_stream(resources, "NONE")
    produce(stream, V1, {"a": 1, "b": "x"})
    stream.ingest()
    before = stream.table().schema().find_field("a").field_id
    newer = schema(("amount", "long", {"aliases": ["a"]}))
    produce(stream, newer, {"amount": 2**40})
    produce(stream, V1, {"a": 3, "b": "z"})
    stream.ingest()

    assert values(stream, "amount", "b") == [(1, "x"), (2**40, None), (3, "z")]
    assert stream.table().schema().find_field("amount").field_id == before
    assert "a" not in stream.table().schema().column_names


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


def test_malformed_record_of_each_kind_is_dead_letter_beside_good_rows(resources):
    def text(precision):
        money = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": 1}
        texts = {"type": "map", "values": {"type": "array", "items": "string"}}
        numbers = {"type": "array", "items": "int"}
        return schema(("name", "string"), ("money", money), ("many", numbers), ("texts", ["null", texts]))

    def record(**changes):
        return {"name": "grün", "money": Decimal("0.5"), "many": [1], "texts": {"key": ["value"]}} | changes

    stream = create_stream(resources, "NONE")
    schema_id = stream.schema(text(18))

    def encoded(amount):
        # The bytes of a decimal do not contain its precision.
        return framed(schema_id, text(38), record(money=amount))

    good = encoded(Decimal("0.5"))
    bomb = good.replace(b"\x05\x02\x02\x00", b"\x05\x80\xc4\xaf\xa0\x0b\x02\x00")  # a list of billions of items
    bad = [good + b"\x00", good + b"GARBAGE!", good + good, *(good[:n] for n in range(6, len(good))), bomb]
    bad += [good.replace(*swap) for swap in ((b"\xc3\xbc", b"\xc3\x28"), (b"key", b"k\xffy"), (b"value", b"v\x80lue"))]
    bad += [encoded(Decimal(2**64 + 5).scaleb(-1)), encoded(Decimal("1e17"))]
    largest = encoded(Decimal("-99999999999999999.9"))
    stream.produce([{"value": value} for value in (good, *bad, largest)])
    stream.ingest()

    assert values(stream, "name", "money") == [("grün", Decimal("0.5")), ("grün", Decimal("-99999999999999999.9"))]
    assert [letter["value"] for letter in stream.dead_letters()] == bad
