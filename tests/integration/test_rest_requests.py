"""Requests of pyiceberg and Spark to a REST catalog, compared with the documents that catalogs publish."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from lakehouse.core.tables.naming import TableRef
from lakehouse.pipeline.batches.dry_run import dry_run
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.ingestion import ingest
from lakehouse.pipeline.maintenance import maintain
from resources.iceberg.pauses import pause, unpause
from tests.support.clouds.rest.lake import catalog_at
from tests.support.clouds.rest.published import COMPARED, NAMES, Recorded, document, faults, shapes
from tests.support.clouds.rest.server import header
from tests.support.topics import TRADES, Stream

WITH_VENUE = json.loads(TRADES)
WITH_VENUE["fields"].append({"name": "venue", "type": "string", "default": ""})
LAYOUT = {"partition_by": ["day(kafka_timestamp)"], "sort_by": ["userid"]}


@pytest.fixture(scope="module")
def requests(resources, rest_server):
    """The requests of both clients that create, write, change, maintain and drop tables."""
    # Spark opens a catalog once in a session.
    engines = Clients.of(resources).engines.with_own_session()
    with Recorded(*rest_server) as server:
        catalog = catalog_at(server)
        for settings in (LAYOUT, {"mode": "upsert"}):
            stream = Stream(resources, settings=settings)
            clients = replace(stream.systems, catalog=catalog, engines=engines)
            stream.produce_trades(range(20))
            dry_run(stream.namespace, stream.topic, clients, 10)
            list(ingest(stream.namespace, stream.topic, clients))
            stream.produce([{"key": b"User_1", "value": b"no Avro"}])
            stream.produce_trades(range(10, 30), json.dumps(WITH_VENUE))
            dry_run(stream.namespace, stream.topic, clients, 10)
            list(ingest(stream.namespace, stream.topic, clients))
            list(maintain(stream.namespace, stream.topic, catalog, engines))
            ref = TableRef(stream.namespace, stream.topic.table)
            engines.engine(catalog.spark_settings()).maintenance.expire(ref, datetime.now(UTC), 1)
            pause(catalog, stream.namespace, stream.topic, "a test")
            unpause(catalog, stream.namespace, stream.topic.table)
            location = catalog.load(ref).metadata_location
            catalog.iceberg().register_table((stream.namespace, "registered"), location)
        engines.close()
        yield server.requests


def test_clients_send_only_compared_requests(requests):
    """compared.json needs further shapes, once they are compared, if a client sends them."""
    sent = {shape for request in requests for shape in shapes(request)}
    assert sorted(sent - set(json.loads(COMPARED.read_text()))) == []
    agents = {header(request, "user-agent") for request in requests}
    assert any("PyIceberg" in agent for agent in agents) and any("Java" in agent for agent in agents), agents


@pytest.mark.parametrize("name", NAMES)
def test_requests_conform_to_published_document(requests, name):
    published = document(name)
    assert {fault for request in requests for fault in faults(published, request)} == set()
