"""Settings of an entry that are edited between two batches, and would change the meaning of the rows in the table."""

import json
import re
from functools import partial

import pytest
from click.testing import CliRunner

from lakehouse.cli.main import main
from lakehouse.cli.schema_plan import plan_registered
from lakehouse.cli.status import status, stop_reasons
from lakehouse.config.model import Topic
from lakehouse.core.errors import IncompatibleSettings
from lakehouse.pipeline.batches.dry_run import dry_run
from lakehouse.pipeline.batches.offsets import resume
from lakehouse.pipeline.ledger.reconciliation import reconcile
from lakehouse.pipeline.redrive import redrive
from lakehouse.pipeline.replay import replay
from tests.support.topics import TRADES, Stream, framed, trade

UPSERT = {"mode": "upsert", "key": "userid"}


def edit(stream, **settings):
    """Edit settings of the stream's entry in lakehouse.yaml; None removes one."""
    stream.settings = {name: value for name, value in (stream.settings | settings).items() if value is not None}
    stream.topic = Topic.model_validate(stream.settings | {"name": stream.topic.name})


def offsets(stream, table=None):
    return sorted(stream.table(table).scan().to_arrow()["kafka_offset"].to_pylist())


@pytest.mark.parametrize(
    ("original", "edited", "message"),
    [
        ({"mode": "append", "key": None}, UPSERT, "made with `mode: append`, no `key`.*declares `mode: upsert`, `key"),
        (UPSERT, {"mode": "append"}, "made with `mode: upsert`.*declares `mode: append`"),
        ({"mode": "dedup"}, {"key": "symbol"}, "made with `key: userid`.*declares `key: symbol`"),
        (UPSERT, {"delete": {"column": "side", "value": "SELL"}}, "with no `delete`.*declares `delete: {column"),
    ],
)
def test_ingest_with_edited_mode_or_key_is_refused_until_restored(resources, original, edited, message):
    stream = Stream(resources, partitions=1)
    edit(stream, **original)
    stream.produce_trades(range(20))
    stream.ingest()
    before, settings = stream.rows(), stream.settings
    stream.produce_trades(range(20, 40))
    edit(stream, **edited)

    with pytest.raises(IncompatibleSettings, match=message):
        stream.ingest()

    assert stream.rows() == before
    edit(stream, **{"mode": "append", "key": None, "delete": None} | settings)
    [published] = stream.ingest()
    assert published.counts.consumed == 20
    assert reconcile(stream.namespace, stream.topic, stream.systems, whole_log=True).is_consistent


def test_commands_with_edited_settings_are_refused(resources):
    stream = Stream(resources, partitions=1)
    stream.produce_trades(range(10))
    stream.produce([{"value": b"bad"}])
    stream.ingest()
    before = stream.rows(), stream.dead_letters(), stream.table().metadata_location
    stream.produce_trades(range(10, 12))
    edit(stream, mode="dedup", on_incompatible="dead_letter")
    of_entry = stream.namespace, stream.topic, stream.systems

    for command in (
        partial(replay, *of_entry, "earliest"),
        partial(replay, *of_entry, "earliest", branch="again"),
        partial(redrive, *of_entry),
        partial(dry_run, *of_entry, 5),
        partial(reconcile, *of_entry),
        partial(resume, stream.systems, stream.namespace, stream.topic, "0:11", "test"),
    ):
        with pytest.raises(IncompatibleSettings, match="made with `mode: append`.*Nothing was changed"):
            command()

    planned = plan_registered(stream.config, stream.topic, stream.systems)
    assert not planned.is_accepted and "declares `mode: dedup`" in planned.invalid
    reasons = stop_reasons(stream.config, resources, status(stream.config, resources), ())
    assert "declares `mode: dedup`" in reasons[stream.name]
    assert (stream.rows(), stream.dead_letters(), stream.table().metadata_location) == before


@pytest.mark.parametrize(
    ("edited", "verdict", "message"),
    [
        ({}, "passed", "the next batch accepts"),
        ({"mode": "dedup"}, "failed", "made with `mode: append`.*declares `mode: dedup`.*Restore the settings"),
        ({"mode": "dedup", "on_incompatible": "new_table"}, "warned", "declares `mode: dedup`.*continues in .*__v2"),
    ],
)
def test_check_reports_edited_settings_as_ingestion_does(resources, edited, verdict, message, tmp_path, monkeypatch):
    stream = Stream(resources, partitions=1)
    stream.produce_trades(range(10))
    stream.ingest()
    edit(stream, **edited)
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(stream.declare(tmp_path)))

    result = CliRunner().invoke(main, ["check", stream.name, "--json"])

    [reported] = [one for one in json.loads(result.stdout)["checks"] if one["check"] == "schema_and_settings"]
    assert reported["asset"] == f"{stream.name}/iceberg" and reported["verdict"] == verdict
    assert re.search(message, reported["message"])


def test_ingest_with_edited_mode_continues_in_new_table(resources):
    stream = Stream(resources, partitions=1)
    stream.produce_trades(range(20))
    stream.ingest()
    before = stream.rows()
    stream.produce_trades(range(20, 40))
    edit(stream, **UPSERT, on_incompatible="new_table")

    stream.ingest()

    name = f"{stream.topic.table}__v2"
    newest = {trade(n)["userid"]: n for n in range(20, 40)}
    assert (stream.rows(), offsets(stream, name)) == (before, sorted(newest.values()))
    stream.produce_trades(range(40, 45))
    stream.ingest()
    assert offsets(stream, name) == sorted((newest | {trade(n)["userid"]: n for n in range(40, 45)}).values())
    assert reconcile(stream.namespace, stream.topic, stream.systems).is_consistent
    # An entry with the settings of the first table does not fit the second one.
    edit(stream, mode="append", on_incompatible="stop")
    stream.produce_trades(range(45, 46))
    with pytest.raises(IncompatibleSettings, match=f"{name} were made with `mode: upsert`"):
        stream.ingest()


def test_ingest_after_rename_of_key_column_replaces_rows(resources):
    stream = Stream(resources, partitions=1, settings=UPSERT)
    stream.produce_trades(range(20))
    stream.ingest()
    renamed = TRADES.replace('"name": "userid"', '"name": "customer", "aliases": ["userid"]')
    schema_id, trades = stream.schema(renamed), [trade(n) for n in range(20, 40)]
    stream.produce(
        [
            {"key": t["userid"].encode(), "value": framed(schema_id, renamed, t | {"customer": t["userid"]})}
            for t in trades
        ]
    )
    edit(stream, key="customer")

    stream.ingest()
    stream.produce([{"key": b"User_1", "value": None}])
    stream.ingest()

    newest = {trade(n)["userid"]: n for n in range(40) if trade(n)["userid"] != "User_1"}
    assert offsets(stream) == sorted(newest.values())
    assert {row["customer"] for row in stream.rows()} == newest.keys()


def test_stream_with_edited_mode_fails_with_the_remedy(resources, tmp_path, monkeypatch):
    stream = Stream(resources, partitions=1)
    stream.produce_trades(range(10))
    stream.ingest()
    stream.produce_trades(range(10, 20))
    edit(stream, **UPSERT)
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(stream.declare(tmp_path)))

    result = CliRunner().invoke(main, ["stream", "--once"])

    assert result.exit_code == 1 and "declares `mode: upsert`" in result.output
    assert "set `on_incompatible: new_table`" in result.output
    assert offsets(stream) == [*range(10)]
