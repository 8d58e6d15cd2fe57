"""Topics derived row by row: each source row once, also after kills, and configured in at most ten lines."""

import sys
from textwrap import dedent

import pytest
import yaml
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from lakehouse.config.loader import load
from lakehouse.config.settings import Metadata
from lakehouse.core.errors import LakehouseError, SchemaError, UnclearState
from lakehouse.pipeline.bookmarks import set_derived_bookmark
from lakehouse.pipeline.derivation.derivation import derive
from lakehouse.pipeline.ingestion import ingest
from spark.flags import flagged
from tests.support.topics import (
    TRADES,
    Stream,
    admin,
    consume,
    delete_bookmark,
    framed,
    trade,
)
from tools.repository import PROJECT

FLAGS = {"type": "derived", "transform": "spark.flags:flagged"}


def flag(price, quantity):
    """Return the expected flag, by an independent implementation of the rule."""
    if price is not None and price < 0:
        return "NEGATIVE_PRICE"
    if quantity is not None and quantity > 4000:
        return "LARGE_TRADE"
    return "UNUSUAL_PRICE" if price is not None and price > 900 else "NORMAL"


def test_flagged_first_matching_rule_wins(resources):
    spark = resources.spark.session(resources.catalog.spark_settings())
    edges = [(p, q) for p in (None, -1, 0, 900, 901) for q in (None, 1, 4000, 4001)]
    rows = flagged(spark.createDataFrame(edges, "price int, quantity int")).collect()
    assert [row["anomaly_flag"] for row in rows] == [flag(*edge) for edge in edges]


class Flags:
    """A topic of trades, and the topic that is derived from it by flags."""

    def __init__(self, resources, **settings):
        self.trades = Stream(resources, partitions=3)
        self.settings = {"key": [], "source": FLAGS | {"from": self.trades.name}} | settings
        self.flags = Stream(resources, partitions=3, settings=self.settings)
        self.flags.namespace = self.trades.namespace
        topics = {self.trades.name: self.trades.topic, self.flags.name: self.flags.topic}
        self.config = self.trades.config.model_copy(update={"topics": topics})

    def run(self, **limit):
        self.trades.ingest()
        produced = derive(self.config, self.flags.topic.model_copy(update=limit), self.flags.systems)
        self.flags.ingest()
        return produced.messages

    def check(self):
        """Assert that each trade is one row with its flag and one committed message, and return the rows."""
        columns = ("side", "quantity", "symbol", "price", "account", "userid")
        expected = sorted(
            (*(row[c] for c in columns), flag(row["price"], row["quantity"])) for row in self.trades.expected_rows()
        )
        rows = self.flags.rows()
        assert sorted((*(row[c] for c in columns), row["anomaly_flag"]) for row in rows) == expected
        assert len(consume(self.flags.name, 3)) == len(expected)
        return rows


@pytest.fixture(scope="module")
def flags(resources):
    """A topic with derived rows. Each test adds to it, and leaves every trade derived once."""
    flags = Flags(resources)
    flags.trades.produce_trades(range(100))
    assert flags.run() == 100
    return flags


def test_derive_bounded_batches_produce_each_row_once(flags):
    flags.trades.produce_trades(range(100, 250))
    assert flags.run(max_records_per_batch=70) == 150
    assert flags.run() == 0
    rows = flags.check()
    assert {row["kafka_partition"] for row in rows} <= {0, 1, 2}


def test_derive_of_rows_under_names_of_another_naming_is_refused(flags):
    renamed = flags.trades.topic.model_copy(update={"metadata": Metadata(naming="confluent_portable")})
    config = flags.config.model_copy(update={"topics": flags.config.topics | {renamed.name: renamed}})
    with pytest.raises(SchemaError, match="with `naming: portable`, but .* declares `naming: confluent_portable`"):
        derive(config, flags.flags.topic, flags.flags.systems)


def test_derive_after_kill_in_transaction_loses_and_duplicates_nothing(flags, tmp_path):
    flags.trades.produce_trades(range(100, 300))
    flags.trades.ingest()

    flags.trades.die("before commit", tmp_path, extra={flags.flags.name: flags.settings}, topic=flags.flags.name)
    flags.run()

    flags.check()


def test_derive_without_bookmark_stops_until_it_is_set(resources):
    flags = Flags(resources)
    flags.trades.produce_trades(range(10))
    flags.run()
    delete_bookmark(f"lakehouse.derived/{flags.flags.name}")
    flags.trades.produce_trades(range(10, 12))

    with pytest.raises(UnclearState, match=f"`lakehouse bookmark {flags.flags.name} --at"):
        flags.run()
    assert len(consume(flags.flags.name, 3)) == 10

    ends = flags.trades.resources.kafka.offsets([flags.trades.name])[flags.trades.name]
    position = ",".join(f"{p}:{watermarks.end}" for p, watermarks in ends.items())
    set_derived_bookmark(flags.config, flags.flags.topic, flags.flags.systems, position, "they are derived")
    assert flags.run() == 0
    flags.trades.produce_trades(range(12, 15))
    assert flags.run() == 3


def test_derive_message_above_topic_limit_is_refused(flags):
    before = len(consume(flags.flags.name, 3))
    flags.trades.produce_trades(range(3))
    for setting, value in (("520", None), ("1000000", 3)):
        entry = ConfigEntry("max.message.bytes", setting, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, flags.flags.name, incremental_configs=[entry])
        for change in admin().incremental_alter_configs([resource]).values():
            change.result()
        if value is None:
            with pytest.raises(LakehouseError, match="max.message.bytes"):
                flags.run()
            assert len(consume(flags.flags.name, 3)) == before
        else:
            assert flags.run() == value
    flags.check()


def test_derived_topic_needs_ten_lines_of_user_code(resources, tmp_path, monkeypatch):
    stream = Stream(resources, partitions=1)
    schema_id = stream.schema()
    stream.produce([{"value": framed(schema_id, TRADES, trade(n, price=100 * n))} for n in range(1, 6)])
    stream.ingest()
    declared = yaml.safe_load(stream.declare(tmp_path).read_text())

    code = dedent("""\
        def big(trades):
            return trades.filter("price >= 300").selectExpr("userid", "price / 100D AS dollars")
    """)
    entry = dedent(f"""\
        big_trades_{stream.namespace}:
          source: {{type: derived, from: {stream.name}, transform: "mine:big"}}
    """)
    assert len((code + entry).splitlines()) <= 10

    (tmp_path / "mine.py").write_text(code)
    declared["topics"] |= yaml.safe_load(entry)
    (tmp_path / "lakehouse.yaml").write_text(yaml.safe_dump(declared))
    monkeypatch.setattr(sys, "path", list(sys.path))
    sys.modules.pop("mine", None)
    config = load(tmp_path / "lakehouse.yaml")
    topic = config.topic(f"big_trades_{stream.namespace}")
    resources.kafka.ensure_topic(topic.topic, topic.partitions)

    assert derive(config, topic, stream.systems).messages == 3
    (published,) = ingest(config.namespace, topic, stream.systems)
    assert published.counts.rows == 3
    rows = stream.table(topic.table).scan().to_arrow().to_pylist()
    assert sorted(row["dollars"] for row in rows) == [3.0, 4.0, 5.0]
    assert PROJECT not in tmp_path.parents


def test_function_of_transform_runs_on_workers_without_its_folder(resources, tmp_path, monkeypatch):
    """A user's function for single values, with a module of the project's folder that Spark's workers do not have."""
    stream = Stream(resources, partitions=1)
    schema_id = stream.schema()
    stream.produce([{"value": framed(schema_id, TRADES, trade(n))} for n in range(3)])
    stream.ingest()
    declared = yaml.safe_load(stream.declare(tmp_path).read_text())
    (tmp_path / "transforms").mkdir()
    (tmp_path / "helpers_of_workers.py").write_text("def shout(text): return text.upper() + '!'\n")
    (tmp_path / "transforms" / "worker_names.py").write_text(
        dedent("""\
            import helpers_of_workers
            from pyspark.sql.functions import udf

            loud = udf(lambda name: helpers_of_workers.shout(name), "string")

            def names(trades):
                return trades.select("userid", loud("userid").alias("name"))
        """)
    )
    name = f"names_{stream.namespace}"
    declared["topics"][name] = {
        "source": {"type": "derived", "from": stream.name, "transform": "transforms.worker_names:names"}
    }
    (tmp_path / "lakehouse.yaml").write_text(yaml.safe_dump(declared))
    monkeypatch.setattr(sys, "path", list(sys.path))
    config = load(tmp_path / "lakehouse.yaml")
    topic = config.topic(name)
    resources.kafka.ensure_topic(topic.topic, topic.partitions)

    assert derive(config, topic, stream.systems).messages == 3
    (published,) = ingest(config.namespace, topic, stream.systems)
    assert published.counts.rows == 3
    rows = stream.table(topic.table).scan().to_arrow().to_pylist()
    assert rows and all(row["name"] == f"{row['userid'].upper()}!" for row in rows)


def test_derive_into_upsert_table_keeps_one_row_per_key(resources):
    flags = Flags(resources, mode="upsert", key=["userid"], key_format="avro")
    flags.trades.produce_trades(range(100))
    flags.run()
    last = {}
    for row in sorted(flags.trades.expected_rows(), key=lambda r: (r["kafka_partition"], r["kafka_offset"])):
        last[row["userid"]] = row
    assert {row["userid"] for row in flags.flags.rows()} == set(last)
