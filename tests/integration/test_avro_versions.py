"""Avro values whose type changes between versions are exact in the table or dead letters, never other values."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal

from tests.support.topics import Stream, framed, registry

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
DATE = {"type": "int", "logicalType": "date"}
MILLIS, MICROS = ({"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("millis", "micros"))
NOON = datetime(2026, 1, 1, 12, 0, 0, 123000, tzinfo=UTC)


def record(name, **more):
    return {"type": "record", "name": name, "fields": [{"name": "x", "type": "int"}]} | more


def enum(name):
    return {"type": "enum", "name": name, "symbols": ["A", "B"]}


EXACT = {
    "ordered": (
        ["null", record("O1"), record("O2")],
        ["null", record("O2"), record("O1")],
        ("O1", {"x": 1}),
        {"member0": {"x": 1}, "member1": None},
    ),
    "mixed": (
        ["null", enum("M"), "bytes"],
        ["null", "bytes", enum("M")],
        "A",
        {"member0": "A", "member1": None},
    ),
    "shorter": (
        ["null", record("S1"), record("S2"), record("S3")],
        ["null", record("S1"), record("S3")],
        ("S3", {"x": 1}),
        {"member0": None, "member1": None, "member2": {"x": 1}},
    ),
    "longer": (
        ["null", record("L1"), record("L2")],
        ["null", record("L0"), record("L1"), record("L2")],
        ("L1", {"x": 1}),
        {"member0": {"x": 1}, "member1": None, "member2": None},
    ),
    "renamed": (
        [record("N1"), record("N2")],
        [record("N3", aliases=["N1"]), record("N2")],
        {"x": 1},
        {"member0": {"x": 1}, "member1": None},
    ),
    "text": (enum("T"), "string", "B", "B"),
    "moment": (MILLIS, MICROS, NOON, NOON),
    "days": (["null", MILLIS, DATE], [MILLIS, DATE, "null"], NOON, {"member0": NOON, "member1": None}),
    "many": (
        {"type": "array", "items": [MILLIS, DATE]},
        {"type": "array", "items": [MICROS, DATE]},
        [date(1969, 12, 31), NOON],
        [{"member0": None, "member1": date(1969, 12, 31)}, {"member0": NOON, "member1": None}],
    ),
    "raw": ({"type": "bytes", "logicalType": "decimal"}, "bytes", b"\x05", b"\x05"),
    "__end": ("int", "long", 7, 7),
    "__decoded": (["null", record("__end")], ["null", record("__end")], {"x": 1}, {"x": 1}),
}
"""Two versions of a field's type, by field, with the value that both versions write, and the value in the table."""

REFUSED = {
    "text": (DECIMAL, "string", Decimal("0.53")),
    "raw": (DECIMAL, "bytes", Decimal("0.05")),
    "exact": ("bytes", DECIMAL, b"\x05"),
    "scale": (DECIMAL, DECIMAL | {"scale": 3}, Decimal("0.05")),
    "number": (MILLIS, "long", NOON),
    "moment": ("int", MILLIS, 1_000),
    "time": ("int", {"type": "int", "logicalType": "time-millis"}, 1_000),
    "rounded": ("long", "double", 2**53 + 1),
}
"""Two versions of a field's type, by field, and a value of the first version that the second cannot represent."""


def schema(fields):
    declared = [{"name": name, "type": type_} for name, type_ in fields.items()]
    return json.dumps({"type": "record", "name": "R", "fields": declared})


def create_stream(resources):
    stream = Stream(resources, partitions=1, settings={"key": []})
    registry().set_compatibility(subject_name=f"{stream.name}-value", level="NONE")
    return stream


def test_ingest_versions_of_schema_give_equal_values(resources):
    stream = create_stream(resources)
    values = {name: value for name, (_, _, value, _) in EXACT.items()}
    messages = []
    for version, name in ((0, "case"), (1, "Case")):
        text = schema({field: types[version] for field, types in EXACT.items()} | {name: "string"})
        # The encoder of the tests refuses a decimal type without precision.
        valid = schema(
            {field: types[version] for field, types in (EXACT | {"raw": ("bytes", "bytes")}).items()} | {name: "string"}
        )
        messages.append({"value": framed(stream.schema(text), valid, values | {name: "x"})})
        stream.produce(messages)
        stream.ingest()

    expected = {name: value for name, (_, _, _, value) in EXACT.items()} | {"Case": "x"}
    assert stream.dead_letters() == []
    assert [{name: row[name] for name in expected} for row in stream.rows()] == [expected] * 3


def test_ingest_unrepresentable_value_is_dead_letter(resources):
    stream = create_stream(resources)
    first, second = (schema({name: ["null", types[version]] for name, types in REFUSED.items()}) for version in (0, 1))
    schema_id = stream.schema(first)
    stream.schema(second)
    nothing = dict.fromkeys(REFUSED)
    bad = [framed(schema_id, first, nothing | {name: value}) for name, (_, _, value) in REFUSED.items()]
    stream.produce([{"value": value} for value in (framed(schema_id, first, nothing), *bad)])
    stream.ingest()

    assert [{name: row[name] for name in REFUSED} for row in stream.rows()] == [nothing]
    assert [(letter["value"], letter["error_reason"]) for letter in stream.dead_letters()] == [
        (value, "undecodable") for value in bad
    ]


def test_ingest_record_of_removed_branch_keeps_its_member(resources):
    stream = create_stream(resources)
    first, second = (schema({"u": ["null", *map(record, names)]}) for names in (("R1", "R2", "R3"), ("R1", "R3")))
    old_id, new_id = stream.schema(first), stream.schema(second)
    sent = [framed(old_id, first, {"u": (name, {"x": n})}) for n, name in enumerate(("R1", "R2", "R3"))]
    stream.produce([{"value": value} for value in (*sent, framed(new_id, second, {"u": ("R3", {"x": 3})}))])
    stream.ingest()

    assert stream.dead_letters() == []
    values = [{member: cell for member, cell in row["u"].items() if cell} for row in stream.rows()]
    assert values == [{"member0": {"x": 0}}, {"member1": {"x": 1}}, {"member2": {"x": 2}}, {"member2": {"x": 3}}]
