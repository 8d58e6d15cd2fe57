"""Protobuf messages as rows, compared with the values that the official runtime reads from the same bytes."""

import struct
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference
from google.protobuf import json_format

from lakehouse.core.errors import SchemaError
from tests.support.protobuf_messages import EVERYTHING, SHARED, message_class
from tests.support.topics import Stream, registry

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def register(subject, text, references=()):
    """Register a Protobuf schema under a subject, and return its id."""
    return registry().register_schema(subject, Schema(text, "PROTOBUF", list(references)))


def framed(schema_id, message, index=b"\x00"):
    return struct.pack(">bI", 0, schema_id) + index + message.SerializeToString()


def as_row(message, names=None):
    """Return a message as a row by the rules of docs/types.md, with values from the official runtime."""

    def value(field, raw):
        if field.enum_type:
            symbols = {v.number: v.name for v in field.enum_type.values}
            return symbols.get(raw, str(raw))
        if field.message_type is None:
            unsigned = field.type in (field.TYPE_UINT64, field.TYPE_FIXED64)
            return Decimal(raw) if unsigned else raw
        type_name = field.message_type.full_name
        if type_name == "google.protobuf.Timestamp":
            return EPOCH + timedelta(seconds=raw.seconds, microseconds=raw.nanos // 1000)
        if type_name == "google.protobuf.Struct":
            return json_format.MessageToJson(raw, indent=None)
        if type_name.endswith("Value") and type_name.startswith("google.protobuf."):
            return value(field.message_type.fields_by_name["value"], raw.value)
        return as_row(raw)

    row = {}
    for field in message.DESCRIPTOR.fields:
        raw = getattr(message, field.name)
        if field.message_type and field.message_type.GetOptions().map_entry:
            key, item = (field.message_type.fields_by_name[name] for name in ("key", "value"))
            pairs = [(value(key, k), value(item, raw[k])) for k in raw]
            row[field.name] = sorted(pairs, key=lambda pair: pair[0])
        elif field.is_repeated:
            row[field.name] = [value(field, element) for element in raw]
        elif field.has_presence and not message.HasField(field.name):
            row[field.name] = None
        else:
            row[field.name] = value(field, raw)
    return row


def everything(n):
    """Return a message of extreme values; every fifth is empty."""
    message = message_class(EVERYTHING, "shop.Everything")()
    if n % 5 == 4:
        return message
    message.i32, message.i64, message.u32, message.u64 = -(2**31) + n, 2**63 - 1 - n, 2**32 - 1 - n, 2**64 - 1 - n
    message.s32, message.s64, message.f32, message.f64 = -n, -(2**63), 2**32 - 1, 2**64 - 1
    message.sf32, message.sf64, message.single, message.double = -(2**31), -(2**63), 0.5 * n, 1 / (n + 3)
    message.flag, message.text, message.raw, message.side = n % 2 == 0, f"ä{n}", bytes([n, 0, 255]), n % 2
    message.inner.y, message.inner.w = n, ""
    message.inner.z.extend(["a", ""])
    message.inner.deep.v = True
    message.numbers.extend(range(n))
    message.inners.add(y=1)
    message.inners.add()
    message.sides.extend([1, 0, 7])
    message.counts.update({"k": n, "": -1})
    message.by_number[2**64 - 1].y = n
    message.by_flag[True] = 1
    if n % 3 == 0:
        message.name = ""
    elif n % 3 == 1:
        message.number = 0
    else:
        message.other.y = n
    if n % 2:
        message.maybe = 0
    message.at.FromJsonString(["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "1969-12-31T23:59:59.5Z"][n % 3])
    message.ats.add(seconds=n, nanos=1000)
    message.took.seconds, message.took.nanos = -n, -1
    message.text_value.value, message.u64_value.value = "", 2**64 - 1
    message.json.update({"a": [1, None, {"b": True}]})
    message.any.Pack(message_class(EVERYTHING, "shop.Inner")(y=n))
    message.day.year, message.day.month = 2026, 2
    message.money.currency, message.money.units = "EUR", n
    return message


def comparable(row):
    return {k: sorted(v, key=lambda p: p[0]) if k in ("counts", "by_number", "by_flag") else v for k, v in row.items()}


def test_ingest_protobuf_value_of_each_type_is_kept(resources):
    stream = Stream(resources, settings={"key": [], "value_format": "protobuf", "record": "shop.Everything"})
    registry().register_schema(f"{stream.name}-money", Schema(SHARED, "PROTOBUF"))
    reference = SchemaReference("shared/money.proto", f"{stream.name}-money", 1)
    schema_id = register(f"{stream.name}-value", EVERYTHING, [reference])
    sent = [everything(n) for n in range(25)]
    stream.produce([{"value": framed(schema_id, m, b"\x02\x02"), "partition": 0} for m in sent])

    stream.ingest()

    assert stream.dead_letters() == []
    rows = [{k: v for k, v in comparable(row).items() if not k.startswith("kafka_")} for row in stream.rows()]
    assert rows == [as_row(message) for message in sent]


def test_ingest_undecodable_protobuf_is_dead_letter(resources):
    stream = Stream(resources, partitions=1, settings={"key": [], "value_format": "protobuf"})
    text = """syntax = "proto3"; import "google/protobuf/timestamp.proto";
    message Trade { string symbol = 1; google.protobuf.Timestamp at = 2; } message Other { int32 x = 1; }"""
    schema_id, Trade = register(f"{stream.name}-value", text), message_class(text, "Trade")
    good = framed(schema_id, Trade(symbol="S"))
    nanos, late = Trade(), Trade()
    nanos.at.nanos, late.at.seconds = 1, 10**12
    bad = [good[:-1], good[:5], good[:6] + b"\xff\xff", framed(schema_id, Trade(), b"\x02\x02")]
    bad += [framed(schema_id, nanos), framed(schema_id, late), b"", b"\x01" + good[1:]]
    stream.produce([{"value": value} for n in range(40) for value in (good, *(bad if n % 13 == 0 else ()))])

    stream.ingest()

    assert [row["symbol"] for row in stream.rows()] == ["S"] * 40
    letters = sorted(letter["value"] for letter in stream.dead_letters())
    # An empty message is valid: each of its fields has its default.
    assert letters == sorted(value for n in range(40) for value in bad if n % 13 == 0)


def test_reference_named_like_python_module_is_not_imported(resources, tmp_path):
    """A record may name a schema of any subject, and users who register schemas choose the names of references."""
    stream = Stream(resources, partitions=1, settings={"key": [], "value_format": "protobuf"})
    text, marker = 'syntax = "proto3"; message Order { int64 id = 1; }', tmp_path / "marker"
    code = f"open('{marker}', 'w')"  # Protobuf reads it as a comment, Python as an expression
    module = f'syntax = "proto3" // exec("{code}") or """\n;\nmessage Dep {{ string a = 1; }}\n// """\n'
    foreign = 'syntax = "proto3"; import "grpc_tools.py"; message Order { int64 id = 1; Dep dep = 2; }'
    order = message_class(text, "Order")(id=7)
    own_id = register(f"{stream.name}-value", text)
    register(f"{stream.name}-module", module)
    reference = SchemaReference("grpc_tools.py", f"{stream.name}-module", 1)
    hostile_id = register(f"{stream.name}-foreign", foreign, [reference])
    stream.produce([{"value": framed(own_id, order)}, {"value": framed(hostile_id, order)}])

    stream.ingest()

    assert [row["id"] for row in stream.rows()] == [7]
    assert [letter["kafka_offset"] for letter in stream.dead_letters()] == [1]
    assert not marker.exists()


def test_ingest_protobuf_versions_match_fields_by_number(resources):
    stream = Stream(resources, partitions=1, settings={"key": [], "value_format": "protobuf"})
    versions = [
        "message T { string symbol = 1; int32 amount = 2; string gone = 3; string moved = 6; }",
        "message T { string ticker = 1; int64 amount = 2; repeated int32 added = 5; string moved = 7; }",
    ]
    texts = [f'syntax = "proto3"; {version}' for version in versions]
    registry().set_compatibility(subject_name=f"{stream.name}-value", level="NONE")
    ids, classes = [], [message_class(text, "T") for text in texts]
    ids.append(register(f"{stream.name}-value", texts[0]))
    old = classes[0](symbol="a", amount=-1, gone="g", moved="m")
    stream.produce([{"value": framed(ids[0], old)}])
    stream.ingest()
    ids.append(register(f"{stream.name}-value", texts[1]))
    new = classes[1](ticker="b", amount=2**40, added=[1], moved="n")
    stream.produce([{"value": framed(ids[n % 2], (old, new)[n % 2])} for n in range(4)])
    stream.ingest()

    rows = [(row["ticker"], row["amount"], row["gone"], row["added"], row["moved"]) for row in stream.rows()]
    old_row, new_row = ("a", -1, "g", None, "m"), ("b", 2**40, None, [1], "n")
    assert rows == [old_row, old_row, new_row, old_row, new_row]


def test_ingest_recursive_message_is_refused(resources):
    stream = Stream(resources, settings={"key": [], "value_format": "protobuf"})
    text = 'syntax = "proto3"; message Node { repeated Node children = 1; }'
    register(f"{stream.name}-value", text)
    stream.produce([{"value": b"\x00"}])

    with pytest.raises(SchemaError, match="'Node' contains itself"):
        stream.ingest()


def test_ingest_protobuf_keys_are_decoded(resources):
    settings = {"mode": "upsert", "key": ["id"], "key_format": "protobuf", "value_format": "protobuf"}
    stream = Stream(resources, partitions=1, settings=settings)
    key, value = (
        f'syntax = "proto3"; message {name} {{ {fields} }}'
        for name, fields in (("K", "int64 id = 1;"), ("V", "int64 id = 1; string name = 2;"))
    )
    ids = register(f"{stream.name}-key", key), register(f"{stream.name}-value", value)
    classes = message_class(key, "K"), message_class(value, "V")

    def message(id_, name):
        body = framed(ids[1], classes[1](id=id_, name=name)) if name else None
        return {"key": framed(ids[0], classes[0](id=id_)), "value": body}

    stream.produce([message(1, "a"), message(2, "b"), message(2, "c"), message(1, None)])
    stream.ingest()

    assert {row["id"]: row["name"] for row in stream.rows()} == {2: "c"}


def test_ingest_value_that_selects_no_message_is_dead_letter(resources):
    """With `record`, messages of other types are left to other entries, which must not include what is no message."""
    text = """syntax = "proto3"; message Outer { map<string, int32> counts = 1; message Inner { int32 x = 1; } }
    message Order { int64 id = 1; } message Other { message Deep { int32 x = 1; } }"""
    settings = {"key": [], "value_format": "protobuf", "record": "Order"}
    stream = Stream(resources, partitions=1, settings=settings)
    schema_id, order = register(f"{stream.name}-value", text), message_class(text, "Order")(id=7)
    others = [b"\x00", b"\x04\x00\x02", b"\x04\x00\x00", b"\x02\x04", b"\x04\x04\x00"]
    bad = [b"\x02\x06", b"\x04\x02\x00", b"\xff\xff\xff", b"\x02"]
    values = [framed(schema_id, order, index) for index in (b"\x02\x02", *others, *bad)]
    frame = struct.pack(">bI", 0, schema_id)
    stream.produce([{"value": value} for value in (*values, frame)])

    stream.ingest()

    assert [row["id"] for row in stream.rows()] == [7]
    assert [letter["value"] for letter in stream.dead_letters()] == [*values[1 + len(others) :], frame]
