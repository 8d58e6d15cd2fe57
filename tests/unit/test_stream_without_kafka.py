"""A stream whose Kafka is gone, or one of whose topics cannot be read, by what it reports to Dagster."""

import threading
import time
from types import SimpleNamespace
from typing import ClassVar

import dagster as dg
import pytest
from lone_member import LoneMember

from assets.streaming import check as streaming_check
from assets.streaming.service import Streaming
from lakehouse.config.loader import Config
from lakehouse.config.topic import Topic
from lakehouse.core.errors import LakehouseError, Unreachable
from lakehouse.core.markdown import plain
from lakehouse.pipeline.clients import Clients
from lakehouse.streaming.stream import Stream
from lakehouse.streaming.stream_events import Served
from resources.aws import Glue
from resources.catalog import Catalog
from resources.kafka import Kafka, Offsets, TopicDescription
from resources.schema_registry import SchemaRegistry
from resources.snowflake import Snowflake
from resources.spark import Spark

SECONDS = 60
NAMES = ("carts", "orders", "users")
SERVED = (True, streaming_check.HOLDS)
SILENT = Unreachable("Kafka", "b-1:9092", "the broker")


class Brokers(Kafka):
    """Kafka whose topics are empty, which answers as it was told."""

    fails: ClassVar[dict[str, Exception]] = {}
    asked: ClassVar[list[str]] = []
    deleted: ClassVar[set[str]] = set()
    leaderless: ClassVar[set[str]] = set()

    def cluster_id(self):
        return "cluster"

    def member(self, group, settings):
        return LoneMember()

    def describe(self, topics):
        for topic in topics:
            self.asked.append(topic)
            if error := self.fails.get(topic) or self.fails.get("all"):
                raise error
        there = [topic for topic in topics if topic not in self.deleted]
        return {topic: TopicDescription(topic, 1, (0,) if topic in self.leaderless else ()) for topic in there}

    def offsets(self, topics, *, committed=True):
        if self.leaderless & {*topics}:
            raise SILENT
        if gone := self.deleted & {*topics}:
            raise self.missing(*gone)
        return {topic: {0: Offsets(0, 0)} for topic in topics}


@pytest.fixture
def instance():
    with dg.instance_for_test() as instance:
        yield instance


@pytest.fixture
def running(instance, monkeypatch, tmp_path):
    """A stream of three topics that runs meanwhile."""
    monkeypatch.setattr(streaming_check, "PATIENCE_SECONDS", 0.0)
    topics = {name: Topic.model_validate({"name": name, "key": "id"}) for name in NAMES}
    config = Config(namespace="shop", topics=topics, environments={})
    streaming = Streaming(config, list(topics.values()), connected(tmp_path), [].append, instance)
    thread = threading.Thread(target=streaming.run)
    yield thread
    streaming.stream.stop()
    thread.join(SECONDS)
    assert not thread.is_alive()


@pytest.fixture(autouse=True)
def whole_kafka():
    for faults in (Brokers.fails, Brokers.asked, Brokers.deleted, Brokers.leaderless):
        faults.clear()


def connected(folder):
    return SimpleNamespace(
        kafka=Brokers(bootstrap_servers="127.0.0.1:1"),
        schema_registry=SchemaRegistry(url="http://127.0.0.1:1"),
        spark=Spark(remote="sc://127.0.0.1:1"),
        catalog=Catalog(type="sql", warehouse=f"file://{folder}", uri=f"sqlite:///{folder}/catalog.db"),
        glue=Glue(region="us-east-1", catalog_id="1"),
        snowflake=Snowflake(
            account="a",
            user="u",
            role="r",
            warehouse="w",
            database="d",
            aws_role_arn="x",
            glue_catalog_id="1",
            region="us-east-1",
            private_key_path="k",
        ),
    )


def history(instance, *asset) -> list[tuple[bool, str]]:
    key = dg.AssetCheckKey(dg.AssetKey(asset), "streaming")
    records = instance.event_log_storage.get_asset_check_execution_history(key, limit=10)
    found = [one.event.get_dagster_event().asset_check_evaluation_data for one in reversed(records)]
    return [(one.passed, plain(one.description)) for one in found]


def until(met) -> None:
    deadline = time.monotonic() + SECONDS
    while not met():
        assert time.monotonic() < deadline, f"not within {SECONDS} s"
        time.sleep(0.05)


def test_a_kafka_that_does_not_answer_fails_once_and_not_once_a_topic(instance, running):
    Brokers.fails["all"] = SILENT
    running.start()
    until(lambda: history(instance, "stream", "kafka"))
    before = len(Brokers.asked)
    until(lambda: len(Brokers.asked) > before + 2)  # tried again
    assert history(instance, "stream", "kafka") == [(False, str(SILENT))]

    del Brokers.fails["all"]
    until(lambda: len(history(instance, "stream", "kafka")) == 2)
    assert history(instance, "stream", "kafka")[1][0]
    until(lambda: all(history(instance, "iceberg", name) for name in NAMES))
    assert all(history(instance, "iceberg", name) == [SERVED] for name in NAMES)


def test_a_topic_that_cannot_be_read_fails_alone_and_the_others_are_polled(instance, running):
    refused = LakehouseError("Kafka refuses: Topic authorization failed")
    Brokers.fails["orders"] = refused
    running.start()
    until(lambda: all(history(instance, "iceberg", name) for name in NAMES))
    assert history(instance, "iceberg", "orders") == [(False, str(refused))]
    assert history(instance, "iceberg", "carts") == history(instance, "iceberg", "users") == [SERVED]
    assert history(instance, "stream", "kafka") == [SERVED]


def test_a_partition_without_a_leader_fails_its_topic_and_the_others_are_served(instance, running):
    Brokers.leaderless.add("orders")
    running.start()
    until(lambda: all(history(instance, "iceberg", name) for name in NAMES))
    [(passed, why)] = history(instance, "iceberg", "orders")
    assert not passed and "partition 0 of topic 'orders': it has no leader" in why
    assert history(instance, "iceberg", "carts") == history(instance, "iceberg", "users") == [SERVED]
    assert history(instance, "stream", "kafka") == [SERVED]

    Brokers.leaderless.clear()
    until(lambda: history(instance, "iceberg", "orders")[1:] == [SERVED])


def test_a_topic_that_is_deleted_fails_alone_and_is_served_when_it_is_back(instance, running):
    running.start()
    until(lambda: all(history(instance, "iceberg", name) for name in NAMES))
    Brokers.deleted.add("orders")
    until(lambda: len(history(instance, "iceberg", "orders")) == 2)
    passed, why = history(instance, "iceberg", "orders")[1]
    assert not passed and "Topic 'orders' does not exist" in why
    Brokers.deleted.clear()
    until(lambda: history(instance, "iceberg", "orders")[2:] == [SERVED])
    assert history(instance, "iceberg", "carts") == history(instance, "iceberg", "users") == [SERVED]


@pytest.mark.parametrize("once", [True, False])
def test_each_entry_of_a_shared_topic_is_served(tmp_path, once):
    topics = [Topic.model_validate({"name": name, "kafka_topic": "events", "record": f"shop.{name}"}) for name in NAMES]
    config = Config(namespace="shop", topics={topic.name: topic for topic in topics}, environments={})
    made = connected(tmp_path)
    systems = Clients.of(made)
    stream = Stream(config, topics, systems, once=once)
    served = []
    for event in stream.run():
        assert isinstance(event, Served)
        served.append(event.topic)
        if len(served) == len(NAMES):
            stream.stop()
    assert sorted(served) == sorted(NAMES) and stream.errors == {}
