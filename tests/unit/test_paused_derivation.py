"""A paused derived topic in Dagster: runs that automation requests do nothing, and one follows when it is resumed."""

import dagster as dg
import pytest
import yaml

from assets.topics.kafka_asset import topic_asset, topic_offsets_sensor
from lakehouse.config import loader
from resources.iceberg import pauses
from resources.iceberg.catalog import Catalog
from resources.kafka.kafka import Kafka, Offsets, TopicDescription
from resources.spark.servers import Connect

REQUESTED = {"dagster/sensor_name": "automation", "dagster/from_automation_condition": "true"}
TOPICS = {"orders": {"key": "id"}, "totals": {"source": {"type": "derived", "from": "orders", "transform": "m:f"}}}


class Brokers(Kafka):
    """Kafka with every topic, each with one record."""

    def topics(self):
        return []

    def describe(self, topics):
        return {topic: TopicDescription(topic, 1) for topic in topics}

    def offsets(self, topics, *, committed=True):
        return {topic: {0: Offsets(0, 1)} for topic in topics}


@pytest.fixture
def config(tmp_path):
    file = tmp_path / "lakehouse.yaml"
    file.write_text(yaml.safe_dump({"namespace": "shop", "topics": TOPICS, "environments": {"local": {}}}))
    return loader.load(file)


@pytest.fixture
def systems(tmp_path):
    catalog = Catalog(type="sql", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    spark = Connect(remote="sc://127.0.0.1:1")
    return {"kafka": Brokers(bootstrap_servers="127.0.0.1:1"), "catalog": catalog, "spark": spark}


def run(config, systems, tags):
    asset = topic_asset(config, config.topics["totals"])
    assert isinstance(asset, dg.AssetsDefinition)
    others = {name: None for name in asset.required_resource_keys - systems.keys() - {"io_manager"}}
    with dg.DagsterInstance.ephemeral() as instance:
        return dg.materialize([asset], resources=systems | others, instance=instance, raise_on_error=False, tags=tags)


def test_run_that_automation_requests_for_paused_topic_does_nothing(config, systems):
    """The source of a paused topic continues: each of its commits requests a run, whose failure would send an alert."""
    pauses.pause(systems["catalog"], "shop", config.topics["totals"], "migration")
    result = run(config, systems, REQUESTED)
    assert result.success and not result.asset_materializations_for_node("totals__kafka")


def test_manual_run_of_paused_topic_fails_with_the_remedy(config, systems):
    pauses.pause(systems["catalog"], "shop", config.topics["totals"], "migration")
    [failed] = list(run(config, systems, {}).filter_events(lambda event: event.is_step_failure))
    assert "`lakehouse unpause totals`" in failed.step_failure_data.user_failure_data.description


def test_resumed_derived_topic_gets_one_run(config, systems):
    """Without it, the rows of the pause are derived only after the source changes again."""

    @dg.asset(key=["totals", "kafka"])
    def totals(): ...

    definitions = dg.Definitions(assets=[totals, dg.AssetSpec(["orders", "kafka"])])
    sensor, cursor = topic_offsets_sensor(config), None

    def requested():
        nonlocal cursor
        with (
            dg.DagsterInstance.ephemeral() as instance,
            dg.build_sensor_context(
                instance=instance, cursor=cursor, resources=systems, definitions=definitions
            ) as context,
        ):
            result = sensor.evaluate_tick(context)
        cursor = result.cursor
        return [[key.path for key in request.asset_selection] for request in result.run_requests]

    assert requested() == []
    pauses.pause(systems["catalog"], "shop", config.topics["totals"], "migration")
    pauses.pause(systems["catalog"], "shop", config.topics["orders"], "migration")
    assert requested() == requested() == []
    for name in ("orders", "totals"):
        pauses.unpause(systems["catalog"], "shop", name)
    assert requested() == [[["totals", "kafka"]]]
    assert requested() == []
