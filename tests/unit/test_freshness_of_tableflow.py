"""The freshness sensor with tables of Tableflow: no run follows their snapshots, so only the sensor notices a lag."""

import dagster as dg
import pytest

from assets import freshness as sensor_module
from lakehouse.config.model import Config, Topic
from lakehouse.core.offsets.lag import Lag
from lakehouse.readers.freshness import StageLag

ORDERS = Topic.model_validate({"name": "orders", "engine": "tableflow"})
PAID = Topic.model_validate(
    {"name": "paid", "source": {"type": "derived", "from": "orders", "transform": "spark.flags:flagged"}}
)


def config_of(*topics, **systems):
    return Config(
        namespace="n", topics={topic.name: topic for topic in topics}, routes={}, environments={"local": systems}
    )


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.setenv("LAKEHOUSE_ENV", "local")


def test_reader_that_is_behind_tableflow_is_reported(monkeypatch):
    behind = {"glue": Lag(0, 0.0, "snapshot"), "snowflake": Lag(2, 7_200.0, "snapshot")}
    monkeypatch.setattr(
        sensor_module,
        "measure_lag",
        lambda stage, config, topic, resources: StageLag(topic.name, stage, 900, behind[stage]),
    )
    sensor = sensor_module.freshness_sensor(config_of(ORDERS))
    nothing = dg.ResourceDefinition.none_resource()
    definitions = dg.Definitions(assets=[dg.AssetSpec([stage, "orders"]) for stage in behind])
    with (
        dg.instance_for_test() as instance,
        dg.build_sensor_context(
            instance=instance,
            resources=dict.fromkeys(sensor.required_resource_keys, nothing),
            definitions=definitions,
        ) as context,
    ):
        events = sensor.evaluate_tick(context).asset_events
    assert {event.asset_key.path[0]: event.passed for event in events} == {"glue": True, "snowflake": False}


def test_derived_from_confluent_storage_needs_its_catalog():
    """In another catalog, the snapshot that the topic was derived from looks expired."""
    config = config_of(ORDERS, PAID, tableflow_catalog={})
    assert "tableflow_catalog" in sensor_module.freshness_sensor(config).required_resource_keys
