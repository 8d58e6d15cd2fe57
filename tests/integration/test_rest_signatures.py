"""A REST catalog whose requests are signed with AWS Signature Version 4 by both clients."""

import os
from dataclasses import replace

import pytest
from botocore.credentials import Credentials

from lakehouse.core.errors import RequestRejected
from lakehouse.core.tables.naming import TableRef
from lakehouse.pipeline.ingestion import ingest
from lakehouse.pipeline.maintenance import maintain
from tests.support.clouds.rest.lake import catalog_at
from tests.support.clouds.rest.signed import Signed
from tests.support.topics import Stream, in_order


@pytest.fixture
def server(rest_server):
    keys = Credentials(os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"])
    with Signed(*rest_server, keys, "glue", os.environ["AWS_REGION"]) as proxy:
        yield proxy


def signing(server, name="glue"):
    return catalog_at(server, credential=None, scope=None, sigv4=name)


def test_requests_of_both_clients_have_valid_signatures(resources, server):
    stream, catalog = Stream(resources), signing(server)
    resources.spark.close()
    clients = replace(stream.systems, catalog=catalog)
    for numbers in (range(30), range(30, 50)):
        stream.produce_trades(numbers)
        list(ingest(stream.namespace, stream.topic, clients))
    list(maintain(stream.namespace, stream.topic, catalog, clients.engines))
    resources.spark.close()

    table = catalog.load(TableRef(stream.namespace, stream.topic.table))
    assert in_order(table.scan().to_arrow().to_pylist()) == stream.expected_rows()
    assert server.refusals == [] and server.issued_tokens == 0
    for client in ("PyIceberg", "Java"):
        assert {"GET", "POST"} <= {method for agent, method in server.calls if client in agent}, server.calls


def test_request_signed_for_another_service_is_refused(server):
    with pytest.raises(RequestRejected, match="signature we calculated does not match"):
        signing(server, "s3tables").load(TableRef("shop", "orders"))
    assert "'s3tables'" in server.refusals[0]
