"""stock_trades_with_totals compared with sums that Python computes from the topic."""

import json
import time
import uuid
from datetime import UTC, datetime

import pytest

from lakehouse.config.model import Topic
from lakehouse.core.errors import SchemaError, TransientError, UnclearState
from lakehouse.core.tables.naming import TableRef
from lakehouse.pipeline.bookmarks import set_derived_bookmark
from lakehouse.pipeline.clients import engine_client
from lakehouse.pipeline.derivation.groups import GroupComputation
from lakehouse.pipeline.engine_values import SnapshotRows
from resources.kafka import transactions
from spark.derive import messages
from tests.support.topics import TRADES, consume, framed, registry, trade, with_types
from tests.support.totals import Totals


def test_derive_totals_equal_sums_in_python(resources, monkeypatch):
    monkeypatch.setattr(transactions, "MAX_MESSAGES", 20)
    totals = Totals(resources)
    totals.produce(range(4_000), 1_790_000_000_000)
    singles = [
        {"value": framed(totals.schema_id, TRADES, trade(n)), "timestamp": 1_790_000_001_000 + n * 5} for n in range(60)
    ]
    totals.trades.produce(singles)

    produced = totals.run()

    rows, expected = totals.rows(), totals.expected()
    assert rows == expected
    assert produced == len(expected) < 4_000
    assert max(count for count, *_ in rows.values()) > 1
    of_one_trade = {
        (r["kafka_timestamp"], r["userid"], r["side"], r["symbol"]): (
            1,
            r["quantity"],
            r["price"],
            r["quantity"] * r["price"],
        )
        for r in totals.trades.expected_rows()
        if r["kafka_timestamp"] >= 1_790_000_001_000
    }
    assert {key: row for key, row in rows.items() if key[0] >= 1_790_000_001_000} == of_one_trade
    assert len(of_one_trade) == 60

    assert len(consume(totals.totals.name, 3)) == produced
    for side in ("key", "value"):
        assert registry().get_latest_version(f"{totals.totals.name}-{side}").schema.schema_type == "AVRO"
    # Each transaction adds a marker to each partition that it writes to.
    ends = resources.kafka.offsets([totals.totals.name])[totals.totals.name]
    markers = sum(watermarks.end for watermarks in ends.values()) - produced
    assert produced > 60 and markers >= produced / 20
    assert totals.run() == 0


def test_derive_in_repeated_hour_gives_expected_totals(resources, monkeypatch):
    """Derive groups in the hour that clocks in Berlin repeat, before and after it begins again.

    Clocks in Berlin show 02:30 at 00:30 and at 01:30 UTC on 2026-10-25. `mktime` assumes one of the two, depending on
    the time that it converted last.
    """
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        totals = Totals(resources)
        for in_summer_or_winter in ("2026-07-01", "2026-12-01"):
            for hour_utc in (0, 1):
                totals.produce(range(20), int(datetime(2026, 10, 25, hour_utc, 30, tzinfo=UTC).timestamp() * 1000))
            time.mktime(time.strptime(in_summer_or_winter, "%Y-%m-%d"))

            totals.run()

            assert totals.rows() == totals.expected() != {}
    finally:
        monkeypatch.undo()
        time.tzset()


def snapshot_rows(resources, namespace, name, *rows):
    """Return the rows of a new table as an engine reads them, given by tuples and, at the end, the columns in SQL."""
    spark = resources.spark.session(resources.catalog.spark_settings())
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS lake.{namespace}")
    spark.createDataFrame(rows[:-1], rows[-1]).writeTo(f"lake.{namespace}.{name}").using("iceberg").create()
    ref = TableRef(namespace, name)
    return SnapshotRows(ref, resources.catalog.load(ref).metadata.current_snapshot_id, {})


def engine_of(resources):
    return engine_client(resources.spark).engine(resources.catalog.spark_settings())


def totals_by(*columns):
    source = {"type": "derived", "from": "sales", "transform": "a:b", "group_by": columns}
    return Topic.model_validate({"name": "totals", "mode": "upsert", "key": ["id"], "source": source})


def test_rows_of_groups_by_new_column_are_null_in_closed_table(resources):
    engine, namespace = engine_of(resources), f"t{uuid.uuid4().hex[:10]}"
    columns = "id long, region string, amount long"
    rows = snapshot_rows(resources, namespace, "sales__v2", (1, "north", 5), columns)
    closed = snapshot_rows(resources, namespace, "sales", (1, 7), (2, 8), "ID int, amount long")
    for region, expected in (("north", [(1, "north", 5)]), (None, [(1, None, 7)])):
        touched = snapshot_rows(resources, namespace, f"touched_{region}".lower(), (1, region, 0), columns)

        computation = GroupComputation(engine, totals_by("id", "region"), lambda frame: frame)
        inputs = computation.rows_of_groups(rows, [touched], [closed])

        assert [tuple(row) for row in engine.derive(inputs, lambda frame: frame).result.collect()] == expected


def test_rows_of_groups_lost_connection_is_no_use_of_a_column(resources):
    engine, namespace = engine_of(resources), f"t{uuid.uuid4().hex[:10]}"
    rows = snapshot_rows(resources, namespace, "sales__v2", (1, 5), "id long, amount int")
    closed = snapshot_rows(resources, namespace, "sales", (1, 5), "id long, amount long")

    def lost(frame):
        raise TransientError("the connection was lost")

    with pytest.raises(TransientError, match="the connection was lost"):
        GroupComputation(engine, totals_by("id"), lost).rows_of_groups(rows, [rows], [closed])


class ContinuedTotals(Totals):
    """Totals of trades whose table continues in a new one after a change of a column's type."""

    def __init__(self, resources, **changed):
        super().__init__(resources, on_incompatible="new_table")
        self.produce(range(100), 1_790_000_000_000)
        self.run()
        self.schema_text = with_types(TRADES, **changed)
        registry().set_compatibility(subject_name=f"{self.trades.name}-value", level="NONE")
        self.schema_id = self.trades.schema(self.schema_text)


def test_derive_groups_after_roll_over_have_all_rows(resources):
    totals = ContinuedTotals(resources, account="long")
    totals.produce(range(50, 150), 1_790_000_000_000, account=7)
    totals.run()

    assert totals.trades.table(f"{totals.trades.topic.table}__v2").scan().to_arrow().num_rows == 100
    assert max(count for count, *_ in totals.rows().values()) > 6
    assert totals.rows() == totals.expected()


def test_derive_group_of_changed_type_stops_until_skipped(resources):
    totals = ContinuedTotals(resources, quantity="string")
    before = totals.rows()
    totals.produce(range(50, 150), 1_790_000_000_000, quantity="7")

    with pytest.raises(UnclearState, match="in which quantity has another type.*Nothing was produced") as stopped:
        totals.run()
    totals.totals.ingest()
    assert totals.rows() == before

    assert f"lakehouse bookmark {totals.totals.name} --at latest" in str(stopped.value)
    clients = totals.totals.systems
    set_derived_bookmark(totals.config, totals.totals.topic, clients, "latest", "skipped")
    totals.produce(range(150, 160), 1_790_000_060_000, quantity="3")
    assert totals.run() > 0
    later = {key: row for key, row in totals.expected().items() if key[0] >= 1_790_000_060_000}
    assert totals.rows() == before | later


MILLIS = {"type": "long", "logicalType": "timestamp-millis"}


def test_messages_time_finer_than_schema_is_refused(resources):
    spark = resources.spark.session(resources.catalog.spark_settings())

    def encoded(type_, at, sql="{}"):
        schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "at", "type": type_}]})
        rows = spark.range(1).selectExpr(sql.format(f"timestamp'{at}'") + " AS at")
        return messages(rows, None, (1, schema))["value"].to_pylist()

    fine, coarse = "2026-01-31 00:00:00.123456", "1969-12-31 23:59:59.999"
    nested = {"type": "map", "values": {"type": "array", "items": ["null", MILLIS]}}
    for type_, sql in ((MILLIS, "{}"), ("long", "{}"), (["null", MILLIS], "{}"), (nested, "map('k', array({}))")):
        with pytest.raises(SchemaError, match="a time with microseconds.*timestamp-micros"):
            encoded(type_, fine, sql)
        assert len(encoded(type_, coarse, sql)) == 1
    assert encoded(MILLIS, coarse) == [b"\0\0\0\0\1" + b"\x01"]
    assert len(encoded(MILLIS | {"logicalType": "timestamp-micros"}, fine)) == 1
