"""Executors whose Python has neither this project nor PySpark, which topics in Avro do not need."""

import shlex
import sys
import threading
from contextlib import closing
from dataclasses import replace

import pytest

from lakehouse.core.tables.naming import TableRef
from lakehouse.local import client_environment
from lakehouse.local.home import Home
from lakehouse.local.processes import ports, process
from lakehouse.local.servers import spark_server
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.ingestion import ingest
from resources.spark.servers import Connect
from spark.engine import SparkEngines
from tests.support.processes.cluster import free_ports
from tests.support.topics import Stream


@pytest.fixture
def spark(stack, tmp_path):
    """Start a Spark server whose workers run a Python without packages."""
    home = Home(tmp_path / "home")
    home.folder("")
    [port] = free_ports(1)
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -S "$@"\n')
    bare.chmod(0o700)
    context = client_environment.context(stack, ports.recorded(stack))
    environment = {**context.environment, "SPARK_REMOTE": f"sc://localhost:{port}"}
    described = spark_server.server(replace(context, home=home, ports={"spark": port}, environment=environment))
    server = replace(described, env={**described.env, "PYSPARK_PYTHON": str(bare)})
    try:
        running = process.start(server, home)
        process.wait_until_ready(server, running.leader, home, threading.Event())
        with closing(Connect(remote=f"sc://localhost:{port}", native="auto").with_own_session()) as connect:
            yield connect
    finally:
        process.stop(home, "spark")


def test_ingest_without_project_uses_reference_decoder(resources, spark):
    stream = Stream(resources)
    clients = replace(Clients.of(resources), engines=SparkEngines(spark))
    for first in (0, 20):
        stream.produce_trades(range(first, first + 20))
        [published] = ingest(stream.namespace, stream.topic, clients)
        assert published.counts.rows == 20

    assert stream.rows() == stream.expected_rows()
    table = clients.catalog.load(TableRef(stream.namespace, stream.topic.table))
    assert table.current_snapshot().summary["lakehouse.decoder"] == "executors do not have it"
