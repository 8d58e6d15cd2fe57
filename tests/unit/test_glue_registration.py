"""Registration of tables in Glue: concurrent publications never move a table back."""

from types import SimpleNamespace

import boto3
import pyarrow as pa
import pytest
from botocore.exceptions import ClientError
from pyiceberg.catalog import load_catalog
from pyiceberg.schema import Schema

from lakehouse.config.model import Topic
from lakehouse.core.errors import CommitConflict, LakehouseError, UnclearState
from lakehouse.core.offsets.batch import Batch
from lakehouse.core.table_protocol import TOKEN
from lakehouse.core.tables.naming import TableRef
from lakehouse.readers import reader_of
from resources.aws.glue import Glue, GlueRegistration
from resources.iceberg.catalog import Catalog
from resources.iceberg.pauses import pause, pauses
from resources.iceberg.snapshots import last_batch

ROWS = pa.table({"a": pa.array([1, 2], pa.int64())})
TOPIC = Topic(name="orders")


@pytest.fixture(params=["glue", "sql"])
def lake(request, glue, tmp_path):
    """Return the settings of a catalog: Glue itself, or one apart from it."""
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


def register_loaded(ref, loaded, catalog, glue):
    """Register a table in the state that was loaded."""
    clients = SimpleNamespace(catalog=catalog, glue=glue)
    return reader_of("glue").publish(TOPIC, ref, loaded, clients).metadata_location


def register(catalog, glue):
    return register_loaded(*catalog.chain(TOPIC.table_in("trading")).require_published(), catalog, glue)


def registered():
    table = boto3.client("glue").get_table(DatabaseName="trading", Name="orders")["Table"]
    return table["Parameters"]["metadata_location"]


def test_register_table_loaded_before_publication_keeps_newest(lake, glue):
    catalog = Catalog(**lake)
    publish(lake, 0)
    register(catalog, glue)
    ref, loaded = catalog.chain(TOPIC.table_in("trading")).require_published()

    publish(lake, 2)
    register(catalog, glue)  # in a real lake, another process
    newest = registered()
    location = register_loaded(ref, loaded, catalog, glue)

    assert location == newest == registered()
    table = Catalog(**lake).load(TableRef("trading", "orders"))
    assert table.metadata_location == newest
    assert last_batch(table).end == {0: 4}
    assert table.scan().to_arrow().num_rows == 4


def test_register_file_missing_from_metadata_log_advances_table(lake, glue):
    """Iceberg keeps the last 100 metadata files in a table's log; a registration may be older."""
    catalog = Catalog(**lake)
    publish(lake, 0, {"write.metadata.previous-versions-max": "1"})
    register(catalog, glue)
    for start in (2, 4, 6):
        publish(lake, start)

    register(catalog, glue)

    assert registered() == catalog.load(TableRef("trading", "orders")).metadata_location


def test_register_keeps_parameters_of_others(lake, glue):
    catalog, client = Catalog(**lake), boto3.client("glue")
    publish(lake, 0)
    register(catalog, glue)
    table = client.get_table(DatabaseName="trading", Name="orders")["Table"]
    described = {name: table[name] for name in ("Name", "TableType", "Parameters", "StorageDescriptor")}
    described["Parameters"] |= {"classification": "parquet"}
    client.update_table(DatabaseName="trading", TableInput=described)

    publish(lake, 2)
    register(catalog, glue)

    table = client.get_table(DatabaseName="trading", Name="orders")["Table"]
    assert table["Parameters"]["classification"] == "parquet"
    assert registered() == catalog.load(TableRef("trading", "orders")).metadata_location


def test_register_over_dropped_table_is_a_conflict(glue):
    boto3.client("glue").create_database(DatabaseInput={"Name": "trading"})
    table = {"metadata_location": "s3://lake/2.json", "table_uuid": "uuid", "location": "s3://lake", "comment": ""}
    dropped = GlueRegistration("s3://lake/1.json", "uuid", "1")
    with pytest.raises(CommitConflict, match=r"trading\.orders in Glue since it was read .* Retry the run"):
        glue.register("trading", "orders", schema=Schema(), expected=dropped, **table)


def test_register_outdated_table_keeps_newest(lake, glue):
    catalog = Catalog(**lake)
    publish(lake, 0, {"write.metadata.previous-versions-max": "1"})
    ref, loaded = catalog.chain(TOPIC.table_in("trading")).require_published()
    for start in (2, 4, 6):
        publish(lake, start)
    register(catalog, glue)
    newest = registered()

    assert register_loaded(ref, loaded, catalog, glue) == newest == registered()


def test_register_other_catalog_without_table_is_refused(lake, glue):
    """Reader and catalog are of different accounts or regions, so they are two catalogs."""
    publish(lake, 0)
    elsewhere = Glue(region="eu-west-1", catalog_id="123456789012")
    if lake["type"] == "sql":
        assert register(Catalog(**lake), elsewhere)
        return
    with pytest.raises(UnclearState, match="eu-west-1"):
        register(Catalog(**lake), elsewhere)
    assert not boto3.client("glue", region_name="eu-west-1").get_databases()["DatabaseList"]


@pytest.mark.parametrize("commits", [0, 1, 3], ids=["alone", "before one own commit", "before three own commits"])
@pytest.mark.parametrize("properties", [{}, {"write.metadata.previous-versions-max": "1"}], ids=["", "short log"])
def test_register_over_foreign_commit_is_refused(glue, tmp_path, commits, properties):
    (tmp_path / "warehouse").mkdir()
    lake = {"type": "sql", "warehouse": f"file://{tmp_path}/warehouse", "uri": f"sqlite:///{tmp_path}/catalog.db"}
    catalog = Catalog(**lake)
    catalog.iceberg().create_namespace("trading")
    publish(lake, 0, properties)
    register(catalog, glue)
    load_catalog("foreign", type="glue").load_table("trading.orders").append(ROWS)
    foreign = registered()
    for number in range(commits):
        publish(lake, 2 + 2 * number)

    for _ in range(2):
        with pytest.raises(UnclearState, match="Glue shows trading.orders at snapshot .* another writer committed"):
            register(catalog, glue)
        expire_old_snapshots(lake)
    assert registered() == foreign


def expire_old_snapshots(lake):
    """Expire all snapshots but that of main."""
    table = Catalog(**lake).load(TableRef("trading", "orders"))
    old = [s.snapshot_id for s in table.snapshots() if s.snapshot_id != table.metadata.current_snapshot_id]
    if old:
        table.maintenance.expire_snapshots().by_ids(old).commit()


def refuse_to_create_databases(client):
    def refuse(**_):
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "refused"}}, "CreateDatabase")

    client.meta.events.register("before-call.glue.CreateDatabase", refuse)


def test_existing_database_needs_no_right_to_create_databases(lake, glue):
    catalog = Catalog(**lake)
    refuse_to_create_databases(glue.client())
    if lake["type"] == "glue":
        refuse_to_create_databases(catalog.iceberg().glue)
    else:
        boto3.client("glue").create_database(DatabaseInput={"Name": "trading"})

    table = catalog.ensure_table(TableRef("trading", "orders"), Schema())
    pause(catalog, "trading", TOPIC, "migration")
    glue.ensure_database("trading", table.location())

    assert pauses(catalog, "trading").keys() == {"orders"}
    with pytest.raises(LakehouseError, match="CreateDatabase"):
        glue.ensure_database("shop", table.location())
