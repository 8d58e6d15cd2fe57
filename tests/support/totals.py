"""Topics of trades and of totals derived from them, and expected totals that are computed in Python."""

from collections import defaultdict
from decimal import ROUND_HALF_UP, Decimal

from lakehouse.config.model import Config
from lakehouse.pipeline.derivation.derivation import derive
from tests.support.declared import EMBEDDED_READERS
from tests.support.topics import TRADES, Stream, framed, trade
from tools.repository import PROJECT

KEY = ["trade_timestamp", "userid", "side", "symbol"]


class Totals:
    """A topic of trades, and the topic of totals derived from it."""

    def __init__(self, resources, **settings):
        self.trades = Stream(resources, partitions=3, settings=settings)
        self.schema_text, self.schema_id = TRADES, self.trades.schema()
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
            environments=EMBEDDED_READERS,
        )

    def produce(self, numbers, timestamp_ms, **changes):
        """Produce trades with two timestamps, so that groups have several trades."""
        values = [framed(self.schema_id, self.schema_text, trade(n, **changes)) for n in numbers]
        self.trades.produce(
            [{"value": value, "timestamp": timestamp_ms + n % 2} for n, value in zip(numbers, values, strict=True)]
        )

    def run(self):
        """Ingest the trades, derive and ingest the totals, as the assets do; return the number of derived groups."""
        self.trades.ingest()
        produced = derive(self.config, self.totals.topic, self.totals.systems)
        self.totals.ingest()
        return produced.messages

    def rows(self):
        """Return the rows of the totals table by key."""
        rows = self.totals.rows()
        totals = {
            (round(r["trade_timestamp"].timestamp() * 1000), r["userid"], r["side"], r["symbol"]): (
                r["trade_count"],
                r["quantity"],
                r["price"],
                r["total_price"],
            )
            for r in rows
        }
        assert len(totals) == len(rows)
        return totals

    def expected(self):
        """Return the expected totals by key, computed from the trades of the topic."""
        groups = defaultdict(list)
        for row in self.trades.expected_rows():
            key = (row["kafka_timestamp"], row["userid"], row["side"], row["symbol"])
            groups[key].append((int(row["quantity"]), row["price"]))
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
    """Return the volume-weighted price with four decimals, rounded half up."""
    total, volume = sum(q * p for q, p in group), sum(q for q, _ in group)
    return (Decimal(total) / Decimal(volume)).quantize(Decimal("0.0001"), ROUND_HALF_UP)
