"""What holds for every reader, because nothing else lists them."""

from types import SimpleNamespace

import dagster as dg
import pytest

from assets.streaming import results
from assets.topic import topic_definitions
from lakehouse.config.loader import Config
from lakehouse.config.topic import Topic
from lakehouse.readers import configured, registered
from lakehouse.readers.freshness import NAMES
from lakehouse.readers.hops import hops_of, needs
from lakehouse.readers.lineage import dataset, upstream
from lakehouse.streaming.followers import followers
from resources.aws import Glue
from resources.build import SYSTEMS
from resources.catalog import Catalog
from resources.kafka import Kafka
from resources.rest_catalog import RestCatalog
from resources.snowflake import Snowflake

READERS = registered()


@pytest.fixture
def config(monkeypatch):
    """Two topics, one of them continuous, in an environment that names the system of every reader."""
    monkeypatch.setenv("LAKEHOUSE_ENV", "here")
    topics = {name: Topic(name=name, continuous=name == "streamed") for name in ("orders", "streamed")}
    return Config(namespace="shop", topics=topics, environments={"here": {reader.resource: {} for reader in READERS}})


@pytest.fixture
def clients(tmp_path):
    place = {"region": "us-east-1", "glue_catalog_id": "123456789012", "aws_role_arn": "a"}
    login = {"account": "org-acct", "user": "u", "private_key_path": "k", "role": "r", "warehouse": "w"}
    return SimpleNamespace(
        kafka=Kafka(bootstrap_servers="b-1.example:9092,b-2.example:9092"),
        catalog=Catalog(type="sql", warehouse="s3://lake/tables"),
        glue=Glue(region="us-east-1", catalog_id="123456789012"),
        snowflake=Snowflake(database="lakehouse", **place, **login),
        rest_catalog=RestCatalog(uri="https://polaris.example/api/catalog/", warehouse="lake"),
    )


def graph_of(config, name):
    """What Dagster knows of a topic; nothing is run."""
    given = dg.Definitions(resources=dict.fromkeys(SYSTEMS, dg.ResourceDefinition.none_resource()))
    return dg.Definitions.merge(topic_definitions(config, config.topics[name]), given).resolve_asset_graph()


def test_lineage_names_the_dataset_of_each_hop_and_what_its_asset_depends_on(config, clients):
    topic = config.topics["orders"]
    graph = graph_of(config, "orders")
    hops = ["kafka", *hops_of(config, topic)]

    datasets = {hop: dataset(config, hop, topic, clients) for hop in hops}

    assert datasets == {
        "kafka": ("kafka://b-1.example:9092", "orders"),
        "iceberg": ("s3://lake", "tables/shop/orders"),
        "glue": ("arn:aws:glue:us-east-1:123456789012", "table/shop/orders"),
        "snowflake": ("snowflake://org-acct", "LAKEHOUSE.SHOP.ORDERS"),
        "rest": ("https://polaris.example/api/catalog", "lake.shop.orders"),
    }
    for hop in hops[1:]:
        [parent] = graph.get(dg.AssetKey([hop, "orders"])).parent_keys
        assert parent.path == [upstream(config, hop, topic)[0], "orders"]
    with pytest.raises(KeyError):
        dataset(config, "elsewhere", topic, clients)


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_each_reader_has_a_resource_a_name_of_its_hop_and_checks(config, reader):
    graph = graph_of(config, "orders")
    checks = {key.name for key in graph.asset_check_keys if key.asset_key.path[0] == reader.name}
    assert reader.resource in SYSTEMS and reader.resource in needs(reader.name)
    assert NAMES[reader.name] == f"Iceberg → {reader.label}"
    assert {"fresh", reader.check} <= checks


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_a_stream_publishes_to_each_reader_so_that_no_run_does(config, clients, reader):
    graph = graph_of(config, "streamed")
    key = dg.AssetKey([reader.name, "streamed"])
    assert graph.get(key).automation_condition is None
    assert dg.AssetCheckKey(key, results.CHECK) in graph.asset_check_keys

    served = followers(config, clients, lambda _: None)
    follower = next(one for one in served if one.reader == reader)
    first = [one for one in served if follower in one.then]
    assert [one.reader.name for one in first] == [name for name in [reader.upstream] if name != "iceberg"]


def test_an_optional_reader_is_used_only_where_its_system_is_configured(config):
    elsewhere = config.model_copy(update={"environments": {"here": {}}})
    assert [reader.name for reader in configured(config)] == ["glue", "snowflake", "rest"]
    assert [reader.name for reader in configured(elsewhere)] == ["glue", "snowflake"]
