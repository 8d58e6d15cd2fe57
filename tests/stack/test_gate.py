"""The commands of a pipeline: exit codes, outputs, and that a rehearsal leaves nothing behind."""

import json
import subprocess
import sys
import time
from xml.etree import ElementTree

import dagster as dg
import pytest
import yaml
from click.testing import CliRunner
from support import TRADES, Stream, framed, trade

from assets.topic import topic_definitions
from lakehouse.cli.main import main
from lakehouse.config.loader import PROJECT, load
from resources.build import build_resources

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
    trades = [trade(n, **good | changed) for n, changed in enumerate(changes)]
    stream.produce([{"value": framed(schema_id, TRADES, t)} for t in trades])


def chain(stream):
    built = build_resources(load(PROJECT / "lakehouse.yaml"), "local")
    assets = topic_definitions(stream.config, stream.topic).assets
    chosen = [asset for asset in assets if asset.key.path[0] in ("iceberg", "glue", "snowflake")]
    assert dg.materialize(chosen, resources=built).success


def run(*arguments):
    done = CliRunner().invoke(main, arguments)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.output
    return done


def verdicts(done):
    found = json.loads(done.output)
    assert found["exit_code"] == done.exit_code
    return {(check["asset"].partition("/")[0], check["check"]): check["verdict"] for check in found["checks"]}


def test_check_passes_warns_fails_and_says_so_to_programs(stream, tmp_path):
    produce(stream, {}, {"price": 900})
    chain(stream)

    report = tmp_path / "report.xml"
    done = run("check", stream.name, "--json", "--junit", str(report))
    assert done.exit_code == 0, done.output
    hops = ("iceberg", "glue", "snowflake")
    assert verdicts(done) == {(hop, "fresh"): "passed" for hop in hops} | {
        ("iceberg", "ledger"): "passed",
        ("iceberg", "side_known"): "passed",
        ("iceberg", "cheap"): "warned",
        ("glue", "points_at_published_snapshot"): "passed",
        ("snowflake", "same_as_iceberg"): "passed",
        ("snowflake", "engines_agree"): "passed",
    }
    suite = ElementTree.parse(report).getroot()[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("9", "0", "0")

    # Somebody changes a row behind the project's back.
    spark = stream.resources.spark.session(stream.resources.catalog.spark_settings())
    table = f"lake.`{stream.namespace}`.`{stream.topic.table}`"
    spark.sql(f"UPDATE {table} SET side = 'HOLD' WHERE price = 900").collect()
    done = run("check", "--json", "--junit", str(report))
    assert done.exit_code == 1
    assert verdicts(done)["iceberg", "side_known"] == "failed"
    assert [case.get("name") for case in ElementTree.parse(report).iter("testcase") if case.find("failure") is not None]
    assert "✗ iceberg" in run("check").output


def test_the_topics_of_a_route_are_checked_too(stream, tmp_path):
    file = stream.declare(tmp_path)
    declared = yaml.safe_load(file.read_text())
    route = {"pattern": stream.name, "checks": CHECKS, "max_lag_seconds": 600}
    file.write_text(yaml.safe_dump(declared | {"topics": {}, "routes": {"mine": route}}))
    produce(stream, {}, {"side": "HOLD"})
    stream.topic = stream.topic.model_copy(update={"checks": {}})
    stream.ingest()
    found = verdicts(run("check", "--json"))
    assert (found["iceberg", "fresh"], found["iceberg", "side_known"]) == ("passed", "failed")

    an_hour_ago = int(time.time() * 1000) - 3_600_000
    stream.produce([{"value": framed(stream.schema(), TRADES, trade(1)), "timestamp": an_hour_ago}])
    done = run("check", "--json")
    assert verdicts(done)["iceberg", "fresh"] == "failed"
    assert "1 record behind, for 3,6" in done.output


def test_check_that_cannot_run_is_neither_passed_nor_failed(stream):
    produce(stream, {})
    stream.ingest()
    done = run("check", stream.name, "--json")
    assert verdicts(done)["snowflake", "same_as_iceberg"] == "not run"
    assert done.exit_code == 2
    assert run("check", "no_such_topic").exit_code == 2


def test_a_rehearsal_judges_what_is_new_and_leaves_nothing(stream):
    produce(stream, {})
    stream.ingest()
    published = stream.table().metadata

    produce(stream, {}, {"price": 900})
    done = run("rehearse", "--json")
    assert (done.exit_code, verdicts(done)) == (
        0,
        {
            ("iceberg", "decodes"): "passed",
            ("iceberg", "conservation"): "passed",
            ("iceberg", "key_not_null"): "passed",
            ("iceberg", "side_known"): "passed",
            ("iceberg", "cheap"): "warned",
        },
    )
    produce(stream, {"side": "HOLD"})
    done = run("rehearse", stream.name, "--json", "--records", "1000")
    assert (done.exit_code, verdicts(done)["iceberg", "side_known"]) == (1, "failed")
    stream.produce([{"value": b"bad"}])
    assert verdicts(run("rehearse", "--json"))["iceberg", "decodes"] == "failed"

    now = stream.table().metadata
    assert (now.current_snapshot_id, set(now.refs)) == (published.current_snapshot_id, set(published.refs))
    assert stream.rows() and len(stream.rows()) == 1


def test_a_rehearsal_of_a_new_topic_leaves_no_table(stream):
    produce(stream, {}, {})
    done = run("rehearse", "--json")
    assert (done.exit_code, verdicts(done)["iceberg", "side_known"]) == (0, "passed")
    assert stream.table() is None


def test_only_so_many_records_are_rehearsed(stream):
    produce(stream, *({} for _ in range(50)))
    found = json.loads(run("rehearse", "--json", "--records", "10").output)["checks"]
    said = next(check["said"] for check in found if check["check"] == "decodes")
    assert 8 <= int(said.split()[2]) <= 10, said


def test_a_plan_of_every_topic_asks_the_registry(stream):
    produce(stream, {})
    stream.ingest()
    assert run("plan").exit_code == 0
    wider = json.loads(TRADES)
    wider["fields"].append({"name": "venue", "type": ["null", "string"], "default": None})
    stream.schema(json.dumps(wider))
    done = run("plan")
    assert done.exit_code == 0
    assert "ADD COLUMN" in done.output and "venue" in done.output


def test_definitions_are_validated_without_a_system():
    done = subprocess.run([sys.executable, "-m", "lakehouse.cli.main", "validate"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "assets" in done.stdout
