"""The recipes of docs/readers.md that are marked `run`: each runs unchanged and prints the expected rows."""

import os
import re
import shlex
import subprocess
import sys
from urllib.parse import urlsplit

import pytest
import yaml
from click.testing import CliRunner

from lakehouse.cli.main import main
from lakehouse.config.loader import load
from lakehouse.core.sql import SNOWFLAKE
from lakehouse.definitions import defs
from resources.iceberg.rest_catalog import RestCatalog
from tests.support.clouds.rest.client import CLIENT_ID, SECRET
from tests.support.clouds.rest.server import SCOPE, WAREHOUSE
from tests.support.topics import Stream
from tools.repository import PROJECT

TEXT = (PROJECT / "docs/readers.md").read_text()
BLOCKS = re.findall(r"^## ([^\n]*)\n|^```(\w+) run\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def recipes(language):
    """Return the blocks of a language, with the titles of their sections as ids."""
    title, blocks = "", []
    for heading, block_language, block in BLOCKS:
        title = heading or title
        if block_language == language:
            blocks.append(pytest.param(block, id=title.partition(",")[0]))
    return blocks


@pytest.fixture(scope="module")
def trades(resources, tmp_path_factory):
    """Return a published table in place of `trading.stock_trades`: its name, rows, sum of prices and declaration."""
    stream = Stream(resources)
    stream.produce_trades(range(200))
    stream.ingest()
    stream.show("glue")
    stream.show("snowflake")
    prices = [row["price"] for row in stream.expected_rows()]
    declared = stream.declare(tmp_path_factory.mktemp("readers"))
    return stream, f"{stream.namespace}.{stream.topic.table}", len(prices), sum(prices), declared


@pytest.mark.parametrize("block", recipes("sh"))
def test_reader_command_prints_expected_rows(block, trades, monkeypatch):
    _, name, count, total, declared = trades
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(declared))
    lines = block.replace("trading.stock_trades", name).splitlines()
    assert len(lines) == 3
    for line in lines:
        program, *arguments = shlex.split(line)
        assert program == "lakehouse"
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 0, result.output
        assert {count, total} <= set(map(int, re.findall(r"\b\d+\b", result.output)))


@pytest.mark.parametrize("block", recipes("python"))
def test_reader_program_prints_expected_rows(block, trades, polaris):
    stream, name, count, total, _ = trades
    stream.show("rest", rest_catalog=rest_catalog(polaris))
    rest = {"URI": polaris.address, "WAREHOUSE": WAREHOUSE, "CREDENTIAL": f"{CLIENT_ID}:{SECRET}"}
    # Where S3 is not AWS, pyiceberg reads its address from its own variable. The stack sets Glue's address.
    s3 = {"PYICEBERG_CATALOG__POLARIS__S3__ENDPOINT": os.environ["AWS_ENDPOINT_URL_S3"]}
    environment = {**os.environ, **s3, **{f"REST_CATALOG_{key}": value for key, value in rest.items()}}
    program = block.replace("trading.stock_trades", name)

    result = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120
    )

    assert result.returncode == 0, result.stderr
    assert set(map(int, re.findall(r"\b\d+\b", result.stdout))) == {count, total}, result.stdout


@pytest.mark.parametrize("block", recipes("sql"))
def test_snowflake_statements_return_expected_rows(block, trades, polaris):
    """Run the statements as the administrator, and compare the one row of the last."""
    stream, name, count, total, _ = trades
    stream.show("rest", rest_catalog=rest_catalog(polaris))
    namespace, table = name.split(".")
    for documented, actual in {
        "https://polaris.example/api/catalog": polaris.address,
        "'lake'": f"'{WAREHOUSE}'",
        "<id>": CLIENT_ID,
        "<secret>": SECRET,
        "trading.stock_trades": name,
        "'trading'": f"'{namespace}'",
        "'stock_trades'": f"'{table}'",
    }.items():
        block = block.replace(documented, actual)

    with stream.resources.snowflake.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"USE SCHEMA {SNOWFLAKE.identifier(namespace.upper())}")
        rows = [cursor.execute(statement).fetchall() for statement in block.split(";") if statement.strip()]

    assert rows[-1] == [(count, total)]


def test_duckdb_extension_reads_rest_catalog(trades, polaris, duckdb_with_iceberg):
    """Run the recipe in the newest DuckDB that has its extensions as packages, with S3 credentials for the stack."""
    stream, name, count, total, _ = trades
    stream.show("rest", rest_catalog=rest_catalog(polaris))
    [block] = (recipe.values[0] for recipe in recipes("duckdb") if recipe.id == "Polaris")
    s3 = urlsplit(os.environ["AWS_ENDPOINT_URL_S3"])
    files = {"KEY_ID": os.environ["AWS_ACCESS_KEY_ID"], "SECRET": os.environ["AWS_SECRET_ACCESS_KEY"]}
    files |= {"REGION": os.environ["AWS_REGION"], "ENDPOINT": s3.netloc, "URL_STYLE": "path"}
    settings = "".join(f", {key} '{value}'" for key, value in files.items())
    for documented, actual in {
        " INSTALL aws; LOAD aws;": "",
        ", PROVIDER credential_chain": f"{settings}, USE_SSL false",
        "https://polaris.example/api/catalog": polaris.address,
        "'lake'": f"'{WAREHOUSE}'",
        "<id>": CLIENT_ID,
        "<secret>": SECRET,
        "polaris.trading.stock_trades": "polaris." + ".".join(f'"{part}"' for part in name.split(".")),
    }.items():
        assert documented in block
        block = block.replace(documented, actual)

    assert duckdb_with_iceberg(block) == [count, total]
    assert SCOPE in block and polaris.issued_tokens


def test_duckdb_extension_reads_catalog_of_tableflow(trades, tableflow_own, duckdb_with_iceberg):
    """Run the recipe with the credentials that the catalog vends, and no others."""
    stream, _, count, total, _ = trades
    tableflow_own.register("lkc-abc123", stream.topic.topic, stream.table().metadata_location)
    [block] = (recipe.values[0] for recipe in recipes("duckdb") if recipe.id == "Tableflow's own REST catalog")
    host = "https://tableflow.us-east-1.aws.confluent.cloud/iceberg/catalog/organizations/<org>/environments/<env>"
    for documented, actual in {
        host: tableflow_own.address,
        "<Tableflow API key>": CLIENT_ID,
        "<its secret>": SECRET,
        "stock_trades": stream.topic.topic,
    }.items():
        assert documented in block
        block = block.replace(documented, actual)

    assert duckdb_with_iceberg(block) == [count, total]
    assert tableflow_own.issued_tokens == 1


def rest_catalog(polaris):
    return RestCatalog(uri=polaris.address, warehouse=WAREHOUSE, client_id=CLIENT_ID, client_secret=SECRET)


@pytest.mark.parametrize("block", recipes("yaml"))
def test_reader_setting_defines_the_assets(block, trades, tmp_path, monkeypatch):
    stream, *_, declared = trades
    content = yaml.safe_load(declared.read_text())
    content["environments"]["local"] |= yaml.safe_load(block)
    file = tmp_path / "lakehouse.yaml"
    file.write_text(yaml.safe_dump(content))
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(file))
    assert load().environments["local"]["rest_catalog"]
    graph = defs().resolve_asset_graph()
    assert f"{stream.name}/rest" in {key.to_user_string() for key in graph.get_all_asset_keys()}
    assert any(key.asset_key.path[1] == "rest" for key in graph.asset_check_keys)


def test_readers_all_have_a_recipe():
    titles = {heading for heading, *_ in BLOCKS if heading}
    assert {"Snowflake", "Athena", "pyiceberg", "DuckDB", "Spark", "Trino"} <= titles
    assert len(recipes("python")) == 5
