"""Metrics as Prometheus gets them, read by the parser of its client library, and the health of a stream."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
import requests
from click.testing import CliRunner
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from assets.streaming.service import StreamService
from lakehouse.cli.main import main
from lakehouse.core.errors import Paused, TransientError, Yielded
from lakehouse.core.offsets.batch import OUTCOMES
from lakehouse.core.polling import poll
from lakehouse.metrics.server import serving
from lakehouse.metrics.stream_metrics import StreamMetrics, serve_metrics
from lakehouse.pipeline.commits.audit import AuditFailed, CheckResult
from lakehouse.readers.reader import Registration
from lakehouse.streaming import stream as streams
from lakehouse.streaming.publishers import PublicationFailed, TablePublished
from lakehouse.streaming.stream_events import TopicBackedOff
from tests.support.topics import CHEAP, Stream, trade, with_checks
from tools.repository import PROJECT

CONTAINERS = PROJECT / "containers"
"""The folder with the dagster.yaml of a deployment."""

SECONDS = 300
"""The longest that a condition may take on a busy machine."""


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return the values of an exposition by name and labels."""
    families = text_string_to_metric_families(text)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def value(text: str, name: str, **labels: str) -> float | None:
    return samples(text).get((f"lakehouse_{name}", frozenset(labels.items())))


def reasons(text: str, labels: list[dict[str, str]], **of_topic: str) -> list[float | None]:
    return [value(text, "new_dead_letters_total", **label, **of_topic) for label in labels]


def scraped(url: str) -> str:
    return requests.get(f"{url}/metrics", timeout=30).text


def test_scrape_of_stream_has_outcomes_phases_and_readers(resources):
    stream = Stream(resources)
    topic = with_checks(stream.topic, CHEAP)
    stream.produce_trades(range(60))
    stream.produce([{"value": b"no Avro"}])
    dear = sum(trade(number)["price"] > 50 for number in range(60))
    config = stream.config.model_copy(update={"topics": {stream.name: topic}})
    service = StreamService(config, [topic], resources, lambda _: None, None)
    registered = [{"reason": "not_framed"}, {"reason": "check"}]
    began = time.time()
    with serve_metrics(service, ("127.0.0.1", 0), 900) as url:
        thread = threading.Thread(target=service.run)
        thread.start()
        try:
            of_topic = {"topic": stream.name}
            count = "publication_duration_seconds_count"
            assert poll(
                lambda: (value(scraped(url), count, reader="snowflake", **of_topic) or 0) > 0,
                pause=0.2,
                deadline_seconds=SECONDS,
            )
            text = poll(
                lambda: (text := scraped(url)) and reasons(text, registered, **of_topic) == [1, dear] and text,
                pause=0.2,
                deadline_seconds=SECONDS,
            )
            ready = requests.get(f"{url}/readyz", timeout=30)
        finally:
            service.stream.stop()
            thread.join(SECONDS)
    outcomes = {
        outcome: value(text, "records_total", outcome=outcome, **of_topic) for outcome in ("rows", "dead_letters")
    }
    assert outcomes == {"rows": 60 - dear, "dead_letters": 1 + dear}
    batches = value(text, "batch_duration_seconds_count", **of_topic)
    assert batches and 1 <= batches <= 61
    phases = [
        value(text, "batch_phase_seconds_total", phase=phase, **of_topic) for phase in ("write", "audit", "publish")
    ]
    total = value(text, "batch_duration_seconds_sum", **of_topic)
    assert all(phases) and sum(phases) <= total * 1.5
    assert began <= value(text, "last_commit_timestamp_seconds", **of_topic) <= time.time()
    assert value(text, "check_failed", check="cheap", **of_topic) == 1
    assert value(text, "backlog_records", **of_topic) == 0
    assert value(text, "published_bytes_total", **of_topic) > 1000
    assert {value(text, count, reader=reader, **of_topic) is not None for reader in ("glue", "snowflake")} == {True}
    assert (ready.status_code, ready.text) == (200, "ok\n")


def test_scrape_before_first_batch_has_zeros_of_outcomes_and_readers(resources):
    stream = Stream(resources)
    service = StreamService(stream.config, [stream.topic], resources, lambda _: None, None)
    with serve_metrics(service, ("127.0.0.1", 0), 900) as url:
        text = scraped(url)
    of_topic = {"topic": stream.name}
    assert {value(text, "records_total", outcome=outcome, **of_topic) for outcome in OUTCOMES[1:]} == {0}
    names = ("publication_duration_seconds_count", "consecutive_publication_failures")
    of_readers = {value(text, name, reader=reader, **of_topic) for name in names for reader in ("glue", "snowflake")}
    assert of_readers == {0}
    names = ("batch_duration_seconds_count", "published_bytes_total", "compactions_total")
    assert {value(text, name, **of_topic) for name in names} == {0}


def test_consecutive_publication_failures_end_with_a_publication(resources):
    stream, registration = Stream(resources), Registration("s3://lake/table.json", 1)
    service = StreamService(stream.config, [stream.topic], resources, lambda _: None, None)
    with serve_metrics(service, ("127.0.0.1", 0), 900) as url:
        [observe] = service.observers
        failures = []
        for event in (
            PublicationFailed("glue", stream.name, TransientError("Glue does not answer"), 1.0),
            PublicationFailed("glue", stream.name, ValueError("no table"), 2.0),
            TablePublished("glue", stream.topic, 1, registration, 0.1),
        ):
            observe(event)
            labels = {"topic": stream.name, "reader": "glue"}
            failures.append(value(scraped(url), "consecutive_publication_failures", **labels))
    assert failures == [1, 2, 0]


def test_check_that_blocks_a_batch_has_failed_for_it(resources):
    stream = Stream(resources)
    service = StreamService(stream.config, [stream.topic], resources, lambda _: None, None)
    results = [CheckResult("cheap", False, "2 of 3 rows fail"), CheckResult("key_not_null", True, "0 null keys")]
    blocked = AuditFailed(stream.name, "ingest_1", results, "the next run replaces the branch")
    with serve_metrics(service, ("127.0.0.1", 0), 900) as url:
        [observe] = service.observers
        observe(TopicBackedOff(stream.name, blocked, 1.0))
        text = scraped(url)
    failed = {check: value(text, "check_failed", topic=stream.name, check=check) for check in ("cheap", "key_not_null")}
    assert failed == {"cheap": 1, "key_not_null": 0}
    assert value(text, "failures_total", topic=stream.name, error="AuditFailed") == 1


def test_pause_and_waiting_command_are_no_failures(resources):
    stream = Stream(resources)
    service = StreamService(stream.config, [stream.topic], resources, lambda _: None, None)
    with serve_metrics(service, ("127.0.0.1", 0), 900) as url:
        [observe] = service.observers
        for error in (Paused(stream.name, "paused"), Yielded(stream.name, "waiting for a redrive")):
            observe(TopicBackedOff(stream.name, error, 5.0))
        text = scraped(url)
    assert not [name for name, _ in samples(text) if name == "lakehouse_failures_total"]


def test_blocked_operation_of_spark_is_unhealthy_until_it_ends(resources):
    stream, registry = Stream(resources), CollectorRegistry()
    stream.produce_trades(range(3))
    session = resources.spark.with_own_session()

    def block():
        [(slept,)] = session.session({}).sql("SELECT java_method('java.lang.Thread', 'sleep', 8000L)").collect()
        return slept

    slept = stream.before_first("row_files", block)
    ingesting = streams.Stream(stream.config, [stream.topic], stream.systems, once=True)
    metrics = StreamMetrics(ingesting, registry, stuck_seconds=3)
    with serving(("127.0.0.1", 0), registry, {"/healthz": metrics.stuck}) as url:
        thread = threading.Thread(target=lambda: list(ingesting.run()))
        thread.start()
        unhealthy = poll(
            lambda: (response := requests.get(f"{url}/healthz", timeout=30)).status_code == 503 and response.text,
            pause=0.2,
            deadline_seconds=SECONDS,
        )
        operations = value(scraped(url), "spark_operations")
        thread.join(SECONDS)
        healthy = requests.get(f"{url}/healthz", timeout=30)
    session.close()
    assert unhealthy.startswith("worker ") and "has made no progress for" in unhealthy
    assert operations and operations >= 1
    assert (len(slept), healthy.status_code) == (1, 200)
    assert len(stream.rows()) == 3


def test_measurement_has_lag_files_and_dead_letters_by_reason(resources, tmp_path, monkeypatch):
    stream = Stream(resources)
    stream.produce_trades(range(20))
    stream.produce([{"value": b"no Avro"}, {"value": None}])
    stream.ingest()
    stream.produce_trades(range(5))
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(stream.declare(tmp_path)))
    result = CliRunner().invoke(main, ["metrics"])
    assert result.exit_code == 0, result.output
    text, of_topic = result.output, {"topic": stream.name}
    assert value(text, "topic_end_offset", **of_topic) == len(stream.messages())
    assert value(text, "topic_ingested_offset", **of_topic) == len(stream.messages()) - 5
    assert value(text, "stage_missing", stage="iceberg", **of_topic) == 5
    assert 0 < value(text, "stage_lag_seconds", stage="iceberg", **of_topic) < SECONDS
    assert value(text, "stage_missing", stage="glue", **of_topic) >= 1
    assert value(text, "dead_letters", reason="not_framed", **of_topic) == 1
    assert value(text, "dead_letters", reason="null_value", **of_topic) == 1
    table = stream.table()
    assert value(text, "table_data_files", **of_topic) == len(list(table.scan().plan_files()))
    assert value(text, "table_snapshots", **of_topic) == len(table.metadata.snapshots)
    assert value(text, "table_metadata_bytes", **of_topic) == len(
        table.io.new_input(table.metadata_location).open().read()
    )
    committed = table.current_snapshot().timestamp_ms / 1000
    assert value(text, "table_last_commit_timestamp_seconds", **of_topic) == committed


def test_measurement_has_commit_time_of_what_each_reader_exposes(resources, tmp_path, monkeypatch):
    stream, committed = Stream(resources), {}
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(stream.declare(tmp_path)))
    for stage in ("glue", "iceberg"):
        stream.produce_trades(range(5))
        stream.ingest()
        committed[stage] = stream.table().current_snapshot().timestamp_ms / 1000
        if stage == "glue":
            stream.show("glue")
    result = CliRunner().invoke(main, ["metrics"])
    assert result.exit_code == 0, result.output
    name, of_topic = "stage_snapshot_timestamp_seconds", {"topic": stream.name}
    assert {stage: value(result.output, name, stage=stage, **of_topic) for stage in committed} == committed
    assert value(result.output, name, stage="snowflake", **of_topic) is None


def test_metrics_command_serves_until_it_is_terminated(resources, tmp_path):
    stream = Stream(resources)
    command = [sys.executable, "-m", "lakehouse.cli.main", "metrics", "--listen", "127.0.0.1:0", "--every", "1"]
    # As in the image: the command needs none of the variables that complete the settings of Dagster's instance.
    variables = os.environ | {"LAKEHOUSE_CONFIG": str(stream.declare(tmp_path)), "DAGSTER_HOME": str(CONTAINERS)}
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True) as process:
        url = process.stdout.readline().removeprefix("Metrics: ").removesuffix("/metrics\n")
        assert poll(lambda: value(scraped(url), "measurement_succeeded") == 1, pause=0.2, deadline_seconds=SECONDS)
        healthy = requests.get(f"{url}/healthz", timeout=30).status_code
        process.send_signal(signal.SIGTERM)
        assert (healthy, process.wait(60)) == (200, 0)


def test_connection_without_request_is_closed_and_prints_nothing(monkeypatch, capsys):
    monkeypatch.setattr("lakehouse.metrics.server.REQUEST_SECONDS", 1)
    with (
        serving(("127.0.0.1", 0), CollectorRegistry(), {}) as url,
        socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as connection,
    ):
        assert connection.recv(1) == b""
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_address_in_use_is_refused(host):
    with serving((host, 0), CollectorRegistry(), {}) as url:
        port = url.rpartition(":")[2]
        result = CliRunner().invoke(
            main, ["metrics", "--listen", f"[{host}]:{port}" if ":" in host else f"{host}:{port}"]
        )
    assert result.exit_code == 1
    assert f"Metrics cannot be served on {host}:{port} (Address already in use)" in result.output
