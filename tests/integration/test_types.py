"""Avro types as values in the table, compared with the values that Confluent's deserializer reads."""

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from uuid import UUID

from tests.support.topics import Stream, framed

INNER = {
    "type": "record",
    "name": "Inner",
    "fields": [
        {"name": "y", "type": "int"},
        {
            "name": "z",
            "type": {
                "type": "array",
                "items": {"type": "record", "name": "Deep", "fields": [{"name": "w", "type": "string"}]},
            },
        },
    ],
}
TYPES = {
    "flag": "boolean",
    "number": "int",
    "large": "long",
    "single": "float",
    "double": "double",
    "raw": "bytes",
    "maybe": ["null", "string"],
    "symbol": {"type": "enum", "name": "Symbol", "symbols": ["A", "B"]},
    "same_symbol": "Symbol",
    "three": {"type": "fixed", "name": "Three", "size": 3},
    "day": {"type": "int", "logicalType": "date"},
    "millis": {"type": "long", "logicalType": "timestamp-millis"},
    "micros": {"type": "long", "logicalType": "timestamp-micros"},
    "local": {"type": "long", "logicalType": "local-timestamp-micros"},
    "money": {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 4},
    "fixed_money": {
        "type": "fixed",
        "name": "Money",
        "size": 8,
        "logicalType": "decimal",
        "precision": 18,
        "scale": 2,
    },
    "id": {"type": "string", "logicalType": "uuid"},
    "tags": {"type": "array", "items": ["null", "string"]},
    "counts": {"type": "map", "values": "long"},
    "inner": INNER,
    "inner_again": ["null", "Inner"],
    "int_or_long": ["int", "long"],
    "int_or_text": ["null", "int", "string"],
    "nanos": {"type": "long", "logicalType": "timestamp-nanos"},
}
SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Everything",
        "namespace": "types",
        "fields": [{"name": name, "type": type_} for name, type_ in TYPES.items()],
    }
)


def everything(n):
    """Return a record of extreme values: negative, before the epoch, without a time zone, empty and null."""
    return {
        "flag": n % 2 == 0,
        "number": -(2**31) + n,
        "large": 2**63 - 1 - n,
        "single": 0.5 * n,
        "double": 1 / (n + 3),
        "raw": bytes([n, 0, 255]),
        "maybe": None if n % 3 else f"ä{n}",
        "symbol": "AB"[n % 2],
        "same_symbol": "B",
        "three": b"xyz",
        "day": date(1969, 12, 31) + timedelta(n),
        "millis": datetime(2026, 1, 1, 0, 0, 0, 123000, tzinfo=UTC),
        "micros": datetime(1960, 1, 1, 0, 0, 0, 123456, tzinfo=UTC),
        "local": datetime(2026, 3, 29, 2, 30),
        "money": Decimal("-12345678901234.5678"),
        "fixed_money": Decimal("1.25"),
        "id": str(UUID(int=n)),
        "tags": ["a", None, ""],
        "counts": {"k": n, "": 2},
        "inner": {"y": n, "z": [{"w": "q"}]},
        "inner_again": None if n % 2 else {"y": 1, "z": []},
        "int_or_long": n if n % 2 else 2**40,
        "int_or_text": [None, n, "t"][n % 3],
        "nanos": 1_700_000_000_000_000_001,
    }


def as_a_column(row):
    """Return the oracle's row in the shapes of columns, by the rules in lakehouse/formats/avro/avro_format.py."""
    union = row["int_or_text"]
    members = {"member0": union if isinstance(union, int) else None}
    members["member1"] = union if isinstance(union, str) else None
    return row | {
        "id": str(row["id"]),
        "counts": sorted(row["counts"].items()),
        "int_or_text": None if union is None else members,
    }


def test_ingest_avro_value_of_each_type_is_kept(resources):
    stream = Stream(resources, settings={"key": []})
    schema_id = stream.schema(SCHEMA)
    stream.produce([{"value": framed(schema_id, SCHEMA, everything(n))} for n in range(12)])

    stream.ingest()

    rows = [row | {"counts": sorted(row["counts"])} for row in stream.rows()]
    assert rows == [as_a_column(row) for row in stream.expected_rows()]
    assert len(rows) == 12
