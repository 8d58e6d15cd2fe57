"""The freshness sensor with routes of more topics than one tick has time for."""

import time
from types import SimpleNamespace
from typing import ClassVar

import dagster as dg
import pytest

from assets import freshness as sensor_module
from assets.entry import partitions
from assets.freshness import ONLY, freshness_check
from lakehouse.config.model import Config, Route, Topic
from lakehouse.readers import reader_lag
from resources.kafka.kafka import Kafka, Offsets, TopicDescription

ROUTE = Route.model_validate({"name": "shop", "pattern": r"shop\..*", "max_lag_seconds": 60})
CONFIG = Config(
    namespace="trading", topics={"users": Topic(name="users")}, routes={"shop": ROUTE}, environments={"local": {}}
)
NOW = 1_800_000_000.0
SECONDS = 20
"""Time to measure one topic; a tick starts no further topic after 35 s."""


class Cluster(Kafka):
    """Kafka that takes SECONDS for the offsets of a topic. `shop.b` has five records, for 600 s, and no table has any.

    Attributes:
        asked: The topics whose offsets were asked for, in order.
        rejected: Topics that no table can have.
    """

    asked: ClassVar[list[str]] = []
    rejected: ClassVar[list[str]] = []

    def topics(self):
        return self.rejected

    def cluster_id(self):
        return "cluster"

    def describe(self, topics):
        return {topic: TopicDescription(topic, 1) for topic in topics}

    def offsets(self, topics, *, committed=True):
        self.asked.extend(topics)
        return {topic: {0: Offsets(0, 5 if topic == "shop.b" else 0)} for topic in topics}

    def oldest_timestamp(self, topic, positions, ends):
        return dict.fromkeys(positions, int((NOW - 600) * 1000))


@pytest.fixture
def measured(monkeypatch):
    """The topics that were measured, in order. Clocks advance by nothing else."""
    names = []
    monkeypatch.setattr(Cluster, "asked", names)
    monkeypatch.setattr(reader_lag, "time", SimpleNamespace(time=lambda: NOW))
    clock = SimpleNamespace(time=time.time, monotonic=lambda: len(names) * SECONDS)
    monkeypatch.setattr(sensor_module, "time", clock)
    return names


ASSETS = [dg.AssetSpec(["users", stage]) for stage in ("iceberg", "glue", "snowflake")]
ASSETS += [
    dg.AssetSpec(["shop", stage], partitions_def=partitions(ROUTE)) for stage in ("iceberg", "glue", "snowflake")
]


def tick(sensor, instance, cursor, catalog):
    """Return the cursor of a tick, and its verdicts on tables. Readers do not answer."""
    definitions = dg.Definitions(assets=ASSETS)
    none = dict.fromkeys(("glue", "snowflake"), dg.ResourceDefinition.none_resource())
    resources = {"kafka": Cluster(bootstrap_servers="none:1"), "catalog": catalog, **none}
    with dg.build_sensor_context(
        instance=instance, cursor=cursor, resources=resources, definitions=definitions
    ) as context:
        result = sensor.evaluate_tick(context)
    events = [event for event in result.asset_events if event.asset_key.path[1] == "iceberg"]
    return SimpleNamespace(cursor=result.cursor, asset_events=events)


def test_route_with_many_topics_is_measured_in_several_ticks(measured, catalog):
    """A tick of more than a minute fails in Dagster, and no lag of any topic is ever reported."""
    sensor, cursor, reported = sensor_module.freshness_sensor(CONFIG), None, []
    with dg.instance_for_test() as instance:
        instance.add_dynamic_partitions("topics_shop", ["shop.a", "shop.b", "shop.c"])
        for number in range(1, 4):
            result = tick(sensor, instance, cursor, catalog)
            cursor = result.cursor
            assert len(measured) == 2 * number, "the tick has to end after 35 s"
            reported += [(e.asset_key.path[0], e.passed, e.description) for e in result.asset_events]
            for event in result.asset_events:
                instance.report_runless_asset_event(event)

    assert measured == ["shop.a", "shop.b", "shop.c", "users", "shop.a", "shop.b"]
    behind = "1 of 3 topics are stale: shop.b: topic → Iceberg: 5 records behind, for 600 s \\(limit: 60 s\\)"
    assert [verdict[:2] for verdict in reported] == [("shop", False), ("users", True)]
    assert reported[0][2].replace("\\", "") == behind.replace("\\", "")


def test_route_without_topics_reports_those_that_no_table_can_have(measured, monkeypatch, catalog):
    monkeypatch.setattr(Cluster, "rejected", ["shop.x__dead_letters"])
    with dg.instance_for_test() as instance:
        result = tick(sensor_module.freshness_sensor(CONFIG), instance, None, catalog)
    [event] = [event for event in result.asset_events if event.asset_key.path[0] == "shop"]
    assert not event.passed and "are dead" in event.description


@pytest.mark.parametrize(("tags", "is_reported"), [({}, True), ({ONLY: "shop,users"}, True), ({ONLY: "shop.a"}, False)])
def test_check_in_a_run_reports_those_that_no_table_can_have(tags, is_reported):
    """The sensor does: with another verdict after each run, the check would fail and recover, with an alert each."""
    kafka, run = SimpleNamespace(topics=lambda: ["shop.x__dead_letters"]), SimpleNamespace(tags=tags)
    with dg.instance_for_test() as instance:
        context = SimpleNamespace(instance=instance, run=run, resources=SimpleNamespace(kafka=kafka))
        result = freshness_check(CONFIG, ROUTE, "iceberg").run(context)
    assert result.passed is not is_reported and ("are dead" in result.description) is is_reported
