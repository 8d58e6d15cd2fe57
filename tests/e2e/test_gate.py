"""The commands of a pipeline: exit codes and outputs; a dry run changes nothing."""

import json
import os
import re
import subprocess
import sys
import time
from xml.etree import ElementTree

import dagster as dg
import pytest
import yaml
from click.testing import CliRunner

from assets.topics.topic_chain import topic_definitions
from lakehouse.cli.main import main
from lakehouse.config.loader import load
from resources.build import build_resources
from tests.support.topics import TRADES, Stream, framed, trade
from tools.repository import PROJECT

FOLDER = PROJECT / "lakehouse/config/starter"
STARTER = (FOLDER / "lakehouse.yaml").read_text().replace("environments.yaml", str(FOLDER / "environments.yaml"))
CHECKS = {
    "side_known": {"type": "accepted_values", "column": "side", "values": ["BUY", "SELL"]},
    "cheap": {"type": "range", "column": "price", "max": 500, "severity": "warn"},
}


@pytest.fixture
def stream(resources, tmp_path, monkeypatch):
    stream = Stream(resources, partitions=2, settings={"checks": CHECKS, "errors": "suspend", "max_lag_seconds": 3600})
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(stream.declare(tmp_path)))
    return stream


def produce(stream, *changes):
    schema_id = stream.schema()
    good = {"price": 100, "quantity": 10, "side": "BUY"}
    trades = [trade(n, **good | change) for n, change in enumerate(changes)]
    stream.produce([{"value": framed(schema_id, TRADES, t)} for t in trades])


def materialize_chain(stream):
    built = build_resources(load(PROJECT / "lakehouse.yaml"), "local")
    assets = topic_definitions(stream.config, stream.topic).assets
    selected = [asset for asset in assets if asset.key.path[1] in ("iceberg", "glue", "snowflake")]
    assert dg.materialize(selected, resources=built).success


def run(*arguments):
    result = CliRunner().invoke(main, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return result


def verdicts(result):
    report = json.loads(result.output)
    assert report["exit_code"] == result.exit_code
    return {(check["asset"].rpartition("/")[2], check["check"]): check["verdict"] for check in report["checks"]}


def test_check_reports_pass_warning_and_failure(stream, tmp_path):
    produce(stream, {}, {"price": 900})
    materialize_chain(stream)

    report = tmp_path / "report.xml"
    result = run("check", stream.name, "--json", "--junit", str(report))
    assert result.exit_code == 0, result.output
    stages = ("iceberg", "glue", "snowflake")
    assert verdicts(result) == {(stage, "fresh"): "passed" for stage in stages} | {
        ("iceberg", "ledger"): "passed",
        ("iceberg", "schema_and_settings"): "passed",
        ("iceberg", "metadata_size"): "passed",
        ("iceberg", "side_known"): "passed",
        ("iceberg", "cheap"): "warned",
        ("glue", "registration_current"): "passed",
        ("snowflake", "matches_iceberg"): "passed",
        ("snowflake", "engines_agree"): "passed",
    }
    suite = ElementTree.parse(report).getroot()[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("11", "0", "0")

    # Another writer changes a row.
    spark = stream.resources.spark.session(stream.resources.catalog.spark_settings())
    table = f"lake.`{stream.namespace}`.`{stream.topic.table}`"
    spark.sql(f"UPDATE {table} SET side = 'HOLD' WHERE price = 900").collect()
    result = run("check", "--json", "--junit", str(report))
    assert result.exit_code == 1
    assert verdicts(result)["iceberg", "side_known"] == "failed"
    assert [case.get("name") for case in ElementTree.parse(report).iter("testcase") if case.find("failure") is not None]
    assert f"✗ {stream.name}/iceberg" in run("check").output


def test_check_includes_topics_of_routes(stream, tmp_path):
    file = stream.declare(tmp_path)
    declared = yaml.safe_load(file.read_text())
    route = {"pattern": stream.name, "checks": CHECKS, "max_lag_seconds": 600}
    file.write_text(yaml.safe_dump(declared | {"topics": {}, "routes": {"mine": route}}))
    produce(stream, {}, {"side": "HOLD"})
    stream.topic = stream.topic.model_copy(update={"checks": {}})
    stream.ingest()
    checks = verdicts(run("check", "--json"))
    assert (checks["iceberg", "fresh"], checks["iceberg", "side_known"]) == ("passed", "failed")

    an_hour_ago = int(time.time() * 1000) - 3_600_000
    stream.produce([{"value": framed(stream.schema(), TRADES, trade(1)), "timestamp": an_hour_ago}])
    result = run("check", "--json")
    assert verdicts(result)["iceberg", "fresh"] == "failed"
    assert "1 record behind, for 3,6" in result.output


def test_check_that_cannot_run_is_reported_as_error(stream):
    produce(stream, {})
    stream.ingest()
    result = run("check", stream.name, "--json")
    assert verdicts(result)["snowflake", "matches_iceberg"] == "error"
    assert result.exit_code == 2
    assert run("check", "no_such_topic").exit_code == 2


def test_dry_run_checks_new_records_and_changes_nothing(stream):
    produce(stream, {})
    stream.ingest()
    published = stream.table().metadata

    produce(stream, {}, {"price": 900})
    result = run("dry-run", "--json")
    assert (result.exit_code, verdicts(result)) == (
        0,
        {
            ("iceberg", "decodes"): "passed",
            ("iceberg", "record_count"): "passed",
            ("iceberg", "key_not_null"): "passed",
            ("iceberg", "side_known"): "passed",
            ("iceberg", "cheap"): "warned",
        },
    )
    produce(stream, {"side": "HOLD"})
    result = run("dry-run", stream.name, "--json", "--records", "1000")
    assert (result.exit_code, verdicts(result)["iceberg", "side_known"]) == (1, "failed")
    stream.produce([{"value": b"bad"}])
    assert verdicts(run("dry-run", "--json"))["iceberg", "decodes"] == "failed"

    current = stream.table().metadata
    assert (current.current_snapshot_id, set(current.refs)) == (published.current_snapshot_id, set(published.refs))
    assert stream.rows() and len(stream.rows()) == 1


def test_dry_run_of_new_topic_creates_no_table(stream):
    produce(stream, {}, {})
    result = run("dry-run", "--json")
    assert (result.exit_code, verdicts(result)["iceberg", "side_known"]) == (0, "passed")
    assert "1. create table" in run("dry-run").output
    assert stream.table() is None


def test_dry_run_reads_at_most_the_given_records(stream):
    produce(stream, *({} for _ in range(50)))
    checks = json.loads(run("dry-run", "--json", "--records", "10").output)["checks"]
    message = next(check["message"] for check in checks if check["check"] == "decodes")
    assert 8 <= int(message.split()[2]) <= 10, message


def test_plan_of_all_topics_reads_the_registry(stream):
    produce(stream, {})
    stream.ingest()
    assert run("plan").exit_code == 0
    extended = json.loads(TRADES)
    extended["fields"].append({"name": "venue", "type": ["null", "string"], "default": None})
    stream.schema(json.dumps(extended))
    result = run("plan")
    assert result.exit_code == 0
    assert "ADD COLUMN" in result.output and "venue" in result.output


def test_validate_needs_no_system():
    result = subprocess.run([sys.executable, "-m", "lakehouse.cli.main", "validate"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "assets" in result.stdout


def test_status_lists_all_unset_variables_in_one_line():
    environment = {"PATH": os.environ["PATH"], "LAKEHOUSE_ENV": "aws", "AWS_REGION": "eu-west-1"}
    command = [sys.executable, "-m", "lakehouse.cli.main", "status"]
    result = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True)
    assert result.returncode == 1
    [line] = result.stderr.splitlines()
    message = r"Error: lakehouse\.yaml:\d+: environments\.aws: CONFLUENT_CLUSTER_ID, CONFLUENT_ENVIRONMENT_ID, "
    assert re.match(message, line) and "SPARK_REMOTE not set, or empty. Nothing was changed" in line
    assert "AWS_REGION" not in line and "TABLEFLOW_API_KEY" not in line


@pytest.mark.parametrize("transform", ["mein:big", "mine:bigg"])
def test_validate_missing_transform_is_refused(tmp_path, transform):
    (tmp_path / "mine.py").write_text("def big(rows):\n    return rows\n")
    file = tmp_path / "lakehouse.yaml"
    file.write_text(
        STARTER.replace(
            "topics: {}",
            f"""topics:
  trades: {{}}
  big_trades:
    source: {{type: derived, from: trades, transform: "{transform}"}}""",
        )
    )
    environment = os.environ | {"LAKEHOUSE_CONFIG": str(file), "LAKEHOUSE_ENV": "local"}
    command = [sys.executable, "-m", "lakehouse.cli.main", "validate"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 1
    assert "topics.big_trades.source.transform: " in result.stderr
    file.write_text(file.read_text().replace(transform, "mine:big"))
    assert subprocess.run(command, env=environment, capture_output=True).returncode == 0
