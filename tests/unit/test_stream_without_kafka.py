"""Streams while Kafka, or one of its topics, is unavailable, by what they report to Dagster."""

import threading
from types import SimpleNamespace
from typing import ClassVar

import dagster as dg
import pytest
import yaml
from click.testing import CliRunner

from assets.streaming import check as streaming_check
from assets.streaming.service import StreamService, select_topics
from lakehouse.cli.instance import dagster_instance
from lakehouse.cli.main import main
from lakehouse.config.model import Config, Topic
from lakehouse.core.errors import LakehouseError, Unreachable
from lakehouse.core.log_entry import LogEntry
from lakehouse.core.text import plain
from lakehouse.pipeline.clients import Clients
from lakehouse.streaming.stream import Stream
from lakehouse.streaming.stream_events import TopicServed
from resources.iceberg.catalog import Catalog
from resources.kafka.kafka import Kafka, Offsets, TopicDescription
from resources.schema_registry import SchemaRegistry
from resources.spark.servers import Connect
from tests.support.lone_member import LoneMember
from tests.support.waiting import wait_until
from tools.repository import PROJECT

SECONDS = 60
NAMES = ("carts", "orders", "users")
SERVED = (True, streaming_check.PASSED)
SILENT = Unreachable("Kafka", "b-1:9092", "the broker")


class Brokers(Kafka):
    """Kafka with empty topics and configurable failures."""

    fails: ClassVar[dict[str, Exception]] = {}
    described: ClassVar[list[str]] = []
    deleted: ClassVar[set[str]] = set()
    leaderless: ClassVar[set[str]] = set()

    def cluster_id(self):
        return "cluster"

    def consumer(self, group, isolation="", settings=None):
        return LoneMember()

    def describe(self, topics):
        for topic in topics:
            self.described.append(topic)
            if error := self.fails.get(topic) or self.fails.get("all"):
                raise error
        existing = [topic for topic in topics if topic not in self.deleted]
        return {topic: TopicDescription(topic, 1, (0,) if topic in self.leaderless else ()) for topic in existing}

    def wait_for_records(self, ends, seconds, is_over):
        return False

    def offsets(self, topics, *, committed=True):
        if self.leaderless & {*topics}:
            raise SILENT
        if missing := self.deleted & {*topics}:
            raise self.missing_topic_error(*missing)
        return {topic: {0: Offsets(0, 0)} for topic in topics}


@pytest.fixture
def instance():
    with dg.instance_for_test() as instance:
        yield instance


@pytest.fixture
def running(instance, monkeypatch, tmp_path):
    """The thread of a stream of three topics, which is stopped at the end."""
    monkeypatch.setattr(streaming_check, "PATIENCE_SECONDS", 0.0)
    topics = {name: Topic.model_validate({"name": name, "key": "id"}) for name in NAMES}
    config = Config(namespace="shop", topics=topics, environments={})
    streaming = StreamService(config, list(topics.values()), systems_with(tmp_path), [].append, instance)
    thread = threading.Thread(target=streaming.run)
    yield thread
    streaming.stream.stop()
    thread.join(SECONDS)
    assert not thread.is_alive()


@pytest.fixture(autouse=True)
def reset_brokers():
    for faults in (Brokers.fails, Brokers.described, Brokers.deleted, Brokers.leaderless):
        faults.clear()


def systems_with(folder):
    return SimpleNamespace(
        kafka=Brokers(bootstrap_servers="127.0.0.1:1"),
        schema_registry=SchemaRegistry(url="http://127.0.0.1:1"),
        spark=Connect(remote="sc://127.0.0.1:1"),
        catalog=Catalog(type="sql", warehouse=f"file://{folder}", uri=f"sqlite:///{folder}/catalog.db"),
    )


def history(instance, *asset) -> list[tuple[bool, str]]:
    key = dg.AssetCheckKey(dg.AssetKey(asset), "streaming")
    records = instance.event_log_storage.get_asset_check_execution_history(key, limit=10)
    evaluations = [record.event.get_dagster_event().asset_check_evaluation_data for record in reversed(records)]
    return [(evaluation.passed, plain(evaluation.description)) for evaluation in evaluations]


def test_stream_unreachable_kafka_fails_once_not_per_topic(instance, running):
    Brokers.fails["all"] = SILENT
    running.start()
    wait_until(lambda: history(instance, "stream", "kafka_clients"))
    before = len(Brokers.described)
    wait_until(lambda: len(Brokers.described) > before + 2)  # retried
    assert history(instance, "stream", "kafka_clients") == [(False, str(SILENT))]

    del Brokers.fails["all"]
    wait_until(lambda: len(history(instance, "stream", "kafka_clients")) == 2)
    assert history(instance, "stream", "kafka_clients")[1][0]
    wait_until(lambda: all(history(instance, name, "iceberg") for name in NAMES))
    assert all(history(instance, name, "iceberg") == [SERVED] for name in NAMES)


def test_stream_unreadable_topic_fails_alone(instance, running):
    denied = LakehouseError("Kafka refuses: Topic authorization failed")
    Brokers.fails["orders"] = denied
    running.start()
    wait_until(lambda: all(history(instance, name, "iceberg") for name in NAMES))
    assert history(instance, "orders", "iceberg") == [(False, str(denied))]
    assert history(instance, "carts", "iceberg") == history(instance, "users", "iceberg") == [SERVED]
    assert history(instance, "stream", "kafka_clients") == [SERVED]


def test_stream_partition_without_leader_fails_its_topic_only(instance, running):
    Brokers.leaderless.add("orders")
    running.start()
    wait_until(lambda: all(history(instance, name, "iceberg") for name in NAMES))
    [(passed, reason)] = history(instance, "orders", "iceberg")
    assert not passed and "partition 0 of topic 'orders': it has no leader" in reason
    assert history(instance, "carts", "iceberg") == history(instance, "users", "iceberg") == [SERVED]
    assert history(instance, "stream", "kafka_clients") == [SERVED]

    Brokers.leaderless.clear()
    wait_until(lambda: history(instance, "orders", "iceberg")[1:] == [SERVED])


def test_stream_deleted_topic_fails_alone_and_recovers(instance, running):
    running.start()
    wait_until(lambda: all(history(instance, name, "iceberg") for name in NAMES))
    Brokers.deleted.add("orders")
    wait_until(lambda: len(history(instance, "orders", "iceberg")) == 2)
    passed, reason = history(instance, "orders", "iceberg")[1]
    assert not passed and "Topic 'orders' does not exist" in reason
    Brokers.deleted.clear()
    wait_until(lambda: history(instance, "orders", "iceberg")[2:] == [SERVED])
    assert history(instance, "carts", "iceberg") == history(instance, "users", "iceberg") == [SERVED]


@pytest.mark.parametrize("once", [True, False])
def test_stream_serves_each_entry_of_a_shared_topic(tmp_path, once):
    topics = [Topic.model_validate({"name": name, "kafka_topic": "events", "record": f"shop.{name}"}) for name in NAMES]
    config = Config(namespace="shop", topics={topic.name: topic for topic in topics}, environments={})
    clients = systems_with(tmp_path)
    systems = Clients.of(clients)
    stream = Stream(config, topics, systems, once=once)
    served = []
    for event in stream.run():
        assert isinstance(event, TopicServed)
        served.append(event.topic)
        if len(served) == len(NAMES):
            stream.stop()
    assert sorted(served) == sorted(NAMES) and stream.errors == {}


def test_stream_once_gives_up_on_kafka(tmp_path, monkeypatch):
    monkeypatch.setattr("lakehouse.streaming.pacing.FIRST_PAUSE_SECONDS", 0.0)
    Brokers.fails["all"] = SILENT
    topics = {"orders": Topic.model_validate({"name": "orders"})}
    config = Config(namespace="shop", topics=topics, environments={})
    log: list[LogEntry] = []
    service = StreamService(config, [*topics.values()], systems_with(tmp_path), log.append, None, once=True)
    assert service.run() == {"Kafka": SILENT}
    assert 5 <= sum("Retry in" in line.message for line in log) <= 10  # of two workers


def test_stream_of_a_derived_topic_has_its_source():
    derived = {"type": "derived", "from": "orders", "transform": "shop:totals"}
    sources = {"orders": {}, "totals": derived, "tops": {**derived, "from": "totals"}, "users": {}}
    names = {name: {"source": source or {"type": "existing"}} for name, source in sources.items()}
    topics = {name: Topic.model_validate({"name": name, **entry}) for name, entry in names.items()}
    config = Config(namespace="shop", topics=topics, environments={})
    selected = [topic.name for topic in select_topics(config, ["tops", "totals"], [])]
    assert selected == ["orders", "totals", "tops"]


def test_stream_without_the_source_of_a_derived_topic_reports_it(tmp_path):
    derived = {"type": "derived", "from": "orders", "transform": "shop:totals"}
    topic = Topic.model_validate({"name": "totals", "source": derived})
    config = Config(namespace="shop", topics={"totals": topic}, environments={})
    log: list[LogEntry] = []
    Brokers.deleted.add("totals")
    StreamService(config, [topic], systems_with(tmp_path), log.append, None, once=True).run()
    assert log[1].message == (
        "totals: this stream does not ingest 'orders', so it derives nothing from its new rows. Materialize "
        "totals/kafka, or stream both"
    )


@pytest.fixture
def dagster_yaml(monkeypatch, tmp_path):
    """The file of an instance of Dagster, for streams of a project whose servers do not answer."""
    systems = {
        "kafka": {"bootstrap_servers": "127.0.0.1:1"},
        "schema_registry": {"url": "http://127.0.0.1:1"},
        "spark": {"remote": "sc://127.0.0.1:1"},
        "catalog": {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": "s3://warehouse"},
    }
    declared = {
        "namespace": "shop",
        "topics": {"orders": {"continuous": True}},
        "environments": {"production": systems},
    }
    (tmp_path / "lakehouse.yaml").write_text(yaml.safe_dump(declared))
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(tmp_path / "lakehouse.yaml"))
    monkeypatch.setenv("LAKEHOUSE_ENV", "production")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    return tmp_path / "dagster.yaml"


def test_stream_names_unset_variables_of_the_instance_of_dagster(monkeypatch, dagster_yaml):
    dagster_yaml.write_text((PROJECT / "containers/dagster.yaml").read_text())
    for name in ("HOST", "PASSWORD", "PORT", "USER"):
        monkeypatch.delenv(f"DAGSTER_POSTGRES_{name}", raising=False)
    monkeypatch.setenv("DAGSTER_POSTGRES_DB", "dagster")
    monkeypatch.setenv("DAGSTER_LOGS_BUCKET", "logs")
    result = CliRunner().invoke(main, ["stream", "--once"])
    message = " ".join(plain(result.output).split())
    named = ", ".join(f"DAGSTER_POSTGRES_{name}" for name in ("HOST", "PASSWORD", "PORT", "USER"))
    assert result.exit_code == 1
    assert (
        f"dagster.yaml of DAGSTER_HOME={dagster_yaml.parent} names variables that are not set: {named}. Noth" in message
    )
    assert "or set DAGSTER_HOME to an empty text" in message and "Tracebacks" not in message


def test_stream_names_instance_of_dagster_that_cannot_be_opened(dagster_yaml):
    dagster_yaml.write_text("storage: {unknown: {}}")
    result = CliRunner().invoke(main, ["stream", "--once"])
    assert result.exit_code == 1
    message = " ".join(plain(result.output).split())
    assert f"Dagster's instance of DAGSTER_HOME={dagster_yaml.parent} cannot be opened: " in message
    assert "Nothing was changed. `dagster instance info` prints the reason" in message


def test_dagster_home_that_is_no_folder_is_a_warning(monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "missing"))
    with dagster_instance() as instance:
        assert instance is None
    assert f"DAGSTER_HOME names {tmp_path / 'missing'}, which is no folder. Nothing is reported" in caplog.text
