"""Behaviour of every reader."""

from types import SimpleNamespace

import dagster as dg
import pytest

from assets.streaming import check
from assets.topics.topic_chain import topic_definitions
from lakehouse.config.environment import SYSTEMS
from lakehouse.config.model import Config, Topic
from lakehouse.readers import registered
from lakehouse.readers.freshness import NAMES
from lakehouse.readers.lineage import dataset, upstream
from lakehouse.readers.reader_lag import required_resources, stages_of
from lakehouse.streaming.publishers import reader_publishers
from resources.aws.glue import Glue
from resources.iceberg.catalog import Catalog
from resources.iceberg.rest_catalog import RestCatalog
from resources.kafka.kafka import Kafka
from resources.snowflake.snowflake import Snowflake

READERS = registered()


@pytest.fixture
def config(monkeypatch):
    """Two topics, one of them continuous, in an environment with the system of every reader."""
    monkeypatch.setenv("LAKEHOUSE_ENV", "here")
    topics = {name: Topic(name=name, continuous=name == "streamed") for name in ("orders", "streamed")}
    return Config(namespace="shop", topics=topics, environments={"here": {reader.resource: {} for reader in READERS}})


@pytest.fixture
def clients(tmp_path):
    place = {"region": "us-east-1", "glue_catalog_id": "123456789012", "aws_role_arn": "a"}
    login = {"account": "org-acct", "user": "u", "private_key_path": "k", "role": "r", "warehouse": "w"}
    return SimpleNamespace(
        kafka=Kafka(bootstrap_servers="b-1.example:9092,b-2.example:9092"),
        catalog=Catalog(type="sql", uri="sqlite:///catalog.db", warehouse="s3://lake/tables"),
        glue=Glue(region="us-east-1", catalog_id="123456789012"),
        snowflake=Snowflake(database="lakehouse", **place, **login),
        rest_catalog=RestCatalog(uri="https://polaris.example/api/catalog/", warehouse="lake"),
    )


def graph_of(config, name):
    """Return the asset graph of a topic."""
    resources = dg.Definitions(resources=dict.fromkeys(SYSTEMS, dg.ResourceDefinition.none_resource()))
    return dg.Definitions.merge(topic_definitions(config, config.topics[name]), resources).resolve_asset_graph()


def test_lineage_names_dataset_and_upstream_of_each_stage(config, clients):
    topic = config.topics["orders"]
    graph = graph_of(config, "orders")
    stages = ["kafka", *stages_of(config, topic)]

    datasets = {stage: dataset(config, stage, topic, clients) for stage in stages}

    assert datasets == {
        "kafka": ("kafka://b-1.example:9092", "orders"),
        "iceberg": ("s3://lake", "tables/shop/orders"),
        "glue": ("arn:aws:glue:us-east-1:123456789012", "table/shop/orders"),
        "snowflake": ("snowflake://org-acct", "lakehouse.SHOP.ORDERS"),
        "rest": ("https://polaris.example/api/catalog", "lake.shop.orders"),
    }
    for stage in stages[1:]:
        [parent] = graph.get(dg.AssetKey(["orders", stage])).parent_keys
        assert parent.path == ["orders", upstream(config, stage, topic)[0]]
    with pytest.raises(KeyError):
        dataset(config, "elsewhere", topic, clients)


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_reader_has_resource_label_and_checks(config, reader):
    graph = graph_of(config, "orders")
    checks = {key.name for key in graph.asset_check_keys if key.asset_key.path[1] == reader.name}
    assert reader.resource in SYSTEMS and reader.resource in required_resources(reader.name)
    assert NAMES[reader.name] == f"Iceberg → {reader.label}"
    assert {"fresh", reader.check} <= checks


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_stream_publishes_to_each_reader_instead_of_runs(config, clients, reader):
    graph = graph_of(config, "streamed")
    key = dg.AssetKey(["streamed", reader.name])
    assert graph.get(key).automation_condition is None
    assert dg.AssetCheckKey(key, check.CHECK) in graph.asset_check_keys

    publishers = reader_publishers(config, clients, lambda _: None)
    publisher = next(publisher for publisher in publishers if publisher.reader == reader)
    previous = [other for other in publishers if publisher in other.downstream]
    assert [other.reader.name for other in previous] == [name for name in [reader.upstream] if name != "iceberg"]
