"""Upserts: one row for each key, with the values at the last offset, unless that is a null."""

import json
import random

from lakehouse.config.model import PROJECT
from resources.iceberg.snapshots import commits, live_rows
from tests.support.topics import TRADES, Stream, framed, register, trade


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
