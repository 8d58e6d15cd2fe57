"""The freshness sensor with routes of more topics than one tick has time for."""

import time
from types import SimpleNamespace

import dagster as dg
import pytest

from assets import freshness as sensor_module
from assets.entry import partitions
from assets.freshness import ONLY, freshness_check
from lakehouse.config.model import Config, Route, Topic
from lakehouse.core.offsets.lag import Lag
from lakehouse.readers.freshness import StageLag
from resources.kafka.kafka import Kafka

ROUTE = Route.model_validate({"name": "shop", "pattern": r"shop\..*", "max_lag_seconds": 60})
CONFIG = Config(
    namespace="n", topics={"users": Topic(name="users")}, routes={"shop": ROUTE}, environments={"local": {}}
)
SECONDS = 20
"""Time to measure one topic; a tick starts no further topic after 35 s."""


class Cluster(Kafka):
    """Kafka without topics that no table can have."""

    def topics(self):
        return []


@pytest.fixture
def measured(monkeypatch):
    """Measure topics without systems, each in SECONDS; `shop.b` is behind. Return the names in order."""
    names, clock = [], SimpleNamespace(time=time.time, monotonic=lambda: len(names) * SECONDS)

    def measure(stage, config, topic, resources):
        names.append(topic.name)
        return StageLag(topic.name, stage, 60, Lag(5, 600.0) if topic.name == "shop.b" else Lag(0, 0.0))

    monkeypatch.setattr(sensor_module, "measure_lag", measure)
    monkeypatch.setattr(sensor_module, "stages_of", lambda config, entry: ["iceberg"])
    monkeypatch.setattr(sensor_module, "configured", lambda config: ())
    monkeypatch.setattr(sensor_module, "time", clock)
    return names


@dg.asset(key=["iceberg", "shop"], partitions_def=partitions(ROUTE))
def shop(): ...


@dg.asset(key=["iceberg", "users"])
def users(): ...


def tick(sensor, instance, cursor):
    definitions = dg.Definitions(assets=[shop, users])
    resources = {"kafka": Cluster(bootstrap_servers="none:1"), "catalog": dg.ResourceDefinition.none_resource()}
    with dg.build_sensor_context(
        instance=instance, cursor=cursor, resources=resources, definitions=definitions
    ) as context:
        return sensor.evaluate_tick(context)


def test_route_with_many_topics_is_measured_in_several_ticks(measured):
    """A tick of more than a minute fails in Dagster, and no lag of any topic is ever reported."""
    sensor, cursor, reported = sensor_module.freshness_sensor(CONFIG), None, []
    with dg.instance_for_test() as instance:
        instance.add_dynamic_partitions("topics_shop", ["shop.a", "shop.b", "shop.c"])
        for number in range(1, 4):
            result = tick(sensor, instance, cursor)
            cursor = result.cursor
            assert len(measured) == 2 * number, "the tick has to end after 35 s"
            reported += [(e.asset_key.path[1], e.passed, e.description) for e in result.asset_events]
            for event in result.asset_events:
                instance.report_runless_asset_event(event)

    assert measured == ["shop.a", "shop.b", "shop.c", "users", "shop.a", "shop.b"]
    behind = "1 of 3 topics are stale: shop.b: topic → Iceberg: 5 records behind, for 600 s \\(limit: 60 s\\)"
    assert [verdict[:2] for verdict in reported] == [("shop", False), ("users", True)]
    assert reported[0][2].replace("\\", "") == behind.replace("\\", "")


def test_route_without_topics_reports_those_that_no_table_can_have(measured, monkeypatch):
    monkeypatch.setattr(Cluster, "topics", lambda self: ["shop.x__dead_letters"])
    with dg.instance_for_test() as instance:
        result = tick(sensor_module.freshness_sensor(CONFIG), instance, None)
    [event] = [event for event in result.asset_events if event.asset_key.path[1] == "shop"]
    assert not event.passed and "are dead" in event.description


@pytest.mark.parametrize(("tags", "is_reported"), [({}, True), ({ONLY: "shop,users"}, True), ({ONLY: "shop.a"}, False)])
def test_check_in_a_run_reports_those_that_no_table_can_have(tags, is_reported):
    """The sensor does: with another verdict after each run, the check would fail and recover, with an alert each."""
    kafka, run = SimpleNamespace(topics=lambda: ["shop.x__dead_letters"]), SimpleNamespace(tags=tags)
    with dg.instance_for_test() as instance:
        context = SimpleNamespace(instance=instance, run=run, resources=SimpleNamespace(kafka=kafka))
        result = freshness_check(CONFIG, ROUTE, "iceberg").run(context)
    assert result.passed is not is_reported and ("are dead" in result.description) is is_reported
