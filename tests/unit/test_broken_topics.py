"""One broken topic keeps no other from being measured, reported or shown."""

import json
from types import SimpleNamespace
from typing import ClassVar

import dagster as dg
import pytest
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

from assets.sensors.freshness_sensor import freshness_sensor
from assets.sensors.topic_offsets import topic_offsets_sensor
from assets.streaming.service import chosen
from lakehouse.cli import console
from lakehouse.cli.status import status
from lakehouse.config.loader import Config
from lakehouse.config.topic import Route, Topic
from lakehouse.core.errors import LakehouseError, UnclearState, Unreachable
from lakehouse.core.markdown import plain
from resources.catalog import Catalog
from resources.kafka import Kafka, Offsets, TopicDescription

NAMES = ("carts", "orders", "trades", "users")
UNCLEAR = "Glue has a table shop.orders that is not an Iceberg table. Nothing was changed"
ROW = "alice@example.com"


class Brokers(Kafka):
    """Kafka whose topics hold one record each; reading `broken` ones fails as a broker's answer does."""

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


class Registrations:
    """Glue in which one table is not an Iceberg table, and another makes the client fail."""

    def registration(self, namespace, name):
        if name == "orders":
            raise UnclearState(UNCLEAR)
        if name == "trades":
            raise ValueError(f"cannot parse {ROW}")


class Refusing:
    """Snowflake, which refuses to answer about one table."""

    def metadata_location(self, namespace, name):
        if name == "carts":
            raise LakehouseError("Role READER lacks USAGE on schema SHOP. Grant it")


@pytest.fixture
def config():
    topics = {name: Topic.model_validate({"name": name, "key": "id"}) for name in NAMES}
    return Config(namespace="shop", topics=topics, environments={})


@pytest.fixture
def systems(tmp_path):
    Brokers.broken.clear()
    return {
        "kafka": Brokers(bootstrap_servers="127.0.0.1:1"),
        "catalog": Catalog(type="sql", warehouse=f"file://{tmp_path}", uri=f"sqlite:///{tmp_path}/catalog.db"),
        "glue": Registrations(),
        "snowflake": Refusing(),
    }


@pytest.fixture
def instance():
    with dg.instance_for_test() as instance:
        yield instance


def tick(sensor, instance, systems, cursor=None):
    needed = {name: systems[name] for name in sensor.required_resource_keys}
    nothing = dg.Definitions()
    with dg.build_sensor_context(instance=instance, cursor=cursor, resources=needed, definitions=nothing) as context:
        return sensor.evaluate_tick(context)


def test_every_hop_of_every_topic_is_measured_in_each_tick(config, systems, instance, caplog):
    sensor, cursor = freshness_sensor(config), None
    for _ in range(2):
        found = tick(sensor, instance, systems, cursor)
        cursor = found.cursor
        told = {event.asset_key.to_user_string(): event for event in found.asset_events}
        assert told.keys() == {f"{hop}/{name}" for name in NAMES for hop in ("iceberg", "glue", "snowflake")}
        assert {key for key, event in told.items() if not event.passed} == {
            "glue/orders",
            "glue/trades",
            "snowflake/carts",
        }
        assert UNCLEAR in plain(told["glue/orders"].description)
        assert "lacks USAGE" in told["snowflake/carts"].description
        # Its text may quote a row: the type has to do.
        assert "ValueError" in told["glue/trades"].description
        assert ROW not in str(told["glue/trades"]) + caplog.text
        assert "in registration" in caplog.text
        assert json.loads(cursor)["after"] == NAMES[-1]


def test_a_failing_measurement_is_stored_as_a_failed_check(config, systems, instance):
    for event in tick(freshness_sensor(config), instance, systems).asset_events:
        instance.report_runless_asset_event(event)
    key = dg.AssetCheckKey(dg.AssetKey(["glue", "orders"]), "fresh")
    record = instance.get_latest_asset_check_evaluation_record(key)
    assert record.status == AssetCheckExecutionRecordStatus.FAILED


def test_a_topic_that_cannot_be_read_keeps_no_other_from_being_reported(config, systems, instance):
    systems["kafka"].broken["orders"] = "Topic 'orders' does not exist"
    found = tick(topic_offsets_sensor(config), instance, systems)
    assert [event.asset_key.path[1] for event in found.asset_events] == ["carts", "trades", "users"]
    # Back again, it is reported as any topic that moved.
    del systems["kafka"].broken["orders"]
    found = tick(topic_offsets_sensor(config), instance, systems, found.cursor)
    assert [event.asset_key.path[1] for event in found.asset_events] == ["orders"]


def test_status_shows_every_topic_and_why_one_has_none(config, systems):
    systems["kafka"].broken["users"] = "Kafka refuses to describe topic 'users'"
    found = {one.topic: one for one in status(config, SimpleNamespace(**systems))}
    assert found.keys() == set(NAMES)
    assert found["users"].failure == "Kafka refuses to describe topic 'users'"
    assert {hop.asset: hop.failure for hop in found["orders"].hops}["glue"] == UNCLEAR
    with console.console.capture() as shown:
        console.console.print(console.topics(list(found.values())))
    assert "Kafka refuses to describe" in shown.get()


def test_of_a_kafka_that_does_not_answer_nothing_is_shown(config, systems):
    systems["kafka"] = Kafka(bootstrap_servers="127.0.0.1:1")
    with pytest.raises(Unreachable, match="Kafka does not answer"):
        status(config, SimpleNamespace(**systems))


def test_a_topic_whose_name_becomes_no_table_is_told_of_and_stops_no_other(config, systems, instance):
    """Whoever may create topics chooses their names."""
    pattern = {"name": "all", "pattern": r"(?P<of>\w+)", "table": "{of}", "key": "id"}
    route = Route.model_validate(pattern)
    config = Config(namespace="shop", topics={}, routes={"all": route}, environments={})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Brokers, "NAMES", (*NAMES, "0bad"))
        found = tick(topic_offsets_sensor(config), instance, systems)
        assert [event.partition for event in found.asset_events] == list(NAMES)
        for request in found.dynamic_partitions_requests:
            instance.add_dynamic_partitions(request.partitions_def_name, list(request.partition_keys))
        told = {e.asset_key.path[0]: e for e in tick(freshness_sensor(config), instance, systems).asset_events}
        assert "0bad: topic → Iceberg: unknown: Route 'all'" in plain(told["iceberg"].description)
        shown = {one.topic: one.failure for one in status(config, SimpleNamespace(**systems))}
        assert shown.keys() == {*NAMES, "0bad"} and shown["0bad"].startswith("Route 'all'")
    assert [topic.name for topic in chosen(config, [], ["0bad", "users"])] == ["users"]
