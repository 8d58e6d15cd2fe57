"""Isolation of broken topics: other topics are still measured, reported and shown."""

import json
from types import SimpleNamespace
from typing import ClassVar

import dagster as dg
import pytest
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

from assets.freshness import freshness_sensor
from assets.streaming.service import select_topics
from assets.topics.kafka_asset import topic_offsets_sensor
from lakehouse.cli import console
from lakehouse.cli.status import status as topic_statuses
from lakehouse.config.model import Config, Route, Topic
from lakehouse.core.errors import LakehouseError, UnclearState, Unreachable
from lakehouse.core.text import plain
from resources.aws.glue import Glue
from resources.iceberg.catalog import Catalog
from resources.kafka.kafka import Kafka, Offsets, TopicDescription
from resources.snowflake.snowflake import Snowflake
from tests.support.declared import EMBEDDED_READERS

NAMES = ("carts", "orders", "trades", "users")
UNCLEAR = "Glue has a table shop.orders that is not an Iceberg table. Nothing was changed"
ROW = "alice@example.com"


class Brokers(Kafka):
    """Kafka whose topics contain one record each; describing one of the `broken` topics raises."""

    broken: ClassVar[dict[str, str]] = {}

    NAMES: ClassVar[tuple[str, ...]] = NAMES

    def topics(self):
        return list(self.NAMES)

    def describe(self, topics):
        for topic in topics:
            if topic in self.broken:
                raise LakehouseError(self.broken[topic])
        return {topic: TopicDescription(topic, 1) for topic in topics}

    def cluster_id(self):
        return "cluster"

    def offsets(self, topics, *, committed=True):
        self.describe(topics)
        return {topic: {0: Offsets(0, 1)} for topic in topics}

    def oldest_timestamp(self, topic, positions, ends):
        return dict.fromkeys(positions)


class PartlyBrokenGlue(Glue):
    """Glue in which one table is not an Iceberg table, and another makes the client fail unexpectedly."""

    def registration(self, namespace, name):
        if name == "orders":
            raise UnclearState(UNCLEAR)
        if name == "trades":
            raise ValueError(f"cannot parse {ROW}")


class RefusingSnowflake(Snowflake):
    """Snowflake that refuses requests for one table."""

    def metadata_location(self, namespace, name):
        if name == "carts":
            raise LakehouseError("Role READER lacks USAGE on schema SHOP. Grant it")


@pytest.fixture
def config():
    topics = {name: Topic.model_validate({"name": name, "key": "id"}) for name in NAMES}
    return Config(namespace="shop", topics=topics, environments=EMBEDDED_READERS)


@pytest.fixture
def systems(tmp_path):
    Brokers.broken.clear()
    return {
        "kafka": Brokers(bootstrap_servers="127.0.0.1:1"),
        "catalog": Catalog(type="sql", warehouse=f"file://{tmp_path}", uri=f"sqlite:///{tmp_path}/catalog.db"),
        "glue": PartlyBrokenGlue(region="us-east-1", catalog_id="1"),
        "snowflake": RefusingSnowflake(
            database="D", warehouse="W", region="us-east-1", glue_catalog_id="1", aws_role_arn="a"
        ),
    }


@pytest.fixture
def instance():
    with dg.instance_for_test() as instance:
        yield instance


def tick(sensor, instance, systems, cursor=None):
    resources = {name: systems[name] for name in sensor.required_resource_keys}
    no_definitions = dg.Definitions()
    with dg.build_sensor_context(
        instance=instance, cursor=cursor, resources=resources, definitions=no_definitions
    ) as context:
        return sensor.evaluate_tick(context)


def test_freshness_broken_topics_leave_others_measured(config, systems, instance, caplog):
    sensor, cursor = freshness_sensor(config), None
    for _ in range(2):
        result = tick(sensor, instance, systems, cursor)
        cursor = result.cursor
        checks = {event.asset_key.to_user_string(): event for event in result.asset_events}
        assert checks.keys() == {f"{name}/{stage}" for name in NAMES for stage in ("iceberg", "glue", "snowflake")}
        assert {key for key, event in checks.items() if not event.passed} == {
            "orders/glue",
            "trades/glue",
            "carts/snowflake",
        }
        assert UNCLEAR in plain(checks["orders/glue"].description)
        assert "lacks USAGE" in checks["carts/snowflake"].description
        # The text may quote a row, so only the type is shown.
        assert "ValueError" in checks["trades/glue"].description
        assert ROW not in str(checks["trades/glue"]) + caplog.text
        assert "in registration" in caplog.text
        assert json.loads(cursor)["after"] == f"{NAMES[-1]}/{NAMES[-1]}"


def test_freshness_failed_measurement_is_stored_as_failed_check(config, systems, instance):
    for event in tick(freshness_sensor(config), instance, systems).asset_events:
        instance.report_runless_asset_event(event)
    key = dg.AssetCheckKey(dg.AssetKey(["orders", "glue"]), "fresh")
    record = instance.get_latest_asset_check_evaluation_record(key)
    assert record.status == AssetCheckExecutionRecordStatus.FAILED


def test_topic_offsets_unreadable_topic_leaves_others_reported(config, systems, instance):
    systems["kafka"].broken["orders"] = "Topic 'orders' does not exist"
    result = tick(topic_offsets_sensor(config), instance, systems)
    assert [event.asset_key.path[0] for event in result.asset_events] == ["carts", "trades", "users"]
    # Once readable, the topic is reported like any topic with new records.
    del systems["kafka"].broken["orders"]
    result = tick(topic_offsets_sensor(config), instance, systems, result.cursor)
    assert [event.asset_key.path[0] for event in result.asset_events] == ["orders"]


def test_status_broken_topics_show_their_failure(config, systems):
    systems["kafka"].broken["users"] = "Kafka refuses to describe topic 'users'"
    statuses = {status.topic: status for status in topic_statuses(config, SimpleNamespace(**systems))}
    assert statuses.keys() == set(NAMES)
    assert statuses["users"].failure == "Kafka refuses to describe topic 'users'"
    assert {stage.stage: stage.failure for stage in statuses["orders"].stages}["glue"] == UNCLEAR
    with console.console.capture() as output:
        console.console.print(console.topics(list(statuses.values())))
    assert "Kafka refuses to describe" in output.get()


def test_status_unreachable_kafka_raises(config, systems, monkeypatch):
    monkeypatch.setattr("resources.kafka.kafka.TIMEOUT_SECONDS", 1)
    systems["kafka"] = Kafka(bootstrap_servers="127.0.0.1:1")
    with pytest.raises(Unreachable, match="Kafka does not answer"):
        topic_statuses(config, SimpleNamespace(**systems))


def test_routed_topic_with_invalid_name_leaves_others_working(config, systems, instance):
    """The names of topics are untrusted input."""
    pattern = {"name": "all", "pattern": r"(?P<of>\w+)", "table": "{of}", "key": "id"}
    route = Route.model_validate(pattern)
    config = Config(namespace="shop", topics={}, routes={"all": route}, environments=EMBEDDED_READERS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Brokers, "NAMES", (*NAMES, "0bad"))
        result = tick(topic_offsets_sensor(config), instance, systems)
        assert [event.partition for event in result.asset_events] == list(NAMES)
        for request in result.dynamic_partitions_requests:
            instance.add_dynamic_partitions(request.partitions_def_name, list(request.partition_keys))
        checks = {e.asset_key.path[1]: e for e in tick(freshness_sensor(config), instance, systems).asset_events}
        assert "0bad: topic → Iceberg: unknown: Route 'all'" in plain(checks["iceberg"].description)
        failures = {status.topic: status.failure for status in topic_statuses(config, SimpleNamespace(**systems))}
        assert failures.keys() == {*NAMES, "0bad"} and failures["0bad"].startswith("Route 'all'")
    assert [topic.name for topic in select_topics(config, [], ["0bad", "users"])] == ["users"]
