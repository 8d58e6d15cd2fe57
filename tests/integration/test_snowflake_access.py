"""Access control of the local Snowflake server, and its errors."""

from __future__ import annotations

import base64
import hashlib
import os
import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest
import snowflake.connector
from snowflake.connector.errors import DatabaseError

from lakehouse.core.errors import LakehouseError, Unreachable
from tests.support.clouds.snowflake.server import BIG, Lake, Server, key_pair, trades

pytestmark = pytest.mark.stack


def test_session_has_account_role_and_database(server: Server):
    _, [row] = server.resource().query(
        "select current_account(), current_user(), current_role(), current_warehouse(), current_database(),"
        " current_region()"
    )
    region = "AWS_" + os.environ["AWS_REGION"].upper().replace("-", "_")
    assert row == ("LOCAL", "LOADER", "LOADER_ROLE", "WH", "DB", region)


def test_query_values_are_bound(server: Server):
    text = "it's ; drop -- \\ % ?"
    assert server.resource().query("select ?, ?", [text, BIG])[1] == [(text, BIG)]


def test_login_with_unknown_key_is_refused_quickly(server: Server, tmp_path: Path):
    path, _ = key_pair(tmp_path, "foreign.p8")
    started = time.monotonic()
    with pytest.raises(LakehouseError, match=r"127\.0\.0\.1:\d+ refused user LOADER .*JWT token is invalid"):
        server.resource(private_key_path=str(path)).query("select 1")
    assert time.monotonic() - started < 10


def test_login_with_second_key_works_until_unset(server: Server, tmp_path: Path):
    path, public_key = key_pair(tmp_path, "second.p8")
    second = server.resource(private_key_path=str(path))
    server.admin(f"alter user LOADER set rsa_public_key_2 = '{public_key}'")
    assert second.query("select 1")[1] == [(1,)]
    assert server.resource().query("select 1")[1] == [(1,)], "the first key still works"
    server.admin("alter user LOADER unset rsa_public_key_2")
    with pytest.raises(LakehouseError, match="JWT token is invalid"):
        second.query("select 1")


def test_describe_user_shows_both_key_slots(server: Server, tmp_path: Path):
    def public_keys() -> dict[str, str]:
        rows = server.admin("desc user TWO_KEYS")
        return {name: value for name, value, *_ in rows if name.startswith("RSA_PUBLIC_KEY")}

    _, public_key = key_pair(tmp_path, "two.p8")
    server.admin("create user TWO_KEYS type = service")
    empty = dict.fromkeys(("RSA_PUBLIC_KEY", "RSA_PUBLIC_KEY_FP", "RSA_PUBLIC_KEY_2", "RSA_PUBLIC_KEY_2_FP"), "null")
    assert public_keys() == empty
    server.admin(f"alter user TWO_KEYS set rsa_public_key_2 = '{public_key}'")
    fingerprint = "SHA256:" + base64.b64encode(hashlib.sha256(base64.b64decode(public_key)).digest()).decode()
    assert public_keys() == empty | {"RSA_PUBLIC_KEY_2": public_key, "RSA_PUBLIC_KEY_2_FP": fingerprint}
    server.admin("alter user TWO_KEYS unset rsa_public_key_2")
    assert public_keys() == empty


def test_login_with_role_not_granted_is_refused(server: Server):
    server.admin("create role if not exists OTHER")
    with pytest.raises(LakehouseError, match="Role 'OTHER' .* not authorized"):
        server.resource(role="OTHER").query("select 1")


def test_login_with_wrong_password_is_refused(server: Server):
    with pytest.raises(Exception, match="Incorrect username or password"):
        replace(server, admin_password="wrong").admin("select 1")


def test_reader_accesses_only_granted_table(server: Server, lake: Lake, tmp_path: Path):
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


def test_freshness_is_measured_without_a_warehouse(server: Server, lake: Lake):
    lake.create("idle_trades", trades(4))
    server.resource().ensure_iceberg_table(lake.database, "idle_trades", lake.database, "idle_trades")
    without = server.resource(warehouse="NONE")
    location = server.resource().metadata_location(lake.database, "idle_trades")
    assert location and without.metadata_location(lake.database, "idle_trades") == location
    # The count of rows needs one.
    with pytest.raises(LakehouseError, match="No active warehouse"):
        without.table_state(lake.database, "idle_trades")


@pytest.mark.parametrize(
    ("statement", "message"),
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
def test_invalid_statement_fails_quickly_with_reason(server: Server, statement: str, message: str):
    started = time.monotonic()
    with server.resource().connect() as connection:
        connection.cursor().execute("use schema DB.PUBLIC")
        with pytest.raises(DatabaseError, match=message):
            connection.cursor().execute(statement)
    assert time.monotonic() - started < 10


def test_ensure_table_missing_in_glue_is_error(server: Server, lake: Lake):
    with pytest.raises(LakehouseError, match=f"no Iceberg table '{lake.database}.nowhere'"):
        server.resource().ensure_iceberg_table(lake.database, "nowhere", lake.database, "nowhere")


def test_write_to_external_table_is_refused(server: Server, lake: Lake):
    lake.create("read_only", trades(2))
    loader = server.resource()
    loader.ensure_iceberg_table(lake.database, "read_only", lake.database, "read_only")
    table = f"DB.{lake.database}.read_only"
    for statement in (f"delete from {table}", f"update {table} set lots = 1", f"truncate table {table}"):
        with pytest.raises(LakehouseError, match="read-only"):
            loader.query(statement)
    assert loader.table_state(lake.database, "read_only").row_count == 2


def test_query_without_server_is_unreachable(server: Server, monkeypatch: pytest.MonkeyPatch):
    """tests/faults/test_unresponsive_systems.py waits as long as the client does."""
    connect = snowflake.connector.connect
    monkeypatch.setattr(snowflake.connector, "connect", lambda **options: connect(**options | {"login_timeout": 1}))
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        with pytest.raises(Unreachable, match=r"Snowflake does not answer at 127\.0\.0\.1:\d+"):
            server.resource(port=closed.getsockname()[1]).query("select 1")


def test_missing_key_file_is_error_with_its_path(server: Server):
    with pytest.raises(LakehouseError, match=r"private key of Snowflake user LOADER is not at /nowhere/key\.p8"):
        server.resource(private_key_path="/nowhere/key.p8").query("select 1")
