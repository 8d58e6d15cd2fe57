"""The main job in an environment whose tables are in a REST catalog that issues the credentials for their files."""

import json
import uuid

import dagster as dg
import pytest
import yaml
from click.testing import CliRunner

from lakehouse.cli.main import main
from lakehouse.definitions import JOB, defs
from tests.support.clouds.rest.client import CREDENTIAL
from tests.support.clouds.rest.lake import declaration_of
from tests.support.clouds.rest.server import Vending
from tests.support.clouds.snowflake.linked import integration_statement
from tests.support.topics import Stream
from tests.support.totals import KEY
from tools.repository import PROJECT

SYSTEMS = ("kafka", "schema_registry", "spark", "glue", "snowflake")
ENVIRONMENT = "rest"
OF_GLUE = ("aws_role_arn", "glue_catalog_id", "region")
"""Settings of Snowflake that a linked database does not have."""


@pytest.fixture
def server(rest_server):
    with Vending(*rest_server) as proxy:
        yield proxy


@pytest.fixture
def integration(resources, server):
    """The name of Snowflake's integration of the catalog."""
    name = f"REST_{uuid.uuid4().hex[:8].upper()}"
    resources.snowflake.query(integration_statement(name, server, seconds=5))
    return name


@pytest.fixture
def trades(resources, server, integration, tmp_path, monkeypatch):
    """A topic of trades, and LAKEHOUSE_CONFIG set to a file that derives two topics from it."""
    checks = {"price_set": {"type": "not_null", "column": "price"}}
    trades = Stream(resources, settings={"checks": checks})
    schemas = {
        f"{part}_schema_file": str(PROJECT / f"schemas/stock_trades_with_totals-{part}.avsc")
        for part in ("key", "value")
    }
    totals = {"transform": "spark.totals:totals", "group_by": ["kafka_timestamp", "userid", "side", "symbol"]}
    flagged = {"transform": "spark.flags:flagged"}
    derived = {"type": "derived", "from": trades.name}
    systems = yaml.safe_load((PROJECT / "lakehouse.yaml").read_text())["environments"]["local"]
    environment = {name: systems[name] for name in SYSTEMS} | {"catalog": declaration_of(server)}
    snowflake = {name: value for name, value in systems["snowflake"].items() if name not in OF_GLUE}
    environment["snowflake"] = snowflake | {"database": f"LAKE_OF_{integration}", "linked_catalog": integration}
    config = {
        "namespace": trades.namespace,
        "topics": {
            trades.name: {"key": "userid", "errors": "log", "checks": checks},
            f"{trades.name}-totals": {
                "mode": "upsert",
                "key": KEY,
                "key_format": "avro",
                "source": derived | totals | schemas,
            },
            f"{trades.name}-flagged": {"source": derived | flagged},
        },
        "environments": {ENVIRONMENT: environment},
    }
    file = tmp_path / "lakehouse.yaml"
    file.write_text(yaml.safe_dump(config))
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(file))
    monkeypatch.setenv("LAKEHOUSE_ENV", ENVIRONMENT)
    monkeypatch.setenv("ICEBERG_CATALOG_CREDENTIAL", CREDENTIAL)
    # A Spark session keeps the catalog that it used first.
    resources.spark.close()
    yield trades
    resources.spark.close()


def run(*command):
    """Run a command, and return its output."""
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.output
    return result.output


def queried(trades, suffix="", columns="COUNT(*) AS n"):
    """Return the rows that DuckDB finds in a table."""
    statement = f'SELECT {columns} FROM {trades.namespace}."{trades.topic.table}{suffix}"'
    return json.loads(run("query", statement, "--engine", "duckdb", "--output", "json"))


def test_main_job_on_rest_catalog_passes_all_checks(resources, server, integration, trades):
    run("validate")
    for numbers in (range(200), range(200, 300)):
        trades.produce_trades(numbers)
        with dg.DagsterInstance.ephemeral() as instance:
            result = defs().resolve_job_def(JOB).execute_in_process(instance=instance)
        assert result.success
        evaluated = {
            (e.asset_key.path[0].removeprefix(trades.name), e.asset_key.path[1], e.check_name): e.passed
            for e in result.get_asset_check_evaluations()
        }
        for topic in ("", "-totals", "-flagged"):
            assert evaluated[topic, "glue", "registration_current"] and evaluated[topic, "snowflake", "matches_iceberg"]
        assert evaluated["", "iceberg", "price_set"] and all(evaluated.values()), evaluated

    expected = trades.expected_rows()
    columns = ("kafka_partition", "kafka_offset", "price")
    rows = queried(trades, columns=", ".join(columns))
    assert sorted(tuple(row.values()) for row in rows) == sorted(tuple(row[c] for c in columns) for row in expected)
    groups = {(row["kafka_timestamp"], row["userid"], row["side"], row["symbol"]) for row in expected}
    assert queried(trades, "_totals") == [{"n": len(groups)}]
    assert queried(trades, "_flagged") == [{"n": len(expected)}]
    name = f"LAKE_OF_{integration}.{trades.namespace}.{trades.topic.table}"
    assert resources.snowflake.query(f"SELECT COUNT(*), SUM(PRICE) FROM {name}")[1] == [
        (len(expected), sum(row["price"] for row in expected))
    ]
    assert "up to date" in run("status")
    for topic in ("", "-totals", "-flagged"):
        run("ledger", f"{trades.name}{topic}", "--log")
    run("maintain")
    assert queried(trades) == [{"n": len(expected)}]
    assert server.storage.refusals == [] and server.storage.tokens
