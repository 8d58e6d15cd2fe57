"""Upserts: one row for each key, with the values at the last offset, unless that is a null."""

import json
import random

import pytest

from lakehouse.core.errors import SchemaError
from resources.iceberg.snapshots import commits, live_rows
from tests.support.topics import TRADES, Stream, framed, register, trade
from tools.repository import PROJECT


def newest(stream):
    """Return the newest position by user, computed record by record from the topic."""
    state = {}
    for message in sorted(stream.messages(), key=lambda m: (m.partition, m.offset)):
        if message.value is None:
            state.pop(message.key.decode(), None)
        else:
            state[message.key.decode()] = (message.partition, message.offset)
    return state


def test_upsert_batches_give_newest_row_of_each_key(resources):
    stream = Stream(resources, partitions=4, settings={"mode": "upsert"})
    schema_id = stream.schema()
    generator = random.Random(7)
    users = [f"User_{n}" for n in range(40)]
    number = 0
    for _ in range(2):
        messages = []
        for _ in range(300):
            user, number = generator.choice(users), number + 1
            deleted = generator.random() < 0.3
            value = None if deleted else framed(schema_id, TRADES, trade(number, userid=user, quantity=number))
            messages.append({"key": user.encode(), "value": value})
        stream.produce(messages)

        [published] = stream.ingest()

        expected = newest(stream)
        rows = stream.rows()
        assert {row["userid"]: (row["kafka_partition"], row["kafka_offset"]) for row in rows} == expected
        assert len(rows) == len(expected) == live_rows(stream.table())
        counts = published.counts
        assert counts.consumed == 300 == counts.rows + counts.tombstones + counts.superseded
    # Besides the two batches, there is the empty commit at which the first branch starts.
    assert len(commits(stream.table())) == 2 + 1


def test_live_rows_after_rewrite_with_deletes_is_exact(resources):
    stream = Stream(resources, settings={"mode": "upsert"})
    for numbers in (range(50), range(50, 60)):
        stream.produce_trades(numbers)
        stream.ingest()
    spark = resources.spark.session(resources.catalog.spark_settings())
    name = f"{stream.namespace}.`{stream.topic.table}`"
    spark.sql(f"DELETE FROM lake.{name} WHERE userid = 'User_1'")
    options = "map('rewrite-all', 'true')"
    spark.sql(f"CALL lake.system.rewrite_data_files(table => '{name}', options => {options})").collect()
    summary = stream.table().current_snapshot().summary.additional_properties

    assert int(summary["total-position-deletes"]) > 0
    assert live_rows(stream.table()) == len(stream.rows()) == 8


def test_upsert_avro_key_identifies_by_all_columns(resources):
    key_schema = (PROJECT / "schemas/stock_trades_with_totals-key.avsc").read_text()
    value_schema = (PROJECT / "schemas/stock_trades_with_totals-value.avsc").read_text()
    settings = {"mode": "upsert", "key_format": "avro", "key": ["trade_timestamp", "userid", "side", "symbol"]}
    stream = Stream(resources, settings=settings)
    from decimal import Decimal

    key_id, value_id = register(f"{stream.name}-key", key_schema), stream.schema(value_schema)

    def message(side, count):
        key = {"trade_timestamp": 1_700_000_000_123, "userid": "u", "side": side, "symbol": "S"}
        value = key | {"trade_count": count, "quantity": 1, "price": Decimal("1.2345"), "total_price": 2**60}
        body = None if count is None else framed(value_id, value_schema, value)
        return {"key": framed(key_id, key_schema, key), "value": body}

    stream.produce([message("BUY", 1), message("SELL", 1), message("BUY", 2), message("SELL", None)])
    stream.ingest()

    [row] = stream.rows()
    assert (row["side"], row["trade_count"], row["price"], row["total_price"]) == ("BUY", 2, Decimal("1.2345"), 2**60)
    assert round(row["trade_timestamp"].timestamp() * 1000) == 1_700_000_000_123


def test_tombstone_with_key_that_column_would_round_is_dead_letter(resources):
    def schema(name, type_):
        return json.dumps({"type": "record", "name": name, "fields": [{"name": "id", "type": type_}]})

    stream = Stream(resources, partitions=1, settings={"mode": "upsert", "key_format": "avro", "key": "id"})
    key_schema, value_schema = schema("Key", "double"), schema("Value", "long")
    key_id, value_id = register(f"{stream.name}-key", key_schema), stream.schema(value_schema)

    def message(key, value):
        body = None if value is None else framed(value_id, value_schema, {"id": value})
        return {"key": framed(key_id, key_schema, {"id": key}), "value": body}

    stream.produce([message(1.0, 1), message(2.0, 2), message(1.5, None), message(2.0, None)])
    stream.ingest()

    assert [row["id"] for row in stream.rows()] == [1]
    assert [(letter["kafka_offset"], letter["error_reason"]) for letter in stream.dead_letters()] == [(2, "bad_key")]


def with_id(type_):
    return json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": type_}]})


@pytest.mark.parametrize("value_format", ["avro", "json"])
def test_undeclared_key_format_of_registered_keys_is_refused(resources, value_format):
    settings = {"mode": "upsert", "key": "id", "value_format": value_format}
    stream = Stream(resources, partitions=1, settings=settings | ({"key": "value"} if value_format == "json" else {}))
    stream.schema(with_id("string"))
    register(f"{stream.name}-key", '"string"')
    stream.produce([{"key": b"k1", "value": b"{}"}])

    with pytest.raises(SchemaError, match="Write 'key_format: avro'"):
        stream.ingest()

    assert stream.table() is None


def test_keys_in_other_format_than_declared_are_dead_letters(resources):
    stream = Stream(resources, partitions=1, settings={"mode": "upsert", "key": "id"})
    schema = with_id("string")
    schema_id = stream.schema(schema)

    def value(id_):
        return None if id_ is None else framed(schema_id, schema, {"id": id_})

    in_avro, in_json = b"\0\0\0\0\x01\x04k1", b'"k1"'
    sent = [(b"k1", "k1"), (in_avro, "k1"), (in_avro, None), (in_json, "k1"), (b"k2", "k1"), (None, "k3"), (None, None)]
    stream.produce([{"key": key, "value": value(id_)} for key, id_ in [*sent, (b"k3", None)]])
    stream.ingest()

    assert [(row["id"], row["kafka_offset"]) for row in stream.rows()] == [("k1", 0)]
    letters = stream.dead_letters()
    reasons = {1: "bad_key", 2: "bad_key", 3: "key_mismatch", 4: "key_mismatch", 6: "bad_key"}
    assert {letter["kafka_offset"]: letter["error_reason"] for letter in letters} == reasons
    assert "key_format: avro" in letters[0]["error_message"]


def test_key_format_none_identifies_rows_by_value(resources):
    settings = {"mode": "upsert", "key": ["user_id", "client_id"], "key_format": "none"}
    stream = Stream(resources, partitions=1, settings=settings)
    fields = [{"name": "user_id", "type": "long"}, {"name": "client_id", "type": "string"}]
    fields.append({"name": "state", "type": ["null", "string"]})
    schema = json.dumps({"type": "record", "name": "Session", "fields": fields})
    schema_id = stream.schema(schema)
    register(f"{stream.name}-key", '"string"')

    def message(key, *row):
        value = dict(zip(("user_id", "client_id", "state"), row, strict=True)) if row else None
        return {"key": key, "value": framed(schema_id, schema, value) if value else None}

    stream.produce([message(b"x", 1, "a", "new"), message(None, 1, "b", "new"), message(b"\xff", 1, "a", "old")])
    stream.produce([message(b"x"), message(None, 2, "a", None)])
    stream.ingest()
    stream.produce([message(b"x", 2, "a", "late"), message(None, 1, "b", "newer")])
    stream.ingest()

    rows = {(row["user_id"], row["client_id"]): row["state"] for row in stream.rows()}
    assert rows == {(1, "a"): "old", (1, "b"): "newer", (2, "a"): "late"}
    assert len(stream.rows()) == 3
    assert [(letter["kafka_offset"], letter["error_reason"]) for letter in stream.dead_letters()] == [(3, "null_value")]


@pytest.mark.parametrize(("type_", "marks"), [("string", ("true", "false")), ("boolean", (True, False))])
def test_flattened_change_events_delete_by_declared_column(resources, type_, marks):
    delete = {"column": "__deleted", "value": True}
    stream = Stream(
        resources, partitions=1, settings={"mode": "upsert", "key": "id", "key_format": "avro", "delete": delete}
    )
    deleted = {"name": "__deleted", "type": ["null", type_], "default": None}
    fields = [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}, deleted]
    schema = json.dumps({"type": "record", "name": "Customer", "fields": fields})
    schema_id, key_id = stream.schema(schema), register(f"{stream.name}-key", with_id("long"))
    dead, alive = marks

    def message(id_, name, mark):
        value = {"id": id_, "name": name, "__deleted": mark}
        return {"key": framed(key_id, with_id("long"), {"id": id_}), "value": framed(schema_id, schema, value)}

    stream.produce([message(1, "a", alive), message(2, "b", None), message(3, "c", alive), message(3, "", dead)])
    [first] = stream.ingest()
    stream.produce([message(1, "", dead), message(4, "", dead), message(2, "b2", alive), message(4, "d", alive)])
    [second] = stream.ingest()

    assert [(row["id"], row["name"], row["__deleted"]) for row in stream.rows()] == [(2, "b2", alive), (4, "d", alive)]
    assert stream.dead_letters() == []
    assert (first.counts.tombstones, first.counts.superseded) == (1, 1)
    assert (second.counts.tombstones, second.counts.superseded) == (1, 1)


@pytest.mark.parametrize("column", ["gone", "quantity"])
def test_deletion_by_value_that_no_column_has_is_refused(resources, column):
    delete = {"column": column, "value": "true"}
    stream = Stream(resources, partitions=1, settings={"mode": "upsert", "delete": delete})
    stream.produce_trades(range(3))

    with pytest.raises(SchemaError, match="'true' in the column '(gone|quantity)' marks deletions.*Correct 'delete'"):
        stream.ingest()
