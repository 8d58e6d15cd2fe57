"""stock_trades_with_totals against sums made in Python from what the topic holds."""

from collections import defaultdict
from decimal import ROUND_HALF_UP, Decimal

import pytest
from support import CHEAP, TRADES, Stream, consume, framed, trade, with_checks

from assets.derivation import derive
from assets.replay import redrive
from lakehouse.config import PROJECT, Config

KEY = ["trade_timestamp", "userid", "side", "symbol"]


class Totals:
    """A topic of trades, and the topic of totals derived from it."""

    def __init__(self, resources):
        self.trades = Stream(resources, partitions=3)
        self.schema_id = self.trades.schema()
        self.settings = {
            "mode": "upsert",
            "key": KEY,
            "key_format": "avro",
            "source": {
                "type": "derived",
                "from": self.trades.name,
                "transform": "spark.totals:totals",
                "group_by": ["kafka_timestamp", "userid", "side", "symbol"],
                "key_schema_file": str(PROJECT / "schemas/stock_trades_with_totals-key.avsc"),
                "value_schema_file": str(PROJECT / "schemas/stock_trades_with_totals-value.avsc"),
            },
        }
        self.totals = Stream(resources, partitions=3, settings=self.settings)
        self.totals.namespace = self.trades.namespace
        self.config = Config(
            namespace=self.trades.namespace,
            topics={self.trades.name: self.trades.topic, self.totals.name: self.totals.topic},
            environments={},
        )

    def produce(self, numbers, timestamp_ms):
        """Trades of one millisecond, so that groups of several come about."""
        self.trades.produce(
            [{"value": framed(self.schema_id, TRADES, trade(n)), "timestamp": timestamp_ms + n % 2} for n in numbers]
        )

    def run(self):
        """As the assets do: ingest the trades, derive, ingest the totals. Returns the groups produced."""
        self.trades.ingest()
        produced = derive(self.config, self.totals.topic, self.totals.systems)
        self.totals.ingest()
        return produced.messages

    def rows(self):
        """The table of totals by key."""
        rows = self.totals.rows()
        found = {
            (round(r["trade_timestamp"].timestamp() * 1000), r["userid"], r["side"], r["symbol"]): (
                r["trade_count"],
                r["quantity"],
                r["price"],
                r["total_price"],
            )
            for r in rows
        }
        assert len(found) == len(rows)
        return found

    def expected(self):
        """The same, summed here."""
        groups = defaultdict(list)
        for row in self.trades.expected_rows():
            key = (row["kafka_timestamp"], row["userid"], row["side"], row["symbol"])
            groups[key].append((row["quantity"], row["price"]))
        return {
            key: (
                len(group),
                sum(quantity for quantity, _ in group),
                weighted(group),
                sum(quantity * price for quantity, price in group),
            )
            for key, group in groups.items()
        }


def weighted(group):
    """The volume-weighted price, four decimals, half up."""
    total, volume = sum(q * p for q, p in group), sum(q for q, _ in group)
    return (Decimal(total) / Decimal(volume)).quantize(Decimal("0.0001"), ROUND_HALF_UP)


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
