"""Malicious records: each becomes a row, a dead letter or a refusal, and the process survives (F44-F48)."""

import json
import threading

import pytest

from lakehouse.core.errors import SchemaError
from lakehouse.local import stack as local_stack
from lakehouse.local.processes import process
from tests.support.faults import oracle
from tests.support.faults.moments import LOGGED, attempt
from tests.support.topics import TRADES, Stream, framed, register, trade


def zigzag(number):
    """Encode a long as Avro does (Avro specification, Binary Encoding)."""
    number, encoded = (number << 1) ^ (number >> 63), b""
    while number > 0x7F:
        encoded, number = encoded + bytes([number & 0x7F | 0x80]), number >> 7
    return encoded + bytes([number])


def test_ingest_empty_and_null_keys_are_rows(resources):
    stream = Stream(resources, partitions=1, settings={"mode": "upsert"} | LOGGED)
    schema = json.loads(TRADES)
    schema["fields"] = [
        {**field, "type": ["null", "string"], "default": None} if field["name"] == "userid" else field
        for field in schema["fields"]
    ]
    text = json.dumps(schema)
    schema_id = stream.schema(text)
    for key, user in [(b"", ""), (b"k", None), (None, None), (None, "v"), (b"\xff", None)]:
        stream.produce([{"key": key, "value": framed(schema_id, text, trade(1, userid=user))}])
    stream.produce([{"key": key, "value": None} for key in (b"", None, b"\xff", b"k")])
    stream.produce([{"key": b"", "value": framed(schema_id, text, trade(2, userid=None))}])

    stream.ingest()

    oracle.judge(stream)


@pytest.fixture
def ends_in_time(stack, resources):
    """Return a check that a run ends within SECONDS with dead letters or a refusal; otherwise, it restarts Spark."""

    def check(stream):
        results = []
        run = threading.Thread(target=lambda: results.append(attempt(stream)), daemon=True)
        run.start()
        run.join(SECONDS)
        if results and (results[0] is None or isinstance(results[0], SchemaError)):
            return
        spark = process.running(stack)["spark"].leader
        spark.kill()
        spark.wait(20)
        local_stack.up(stack, ["spark"])
        run.join()
        resources.spark.close()
        pytest.fail(f"after {SECONDS} s: {results}")

    return check


SECONDS = 60
"""The time limit of a run with one record, which is far below it even on a busy machine."""

NOTHING = {"type": "fixed", "name": "Nothing", "size": 0}
NODE = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"], "default": None}]}


def with_field(type_):
    """Return the trades' schema with one more field of a type."""
    schema = json.loads(TRADES)
    return json.dumps({**schema, "fields": [{"name": "more", "type": type_}, *schema["fields"]]})


def test_ingest_list_of_billions_of_empty_items_ends_in_time(ends_in_time, resources):
    stream = Stream(resources, partitions=1, settings=LOGGED)
    schema_id = stream.schema(with_field({"type": "array", "items": NOTHING}))
    stream.produce([{"value": b"\0" + schema_id.to_bytes(4, "big") + zigzag(2_000_000_000) + b"\0"}])

    ends_in_time(stream)


def test_ingest_deep_record_of_foreign_schema_ends_in_time(ends_in_time, resources):
    stream = Stream(resources, partitions=1, settings=LOGGED)
    stream.produce_trades(range(1))
    schema_id = register(f"elsewhere-{stream.name}", with_field(["null", NODE]))
    stream.produce([{"value": b"\0" + schema_id.to_bytes(4, "big") + b"\2" * 200_000 + b"\0"}])

    ends_in_time(stream)


def test_ingest_endless_list_of_foreign_schema_ends_in_time(ends_in_time, resources):
    stream = Stream(resources, partitions=1, settings=LOGGED)
    stream.produce_trades(range(1))
    schema_id = register(f"elsewhere-{stream.name}", with_field({"type": "array", "items": "null"}))
    stream.produce([{"value": b"\0" + schema_id.to_bytes(4, "big") + zigzag(20_000_000_000) + b"\0"}])

    ends_in_time(stream)


def test_ingest_recursive_schema_is_refused(resources):
    stream = Stream(resources, partitions=1, settings={"key": []})
    schema_id = stream.schema(json.dumps(NODE))
    stream.produce([{"value": b"\0" + schema_id.to_bytes(4, "big") + b"\2" * 50_000 + b"\0"}])

    with pytest.raises(SchemaError, match="contains itself"):
        stream.ingest()
    assert stream.table() is None


def test_ingest_list_of_records_without_fields_is_refused(resources):
    stream = Stream(resources, partitions=1)
    stream.schema(with_field({"type": "array", "items": {"type": "record", "name": "Empty", "fields": []}}))
    stream.produce([{"value": b"anything"}])

    with pytest.raises(SchemaError, match="more"):
        stream.ingest()
