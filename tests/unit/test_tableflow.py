"""Topics whose tables Confluent's Tableflow writes: assets in Dagster, and unsupported settings."""

import dagster as dg
import pytest
from click.testing import CliRunner

from assets.streaming.service import select_topics
from lakehouse.cli.main import main
from lakehouse.config import loader
from lakehouse.config.discovery import config_path
from lakehouse.core.errors import ConfigError
from lakehouse.definitions import defs
from lakehouse.deploy.confluent.declared import tableflow_config
from tools.repository import PROJECT

REFERENCES = "{{type: references, column: k, table: {}}}"


@pytest.fixture
def declare(tmp_path, monkeypatch):
    """Return a function that configures a lakehouse.yaml with further topics."""

    def declare(topics):
        text = config_path().read_text()
        for folder in ("schemas",):
            if not (tmp_path / folder).exists():
                (tmp_path / folder).symlink_to(PROJECT / folder)
        (tmp_path / "lakehouse.yaml").write_text(text.replace("topics:", f"topics:\n{topics}", 1))
        monkeypatch.setenv("LAKEHOUSE_CONFIG", str(tmp_path / "lakehouse.yaml"))

    return declare


def test_defs_tableflow_topic_has_chain_of_readers(declare):
    declare("  orders: {engine: tableflow, checks: {paid: {type: not_null, column: paid}}}")
    definitions = defs()
    dg.Definitions.validate_loadable(definitions)
    graph = definitions.resolve_asset_graph()
    systems = {key.path[1] for key in graph.get_all_asset_keys() if key.path[0] == "orders"}
    assert systems == {"kafka", "iceberg", "glue", "snowflake"}
    checks = {(key.asset_key.path[1], key.name) for key in graph.asset_check_keys if key.asset_key.path[0] == "orders"}
    assert checks == {
        ("iceberg", "paid"),
        ("glue", "fresh"),
        ("glue", "registration_current"),
        ("snowflake", "fresh"),
        ("snowflake", "matches_iceberg"),
        ("snowflake", "engines_agree"),
    }
    nodes = {node.name for node in definitions.resolve_job_def("all_topics").nodes}
    assert {"orders__iceberg", "orders__glue", "orders__snowflake"} <= nodes


@pytest.mark.parametrize(
    ("topics", "message"),
    [
        ("  t: {engine: tableflow, mode: dedup, key: id}", "topics.t.mode: Tableflow appends"),
        ("  t: {engine: tableflow, continuous: true}", "topics.t.continuous: Tableflow runs continuously by itself"),
        ("  t: {engine: tableflow, metadata: {naming: portable}}", "topics.t.metadata.naming: Tableflow has no such"),
        (
            "  t: {engine: tableflow, checks: {c: {type: not_null, column: x, severity: quarantine}}}",
            "topics.t.checks: Tableflow publishes rows before checks run",
        ),
        (
            "  t: {engine: tableflow}\n  d: {continuous: true, source: {type: derived, from: t, transform: 'a:b'}}",
            "topics.d.continuous: Tableflow writes the table of 't', whose snapshots no stream observes",
        ),
        (
            "  t: {engine: tableflow, mode: upsert, key: k}\n  d: {source: {type: derived, from: t, transform: 'a:b'}}",
            "topics.d.source.from: the table of 't' has 'mode: upsert', but its rows must never change",
        ),
        (
            "  t: {engine: tableflow, checks: {c: {type: row_count, min: 1}}}",
            "topics.t.checks.c: Tableflow's snapshots are no batches",
        ),
        (
            f"  t: {{engine: tableflow, checks: {{known: {REFERENCES.format('d')}}}}}\n  d: {{}}",
            "topics.t.checks.known: reads table 'd', and Tableflow writes one of the two",
        ),
        (
            f"  t: {{engine: tableflow}}\n  d: {{checks: {{known: {REFERENCES.format('t')}}}}}",
            "topics.d.checks.known: reads table 't', and Tableflow writes one of the two",
        ),
    ],
)
def test_load_tableflow_with_unsupported_setting_is_refused(declare, topics, message):
    declare(topics)
    with pytest.raises(ConfigError, match=message):
        loader.load()


@pytest.mark.parametrize(
    "command",
    [
        "dead-letters t",
        "dry-run t",
        "ledger t",
        "maintain t",
        "pause t",
        "redrive t",
        "replay t --since earliest",
        "resume t --at latest --reason x",
    ],
)
def test_command_for_tables_of_spark_refuses_tableflow(declare, command):
    declare("  t: {engine: tableflow}")
    result = CliRunner().invoke(main, command.split())
    assert result.exit_code and "Tableflow writes the table of 't', and not Spark. Nothing was changed" in result.output


def test_stream_of_table_by_tableflow_is_refused(declare):
    declare("  t: {engine: tableflow}")
    with pytest.raises(ConfigError, match="writes the table of 't', and not Spark"):
        select_topics(loader.load(), ["t"], [])


@pytest.mark.parametrize(
    ("metadata", "scheme", "offset"),
    [
        ("{}", "PORTABLE", "cflt_metadata_offset"),
        ("{naming: confluent_portable}", "PORTABLE", "cflt_metadata_offset"),
        ("{naming: confluent}", "DEFAULT", "$$offset"),
    ],
)
def test_tableflow_scheme_set_by_create_has_names_of_asset(declare, metadata, scheme, offset):
    declare(f"  orders: {{engine: tableflow, metadata: {metadata}}}")
    topic = loader.load().topics["orders"]
    assert tableflow_config(topic)["metadata_column_naming_scheme"] == scheme
    assert topic.metadata.names["kafka_offset"] == offset


def test_defs_topic_derived_from_tableflow_needs_its_database(declare):
    declare("  t: {engine: tableflow}\n  d: {source: {type: derived, from: t, transform: 'spark.flags:flagged'}}")
    definitions = defs()
    dg.Definitions.validate_loadable(definitions)
    graph = definitions.resolve_asset_graph()
    assert dg.AssetKey(["t", "iceberg"]) in graph.get(dg.AssetKey(["d", "kafka"])).parent_keys
