"""The local Snowflake server, asked through the real connector and the project's resource, over tables in S3 and Glue.

The server under test is one of its own, so that its administrator is known; S3 and Glue are the stack's.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from snowflake.connector.errors import DatabaseError

from lakehouse.errors import LakehouseError, Unreachable
from lakehouse.local.snowflake import bootstrap
from resources.snowflake import Snowflake

pytestmark = [pytest.mark.stack, pytest.mark.usefixtures("stack")]

BIG = 9_007_199_254_740_993
"""2^53 + 1: the first integer that a double cannot hold."""

TRADES = pa.schema(
    [
        pa.field("userid", pa.string()),
        pa.field("quantity", pa.int64()),
        pa.field("lots", pa.int32()),
        pa.field("price", pa.decimal128(18, 4)),
        pa.field("traded_at", pa.timestamp("us", tz="UTC")),
        pa.field("$$offset", pa.int64()),
    ]
)


def trades(count: int, start: int = 0) -> pa.Table:
    """Rows whose sums no double holds."""
    return pa.Table.from_pylist(
        [
            {
                "userid": f"User_{i % 7}",
                "quantity": BIG + i,
                "lots": i % 100,
                "price": Decimal(i) / Decimal(10_000) + Decimal("12345678901.1111"),
                "traded_at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=i),
                "$$offset": i,
            }
            for i in range(start, start + count)
        ],
        schema=TRADES,
    )


def key_pair(folder: Path, name: str) -> tuple[Path, str]:
    """A private key's file, and the base64 body of its public key."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    path = folder / name
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    der = key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return path, base64.b64encode(der).decode()


@dataclass
class Server:
    """A running server: where, and the keys to it."""

    port: int
    admin_password: str
    key_path: Path
    public_key: str

    def ensure(self) -> None:
        """What `lakehouse up` does after the start."""
        bootstrap.ensure(
            host="127.0.0.1",
            port=self.port,
            account="LOCAL",
            admin_password=self.admin_password,
            user="LOADER",
            role="LOADER_ROLE",
            warehouse="WH",
            database="DB",
            public_key=self.public_key,
        )

    def resource(self, **overrides: Any) -> Snowflake:
        """The project's resource, pointed at this server."""
        settings = {
            "account": "LOCAL",
            "user": "LOADER",
            "private_key_path": str(self.key_path),
            "role": "LOADER_ROLE",
            "warehouse": "WH",
            "database": "DB",
            "aws_role_arn": "arn:aws:iam::123456789012:role/lakehouse-snowflake",
            "glue_catalog_id": "123456789012",
            "region": os.environ["AWS_REGION"],
            "host": "127.0.0.1",
            "port": self.port,
            "protocol": "http",
        }
        return Snowflake(**(settings | overrides))

    def admin(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements as the administrator; the rows of the last."""
        import snowflake.connector

        with snowflake.connector.connect(
            account="LOCAL",
            user="ADMIN",
            password=self.admin_password,
            host="127.0.0.1",
            port=self.port,
            protocol="http",
            login_timeout=10,
            network_timeout=30,
            platform_detection_timeout_seconds=0,
        ) as connection:
            return [connection.cursor().execute(statement).fetchall() for statement in statements][-1]


@pytest.fixture(scope="module")
def server(stack: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("snowflake")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    key_path, public_key = key_pair(home, "key.p8")
    running = Server(port, secrets.token_urlsafe(8), key_path, public_key)
    environment = os.environ | {
        "LAKEHOUSE_HOME": str(home),
        "SNOWFLAKE_PORT": str(port),
        "SNOWFLAKE_ACCOUNT": "LOCAL",
        "SNOWFLAKE_ADMIN_PASSWORD": running.admin_password,
    }
    with (home / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "lakehouse.local.snowflake"], env=environment, stdout=log, stderr=log
        )
    try:
        deadline = time.monotonic() + 60
        while not _healthy(port):
            assert process.poll() is None and time.monotonic() < deadline, (home / "log").read_text()
            time.sleep(0.1)
        running.ensure()
        running.resource().ensure_account_objects("s3://lakehouse/")
        yield running
    finally:
        process.terminate()
        process.wait(10)


def _healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2) as answer:
            return answer.status == 200
    except OSError:
        return False


class Lake:
    """Tables made by pyiceberg in a SQL catalog of their own, and registered in Glue, as the project does."""

    def __init__(self, folder: Path):
        from pyiceberg.catalog.glue import GlueCatalog
        from pyiceberg.catalog.sql import SqlCatalog

        s3 = {
            "s3.endpoint": os.environ.get("AWS_ENDPOINT_URL_S3", os.environ["AWS_ENDPOINT_URL"]),
            "s3.region": os.environ["AWS_REGION"],
        }
        self.database = f"test_{uuid.uuid4().hex[:8]}"
        self.warehouse = f"s3://lakehouse/{self.database}"
        self.file = folder / "catalog.db"
        self.sql = SqlCatalog("test", uri=f"sqlite:///{self.file}", warehouse=self.warehouse, **s3)
        self.glue = GlueCatalog("glue", **s3)
        self.sql.create_namespace(self.database)
        self.glue.create_namespace(self.database)

    def create(self, name: str, rows: pa.Table) -> Any:
        """A table with these rows, registered."""
        table = self.sql.create_table((self.database, name), schema=rows.schema)
        if rows.num_rows:
            table.append(rows)
        self.glue.register_table((self.database, name), table.metadata_location)
        return table

    def spark_settings(self) -> dict[str, str]:
        """The SQL catalog, for a Spark session."""
        properties = {
            "type": "jdbc",
            "uri": f"jdbc:sqlite:{self.file}",
            "jdbc.schema-version": "V1",
            "warehouse": self.warehouse,
            "cache-enabled": "false",
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "s3.endpoint": os.environ.get("AWS_ENDPOINT_URL_S3", os.environ["AWS_ENDPOINT_URL"]),
            "s3.path-style-access": "true",
            "s3.access-key-id": os.environ["AWS_ACCESS_KEY_ID"],
            "s3.secret-access-key": os.environ["AWS_SECRET_ACCESS_KEY"],
            "client.region": os.environ["AWS_REGION"],
        }
        catalog = "spark.sql.catalog.test"
        return {catalog: "org.apache.iceberg.spark.SparkCatalog"} | {
            f"{catalog}.{key}": value for key, value in properties.items()
        }

    def promote(self, table: Any) -> None:
        """Point Glue at the table's current metadata."""
        name = table.name()
        self.glue.drop_table(name)
        self.glue.register_table(name, table.metadata_location)


@pytest.fixture(scope="module")
def lake(stack: object, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return Lake(tmp_path_factory.mktemp("catalog"))


def test_preparing_and_ensuring_twice_changes_nothing(server: Server, lake: Lake):
    server.ensure()
    snowflake = server.resource()
    snowflake.ensure_account_objects("s3://lakehouse/")
    lake.create("twice", trades(3))
    for _ in range(2):
        snowflake.ensure_iceberg_table(lake.database, "twice", lake.database, "twice")
    assert snowflake.table_state(lake.database, "twice").row_count == 3


def test_sums_are_exact(server: Server, lake: Lake):
    rows = trades(5000)
    lake.create("sums", rows)
    snowflake = server.resource()
    snowflake.ensure_iceberg_table(lake.database, "sums", lake.database, "sums")
    _, [answer] = snowflake.query(
        f'select count(*), sum(quantity), sum(lots), sum(price), sum(quantity * lots), max(traded_at), min("$$OFFSET")'
        f" from DB.{lake.database}.sums"
    )
    data = rows.to_pylist()
    assert answer == (
        5000,
        sum(row["quantity"] for row in data),
        sum(row["lots"] for row in data),
        sum(row["price"] for row in data),
        sum(row["quantity"] * row["lots"] for row in data),
        max(row["traded_at"] for row in data),
        0,
    )


def test_every_row_arrives_with_its_type(server: Server, lake: Lake):
    rows = trades(250)
    lake.create("rows", rows)
    snowflake = server.resource()
    snowflake.ensure_iceberg_table(lake.database, "rows", lake.database, "rows")
    names, answer = snowflake.query(f'select * from DB.{lake.database}.rows order by "$$OFFSET"')
    assert names == [name.upper() for name in rows.schema.names]
    assert answer == [tuple(row.values()) for row in rows.to_pylist()]


def test_the_types_of_iceberg_version_2(server: Server, lake: Lake):
    row = {
        "b": True,
        "f": 0.5,
        "d": dt.date(1969, 12, 31),
        "t": dt.time(23, 59, 59, 999_999),
        "ts": dt.datetime(1969, 12, 31, 23, 59, 59, 999_999),
        "bin": b"\x00\xff",
        "nested": {"city": "Zürich", "tags": ["a", None]},
        "nothing": None,
    }
    schema = pa.schema(
        [
            ("b", pa.bool_()),
            ("f", pa.float32()),
            ("d", pa.date32()),
            ("t", pa.time64("us")),
            ("ts", pa.timestamp("us")),
            ("bin", pa.binary()),
            ("nested", pa.struct([("city", pa.string()), ("tags", pa.list_(pa.string()))])),
            ("nothing", pa.int64()),
        ]
    )
    lake.create("types", pa.Table.from_pylist([row], schema=schema))
    snowflake = server.resource()
    snowflake.ensure_iceberg_table(lake.database, "types", lake.database, "types")
    _, [answer] = snowflake.query(f"select b, f, d, t, ts, bin, nothing from DB.{lake.database}.types")
    assert answer == tuple(value for name, value in row.items() if name != "nested")
    _, [(city,)] = snowflake.query(f"select nested:city::varchar from DB.{lake.database}.types")
    assert city == "Zürich"


def test_a_table_moves_only_when_refreshed(server: Server, lake: Lake):
    table = lake.create("moves", trades(10))
    snowflake = server.resource()
    snowflake.ensure_iceberg_table(lake.database, "moves", lake.database, "moves")
    first = snowflake.table_state(lake.database, "moves")
    assert first == (type(first)(table.metadata_location, 10))

    table.append(trades(5, start=10))
    snowflake.refresh(lake.database, "moves")
    assert snowflake.table_state(lake.database, "moves") == first, "Glue was not promoted yet"

    lake.promote(table)
    assert snowflake.table_state(lake.database, "moves") == first, "no refresh was asked for"

    snowflake.refresh(lake.database, "moves")
    second = snowflake.table_state(lake.database, "moves")
    assert (second.metadata_location, second.row_count) == (table.metadata_location, 15)


def test_a_new_column_and_deleted_rows_arrive_by_refresh(server: Server, lake: Lake):
    table = lake.create("evolves", trades(10))
    snowflake = server.resource()
    snowflake.ensure_iceberg_table(lake.database, "evolves", lake.database, "evolves")
    from pyiceberg.types import StringType

    with table.update_schema() as update:
        update.add_column("venue", StringType())
        update.rename_column("lots", "parcels")
    table.delete(f"quantity < {BIG + 4}")
    lake.promote(table)
    snowflake.refresh(lake.database, "evolves")
    names, rows = snowflake.query(f"select * from DB.{lake.database}.evolves")
    assert "VENUE" in names and "PARCELS" in names and "LOTS" not in names
    assert len(rows) == 6


def test_position_deletes_are_applied(server: Server, lake: Lake):
    """Spark writes them, in the merge-on-read mode of the project's tables."""
    from pyspark.sql import SparkSession

    rows = trades(1000)
    table = lake.create("deleted", rows)
    snowflake = server.resource()
    snowflake.ensure_iceberg_table(lake.database, "deleted", lake.database, "deleted")
    spark = SparkSession.builder.remote(os.environ["SPARK_REMOTE"]).create()
    try:
        for key, value in lake.spark_settings().items():
            spark.conf.set(key, value)
        name = f"test.{lake.database}.deleted"
        spark.sql(f"alter table {name} set tblproperties ('write.delete.mode' = 'merge-on-read')")
        spark.sql(f"delete from {name} where `$$offset` % 3 = 0")
    finally:
        spark.stop()
    table.refresh()
    assert table.inspect.delete_files().num_rows > 0, "Spark rewrote the data files instead"
    lake.promote(table)
    snowflake.refresh(lake.database, "deleted")
    left = [row["quantity"] for row in rows.to_pylist() if row["$$offset"] % 3]
    assert snowflake.query(f"select count(*), sum(quantity) from DB.{lake.database}.deleted")[1] == [
        (len(left), sum(left))
    ]


def test_an_empty_table(server: Server, lake: Lake):
    lake.create("empty", TRADES.empty_table())
    snowflake = server.resource()
    snowflake.ensure_iceberg_table(lake.database, "empty", lake.database, "empty")
    assert snowflake.query(f"select count(*), sum(quantity) from DB.{lake.database}.empty")[1] == [(0, None)]


def test_show_iceberg_tables(server: Server, lake: Lake):
    lake.create("shown", trades(1))
    snowflake = server.resource()
    snowflake.ensure_iceberg_table(lake.database, "shown", lake.database, "shown")
    names, rows = snowflake.query(f"show iceberg tables like 'SHO%' in schema DB.{lake.database}")
    [row] = [dict(zip(names, row, strict=True)) for row in rows]
    assert (row["name"], row["schema_name"], row["catalog_namespace"], row["iceberg_table_type"]) == (
        "SHOWN",
        lake.database.upper(),
        lake.database,
        "UNMANAGED",
    )
    snowflake.drop_iceberg_table(lake.database, "shown")
    snowflake.drop_iceberg_table(lake.database, "shown")
    assert snowflake.query(f"show iceberg tables like 'SHOWN' in schema DB.{lake.database}")[1] == []


def test_describe_tells_what_a_trust_policy_needs(server: Server):
    snowflake = server.resource()
    names, rows = snowflake.query("desc external volume LAKEHOUSE_VOLUME")
    [location] = [json.loads(row[names.index("property_value")]) for row in rows if row[1] == "STORAGE_LOCATION_1"]
    assert location["STORAGE_BASE_URL"] == "s3://lakehouse/"
    assert location["STORAGE_AWS_ROLE_ARN"] == snowflake.aws_role_arn
    assert location["STORAGE_AWS_IAM_USER_ARN"].startswith("arn:aws:iam::") and location["STORAGE_AWS_EXTERNAL_ID"]
    names, rows = snowflake.query("describe catalog integration LAKEHOUSE_GLUE")
    properties = {row[0]: row[names.index("property_value")] for row in rows}
    assert properties["CATALOG_SOURCE"] == "GLUE" and properties["ENABLED"] == "true"
    assert properties["GLUE_AWS_IAM_USER_ARN"] and properties["GLUE_AWS_EXTERNAL_ID"]


def test_what_a_table_stands_on_cannot_be_dropped(server: Server, lake: Lake):
    lake.create("stands", trades(1))
    snowflake = server.resource()
    snowflake.ensure_iceberg_table(lake.database, "stands", lake.database, "stands")
    for statement in ("drop external volume LAKEHOUSE_VOLUME", "drop catalog integration LAKEHOUSE_GLUE"):
        with pytest.raises(LakehouseError, match="uses it"):
            snowflake.query(statement)
    snowflake.query(f"drop schema DB.{lake.database}")
    assert snowflake.query("show iceberg tables like 'STANDS' in account")[1] == []
    # The schema was shared with the tests before: a new one is made where it is needed.
    snowflake.ensure_iceberg_table(lake.database, "stands", lake.database, "stands")
    assert snowflake.table_state(lake.database, "stands").row_count == 1


def test_readers_never_see_half_a_refresh(server: Server, lake: Lake):
    table = lake.create("atomic", trades(20_000))
    snowflake = server.resource()
    snowflake.ensure_iceberg_table(lake.database, "atomic", lake.database, "atomic")
    seen: set[int] = set()
    refreshed = threading.Event()

    def read() -> None:
        with snowflake.connect() as connection:
            while not refreshed.is_set():
                [(count,)] = connection.cursor().execute(f"select count(*) from DB.{lake.database}.atomic").fetchall()
                seen.add(count)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    try:
        for _ in range(3):
            table.append(trades(20_000))
            lake.promote(table)
            snowflake.refresh(lake.database, "atomic")
    finally:
        refreshed.set()
        for reader in readers:
            reader.join(30)
    assert seen and seen <= {20_000, 40_000, 60_000, 80_000}


def test_the_session_knows_who_and_where_it_is(server: Server):
    _, [row] = server.resource().query(
        "select current_account(), current_user(), current_role(), current_warehouse(), current_database(),"
        " current_region()"
    )
    region = "AWS_" + os.environ["AWS_REGION"].upper().replace("-", "_")
    assert row == ("LOCAL", "LOADER", "LOADER_ROLE", "WH", "DB", region)


def test_values_are_bound_not_spliced(server: Server):
    text = "it's ; drop -- \\ % ?"
    assert server.resource().query("select ?, ?", [text, BIG])[1] == [(text, BIG)]


def test_a_foreign_key_is_refused_at_once(server: Server, tmp_path: Path):
    path, _ = key_pair(tmp_path, "foreign.p8")
    started = time.monotonic()
    with pytest.raises(LakehouseError, match=r"127\.0\.0\.1:\d+ refused user LOADER .*JWT token is invalid"):
        server.resource(private_key_path=str(path)).query("select 1")
    assert time.monotonic() - started < 10


def test_the_second_key_slot_works_until_it_is_unset(server: Server, tmp_path: Path):
    path, public_key = key_pair(tmp_path, "second.p8")
    second = server.resource(private_key_path=str(path))
    server.admin(f"alter user LOADER set rsa_public_key_2 = '{public_key}'")
    assert second.query("select 1")[1] == [(1,)]
    assert server.resource().query("select 1")[1] == [(1,)], "the first key goes on working"
    server.admin("alter user LOADER unset rsa_public_key_2")
    with pytest.raises(LakehouseError, match="JWT token is invalid"):
        second.query("select 1")


def test_a_role_that_was_not_granted_is_refused(server: Server):
    server.admin("create role if not exists OTHER")
    with pytest.raises(LakehouseError, match="Role 'OTHER' .* not authorized"):
        server.resource(role="OTHER").query("select 1")


def test_a_wrong_password_is_refused(server: Server):
    with pytest.raises(Exception, match="Incorrect username or password"):
        replace(server, admin_password="wrong").admin("select 1")


def test_a_reader_sees_what_was_granted_and_nothing_else(server: Server, lake: Lake, tmp_path: Path):
    for name in ("public_trades", "private_trades"):
        lake.create(name, trades(4))
        server.resource().ensure_iceberg_table(lake.database, name, lake.database, name)
    path, public_key = key_pair(tmp_path, "reader.p8")
    schema = f"DB.{lake.database}"
    server.admin(
        "create role READER",
        f"create user READER_USER type = service default_role = READER rsa_public_key = '{public_key}'",
        "grant role READER to user READER_USER",
        "grant usage on warehouse WH to role READER",
        "grant usage on database DB to role READER",
        f"grant usage on schema {schema} to role READER",
        f"grant select on iceberg table {schema}.public_trades to role READER",
    )
    reader = server.resource(user="READER_USER", role="READER", private_key_path=str(path))
    assert reader.query(f"select count(*) from {schema}.public_trades")[1] == [(4,)]
    for statement in (
        f"select * from {schema}.private_trades",
        f"with t as (select * from {schema}.private_trades) select * from t",
        f"create view {schema}.v as select * from {schema}.private_trades",
        f"alter iceberg table {schema}.public_trades refresh",
        f"drop iceberg table {schema}.public_trades",
        f"drop schema {schema}",
        "create role MINE",
        "grant role LOADER_ROLE to user READER_USER",
        "use role LOADER_ROLE",
    ):
        with pytest.raises(LakehouseError, match=r"does not exist or not authorized|Insufficient privileges"):
            reader.query(statement)
    with pytest.raises(LakehouseError, match="No active warehouse"):
        server.resource(warehouse="NONE").query(f"select count(*) from {schema}.public_trades")


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("selec 1", "Unexpected token"),
        ("select * from DB.NO_SCHEMA.NO_TABLE", "does not exist"),
        ("create external volume V storage_locations = ((name = 'x'))", r"Missing option\(s\)"),
        ("create catalog integration C catalog_sorce = glue", "invalid property 'CATALOG_SORCE'"),
        ("create iceberg table DB.S.T (id int) catalog = 'SNOWFLAKE'", "not emulated"),
        ("alter iceberg table DB.S.T refresh 'metadata/v1.json'", "syntax error"),
        ("grant nonsense on nothing to role PUBLIC", "syntax error unexpected 'nonsense'"),
        ("create user U rsa_public_key = 'AAAA'", "Insufficient privileges"),
        ("select * from read_csv('/etc/passwd')", "disabled by configuration|cannot run"),
        ("copy (select 1) to '/tmp/x.csv'", "disabled by configuration|cannot run|Unexpected token|not emulated"),
        ("pragma version", "not emulated"),
        ("attach 'x.db' as y", "Unexpected token"),
    ],
)
def test_a_wrong_statement_fails_at_once_and_says_why(server: Server, statement: str, said: str):
    started = time.monotonic()
    with server.resource().connect() as connection:
        connection.cursor().execute("use schema DB.PUBLIC")
        with pytest.raises(DatabaseError, match=said):
            connection.cursor().execute(statement)
    assert time.monotonic() - started < 10


def test_a_table_that_glue_does_not_have(server: Server, lake: Lake):
    with pytest.raises(LakehouseError, match=f"no Iceberg table '{lake.database}.nowhere'"):
        server.resource().ensure_iceberg_table(lake.database, "nowhere", lake.database, "nowhere")


def test_an_external_table_is_read_only(server: Server, lake: Lake):
    lake.create("read_only", trades(2))
    snowflake = server.resource()
    snowflake.ensure_iceberg_table(lake.database, "read_only", lake.database, "read_only")
    table = f"DB.{lake.database}.read_only"
    for statement in (f"delete from {table}", f"update {table} set lots = 1", f"truncate table {table}"):
        with pytest.raises(LakehouseError, match="read-only"):
            snowflake.query(statement)
    assert snowflake.table_state(lake.database, "read_only").row_count == 2


def test_nothing_answers(server: Server):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        started = time.monotonic()
        with pytest.raises(Unreachable, match=r"Snowflake does not answer at 127\.0\.0\.1:\d+"):
            server.resource(port=silent.getsockname()[1]).query("select 1")
        silent.listen()
        with pytest.raises(Unreachable):
            server.resource(port=silent.getsockname()[1]).query("select 1")
    assert time.monotonic() - started < 60


def test_a_missing_key_file(server: Server):
    with pytest.raises(LakehouseError, match=r"private key of Snowflake user LOADER is not at /nowhere/key\.p8"):
        server.resource(private_key_path="/nowhere/key.p8").query("select 1")
