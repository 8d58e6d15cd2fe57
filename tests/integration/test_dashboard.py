"""The dashboard and the alert rules, evaluated by Prometheus with what it scrapes from a stream and the exporter."""

import json
import shutil
import socket
import subprocess
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests
import yaml
from click.testing import CliRunner

from assets.streaming.service import StreamService
from lakehouse.cli.main import main
from lakehouse.cli.status import status
from lakehouse.core.polling import poll
from lakehouse.metrics.server import serving
from lakehouse.metrics.stream_metrics import serve_metrics
from lakehouse.metrics.table_metrics import TableMetrics
from tests.support.topics import CHEAP, Stream, with_checks

PROMETHEUS = shutil.which("prometheus")
SECONDS = 120
"""The longest that a condition may take on a busy machine."""

WITHOUT_SAMPLES = {"Failures per minute"}
"""Panels that show nothing as long as nothing fails."""


def printed(option: str) -> str:
    result = CliRunner().invoke(main, ["metrics", option])
    assert result.exit_code == 0, result.output
    return result.output


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def query(api: str, expression: str) -> list[dict]:
    response = requests.get(f"{api}/query", params={"query": expression}, timeout=30).json()
    assert response["status"] == "success", response
    return response["data"]["result"]


def rules(api: str) -> list[dict]:
    return [
        rule for group in requests.get(f"{api}/rules", timeout=30).json()["data"]["groups"] for rule in group["rules"]
    ]


def is_listening(api: str) -> bool:
    try:
        return requests.get(f"{api}/status/buildinfo", timeout=30).ok
    except requests.ConnectionError:
        return False


@contextmanager
def prometheus(folder: Path, targets: list[str]):
    """Run Prometheus, which scrapes the targets every second, and yield the address of its API."""
    (folder / "alerts.yaml").write_text(printed("--alerts"))
    settings = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["alerts.yaml"],
        "scrape_configs": [{"job_name": "lakehouse", "static_configs": [{"targets": targets}]}],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(settings))
    address = f"127.0.0.1:{free_port()}"
    command = [PROMETHEUS, "--config.file=prometheus.yaml", f"--web.listen-address={address}", "--log.level=error"]
    with subprocess.Popen([*command, "--storage.tsdb.path=data"], cwd=folder) as process:
        try:
            yield f"http://{address}/api/v1"
        finally:
            process.terminate()


@pytest.mark.skipif(PROMETHEUS is None, reason="Prometheus is not installed (Debian: apt install prometheus)")
def test_prometheus_evaluates_each_panel_and_each_alert(resources, tmp_path):
    stream = Stream(resources)
    topic = with_checks(stream.topic, CHEAP)
    stream.produce_trades(range(60))
    stream.produce([{"value": b"no Avro"}])
    config = stream.config.model_copy(update={"topics": {stream.name: topic}})
    service = StreamService(config, [topic], resources, lambda _: None, None)
    tables = TableMetrics(config, resources, status)
    with (
        serve_metrics(service, ("127.0.0.1", 0), 900) as of_stream,
        serving(("127.0.0.1", 0), tables.registry, {}) as of_tables,
    ):
        thread = threading.Thread(target=service.run)
        thread.start()
        poll(lambda: "last_publication_timestamp_seconds{" in requests.get(f"{of_stream}/metrics", timeout=30).text,
             pause=0.5, deadline_seconds=SECONDS)  # fmt: skip
        tables.measure()
        targets = [url.removeprefix("http://") for url in (of_stream, of_tables)]
        with prometheus(tmp_path, targets) as api:
            poll(lambda: is_listening(api), pause=0.2, deadline_seconds=SECONDS)
            poll(
                lambda: query(api, "count_over_time(lakehouse_backlog_records[1m]) > 2"),
                pause=0.5,
                deadline_seconds=SECONDS,
            )
            for panel in json.loads(printed("--dashboard"))["panels"]:
                [target] = panel["targets"]
                series = query(api, target["expr"])
                assert series or panel["title"] in WITHOUT_SAMPLES, panel["title"]
                labels = {label.strip("{}") for label in target["legendFormat"].replace("/", " ").split()}
                assert not series or labels <= series[0]["metric"].keys(), (panel["title"], series[0])
            poll(lambda: {rule["health"] for rule in rules(api)} == {"ok"}, pause=0.5, deadline_seconds=SECONDS)
            assert {rule["name"] for rule in rules(api)} == {
                rule["alert"] for rule in yaml.safe_load(printed("--alerts"))["groups"][0]["rules"]
            }
            firing = {rule["name"] for rule in rules(api) if rule["state"] != "inactive"}
            assert {"LakehouseCheckFailed", "LakehouseDeadLetters"} <= firing
            assert firing.isdisjoint({"LakehouseStreamStuck", "LakehouseStreamDown", "LakehouseMeasurementFailed"})
        service.stream.stop()
        thread.join(SECONDS)
