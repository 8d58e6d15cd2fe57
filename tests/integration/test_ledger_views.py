"""The ledger as an asset, a check and a command show it."""

import json

import dagster as dg
import yaml
from click.testing import CliRunner

from assets.factories import asset_checks
from assets.topics.upkeep_assets import ledger_asset, ledger_check
from lakehouse.cli.main import main
from lakehouse.config.loader import load
from resources.build import build_resources
from tests.support.ledger import ingest, sql
from tests.support.topics import Stream
from tools.repository import PROJECT


def materialize(stream):
    """Run the ledger's asset and the table's check; return the asset's metadata, and whether each check passed."""
    defs = dg.Definitions(
        assets=[ledger_asset(stream.config, stream.topic)],
        asset_checks=[asset_checks(stream.topic, "iceberg", [ledger_check(stream.config, stream.topic)])],
        resources=build_resources(load(PROJECT / "lakehouse.yaml"), "local"),
        jobs=[dg.define_asset_job("all", dg.AssetSelection.all() | dg.AssetSelection.all_asset_checks())],
    )
    with dg.DagsterInstance.ephemeral() as instance:
        result = defs.resolve_job_def("all").execute_in_process(instance=instance)
    [event] = [e for e in result.all_events if e.is_step_materialization]
    passed = {e.check_name: e.passed for e in result.get_asset_check_evaluations()}
    return event.step_materialization_data.materialization.metadata, passed


def page(metadata, name):
    """Return the rows of a table in the metadata of an asset."""
    return [record.data for record in metadata[name].value.records]


def test_ledger_asset_page_shows_commits_and_findings(resources):
    stream = Stream(resources)
    stream.produce_trades(range(30))
    stream.produce([{"value": b"bad"}])
    [published] = ingest(stream)

    metadata, passed = materialize(stream)

    assert passed == {"ledger": True, "reconciled": True}
    assert (metadata["consumed"].value, metadata["rows"].value, metadata["dead_letters"].value) == (31, 30, 1)
    commits = [(row["snapshot"], row["commit"]) for row in page(metadata, "commits")]
    assert (str(published.snapshot_id), "ingest") in commits
    assert len(page(metadata, "partitions")) == stream.partitions
    assert page(metadata, "findings") == []

    sql(stream, "DELETE FROM {} WHERE kafka_offset = 0 AND kafka_partition = 0")
    metadata, passed = materialize(stream)

    assert passed == {"ledger": True, "reconciled": False}
    findings = [(row["kind"], row["finding"].partition(",")[0]) for row in page(metadata, "findings")]
    assert any(kind == "fault" and text.startswith("LOST: partition 0 offset 0") for kind, text in findings)


def test_ledger_command_deep_fails_on_lost_row(resources, tmp_path, monkeypatch):
    stream = Stream(resources)
    stream.produce_trades(range(30))
    ingest(stream)
    file = tmp_path / "lakehouse.yaml"
    environments = yaml.safe_load((PROJECT / "lakehouse.yaml").read_text())["environments"]
    declared = {"namespace": stream.namespace, "topics": {stream.name: {}}, "environments": environments}
    file.write_text(yaml.safe_dump(declared))
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(file))

    def run(*options):
        return CliRunner().invoke(main, ["ledger", stream.name, *options], catch_exceptions=False)

    assert run().exit_code == 0
    result = run("--deep", "--json")
    assert result.exit_code == 0
    shown = json.loads(result.output)
    assert shown["is_consistent"] and shown["totals"]["rows"] == 30
    assert [commit["verdict"] for commit in shown["commits"]] == ["rows unchanged", "ok"]

    sql(stream, "DELETE FROM {} WHERE kafka_offset = 0 AND kafka_partition = 0")
    assert run().exit_code == 0, "metadata alone cannot know"
    result = run("--deep")
    assert result.exit_code == 1
