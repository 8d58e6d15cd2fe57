"""Environments that lack readers: the definitions have nothing of them, and what needs one stops with a remedy."""

import json

import dagster as dg
import pytest
import yaml
from click.testing import CliRunner

from lakehouse.cli.main import main
from lakehouse.core.errors import ConfigError
from lakehouse.definitions import JOB, defs
from tests.support.declared import declare

READERS = {
    "glue": {"region": "us-east-1", "catalog_id": "123456789012"},
    "snowflake": {
        **dict.fromkeys(("account", "user", "role", "warehouse", "database", "aws_role_arn", "region"), "x"),
        **{"glue_catalog_id": "123456789012", "private_key_path": "none.p8"},
    },
    "rest_catalog": {"uri": "https://polaris.example/api/catalog", "warehouse": "lake"},
}
ENTRIES = {
    "namespace": "shop",
    "topics": {"orders": {"key": "id", "errors": "log"}, "streamed": {"continuous": True}},
    "routes": {"events": {"pattern": r"events\.\w+"}},
}


@pytest.fixture
def environment(monkeypatch, tmp_path):
    """A function that declares an environment with these readers only."""

    def declare_with(*readers, **entries):
        declare(monkeypatch, tmp_path, **(ENTRIES | entries))
        file = tmp_path / "lakehouse.yaml"
        content = yaml.safe_load(file.read_text())
        systems = {name: value for name, value in content["environments"]["here"].items() if name not in READERS}
        content["environments"]["here"] = systems | {name: READERS[name] for name in readers}
        file.write_text(yaml.safe_dump(content))

    return declare_with


@pytest.mark.parametrize(
    ("readers", "stages", "compared"),
    [
        ((), set(), None),
        (("glue",), {"glue"}, "glue"),
        (("rest_catalog",), {"rest"}, "rest"),
        (("glue", "rest_catalog"), {"glue", "rest"}, "glue"),
        (("glue", "snowflake", "rest_catalog"), {"glue", "snowflake", "rest"}, "snowflake"),
    ],
)
def test_definitions_have_parts_of_declared_readers_only(environment, readers, stages, compared):
    environment(*readers)

    loaded = defs()

    dg.Definitions.validate_loadable(loaded)
    graph, common = (
        loaded.resolve_asset_graph(),
        {"kafka", "iceberg", "dead_letters", "ledger", "maintenance", "kafka_clients"},
    )
    assert {key.path[1] for key in graph.get_all_asset_keys()} == common | stages
    agreeing = {key.asset_key.path[1] for key in graph.asset_check_keys if key.name == "engines_agree"}
    assert agreeing == ({compared} if compared else set())
    steps = {node.name.partition("__")[2] for node in loaded.resolve_job_def(JOB).nodes}
    assert steps == {stage + step for stage in ("iceberg", *stages) for step in ("", "__checks")}
    assert set(READERS) & set(loaded.resources) == set(readers)


def test_validate_and_offline_plan_without_readers(environment, tmp_path):
    environment()
    schema = tmp_path / "orders.avsc"
    schema.write_text(json.dumps({"type": "record", "name": "O", "fields": [{"name": "id", "type": "long"}]}))

    validated = CliRunner().invoke(main, ["validate"])
    planned = CliRunner().invoke(main, ["plan", "orders", str(schema), "--against", str(schema)])

    assert validated.exit_code == 0, validated.output
    assert planned.exit_code == 0 and "accepted" in planned.output and "Snowflake" not in planned.output


@pytest.mark.parametrize("command", ["validate", "status"])
def test_snowflake_without_glue_is_refused_with_remedy(environment, command):
    environment("snowflake")

    result = CliRunner().invoke(main, [command])

    assert result.exit_code == 1
    assert "environments.here.snowflake: Snowflake shows what Glue has" in result.output
    assert "has no `glue`. Nothing was changed. Add its settings, or remove those of `snowflake`" in result.output


LINK = {"linked_catalog": "POLARIS"}
OF_GLUE = ("aws_role_arn", "glue_catalog_id", "region")


@pytest.mark.parametrize(
    ("removed", "added", "catalog", "message"),
    [
        ((), LINK, "rest", "snowflake.region: it has no effect with `linked_catalog`"),
        (OF_GLUE, {}, "rest", "snowflake: aws_role_arn, glue_catalog_id, region missing. Add it"),
        (OF_GLUE, LINK, "sql", "shows the tables of a REST catalog, and the environment has a catalog of type sql"),
        (OF_GLUE, LINK, "rest", ""),
    ],
)
def test_linked_snowflake_follows_rest_catalog(environment, tmp_path, removed, added, catalog, message):
    environment("snowflake")
    file = tmp_path / "lakehouse.yaml"
    content = yaml.safe_load(file.read_text())
    systems = content["environments"]["here"]
    systems["snowflake"] = {name: value for name, value in systems["snowflake"].items() if name not in removed} | added
    uri = "https://host/api" if catalog == "rest" else "sqlite:///catalog.db"
    systems["catalog"] = {"type": catalog, "uri": uri, "warehouse": "s3://lake"}
    file.write_text(yaml.safe_dump(content))

    result = CliRunner().invoke(main, ["validate"])

    assert result.exit_code == bool(message) and message in result.output, result.output
    if not message:
        graph = defs().resolve_asset_graph()
        assert graph.get(dg.AssetKey(["orders", "snowflake"])).parent_keys == {dg.AssetKey(["orders", "iceberg"])}


def test_topic_of_tableflow_without_catalog_is_refused_with_remedy(environment):
    environment("rest_catalog", topics={"flow": {"engine": "tableflow"}})

    with pytest.raises(ConfigError, match="neither `glue` nor `tableflow_catalog`.*Nothing was changed. Add one"):
        defs()


@pytest.mark.parametrize(("engine", "keys"), [("snowflake", "warehouse, database"), ("athena", "region")])
def test_query_in_absent_engine_names_its_keys(environment, engine, keys):
    environment()

    result = CliRunner().invoke(main, ["query", "SELECT 1", "--engine", engine])

    assert result.exit_code == 1
    assert f"has no `{engine}`. Nothing was changed. Add it to the environment" in result.output
    assert f"(required keys: {keys}" in result.output


def test_query_without_snowflake_uses_duckdb(environment):
    environment()
    result = CliRunner().invoke(main, ["query", "SELECT 41 + 1 AS n", "--output", "json"])
    assert result.exit_code == 0 and json.loads(result.output) == [{"n": 42}]
