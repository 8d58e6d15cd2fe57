"""A stream whose Kafka is gone, and one of whose topics cannot be read, by what it reports to Dagster."""

import threading
import time
from types import SimpleNamespace
from typing import ClassVar

import dagster as dg
import pytest

from assets import streaming_check
from assets.streaming import Streaming
from lakehouse.config import Config
from lakehouse.errors import LakehouseError, Unreachable
from lakehouse.markdown import plain
from lakehouse.topic import Topic
from resources.aws import Glue
from resources.catalog import Catalog
from resources.kafka import Kafka
from resources.schema_registry import SchemaRegistry
from resources.snowflake import Snowflake
from resources.spark import Spark

SECONDS = 60
NAMES = ("carts", "orders", "users")
SILENT = Unreachable("Kafka", "b-1:9092", "the broker")


class Brokers(Kafka):
    """Kafka without any of the topics, which answers as it was told."""

    fails: ClassVar[dict[str, Exception]] = {}
    asked: ClassVar[list[str]] = []

    def describe(self, topics):
        for topic in topics:
            self.asked.append(topic)
            if error := self.fails.get(topic) or self.fails.get("all"):
                raise error
        return {}


class Tables(Catalog):
    """A catalog that fails with what its caller would hear of the topic's Kafka."""

    def load(self, namespace, name):
        raise Brokers.fails.get(name) or LakehouseError("No table is asked for but that of a topic that fails")


@pytest.fixture
def instance():
    with dg.instance_for_test() as instance:
        yield instance


@pytest.fixture
def running(instance, monkeypatch):
    """A stream of three topics that runs meanwhile."""
    monkeypatch.setattr(streaming_check, "PATIENCE_SECONDS", 0.0)
    Brokers.fails.clear()
    topics = {name: Topic.model_validate({"name": name, "key": "id"}) for name in NAMES}
    config = Config(namespace="shop", topics=topics, environments={})
    systems = SimpleNamespace(
        kafka=Brokers(bootstrap_servers="127.0.0.1:1"),
        schema_registry=SchemaRegistry(url="http://127.0.0.1:1"),
        spark=Spark(remote="sc://127.0.0.1:1"),
        catalog=Tables(type="sql", warehouse="s3://lake"),
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
    streaming = Streaming(config, list(topics.values()), systems, [].append, instance)
    thread = threading.Thread(target=streaming.run)
    yield thread
    streaming.stream.stop()
    thread.join(SECONDS)
    assert not thread.is_alive()


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
    assert [name for name in NAMES if history(instance, "iceberg", name)] == []


def test_a_topic_that_cannot_be_read_fails_alone_and_the_others_are_polled(instance, running):
    refused = LakehouseError("Kafka refuses: Topic authorization failed")
    Brokers.fails["orders"] = refused
    running.start()
    until(lambda: history(instance, "iceberg", "orders"))
    assert history(instance, "iceberg", "orders") == [(False, str(refused))]
    assert history(instance, "stream", "kafka") == []
    assert {*Brokers.asked} >= {"carts", "users"}
