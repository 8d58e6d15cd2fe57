"""Iceberg tables in the local Snowflake server, through the real connector and the project's resource."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
import threading
import time

import pyarrow as pa
import pytest
from pyiceberg.expressions import LessThan

from lakehouse.core.errors import LakehouseError
from resources.snowflake.session import dagster_application
from tests.support.clouds.snowflake.server import BIG, TRADES, Lake, Server, trades
from tools.repository import PROJECT

pytestmark = pytest.mark.stack


def test_ensure_twice_changes_nothing(server: Server, lake: Lake):
    server.ensure()
    snowflake = server.resource()
    snowflake.ensure_account_objects("s3://lakehouse/")
    lake.create("twice", trades(3))
    for _ in range(2):
        snowflake.ensure_iceberg_table(lake.database, "twice", lake.database, "twice", comment="it's ours")
    assert snowflake.table_comment(lake.database, "twice") == "it's ours"
    assert snowflake.table_comment(lake.database, "none") is None
    assert snowflake.table_comment("none", "twice") is None
    state = snowflake.table_state(lake.database, "twice")
    assert state.row_count == 3
    assert snowflake.metadata_location(lake.database, "twice") == state.metadata_location
    assert snowflake.metadata_location(lake.database, "none") is None


def test_query_imports_neither_snowpark_nor_rest_models(server: Server):
    settings = {name: value for name, value in server.resource().model_dump().items() if value is not None}
    program = (
        "import json, sys; from resources.snowflake.snowflake import Snowflake;"
        "Snowflake(**json.loads(sys.argv[1])).query('SELECT 1');"
        "print({'snowflake.connector', 'snowflake.snowpark', 'snowflake.core'} & {*sys.modules})"
    )
    command = [sys.executable, "-c", program, json.dumps(settings)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=PROJECT)
    assert result.stdout == "{'snowflake.connector'}\n", result.stderr


def test_application_is_that_of_dagster_snowflake():
    assert dagster_application() == "DagsterLabs_Dagster"


def test_query_sums_are_exact(server: Server, lake: Lake):
    rows = trades(5000)
    lake.create("sums", rows)
    snowflake = server.resource()
    snowflake.ensure_iceberg_table(lake.database, "sums", lake.database, "sums")
    _, [sums] = snowflake.query(
        f'select count(*), sum(quantity), sum(lots), sum(price), sum(quantity * lots), max(traded_at), min("$$OFFSET")'
        f" from DB.{lake.database}.sums"
    )
    data = rows.to_pylist()
    assert sums == (
        5000,
        sum(row["quantity"] for row in data),
        sum(row["lots"] for row in data),
        sum(row["price"] for row in data),
        sum(row["quantity"] * row["lots"] for row in data),
        max(row["traded_at"] for row in data),
        0,
    )


def test_query_rows_have_types_of_columns(server: Server, lake: Lake):
    rows = trades(250)
    lake.create("rows", rows)
    snowflake = server.resource()
    snowflake.ensure_iceberg_table(lake.database, "rows", lake.database, "rows")
    names, queried = snowflake.query(f'select * from DB.{lake.database}.rows order by "$$OFFSET"')
    assert names == [name.upper() for name in rows.schema.names]
    assert queried == [tuple(row.values()) for row in rows.to_pylist()]


def test_query_iceberg_version_2_types_are_kept(server: Server, lake: Lake):
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
    _, [queried] = snowflake.query(f"select b, f, d, t, ts, bin, nothing from DB.{lake.database}.types")
    assert queried == tuple(value for name, value in row.items() if name != "nested")
    _, [(city,)] = snowflake.query(f"select nested:city::varchar from DB.{lake.database}.types")
    assert city == "Zürich"


def test_table_changes_only_after_promotion_and_refresh(server: Server, lake: Lake):
    table = lake.create("moves", trades(10))
    snowflake = server.resource()
    snowflake.ensure_iceberg_table(lake.database, "moves", lake.database, "moves")
    first = snowflake.table_state(lake.database, "moves")
    assert first == (type(first)(table.metadata_location, 10))

    table.append(trades(5, start=10))
    snowflake.refresh(lake.database, "moves")
    assert snowflake.table_state(lake.database, "moves") == first, "Glue was not promoted yet"

    lake.promote(table)
    assert snowflake.table_state(lake.database, "moves") == first, "no refresh was requested"

    snowflake.refresh(lake.database, "moves")
    second = snowflake.table_state(lake.database, "moves")
    assert (second.metadata_location, second.row_count) == (table.metadata_location, 15)


def test_refresh_applies_new_schema_and_deletes(server: Server, lake: Lake):
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


def test_refresh_shows_rows_of_promoted_table(server: Server, lake: Lake):
    table = lake.create("steps", trades(10))
    snowflake = server.resource()
    snowflake.ensure_iceberg_table(lake.database, "steps", lake.database, "steps")

    def append_twice():
        table.append(trades(5, start=10))
        table.append(trades(5, start=15))

    def delete_and_append():
        table.delete(LessThan("$$offset", 3))
        table.append(trades(2, start=20))

    def append_and_expire():
        table.append(trades(2, start=22))
        expired = [snapshot.snapshot_id for snapshot in table.snapshots()[:-1]]
        table.maintenance.expire_snapshots().by_ids(expired).commit()
        table.append(trades(2, start=24))

    def roll_back():
        table.manage_snapshots().rollback_to_snapshot(table.snapshots()[0].snapshot_id).commit()

    for change in (append_twice, delete_and_append, append_and_expire, roll_back, append_twice):
        change()
        lake.promote(table)
        snowflake.refresh(lake.database, "steps")
        _, rows = snowflake.query(f'select "$$OFFSET" from DB.{lake.database}.steps')
        expected = table.scan().to_arrow()["$$offset"].to_pylist()
        assert sorted(offset for (offset,) in rows) == sorted(expected), change.__name__


def test_refresh_applies_position_deletes(server: Server, lake: Lake):
    """Spark writes position deletes in merge-on-read mode, which the project's tables use."""
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
    remaining = [row["quantity"] for row in rows.to_pylist() if row["$$offset"] % 3]
    assert snowflake.query(f"select count(*), sum(quantity) from DB.{lake.database}.deleted")[1] == [
        (len(remaining), sum(remaining))
    ]


def test_auto_refresh_updates_table_until_disabled(server: Server, lake: Lake):
    table = lake.create("by_itself", trades(1))
    snowflake = server.resource()
    snowflake.query(
        "create catalog integration if not exists QUICK catalog_source = iceberg_rest table_format = iceberg"
        f" catalog_namespace = '{lake.database}' rest_config = (catalog_uri = 'https://glue/iceberg'"
        " catalog_api_type = aws_glue catalog_name = '123456789012') rest_authentication = (type = sigv4"
        f" sigv4_iam_role = 'arn' sigv4_signing_region = '{os.environ['AWS_REGION']}') enabled = true"
        " refresh_interval_seconds = 1"
    )
    name = f"DB.{lake.database}.by_itself"
    snowflake.query(f"create schema if not exists DB.{lake.database}")
    snowflake.query(
        f"create iceberg table {name} external_volume = 'LAKEHOUSE_VOLUME' catalog = 'QUICK'"
        " catalog_table_name = 'by_itself' auto_refresh = true"
    )
    table.append(trades(2))
    lake.promote(table)
    deadline = time.monotonic() + 30
    while snowflake.query(f"select count(*) from {name}")[1] != [(3,)]:
        assert time.monotonic() < deadline
    with pytest.raises(LakehouseError, match="AUTO_REFRESH = TRUE"):
        snowflake.query(f"alter iceberg table {name} refresh")
    table.append(trades(4))
    lake.promote(table)
    snowflake.disable_auto_refresh(lake.database, "by_itself")
    snowflake.refresh(lake.database, "by_itself")
    assert snowflake.table_state(lake.database, "by_itself").row_count == 7
    snowflake.drop_iceberg_table(lake.database, "by_itself")
    snowflake.query("drop catalog integration QUICK")


def test_query_empty_table_has_count_zero(server: Server, lake: Lake):
    lake.create("empty", TRADES.empty_table())
    snowflake = server.resource()
    snowflake.ensure_iceberg_table(lake.database, "empty", lake.database, "empty")
    assert snowflake.query(f"select count(*), sum(quantity) from DB.{lake.database}.empty")[1] == [(0, None)]


def test_show_iceberg_tables_lists_table_until_dropped(server: Server, lake: Lake):
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


def test_describe_shows_values_for_trust_policy(server: Server):
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


def test_drop_object_in_use_is_refused(server: Server, lake: Lake):
    lake.create("stands", trades(1))
    snowflake = server.resource()
    snowflake.ensure_iceberg_table(lake.database, "stands", lake.database, "stands")
    for statement in ("drop external volume LAKEHOUSE_VOLUME", "drop catalog integration LAKEHOUSE_GLUE"):
        with pytest.raises(LakehouseError, match="uses it"):
            snowflake.query(statement)
    snowflake.query(f"drop schema DB.{lake.database}")
    assert snowflake.query("show iceberg tables like 'STANDS' in account")[1] == []
    # The tests before used the same schema; ensure_iceberg_table creates a new one.
    snowflake.ensure_iceberg_table(lake.database, "stands", lake.database, "stands")
    assert snowflake.table_state(lake.database, "stands").row_count == 1


def test_query_during_refresh_sees_whole_snapshots(server: Server, lake: Lake):
    table = lake.create("atomic", trades(20_000))
    snowflake = server.resource()
    snowflake.ensure_iceberg_table(lake.database, "atomic", lake.database, "atomic")
    counts: set[int] = set()
    refreshed = threading.Event()

    def read() -> None:
        with snowflake.connect() as connection:
            while not refreshed.is_set():
                [(count,)] = connection.cursor().execute(f"select count(*) from DB.{lake.database}.atomic").fetchall()
                counts.add(count)

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
    assert counts and counts <= {20_000, 40_000, 60_000, 80_000}


def test_query_schema_named_like_database_works(server: Server, lake: Lake):
    # This test is the last with the server, since DuckDB refuses DROP SCHEMA once the schema and database share a name.
    lake.create("namesake", trades(4))
    snowflake = server.resource()
    snowflake.ensure_iceberg_table("db", "namesake", lake.database, "namesake")
    assert snowflake.query("SELECT COUNT(*) FROM db.namesake")[1] == [(4,)]
