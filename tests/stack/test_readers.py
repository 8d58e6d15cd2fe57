"""The recipes of docs/readers.md that say `run`: each is run as it stands, and prints what the oracle says."""

import os
import re
import shlex
import subprocess
import sys

import pytest
import yaml
from click.testing import CliRunner
from rest_fixtures import CLIENT_ID, SECRET, WAREHOUSE
from support import Stream

from lakehouse.cli.main import main
from lakehouse.config.loader import PROJECT, load
from lakehouse.core.sql import SNOWFLAKE
from lakehouse.definitions import defs
from resources.rest_catalog import RestCatalog

pytest_plugins = ["rest_fixtures"]

TEXT = (PROJECT / "docs/readers.md").read_text()
BLOCKS = re.findall(r"^## ([^\n]*)\n|^```(\w+) run\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def recipes(language):
    """The blocks of a language, each with the title it stands under."""
    title, found = "", []
    for heading, of, block in BLOCKS:
        title = heading or title
        if of == language:
            found.append(pytest.param(block, id=title.partition(",")[0]))
    return found


@pytest.fixture(scope="module")
def trades(resources, tmp_path_factory):
    """A published table in place of `trading.stock_trades`: its name, rows and sum of prices."""
    stream = Stream(resources)
    stream.produce_trades(range(200))
    stream.ingest()
    stream.show("glue")
    stream.show("snowflake")
    prices = [row["price"] for row in stream.expected_rows()]
    declared = stream.declare(tmp_path_factory.mktemp("readers"))
    return stream, f"{stream.namespace}.{stream.topic.table}", len(prices), sum(prices), declared


@pytest.mark.parametrize("block", recipes("sh"))
def test_a_command_prints_what_the_oracle_says(block, trades, monkeypatch):
    _, name, count, total, declared = trades
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(declared))
    lines = block.replace("trading.stock_trades", name).splitlines()
    assert len(lines) == 3
    for line in lines:
        program, *arguments = shlex.split(line)
        assert program == "lakehouse"
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code == 0, done.output
        assert {count, total} <= set(map(int, re.findall(r"\b\d+\b", done.output)))


@pytest.mark.parametrize("block", recipes("python"))
def test_a_program_prints_what_the_oracle_says(block, trades, polaris):
    stream, name, count, total, _ = trades
    stream.show("rest", rest_catalog=rest_catalog(polaris))
    rest = {"URI": polaris.address, "WAREHOUSE": WAREHOUSE, "CREDENTIAL": f"{CLIENT_ID}:{SECRET}"}
    # Where S3 is not AWS, pyiceberg takes its address from a variable of its own; Glue's comes with the stack.
    s3 = {"PYICEBERG_CATALOG__POLARIS__S3__ENDPOINT": os.environ["AWS_ENDPOINT_URL_S3"]}
    environment = {**os.environ, **s3, **{f"REST_CATALOG_{key}": value for key, value in rest.items()}}
    program = block.replace("trading.stock_trades", name)

    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120)

    assert done.returncode == 0, done.stderr
    assert set(map(int, re.findall(r"\b\d+\b", done.stdout))) == {count, total}, done.stdout


@pytest.mark.parametrize("block", recipes("sql"))
def test_statements_in_snowflake_say_what_the_oracle_says(block, trades, polaris):
    """As the administrator: the last statement's one row."""
    stream, name, count, total, _ = trades
    stream.show("rest", rest_catalog=rest_catalog(polaris))
    namespace, table = name.split(".")
    for theirs, ours in {
        "https://polaris.example/api/catalog": polaris.address,
        "'lake'": f"'{WAREHOUSE}'",
        "<id>": CLIENT_ID,
        "<secret>": SECRET,
        "trading.stock_trades": name,
        "'trading'": f"'{namespace}'",
        "'stock_trades'": f"'{table}'",
    }.items():
        block = block.replace(theirs, ours)

    with stream.resources.snowflake.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"USE SCHEMA {SNOWFLAKE.identifier(namespace.upper())}")
        rows = [cursor.execute(statement).fetchall() for statement in block.split(";") if statement.strip()]

    assert rows[-1] == [(count, total)]


def rest_catalog(polaris):
    return RestCatalog(uri=polaris.address, warehouse=WAREHOUSE, client_id=CLIENT_ID, client_secret=SECRET)


@pytest.mark.parametrize("block", recipes("yaml"))
def test_the_setting_makes_the_assets(block, trades, tmp_path, monkeypatch):
    stream, *_, declared = trades
    content = yaml.safe_load(declared.read_text())
    content["environments"]["local"] |= yaml.safe_load(block)
    file = tmp_path / "lakehouse.yaml"
    file.write_text(yaml.safe_dump(content))
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(file))
    assert load().environments["local"]["rest_catalog"]
    graph = defs().resolve_asset_graph()
    assert f"rest/{stream.name}" in {key.to_user_string() for key in graph.get_all_asset_keys()}
    assert any(key.asset_key.path[0] == "rest" for key in graph.asset_check_keys)


def test_every_reader_has_a_recipe():
    titles = {heading for heading, *_ in BLOCKS if heading}
    assert {"Snowflake", "Athena", "pyiceberg", "DuckDB", "Spark", "Trino"} <= titles
    assert len(recipes("python")) == 5
