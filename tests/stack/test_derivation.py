"""stock_trades_with_totals against sums made in Python from what the topic holds."""

import time
from datetime import UTC, datetime

import pytest
from support import CHEAP, TRADES, consume, framed, trade, with_checks
from totals import Totals

from lakehouse.pipeline.derivation import derive
from lakehouse.pipeline.replay import redrive
from resources import transactions


def test_totals_equal_sums_made_apart_from_spark(resources):
    totals = Totals(resources)
    totals.produce(range(4_000), 1_790_000_000_000)

    produced = totals.run()

    assert totals.rows() == totals.expected()
    assert produced == len(totals.expected()) < 4_000
    assert max(count for count, *_ in totals.rows().values()) > 1


def test_a_group_of_one_trade_is_that_trade(resources):
    totals = Totals(resources)
    totals.trades.produce(
        [
            {"value": framed(totals.schema_id, TRADES, trade(n)), "timestamp": 1_790_000_000_000 + n * 5}
            for n in range(60)
        ]
    )
    totals.run()

    singles = {
        (r["kafka_timestamp"], r["userid"], r["side"], r["symbol"]): (
            r["quantity"],
            r["price"],
            r["quantity"] * r["price"],
        )
        for r in totals.trades.expected_rows()
    }
    assert {key: (q, int(p), t) for key, (_, q, p, t) in totals.rows().items()} == singles
    assert {count for count, *_ in totals.rows().values()} == {1}


@pytest.mark.parametrize("hour_utc", [0, 1])
@pytest.mark.parametrize("before", ["2026-07-01", "2026-12-01"], ids=["after summer time", "after winter time"])
def test_groups_in_the_hour_that_comes_twice_are_derived(resources, monkeypatch, hour_utc, before):
    """Clocks in Berlin show 02:30 at 00:30 and at 01:30 UTC on 2026-10-25; which one `mktime` assumes depends on the
    time that it converted last."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        totals = Totals(resources)
        totals.produce(range(20), int(datetime(2026, 10, 25, hour_utc, 30, tzinfo=UTC).timestamp() * 1000))
        time.mktime(time.strptime(before, "%Y-%m-%d"))

        totals.run()

        assert totals.rows() == totals.expected() != {}
    finally:
        monkeypatch.undo()
        time.tzset()


def test_only_groups_that_new_trades_touch_are_produced_again(resources):
    totals = Totals(resources)
    totals.produce(range(500), 1_790_000_000_000)
    first = totals.run()
    assert totals.run() == 0

    late = trade(3)
    totals.trades.produce(
        [{"value": framed(totals.schema_id, TRADES, late | {"quantity": 77}), "timestamp": 1_790_000_000_001}]
    )
    totals.produce(range(500, 510), 1_790_000_060_000)
    again = totals.run()

    new_groups = len(totals.expected()) - first
    assert again == new_groups + 1
    assert totals.rows() == totals.expected()


def test_groups_of_rows_that_come_back_from_quarantine_are_computed_again(resources):
    totals = Totals(resources)
    as_declared = totals.trades.topic
    totals.trades.topic = with_checks(as_declared, CHEAP)
    totals.produce(range(300), 1_790_000_000_000)
    totals.run()
    assert totals.rows() != totals.expected()

    totals.trades.topic = as_declared
    redrive(totals.trades.namespace, totals.trades.topic, totals.trades.systems)
    assert totals.run() > 0
    assert totals.rows() == totals.expected()


def test_groups_are_divided_among_transactions_of_bounded_size(resources, monkeypatch):
    monkeypatch.setattr(transactions, "MOST_MESSAGES", 5)
    totals = Totals(resources)
    totals.produce(range(400), 1_790_000_000_000)

    produced = totals.run()

    assert totals.rows() == totals.expected()
    ends = resources.kafka.offsets([totals.totals.name])[totals.totals.name]
    # Each transaction leaves a marker in each partition that it wrote to.
    markers = sum(found.end for found in ends.values()) - produced
    assert produced > 10 and markers >= produced / 5
    assert totals.run() == 0


@pytest.mark.parametrize("point", ["before transaction", "before commit", "after commit"])
def test_killed_on_the_way_the_next_run_leaves_the_same_rows(resources, tmp_path, point):
    totals = Totals(resources)
    totals.produce(range(300), 1_790_000_000_000)
    totals.run()
    totals.produce(range(300, 700), 1_790_000_000_000)
    totals.trades.ingest()

    declared = {totals.totals.name: totals.settings}
    totals.trades.die(point, tmp_path, extra=declared, topic=totals.totals.name)
    totals.run()
    totals.run()

    assert totals.rows() == totals.expected()


def test_the_topic_holds_its_schemas_and_readers_see_the_end_at_once(resources):
    from support import registry

    totals = Totals(resources)
    totals.produce(range(100), 1_790_000_000_000)
    totals.trades.ingest()
    produced = derive(totals.config, totals.totals.topic, totals.totals.systems)

    assert len(consume(totals.totals.name, 3)) == produced.messages > 0
    for side in ("key", "value"):
        assert registry().get_latest_version(f"{totals.totals.name}-{side}").schema.schema_type == "AVRO"
