"""Topics derived row by row: each source row once, whatever is killed, and as few lines as it takes to add one."""

import os
import sys
from textwrap import dedent

import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource
from support import CHEAP, TRADES, Stream, admin, consume, framed, recreate, trade, with_checks

from lakehouse.config.loader import PROJECT, load
from lakehouse.core.bookmark import TOPIC
from lakehouse.core.errors import LakehouseError, UnclearState
from lakehouse.pipeline.bookmarks import decide
from lakehouse.pipeline.derivation import derive
from lakehouse.pipeline.ingestion import ingest
from lakehouse.pipeline.position import resume
from lakehouse.pipeline.replay import redrive, replay
from spark.flags import flagged

FLAGS = {"type": "derived", "transform": "spark.flags:flagged"}


def flag(price, quantity):
    """What the rule says, said again."""
    if price is not None and price < 0:
        return "NEGATIVE_PRICE"
    if quantity is not None and quantity > 4000:
        return "LARGE_TRADE"
    return "UNUSUAL_PRICE" if price is not None and price > 900 else "NORMAL"


def test_the_first_rule_that_matches_wins(resources):
    spark = resources.spark.session(resources.catalog.spark_settings())
    edges = [(p, q) for p in (None, -1, 0, 900, 901) for q in (None, 1, 4000, 4001)]
    rows = flagged(spark.createDataFrame(edges, "price int, quantity int")).collect()
    assert [row["anomaly_flag"] for row in rows] == [flag(*edge) for edge in edges]


class Flags:
    """A topic of trades, and the topic of flagged ones."""

    def __init__(self, resources, **settings):
        self.trades = Stream(resources, partitions=3)
        self.settings = {"key": [], "source": FLAGS | {"from": self.trades.name}} | settings
        self.flags = Stream(resources, partitions=3, settings=self.settings)
        self.flags.namespace = self.trades.namespace
        topics = {self.trades.name: self.trades.topic, self.flags.name: self.flags.topic}
        self.config = self.trades.config.model_copy(update={"topics": topics})

    def run(self):
        self.trades.ingest()
        produced = derive(self.config, self.flags.topic, self.flags.systems)
        self.flags.ingest()
        return produced.messages

    def check(self):
        """Each trade that a consumer gets is one row with its flag, and one committed message."""
        columns = ("side", "quantity", "symbol", "price", "account", "userid")
        wanted = sorted(
            (*(row[c] for c in columns), flag(row["price"], row["quantity"])) for row in self.trades.expected_rows()
        )
        rows = self.flags.rows()
        assert sorted((*(row[c] for c in columns), row["anomaly_flag"]) for row in rows) == wanted
        assert len(consume(self.flags.name, 3)) == len(wanted)
        return rows


def test_each_row_is_derived_once_in_parts_of_bounded_size(resources):
    flags = Flags(resources, max_records_per_batch=70)
    flags.trades.produce_trades(range(200))
    assert flags.run() == 200
    assert flags.run() == 0
    flags.trades.produce_trades(range(200, 250))
    assert flags.run() == 50
    rows = flags.check()
    assert {row["kafka_partition"] for row in rows} <= {0, 1, 2}


@pytest.mark.parametrize("point", ["before transaction", "before commit", "after commit"])
def test_killed_on_the_way_no_row_is_missing_or_double(resources, tmp_path, point):
    flags = Flags(resources)
    flags.trades.produce_trades(range(100))
    flags.run()
    flags.trades.produce_trades(range(100, 300))
    flags.trades.ingest()

    flags.trades.die(point, tmp_path, extra={flags.flags.name: flags.settings}, topic=flags.flags.name)
    flags.run()

    flags.check()


def test_rows_that_come_back_from_quarantine_are_derived_once(resources):
    flags = Flags(resources)
    flags.trades.topic = with_checks(flags.trades.topic, CHEAP)
    flags.trades.produce_trades(range(100))
    flags.run()
    kept = len(flags.trades.rows())
    assert 0 < kept < 100

    flags.trades.topic = with_checks(flags.trades.topic, {})
    assert redrive(flags.trades.namespace, flags.trades.topic, flags.trades.systems).landed == 100 - kept
    flags.trades.produce_trades(range(100, 110))
    assert flags.run() == 110 - kept
    assert flags.run() == 0
    flags.check()

    replay(flags.trades.namespace, flags.trades.topic, flags.trades.systems, "earliest")
    assert flags.run() == 0


def test_where_nothing_tells_which_rows_came_late_it_stops(resources):
    flags = Flags(resources)
    flags.trades.produce_trades(range(10))
    flags.run()
    table = flags.trades.table()
    derived_from = table.current_snapshot().snapshot_id
    replay(flags.trades.namespace, flags.trades.topic, flags.trades.systems, "earliest")
    flags.trades.produce_trades(range(10, 20))
    flags.trades.ingest()
    table.refresh().maintenance.expire_snapshots().by_id(derived_from).commit()

    with pytest.raises(UnclearState, match=f"snapshot {derived_from}, which would tell .* is expired. Nothing was"):
        flags.run()


def forget_groups(*topics):
    """Delete what Kafka forgets of its own accord: the positions of consumer groups that nobody is a member of."""
    groups = [group.group_id for group in admin().list_consumer_groups().result().valid]
    groups = [group for group in groups if any(topic in group for topic in topics)]
    for deleted in admin().delete_consumer_groups(groups).values() if groups else ():
        deleted.result()


def lose_bookmark(topic):
    """Delete a derived topic's bookmark, wherever it is among the bookmarks."""
    producer = Producer({"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]})
    for partition in admin().list_topics(TOPIC).topics[TOPIC].partitions:
        producer.produce(TOPIC, key=f"lakehouse.{topic}", value=None, partition=partition)
    assert producer.flush(30) == 0


def test_no_row_is_derived_twice_though_kafka_forgets_groups_and_the_table_is_rolled_back(resources):
    flags = Flags(resources)
    flags.trades.produce_trades(range(100))
    flags.run()
    first = flags.trades.table().current_snapshot().snapshot_id
    flags.trades.produce_trades(range(100, 150))
    flags.run()

    forget_groups(flags.trades.name, flags.flags.name)
    flags.trades.produce_trades(range(150, 160))
    assert flags.run() == 10

    flags.trades.table().manage_snapshots().rollback_to_snapshot(first).commit()
    assert derive(flags.config, flags.flags.topic, flags.flags.systems).messages == 0
    flags.trades.produce_trades(range(160, 165))
    assert flags.run() == 5
    flags.check()


def test_without_its_bookmark_a_topic_with_messages_stops_until_somebody_decides(resources):
    flags = Flags(resources)
    flags.trades.produce_trades(range(10))
    flags.run()
    lose_bookmark(flags.flags.name)
    flags.trades.produce_trades(range(10, 12))

    with pytest.raises(UnclearState, match=f"`lakehouse bookmark {flags.flags.name} --at"):
        flags.run()
    assert len(consume(flags.flags.name, 3)) == 10

    ends = flags.trades.resources.kafka.offsets([flags.trades.name])[flags.trades.name]
    place = ",".join(f"{p}:{found.end}" for p, found in ends.items())
    decide(flags.config, flags.flags.topic, flags.flags.systems, place, "they are derived", letters=False)
    assert flags.run() == 0
    flags.trades.produce_trades(range(12, 15))
    assert flags.run() == 3


def test_a_source_that_was_made_anew_is_derived_from_its_start(resources):
    flags = Flags(resources)
    flags.trades.produce_trades(range(20))
    flags.run()
    recreate(flags.trades)
    flags.trades.produce_trades(range(5))
    with pytest.raises(UnclearState, match="is not the one table"):
        flags.run()
    resources.catalog.iceberg().drop_table((flags.trades.namespace, flags.trades.topic.table))

    assert flags.run() == 5
    assert flags.run() == 0
    assert len(consume(flags.flags.name, 3)) == 25


def test_a_table_with_rows_of_two_topics_of_a_name_is_not_derived_from(resources):
    flags = Flags(resources)
    flags.trades.produce_trades(range(20))
    flags.run()
    recreate(flags.trades)
    flags.trades.produce_trades(range(5))
    resume(flags.trades.systems, flags.trades.namespace, flags.trades.topic, "earliest", "recreated")

    with pytest.raises(UnclearState, match="was recreated, and its table has rows of both"):
        flags.run()
    assert len(consume(flags.flags.name, 3)) == 20


def test_a_message_that_its_topic_is_too_small_for_is_refused(resources):
    flags = Flags(resources)
    flags.trades.produce_trades(range(3))
    flags.trades.ingest()
    for setting, value in (("520", None), ("1000000", 3)):
        entry = ConfigEntry("max.message.bytes", setting, incremental_operation=AlterConfigOpType.SET)
        changed = ConfigResource(ConfigResource.Type.TOPIC, flags.flags.name, incremental_configs=[entry])
        for done in admin().incremental_alter_configs([changed]).values():
            done.result()
        if value is None:
            with pytest.raises(LakehouseError, match="max.message.bytes"):
                flags.run()
            assert consume(flags.flags.name, 3) == []
        else:
            assert flags.run() == value


def test_a_user_adds_one_in_ten_lines(resources, tmp_path, monkeypatch):
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
    monkeypatch.syspath_prepend(str(tmp_path))
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


def test_a_key_of_its_own_columns_makes_an_upsert_of_it(resources):
    flags = Flags(resources, mode="upsert", key=["userid"], key_format="avro")
    flags.trades.produce_trades(range(100))
    flags.run()
    last = {}
    for row in sorted(flags.trades.expected_rows(), key=lambda r: (r["kafka_partition"], r["kafka_offset"])):
        last[row["userid"]] = row
    assert {row["userid"] for row in flags.flags.rows()} == set(last)
