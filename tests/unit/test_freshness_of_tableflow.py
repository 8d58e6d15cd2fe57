"""The freshness sensor with tables of Tableflow: no run follows their snapshots, so only the sensor notices a lag."""

import time
from types import SimpleNamespace
from typing import ClassVar

import dagster as dg
import pyarrow as pa
import pytest

from assets import freshness as sensor_module
from lakehouse.config.model import Config, Topic
from lakehouse.readers import reader_lag
from resources.kafka.kafka import Kafka
from resources.snowflake.snowflake import Snowflake

ORDERS = Topic.model_validate({"name": "orders", "engine": "tableflow", "max_lag_seconds": 900})
PAID = Topic.model_validate(
    {"name": "paid", "source": {"type": "derived", "from": "orders", "transform": "spark.flags:flagged"}}
)


ROWS = pa.table({"id": [1]})


def config_of(*topics, **systems):
    return Config(
        namespace="n", topics={topic.name: topic for topic in topics}, routes={}, environments={"local": systems}
    )


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.setenv("LAKEHOUSE_ENV", "local")


class Cluster(Kafka):
    """The cluster by whose id Tableflow names the database."""

    def cluster_id(self):
        return "lkc"


class Behind(Snowflake):
    """An account that shows the first snapshot of the only table."""

    shown: ClassVar[str] = ""

    def metadata_location(self, schema, table):
        return self.shown


def test_reader_that_is_behind_tableflow_is_reported(monkeypatch, catalog, glue):
    iceberg = catalog.iceberg()
    iceberg.create_namespace("lkc")
    table = iceberg.create_table("lkc.orders", ROWS.schema)
    for _ in range(3):
        table.append(ROWS)
        Behind.shown = Behind.shown or table.metadata_location
    glue.client().create_database(DatabaseInput={"Name": "lkc"})
    parameters = {"metadata_location": table.metadata_location, "table_type": "ICEBERG"}
    glue.client().create_table(DatabaseName="lkc", TableInput={"Name": "orders", "Parameters": parameters})
    later = time.time() + 7_200
    monkeypatch.setattr(reader_lag, "time", SimpleNamespace(time=lambda: later))
    sensor = sensor_module.freshness_sensor(config_of(ORDERS, glue={}, snowflake={}))
    names = dict.fromkeys(("account", "user", "role", "warehouse", "database", "aws_role_arn"), "x")
    snowflake = Behind(**names, glue_catalog_id="1", region="us-east-1", private_key_path="none.p8")
    resources = {"kafka": Cluster(bootstrap_servers="none:1"), "catalog": catalog, "glue": glue, "snowflake": snowflake}
    definitions = dg.Definitions(assets=[dg.AssetSpec(["orders", stage]) for stage in ("glue", "snowflake")])
    with (
        dg.instance_for_test() as instance,
        dg.build_sensor_context(
            instance=instance,
            resources=resources,
            definitions=definitions,
        ) as context,
    ):
        events = sensor.evaluate_tick(context).asset_events
    assert {event.asset_key.path[1]: event.passed for event in events} == {"glue": True, "snowflake": False}
    assert "2 snapshots behind" in events[1].description


def test_derived_from_confluent_storage_needs_its_catalog():
    """In another catalog, the snapshot that the topic was derived from looks expired."""
    config = config_of(ORDERS, PAID, tableflow_catalog={})
    assert "tableflow_catalog" in sensor_module.freshness_sensor(config).required_resource_keys
