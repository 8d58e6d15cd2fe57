"""Logs as JSON: a batch and a failure are found by their fields, in a stream and in a run of Dagster."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from types import SimpleNamespace

import dagster as dg

from assets.topics.topic_chain import topic_definitions
from lakehouse.config.loader import load
from lakehouse.core.errors import Unreachable
from lakehouse.core.log_entry import FORMAT, LogEntry
from lakehouse.metrics.table_metrics import TableMetrics
from resources.build import build_resources
from tests.support.topics import Stream
from tools.repository import PROJECT


def entries(text: str) -> list[dict]:
    """Return the entries of an output whose lines are all JSON."""
    return [json.loads(line) for line in text.splitlines()]


def ranges(stream: Stream) -> dict[str, list[int]]:
    """Return the offsets of all records of a topic that has no gaps, as a batch has them."""
    offsets = [(message.partition, message.offset) for message in stream.messages()]
    return {str(p): [0, 1 + max(offset for q, offset in offsets if q == p)] for p in sorted({p for p, _ in offsets})}


def test_stream_logs_batch_and_failure_by_fields(resources, tmp_path):
    stream = Stream(resources, settings={"errors": "suspend"})
    stream.produce_trades(range(30))
    variables = os.environ | {"LAKEHOUSE_CONFIG": str(stream.declare(tmp_path)), "AWS_SECRET_ACCESS_KEY": "canary-aws"}
    command = [sys.executable, "-m", "lakehouse.cli.main", "--log-format", "json", "stream", "--once", stream.name]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=300)
    [batch] = [entry for entry in entries(done.stdout) if entry.get("phase") == "published"]
    assert (done.returncode, batch["topic"], batch["level"]) == (0, stream.name, "INFO")
    assert batch["batch"] == ranges(stream) and "30 records → 30 rows" in batch["message"]
    assert {entry.get("reader") for entry in entries(done.stdout)} == {None, "glue", "snowflake"}

    stream.produce([{"value": b"no Avro", "partition": 1}])
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=300)
    [failure] = [entry for entry in entries(done.stdout) if entry.get("error") == "BadRecords"]
    first = ranges(stream)["1"][1] - 1
    assert (done.returncode, failure["topic"], failure["level"]) == (1, stream.name, "ERROR")
    assert failure["batch"] == {"1": [first, first + 1]} and failure["phase"] == "write", failure
    [summary] = [entry for entry in entries(done.stderr) if entry["level"] == "ERROR"]
    assert (summary["topic"], summary["error"]) == (stream.name, "BadRecords")
    assert "canary" not in done.stdout + done.stderr


def test_run_logs_batch_and_failure_with_run_id(resources, capsys, monkeypatch):
    monkeypatch.setenv(FORMAT, "json")
    stream = Stream(resources, settings={"errors": "suspend", "max_records_per_batch": 20}, partitions=1)
    stream.produce_trades(range(20))
    stream.produce([{"value": b"no Avro"}])
    definitions = dg.Definitions.merge(
        topic_definitions(stream.config, stream.topic),
        dg.Definitions(
            resources=build_resources(load(PROJECT / "lakehouse.yaml"), "local"),
            jobs=[dg.define_asset_job("table", dg.AssetSelection.assets([stream.name, "iceberg"]))],
        ),
    )
    with dg.DagsterInstance.ephemeral() as instance:
        run = definitions.resolve_job_def("table").execute_in_process(instance=instance, raise_on_error=False)
    logged = entries(capsys.readouterr().out)
    assert not run.success and {entry["run_id"] for entry in logged} == {run.run_id}
    [batch] = [entry for entry in logged if entry.get("phase") == "published"]
    assert (batch["topic"], batch["batch"]) == (stream.name, {"0": [0, 20]})
    [failure] = [entry for entry in logged if entry["level"] == "ERROR"]
    assert (failure["topic"], failure["error"]) == (stream.name, "BadRecords")
    assert (failure["batch"], failure["phase"]) == ({"0": [20, 21]}, "write")


def test_failed_measurement_is_an_entry_with_its_error():
    def status(*_):
        raise Unreachable("Kafka", "broker:9092", "that it is up")

    metrics = TableMetrics(load(PROJECT / "lakehouse.yaml"), SimpleNamespace(), status)
    entry = metrics.try_measure()
    assert (entry.level, entry.error) == (logging.WARNING, "Unreachable") and "broker:9092" in entry.message


def test_entry_has_no_credentials_of_urls():
    entry = LogEntry("https://user:canary@host refused sc://host/;token=canary", logging.ERROR, error="Unreachable")
    [shown] = entries(entry.to_json())
    assert shown["message"] == "https://host refused sc://host/;token=" and shown["time"].endswith("+00:00")
