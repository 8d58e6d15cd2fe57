"""What this release cannot keep its word about is refused before anything is written."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Uuid
from pyiceberg.catalog.sql import SqlCatalog

from lakehouse.config.topic import Topic
from lakehouse.core.errors import UnclearState
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.ingestion import ingest
from resources.catalog import Catalog
from resources.kafka import Kafka, Offsets, TopicDescription
from resources.schema_registry import SchemaRegistry
from resources.spark import Spark

ROWS = pa.table({"a": pa.array([1], pa.int64())})


class OldBrokers(Kafka):
    """Brokers from before topics had ids."""

    def cluster_id(self):
        return "c"

    def describe(self, topics):
        return {topic: TopicDescription(str(Uuid(0, 0)), 1) for topic in topics}

    def offsets(self, topics, *, committed=True):
        return {topic: {0: Offsets(0, 1)} for topic in topics}


@pytest.fixture
def lake(tmp_path):
    (tmp_path / "warehouse").mkdir()
    return {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}


def test_brokers_that_cannot_tell_a_recreated_topic_are_refused(lake):
    catalog = Catalog(type="sql", **lake)
    nowhere = "127.0.0.1:1"
    registry, spark = SchemaRegistry(url=f"http://{nowhere}"), Spark(remote=f"sc://{nowhere}")
    systems = Clients(OldBrokers(bootstrap_servers=nowhere), registry, spark, catalog)

    with pytest.raises(UnclearState, match="give topic 'orders' no id"):
        list(ingest("trading", Topic(name="orders"), systems))


def test_a_table_that_somebody_upgraded_is_refused(lake):
    independent = SqlCatalog("lake", **lake)
    independent.create_namespace("trading")
    table = independent.create_table(("trading", "orders"), ROWS.schema)
    metadata = json.loads(Path(table.metadata_location.removeprefix("file://")).read_text())
    file = Path(lake["warehouse"].removeprefix("file://")) / "00009-upgraded.metadata.json"
    file.write_text(json.dumps(metadata | {"format-version": 3, "next-row-id": 0}))
    independent.drop_table(("trading", "orders"))
    independent.register_table(("trading", "orders"), str(file))

    with pytest.raises(UnclearState, match="has Iceberg format version 3"):
        Catalog(type="sql", **lake).ensure_table("trading", "orders", table.schema())
