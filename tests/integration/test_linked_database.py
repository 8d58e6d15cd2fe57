"""Snowflake's database that is linked to the REST catalog of the tables, against the stand-in with access control."""

import uuid
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from lakehouse.config.model import Config, Topic
from lakehouse.core.errors import LakehouseError
from lakehouse.core.polling import poll
from lakehouse.core.tables.naming import TableRef
from lakehouse.readers import reader_of
from lakehouse.readers.reader_lag import measure_lag
from tests.support.clouds.rest.client import CREDENTIAL
from tests.support.clouds.rest.lake import catalog_at
from tests.support.clouds.rest.server import SCOPE, WAREHOUSE, Vending
from tests.support.clouds.snowflake.linked import integration_statement
from tests.support.clouds.snowflake.server import Server, trades

pytestmark = pytest.mark.stack
READER = reader_of("snowflake").of_environment({"snowflake": {"linked_catalog": "REST"}, "catalog": {"type": "rest"}})


@pytest.fixture
def catalog(rest_server):
    with Vending(*rest_server) as proxy:
        yield proxy


@dataclass
class Linked:
    """A table in the catalog, and a database that Snowflake is to link."""

    server: Server
    clients: Any
    integration: str
    ref: TableRef
    table: Any

    def publish(self, max_lag_seconds: int = 60) -> Any:
        """Publish the table as pyiceberg loads it, and return what Snowflake shows."""
        topic = Topic(name="Trades", max_lag_seconds=max_lag_seconds)
        return READER.publish_tables(topic, self.ref, self.table.refresh(), self.clients)

    @property
    def database(self) -> str:
        return self.clients.snowflake.database


@pytest.fixture
def linked(server: Server, catalog: Vending):
    """A table with rows, an integration that the role of the resource may use, and no database yet."""
    unique = uuid.uuid4().hex[:8]
    namespace, integration = f"ns_{unique}", f"REST_{unique.upper()}"
    login = {"credential": CREDENTIAL, "scope": SCOPE, "oauth2-server-uri": f"{catalog.address}/v1/oauth/tokens"}
    client = RestCatalog("independent", uri=catalog.address, warehouse=WAREHOUSE, **login)
    client.create_namespace(namespace)
    table = client.create_table((namespace, "trades"), schema=trades(0).schema)
    table.append(trades(5))
    server.admin(
        integration_statement(integration, catalog),
        f"grant usage on integration {integration} to role LOADER_ROLE",
        "grant create database on account to role LOADER_ROLE",
    )
    settings = {"aws_role_arn": "", "glue_catalog_id": "", "region": "", "linked_catalog": integration}
    snowflake = server.resource(database=f"LAKE_{unique.upper()}", **settings)
    clients = SimpleNamespace(catalog=catalog_at(catalog), snowflake=snowflake)
    yield Linked(server, clients, integration, TableRef(namespace, "trades"), table)
    server.admin("revoke create database on account from role LOADER_ROLE")


def test_publish_shows_each_published_snapshot(linked: Linked):
    assert READER.current(linked.ref, linked.clients) is None
    for rows in (5, 8):
        shown = linked.publish()
        assert (shown.snapshot_id, shown.rows) == (linked.table.current_snapshot().snapshot_id, rows)
        assert shown.metadata_location == linked.table.metadata_location
        linked.table.append(trades(3, start=rows))

    for name in (f"{linked.ref}", f'"{linked.ref.namespace}"."trades"', f"{linked.ref}".upper()):
        assert linked.clients.snowflake.query(f"select count(quantity) from {name}")[1] in ([(8,)], [(11,)])
    with pytest.raises(LakehouseError, match="TRADES.*does not exist"):
        linked.clients.snowflake.query(f'select 1 from "{linked.ref.namespace}"."TRADES"')


def test_session_publishes_later_snapshot_of_linked_table(linked: Linked):
    topic = Topic(name="Trades", max_lag_seconds=60)
    with READER.session(linked.clients) as publish:
        publish(topic, linked.ref, linked.table)
        linked.table.append(trades(2, start=5))
        shown = publish(topic, linked.ref, linked.table.refresh())
    assert shown.rows == 7


def test_older_snapshot_is_not_taken_for_one_that_was_rolled_back(linked: Linked):
    linked.publish()
    linked.server.admin(f"alter catalog integration {linked.integration} set refresh_interval_seconds = 86400")
    older, topic = linked.table.current_snapshot().snapshot_id, Topic(name="Trades", max_lag_seconds=1)
    linked.table.append(trades(1, start=5))
    awaited = linked.table.catalog.load_table(linked.table.name())
    linked.table.manage_snapshots().rollback_to_snapshot(older).commit()

    with pytest.raises(LakehouseError, match=f"does not show snapshot {awaited.metadata.current_snapshot_id}"):
        READER.publish_tables(topic, linked.ref, awaited, linked.clients)


def test_lag_of_linked_table_counts_unshown_snapshots(linked: Linked):
    linked.publish()
    linked.server.admin(f"alter catalog integration {linked.integration} set refresh_interval_seconds = 86400")
    linked.table.append(trades(1, start=5))

    topic = Topic(name="Trades", table=linked.ref.name, max_lag_seconds=60)
    config = Config(namespace=linked.ref.namespace, topics={}, environments={})
    lag = measure_lag("snowflake", config, topic, linked.clients)

    assert lag.behind is not None and lag.behind.missing == 1, lag
    message = r"does not show snapshot \d+ of ns_\w+\.trades, but snapshot \d+\. .*SHOW ICEBERG TABLES.*Trades/snowf"
    with pytest.raises(LakehouseError, match=message):
        linked.publish(max_lag_seconds=1)


def test_linked_database_refuses_changes_of_its_tables(linked: Linked):
    linked.publish()
    name = f'{linked.database}."{linked.ref.namespace}"'
    for statement in (
        f'drop iceberg table {name}."trades"',
        f"drop schema {name}",
        f"create schema {linked.database}.other",
        f"create table {name}.other (n int)",
        f'insert into {name}."trades" (quantity) values (1)',
        f'alter iceberg table {name}."trades" refresh',
    ):
        with pytest.raises(LakehouseError, match="NONE|read-only|AUTO_REFRESH"):
            linked.clients.snowflake.query(statement)
    assert linked.table.refresh().scan().to_arrow().num_rows == 5


def test_linked_database_needs_usage_on_integration(linked: Linked):
    linked.server.admin(f"revoke usage on integration {linked.integration} from role LOADER_ROLE")
    with pytest.raises(LakehouseError, match="(?s)refused a statement of user LOADER.*not authorized.*CREATE DATABASE"):
        linked.publish()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("access_delegation_mode = external_volume_credentials", "EXTERNAL_VOLUME is required"),
        ("catalog_api_type = aws_glue", "is not supported"),
    ],
)
def test_linked_database_needs_vended_credentials(linked: Linked, catalog: Vending, settings: str, message: str):
    name = f"{linked.integration}_OTHER"
    statement = integration_statement(name, catalog).replace("ACCESS_DELEGATION_MODE = VENDED_CREDENTIALS", settings)
    link = f"create database {name} linked_catalog = (catalog = '{name}', allowed_namespaces = ('a'))"
    with pytest.raises(Exception, match=message):
        linked.server.admin(statement, link)


def test_publish_names_refusal_of_catalog_at_once(linked: Linked, catalog: Vending):
    name = f"{linked.integration}_WRONG"
    linked.server.admin(
        integration_statement(name, catalog, secret="an-old-one"),
        f"grant usage on integration {name} to role LOADER_ROLE",
    )
    settings = {"aws_role_arn": "", "glue_catalog_id": "", "region": "", "linked_catalog": name}
    linked.clients.snowflake = linked.server.resource(database=f"{linked.database}_WRONG", **settings)
    with pytest.raises(LakehouseError, match=r"no such table \(.*unauthorized_client.*The table itself is published"):
        linked.publish(max_lag_seconds=3600)


def test_tables_of_catalog_appear_and_leave_after_interval(linked: Linked):
    linked.publish()
    catalog, other = linked.table.catalog, TableRef(linked.ref.namespace, "other")
    catalog.create_table(other.identifier, schema=pa.schema([("n", pa.int64())])).append(pa.table({"n": [1]}))
    catalog.drop_table(linked.table.name())

    def is_synchronized() -> bool:
        return READER.current(other, linked.clients) is not None

    assert poll(is_synchronized, pause=2, deadline_seconds=60), "Snowflake's interval is 30 seconds"
    assert READER.current(linked.ref, linked.clients) is None
    assert READER.counted(other, linked.clients).rows == 1
