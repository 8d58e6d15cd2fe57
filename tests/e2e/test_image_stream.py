"""A stream in the image, as docs/production.md starts it: its table, its metrics and its health."""

import os
import signal

import pytest
import requests
import yaml

from lakehouse.core.polling import poll
from tests.integration.test_metrics import SECONDS, scraped, value
from tests.support.clouds.rest.client import CREDENTIAL
from tests.support.clouds.rest.lake import declaration_of
from tests.support.clouds.rest.server import Vending
from tests.support.topics import Stream
from tools.repository import PROJECT

SYSTEMS = ("kafka", "schema_registry", "spark")


@pytest.mark.long
def test_stream_in_image_is_scraped_until_it_is_terminated(image, resources, rest_server, tmp_path):
    trades = Stream(resources)
    trades.produce_trades(range(60))
    systems = yaml.safe_load((PROJECT / "lakehouse.yaml").read_text())["environments"]["local"]
    with Vending(*rest_server) as server:
        config = {
            "namespace": trades.namespace,
            "topics": {trades.name: {"key": "userid", "continuous": True}},
            "environments": {
                "production": {name: systems[name] for name in SYSTEMS} | {"catalog": declaration_of(server)}
            },
        }
        (tmp_path / "lakehouse.yaml").write_text(yaml.safe_dump(config))
        tmp_path.chmod(0o755)
        names = ["KAFKA_BOOTSTRAP_SERVERS", "SCHEMA_REGISTRY_URL", "SPARK_REMOTE", "SPARK_CONNECT_AUTHENTICATE_TOKEN"]
        names += ["AWS_REGION"]
        variables = {name: os.environ[name] for name in names}
        variables |= {"ICEBERG_CATALOG_CREDENTIAL": CREDENTIAL, "LAKEHOUSE_ENV": "production", "DAGSTER_HOME": ""}
        command = ("lakehouse", "stream", trades.name, "--metrics", "127.0.0.1:0")
        with image.start(tmp_path, *command, **variables) as process:
            metrics = next(line for line in process.stdout if line.startswith("Metrics: "))
            url = metrics.removeprefix("Metrics: ").removesuffix("/metrics\n")
            of_topic = {"topic": trades.name, "outcome": "rows"}

            def has_rows() -> bool:
                return value(scraped(url), "records_total", **of_topic) == 60

            assert poll(has_rows, pause=0.5, deadline_seconds=SECONDS)
            assert requests.get(f"{url}/readyz", timeout=30).status_code == 200
            process.send_signal(signal.SIGTERM)
            output, _ = process.communicate(timeout=SECONDS)
            assert process.returncode == 0, output
