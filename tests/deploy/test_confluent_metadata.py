"""The states of connectors and Tableflow as metadata of their assets, which never fail because of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from assets.topics.iceberg_asset import tableflow_asset
from assets.topics.kafka_asset import topic_asset
from lakehouse.config.model import Config
from lakehouse.pipeline.clients import CLIENTS
from resources.aws.glue import Glue
from resources.confluent.confluent_cloud import ConfluentCloud
from tests.support.clouds.confluent.server import ConfluentServer, Fault
from tools.repository import PROJECT

pytestmark = pytest.mark.stack

DATAGEN = {"type": "datagen", "schema_file": "schemas/users.avsc"}


def metadata(resources: Any, cloud: ConfluentCloud, system: str) -> dict[str, Any]:
    """Materialize one asset of the topic `trades`, and return its metadata."""
    config = Config(
        namespace="trading",
        topics={"trades": {"name": "trades", "key": "userid", "engine": "tableflow", "source": DATAGEN}},
        environments={"local": {"glue": {}, "confluent_cloud": {}}},
        root=PROJECT,
        file=Path("lakehouse.yaml"),
    )
    asset = {"kafka": topic_asset, "iceberg": tableflow_asset}[system](config, config.topics["trades"])
    known = resources.glue
    database = cloud.cluster_id.replace("-", "_")
    glue = Glue(region=known.region, catalog_id=known.catalog_id, tableflow_database=database)
    systems = {name: getattr(resources, name) for name in CLIENTS}
    result = dg.materialize([asset], resources=systems | {"glue": glue, "confluent_cloud": cloud})
    [event] = result.asset_materializations_for_node(f"trades__{system}")
    return {name: entry.value for name, entry in event.metadata.items()}


def test_topic_asset_has_connector_state(resources: Any, vendor: ConfluentServer, cloud: ConfluentCloud):
    running = metadata(resources, cloud, "kafka")
    assert (running["connector_state"], running["connector_tasks"]) == ("RUNNING", "0: RUNNING")
    [connector] = vendor.state.connectors.values()
    connector["status"]["connector"] |= {"state": "FAILED", "trace": "out of memory"}
    failed = metadata(resources, cloud, "kafka")
    assert failed["connector_state"] == "FAILED" and "out of memory" in failed["connector_problem"]
    vendor.faults = [Fault(times=99, cut="before")]
    unknown = metadata(resources, cloud, "kafka")
    assert unknown["connector_state"] == "UNKNOWN" and "does not answer" in unknown["connector_problem"]
    assert running.keys() - {"connector_name", "connector_tasks"} == unknown.keys() - {"connector_problem"}


def test_table_asset_has_tableflow_state(resources: Any, vendor: ConfluentServer, cloud: ConfluentCloud):
    catalog, name = resources.catalog.iceberg(), (cloud.cluster_id.replace("-", "_"), "trades")
    rows = pa.table({"userid": pa.array([1], pa.int64())})
    catalog.create_namespace(name[0])
    catalog.create_table(name, schema=rows.schema).append(rows)
    [topic] = vendor.state.tableflow_topics.values()

    running = metadata(resources, cloud, "iceberg")

    assert running["tableflow_state"] == "RUNNING"
    assert running["tableflow_table_path"] == topic["spec"]["storage"]["table_path"]
    topic["spec"]["suspended"] = True
    topic["status"]["error_message"] = "record 7 is not valid"
    suspended = metadata(resources, cloud, "iceberg")
    assert (suspended["tableflow_state"], suspended["tableflow_error"]) == ("SUSPENDED", "record 7 is not valid")
    assert suspended["dagster/row_count"] == 1
