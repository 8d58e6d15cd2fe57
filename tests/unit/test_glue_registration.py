"""A registration in Glue never moves a table back, whoever publishes at the same time."""

from types import SimpleNamespace

import boto3
import pyarrow as pa
import pytest
from moto import mock_aws
from pyiceberg.catalog import load_catalog

from lakehouse.config.topic import Topic
from lakehouse.core.batch import TOKEN, Batch
from lakehouse.core.errors import UnclearState
from lakehouse.readers import reader_of
from resources.aws import Glue
from resources.catalog import Catalog
from resources.snapshots import last_batch

ROWS = pa.table({"a": pa.array([1, 2], pa.int64())})
TOPIC = Topic(name="orders")


@pytest.fixture
def glue(monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_GLUE", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    with mock_aws():
        yield Glue(region="us-east-1", catalog_id="123456789012")


@pytest.fixture(params=["glue", "sql"])
def lake(request, glue, tmp_path):
    """The settings of a catalog: Glue itself, or one apart from it."""
    (tmp_path / "warehouse").mkdir()
    settings = {"type": request.param, "warehouse": f"file://{tmp_path}/warehouse", "region": "us-east-1"}
    if request.param == "sql":
        settings["uri"] = f"sqlite:///{tmp_path}/catalog.db"
    Catalog(**settings).iceberg().create_namespace("trading")
    return settings


def publish(lake, start, properties=None):
    """Append two rows as the batch of offsets `start` and `start` + 1."""
    catalog = Catalog(**lake).iceberg()
    table = catalog.create_table_if_not_exists(("trading", "orders"), ROWS.schema, properties=properties or {})
    token = Batch("cluster", "orders", "topic-id", {0: start}, {0: start + 2}).to_json()
    table.append(ROWS, snapshot_properties={TOKEN: token})


def point_at(topic, loaded, catalog, glue):
    """Register a table as it was loaded."""
    clients = SimpleNamespace(catalog=catalog, glue=glue)
    return reader_of("glue").publish("trading", topic, loaded, clients).metadata_location


def register(catalog, glue):
    return point_at(*catalog.published("trading", TOPIC), catalog, glue)


def registered():
    table = boto3.client("glue").get_table(DatabaseName="trading", Name="orders")["Table"]
    return table["Parameters"]["metadata_location"]


def test_registering_a_table_loaded_before_a_publication_keeps_the_publication(lake, glue):
    catalog = Catalog(**lake)
    publish(lake, 0)
    register(catalog, glue)
    topic, loaded = catalog.published("trading", TOPIC)

    publish(lake, 2)
    register(catalog, glue)  # in a real lake, another process
    newest = registered()
    shown = point_at(topic, loaded, catalog, glue)

    assert shown == newest == registered()
    table = Catalog(**lake).load("trading", "orders")
    assert table.metadata_location == newest
    assert last_batch(table).end == {0: 4}
    assert table.scan().to_arrow().num_rows == 4


def test_registration_advances_a_table_whose_metadata_log_forgot_the_registered_file(lake, glue):
    """Iceberg keeps the last 100 metadata files in a table's log; a registration may be older."""
    catalog = Catalog(**lake)
    publish(lake, 0, {"write.metadata.previous-versions-max": "1"})
    register(catalog, glue)
    for start in (2, 4, 6):
        publish(lake, start)

    register(catalog, glue)

    assert registered() == catalog.load("trading", "orders").metadata_location


def test_old_table_is_not_registered_over_one_that_forgot_it(lake, glue):
    catalog = Catalog(**lake)
    publish(lake, 0, {"write.metadata.previous-versions-max": "1"})
    topic, loaded = catalog.published("trading", TOPIC)
    for start in (2, 4, 6):
        publish(lake, start)
    register(catalog, glue)
    newest = registered()

    assert point_at(topic, loaded, catalog, glue) == newest == registered()


def test_glue_as_catalog_that_does_not_have_the_table_is_refused(lake, glue):
    """The reader's settings and the catalog's name different accounts or regions, so they are two catalogs."""
    publish(lake, 0)
    elsewhere = Glue(region="eu-west-1", catalog_id="123456789012")
    if lake["type"] == "sql":
        assert register(Catalog(**lake), elsewhere)
        return
    with pytest.raises(UnclearState, match="eu-west-1"):
        register(Catalog(**lake), elsewhere)
    assert not boto3.client("glue", region_name="eu-west-1").get_databases()["DatabaseList"]


@pytest.mark.parametrize("ours", [0, 1, 3], ids=["it alone", "one commit of ours after it", "three commits of ours"])
@pytest.mark.parametrize("forgetful", [{}, {"write.metadata.previous-versions-max": "1"}], ids=["", "short log"])
def test_a_commit_that_somebody_made_through_glue_is_not_overwritten(glue, tmp_path, ours, forgetful):
    (tmp_path / "warehouse").mkdir()
    lake = {"type": "sql", "warehouse": f"file://{tmp_path}/warehouse", "uri": f"sqlite:///{tmp_path}/catalog.db"}
    catalog = Catalog(**lake)
    catalog.iceberg().create_namespace("trading")
    publish(lake, 0, forgetful)
    register(catalog, glue)
    load_catalog("theirs", type="glue").load_table("trading.orders").append(ROWS)
    theirs = registered()
    for number in range(ours):
        publish(lake, 2 + 2 * number)

    for _ in range(2):
        with pytest.raises(UnclearState, match="Glue shows trading.orders at snapshot .* somebody wrote"):
            register(catalog, glue)
    assert registered() == theirs
