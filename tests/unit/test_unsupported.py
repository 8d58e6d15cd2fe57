"""Refusal of unsupported brokers and table formats before anything is written."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Uuid
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from lakehouse.config.model import Topic
from lakehouse.core.errors import UnclearState
from lakehouse.core.tables.naming import TableRef
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.ingestion import ingest
from resources.iceberg.catalog import Catalog
from resources.kafka.kafka import Kafka, Offsets, TopicDescription
from resources.schema_registry import SchemaRegistry
from resources.spark.servers import Connect
from spark.engine import SparkEngines

SCHEMA = Schema(NestedField(1, "a", LongType(), required=False))
ROWS = pa.table({"a": pa.array([1], pa.int64())})


class OldBrokers(Kafka):
    """Brokers of a release without topic ids."""

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


def test_ingest_brokers_without_topic_ids_are_refused(lake):
    catalog = Catalog(type="sql", **lake)
    address = "127.0.0.1:1"
    registry, engines = SchemaRegistry(url=f"http://{address}"), SparkEngines(Connect(remote=f"sc://{address}"))
    systems = Clients(OldBrokers(bootstrap_servers=address), registry, engines, catalog)

    with pytest.raises(UnclearState, match="Topic 'orders' has no topic id"):
        list(ingest("trading", Topic(name="orders"), systems))


def test_ensure_table_newer_format_version_is_refused(lake):
    iceberg = SqlCatalog("lake", **lake)
    iceberg.create_namespace("trading")
    table = iceberg.create_table(("trading", "orders"), ROWS.schema)
    metadata = json.loads(Path(table.metadata_location.removeprefix("file://")).read_text())
    file = Path(lake["warehouse"].removeprefix("file://")) / "00009-upgraded.metadata.json"
    file.write_text(json.dumps(metadata | {"format-version": 3, "next-row-id": 0}))
    iceberg.drop_table(("trading", "orders"))
    iceberg.register_table(("trading", "orders"), str(file))

    with pytest.raises(UnclearState, match="has Iceberg format version 3"):
        Catalog(type="sql", **lake).ensure_table(TableRef("trading", "orders"), table.schema())


@pytest.mark.parametrize("name", ["write.format.default", "write.delete.format.default"])
def test_ensure_table_with_files_in_another_format_is_refused(lake, name):
    catalog = Catalog(type="sql", **lake)
    table = catalog.ensure_table(TableRef("trading", "orders"), SCHEMA)
    for accepted in ("PARQUET", "parquet"):
        with table.transaction() as transaction:
            transaction.set_properties({name: accepted})
        table = catalog.ensure_table(TableRef("trading", "orders"), SCHEMA, existing=table)
    with table.transaction() as transaction:
        transaction.set_properties({name: "orc"})

    with pytest.raises(UnclearState, match=rf"has the property {name} = orc.* UNSET TBLPROPERTIES \('{name}'\)"):
        catalog.ensure_table(TableRef("trading", "orders"), SCHEMA, existing=table)
