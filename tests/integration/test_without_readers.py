"""An environment of Kafka, a schema registry, Spark and an Iceberg catalog, without any reader."""

import json

import dagster as dg
import pytest
import yaml
from click.testing import CliRunner

from assets.freshness import freshness_sensor
from lakehouse.cli.main import main
from lakehouse.config import loader
from lakehouse.definitions import JOB, defs
from tests.support.topics import Stream

SYSTEMS = ("kafka", "schema_registry", "spark", "catalog")
NAME = "small"


@pytest.fixture(scope="module")
def stream(resources, tmp_path_factory):
    """A topic with 50 trades and a record that cannot be decoded, and LAKEHOUSE_ENV set to the environment."""
    checks = {"price_set": {"type": "not_null", "column": "price"}}
    stream = Stream(resources, partitions=1, settings={"checks": checks})
    file = stream.declare(tmp_path_factory.mktemp("small"))
    declared = yaml.safe_load(file.read_text())
    systems = declared["environments"]["local"]
    file.write_text(yaml.safe_dump(declared | {"environments": {NAME: {name: systems[name] for name in SYSTEMS}}}))
    stream.produce_trades(range(50))
    stream.produce([{"value": b"bad"}])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAKEHOUSE_CONFIG", str(file))
        patch.setenv("LAKEHOUSE_ENV", NAME)
        yield stream


@pytest.fixture(scope="module")
def ingested(stream):
    """The topic, which `lakehouse stream` has ingested."""
    run("stream", stream.name, "--once")
    return stream


def run(*command, exit_code=0):
    """Run a command, and return its output."""
    result = CliRunner().invoke(main, command)
    assert result.exit_code == exit_code, result.output
    return result.output


def offsets(stream):
    return [row["kafka_offset"] for row in stream.rows()]


def test_validate_and_plan_describe_no_reader(stream):
    assert "5 assets" in run("validate")
    planned = run("plan", stream.name)
    assert "accepted" in planned and "Snowflake" not in planned
    assert json.loads(run("plan", stream.name, "--json"))["snowflake_table"] is None


def test_stream_status_and_check_report_stages_of_table_only(ingested):
    assert offsets(ingested) == list(range(50)) and len(ingested.dead_letters()) == 1
    status = run("status")
    assert "topic → Iceberg" in status and "Glue" not in status and "Snowflake" not in status
    report = json.loads(run("check", "--json"))
    assert {check["asset"] for check in report["checks"]} == {f"{ingested.name}/iceberg"}
    assert {check["verdict"] for check in report["checks"]} == {"passed"}


def test_query_uses_engines_of_environment(ingested):
    statement = f'SELECT COUNT(*) AS n FROM {ingested.namespace}."{ingested.topic.table}"'
    assert json.loads(run("query", statement, "--output", "json")) == [{"n": 50}]
    spark = statement.replace('"', "`")
    assert json.loads(run("query", spark, "--engine", "spark", "--output", "json")) == [{"n": 50}]
    for engine, key in (("snowflake", "warehouse"), ("athena", "region")):
        refused = run("query", statement, "--engine", engine, exit_code=1)
        assert f"has no `{engine}`" in refused and "Add it" in refused and key in refused


def test_repairs_and_maintenance_need_no_reader(ingested):
    assert "1 dead letter left" in run("redrive", ingested.name)
    assert "51 records replayed" in run("replay", ingested.name, "--since", "earliest")
    assert "not_framed: 1" in run("dead-letters", ingested.name)
    run("ledger", ingested.name, "--log")
    run("maintain", ingested.name)
    assert offsets(ingested) == list(range(50))


def test_doctor_checks_systems_of_environment(ingested):
    output = CliRunner().invoke(main, ["doctor", "--env", NAME]).output
    assert "Spark executors" in output and "Glue" not in output and "Snowflake" not in output


def test_main_job_and_checks_of_dagster_succeed(ingested):
    definitions = defs()
    dg.Definitions.validate_loadable(definitions)
    with dg.DagsterInstance.ephemeral() as instance:
        with dg.build_sensor_context(
            instance=instance, definitions=definitions, resources=definitions.resources
        ) as context:
            tick = freshness_sensor(loader.load()).evaluate_tick(context)
        result = definitions.resolve_job_def(JOB).execute_in_process(instance=instance)

    assert result.success
    checks = {evaluation.check_name for evaluation in result.get_asset_check_evaluations() if evaluation.passed}
    assert {"fresh", "price_set"} <= checks and "engines_agree" not in checks
    assert {event.asset_key.path[1]: event.passed for event in tick.asset_events} == {"iceberg": True}
