"""Credentials that a REST catalog issues for the files of its tables: renewal, and absence from what Spark writes."""

import os
import threading
import time
from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec

import psutil
import pytest

from lakehouse.core.tables.naming import TableRef
from lakehouse.local import client_environment
from lakehouse.local.home import Home
from lakehouse.local.processes import ports, process
from lakehouse.local.servers import spark_server
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.ingestion import ingest
from lakehouse.pipeline.maintenance import maintain
from lakehouse.pipeline.row_files import COMPILED
from resources.spark.servers import Connect
from spark.engine import SparkEngines
from tests.integration.test_kafka_sasl import crawl, events
from tests.support.clouds.rest.client import SECRET
from tests.support.clouds.rest.lake import catalog_at
from tests.support.clouds.rest.server import Vending
from tests.support.processes.cluster import free_ports
from tests.support.topics import Stream, in_order

SHORT = 3.0
"""Lifetime of credentials in seconds that ends within a test."""


@pytest.fixture(scope="module")
def spark(stack, tmp_path_factory):
    """Start a Spark server with a UI and an event log, and return it with its state folder and the UI's address."""
    home = Home(tmp_path_factory.mktemp("vending") / "home")
    home.folder("")
    port, ui = free_ports(2)
    settings = {
        "spark.ui.enabled": "true",
        "spark.ui.port": str(ui),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": home.folder("events").as_uri(),
    }
    context = client_environment.context(stack, ports.recorded(stack))
    environment = {**context.environment, "SPARK_REMOTE": f"sc://localhost:{port}"}
    # Its own keys of S3 are of no use: the catalog has to issue some.
    server = spark_server.server(replace(context, home=home, ports={"spark": port}, environment=environment), settings)
    try:
        running = process.start(server, home)
        process.wait_until_ready(server, running.leader, home, threading.Event())
        with closing(Connect(remote=f"sc://localhost:{port}").with_own_session()) as connect:
            yield connect, home, f"http://127.0.0.1:{ui}"
    finally:
        process.stop(home, "spark")


@pytest.fixture(scope="module")
def server(rest_server):
    with Vending(*rest_server) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def clients(resources, spark, server):
    return replace(Clients.of(resources), engines=SparkEngines(spark[0]), catalog=catalog_at(server))


@pytest.fixture(scope="module")
def stream(resources, clients):
    """A topic with 50 published records."""
    stream = Stream(resources)
    stream.produce_trades(range(50))
    list(ingest(stream.namespace, stream.topic, clients))
    return stream


@pytest.fixture(autouse=True)
def files_are_read_with_issued_credentials(server):
    """Fail if a client sent a request with other credentials, or with expired ones."""
    server.lifetime = 900.0
    yield
    assert server.storage.refusals == []


def published_rows(clients, stream):
    table = clients.catalog.load(TableRef(stream.namespace, stream.topic.table))
    return in_order(table.scan().to_arrow().to_pylist())


def test_ingest_uses_only_issued_credentials(clients, stream, server):
    used = len(server.storage.tokens)
    stream.produce_trades(range(50, 80))

    list(ingest(stream.namespace, stream.topic, clients))

    assert published_rows(clients, stream) == stream.expected_rows()
    assert len(server.storage.tokens) > used


def test_ingest_with_credentials_that_expire_renews_them(clients, stream, server):
    server.lifetime = SHORT
    for first in (80, 90):
        stream.produce_trades(range(first, first + 10))
        list(ingest(stream.namespace, stream.topic, clients))
        time.sleep(SHORT)
    [maintained] = maintain(stream.namespace, stream.topic, clients.catalog, clients.engines)
    assert maintained.after.data_files
    assert published_rows(clients, stream) == stream.expected_rows()


def compiled(clients, spark):
    """Return the clients with a session that requires the compiled decoder."""
    pytest.importorskip("lakehouse_native")
    return replace(clients, engines=SparkEngines(Connect(remote=spark[0].remote, native="require")))


def test_compiled_decoder_writes_with_issued_credentials(clients, stream, server, spark):
    used = len(server.storage.tokens)
    stream.produce_trades(range(100, 130))

    [published] = ingest(stream.namespace, stream.topic, compiled(clients, spark))

    table = clients.catalog.load(TableRef(stream.namespace, stream.topic.table))
    assert published.decoder == COMPILED
    assert table.metadata.current_snapshot().summary["lakehouse.decoder"] == COMPILED
    assert published_rows(clients, stream) == stream.expected_rows()
    assert len(server.storage.tokens) > used


def test_credentials_that_end_too_early_use_reference_decoder(clients, stream, server, spark):
    server.lifetime = 200.0
    stream.produce_trades(range(130, 140))

    [published] = ingest(stream.namespace, stream.topic, compiled(clients, spark))

    assert published.decoder == "the catalog issues credentials of files for less than 240 s"
    assert published_rows(clients, stream) == stream.expected_rows()


def test_loaded_table_outlives_its_credentials(clients, stream, server, spark):
    """One statement may take longer than its credentials are valid, on the driver and in the tasks."""
    server.lifetime = SHORT
    session = spark[0].session(clients.catalog.spark_settings())
    ref = TableRef(stream.namespace, stream.topic.table)
    in_spark, table = session.table(ref.spark_path()), clients.catalog.load(ref)
    assert in_spark.columns
    at_location = clients.catalog.table_at(table.metadata_location, ref)
    before = server.renewals
    time.sleep(SHORT + 1)

    assert in_order(in_spark.toArrow().to_pylist()) == stream.expected_rows()
    assert in_order(table.scan().to_arrow().to_pylist()) == stream.expected_rows()
    assert at_location.scan().to_arrow().num_rows == table.scan().to_arrow().num_rows
    assert server.renewals > before


def test_spark_output_contains_no_credentials(clients, stream, server, spark):
    connect, home, ui = spark
    is_installed = find_spec("lakehouse_native") is not None
    if is_installed:
        stream.produce_trades(range(140, 150))
        [published] = ingest(stream.namespace, stream.topic, compiled(clients, spark))
        assert published.decoder == COMPILED
    session = connect.session(clients.catalog.spark_settings())
    path = TableRef(stream.namespace, stream.topic.table).spark_path()
    texts = [session.table(path)._explain_string(extended=True)]
    texts += [str(session.sql(f"describe table extended {path}").collect())]
    texts += [str(session.sql(f"show tblproperties {path}").collect()), str(session.sql("set -v").collect())]
    assert session.table(path).groupBy("side").count().collect()
    [head] = [table.metadata for table in [clients.catalog.load(TableRef(stream.namespace, stream.topic.table))]]

    pages, event_log = crawl(ui), events(home)
    assert {"/connect/", "/environment/", "/SQL/"} <= set(pages)
    assert "SparkListenerConnectOperationStarted" in event_log and "ICEBERG_CATALOG_CREDENTIAL" in event_log
    assert ("MapInArrow" in event_log) >= is_installed
    texts += [" ".join(running.info["cmdline"] or []) for running in psutil.process_iter(["cmdline"])]
    texts += [*pages.values(), event_log, home.log("spark").read_text(errors="replace"), head.model_dump_json()]
    secrets = (SECRET, os.environ["AWS_SECRET_ACCESS_KEY"], *server.storage.tokens)
    for text in texts:
        for secret in secrets:
            position = text.find(secret)
            assert position < 0, text[max(0, position - 300) : position + 100]
