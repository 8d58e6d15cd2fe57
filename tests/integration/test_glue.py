"""Registration in Glue: other tools can read the table, and changes of other writers are never overwritten."""

import http.server
import json
import os
import threading
import urllib.request

import boto3
import pytest
from pyiceberg.catalog import load_catalog

from lakehouse.core.errors import CommitConflict, UnclearState
from resources.aws.glue import Glue
from tests.support.topics import Stream, in_order


@pytest.fixture(scope="module")
def ingested(resources):
    """A topic whose table has rows. Tests add to it, and compare all of its rows."""
    stream = Stream(resources)
    stream.produce_trades(range(100))
    stream.ingest()
    return stream


@pytest.fixture
def stream(ingested):
    """A topic whose table and database Glue does not have at first."""
    yield ingested
    boto3.client("glue").delete_database(Name=ingested.namespace)


def through_glue(stream):
    """Return the table as pyiceberg's own Glue catalog loads it."""
    catalog = load_catalog(
        "elsewhere",
        type="glue",
        **{"s3.endpoint": os.environ["AWS_ENDPOINT_URL_S3"], "s3.region": os.environ["AWS_REGION"]},
    )
    return catalog.load_table((stream.namespace, stream.topic.table))


def registered(stream):
    glue = boto3.client("glue")
    return glue.get_table(DatabaseName=stream.namespace, Name=stream.topic.table)["Table"]


def test_register_table_is_readable_by_other_tools(resources, stream):
    stream.show("glue")

    assert in_order(through_glue(stream).scan().to_arrow().to_pylist()) == stream.expected_rows()
    table = registered(stream)
    assert table["Parameters"]["table_type"] == "ICEBERG"
    assert table["TableType"] == "EXTERNAL_TABLE"
    columns = {c["Name"]: (c["Type"], c["Comment"]) for c in table["StorageDescriptor"]["Columns"]}
    assert columns["price"] == ("int", "A simulated random trade price in pennies")
    assert columns["kafka_offset"][0] == "bigint" and columns["kafka_timestamp"][0] == "timestamp"


def test_register_update_records_previous_location(resources, stream):
    stream.show("glue")
    first = registered(stream)["Parameters"]["metadata_location"]
    stream.produce_trades(range(100, 120))
    stream.ingest()

    stream.show("glue")

    parameters = registered(stream)["Parameters"]
    assert parameters["previous_metadata_location"] == first != parameters["metadata_location"]
    assert in_order(through_glue(stream).scan().to_arrow().to_pylist()) == stream.expected_rows()


def test_register_over_other_table_is_refused(resources, stream):
    glue = boto3.client("glue")
    glue.create_database(DatabaseInput={"Name": stream.namespace})
    glue.create_table(DatabaseName=stream.namespace, TableInput={"Name": stream.topic.table, "Parameters": {"a": "b"}})
    with pytest.raises(UnclearState, match="not an Iceberg table"):
        stream.show("glue")

    iceberg = {"table_type": "ICEBERG", "metadata_location": "s3://elsewhere/1.json", "uuid": "another"}
    glue.update_table(DatabaseName=stream.namespace, TableInput={"Name": stream.topic.table, "Parameters": iceberg})
    with pytest.raises(UnclearState, match="another Iceberg table"):
        stream.show("glue")
    assert registered(stream)["Parameters"] == iceberg


class Proxy(http.server.BaseHTTPRequestHandler):
    """A proxy of moto that refuses outdated versions, as AWS does, and can lose responses."""

    refuse_stale = lose_response = False

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        action, request = self.headers["X-Amz-Target"].rpartition(".")[2], json.loads(body)
        if action == "UpdateTable" and self.refuse_stale:
            current = boto3.client("glue").get_table(
                DatabaseName=request["DatabaseName"], Name=request["TableInput"]["Name"]
            )
            if request.get("VersionId") != current["Table"].get("VersionId"):
                return self._respond(400, b'{"__type": "ConcurrentModificationException", "Message": "outdated"}')
        headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
        forwarded = urllib.request.Request(os.environ["AWS_ENDPOINT_URL"], body, headers, method="POST")
        try:
            with urllib.request.urlopen(forwarded) as response:
                status, content = response.status, response.read()
        except urllib.error.HTTPError as refused:
            status, content = refused.code, refused.read()
        if action in ("UpdateTable", "CreateTable") and self.lose_response:
            status, content = 500, b'{"__type": "InternalServiceException", "Message": "try later"}'
        self._respond(status, content)

    def _respond(self, status, content):
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        """Log nothing."""


@pytest.fixture
def proxied(resources, monkeypatch):
    """Return a Glue resource that reaches moto through its own Proxy, and the proxy's class, which tests configure."""
    handler = type("Handler", (Proxy,), {})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"

    class Proxied(Glue):
        def client(self):
            return boto3.client("glue", region_name=self.region, endpoint_url=address)

    yield Proxied(region=resources.glue.region, catalog_id=resources.glue.catalog_id), handler
    server.shutdown()


def test_register_after_concurrent_change_is_refused(resources, stream, proxied):
    glue, proxy = proxied
    proxy.refuse_stale = True
    stream.show("glue", glue=glue)
    outdated = glue.registration(stream.namespace, stream.topic.table)
    other = registered(stream)
    boto3.client("glue").update_table(
        DatabaseName=stream.namespace,
        TableInput={
            "Name": stream.topic.table,
            "Parameters": other["Parameters"] | {"metadata_location": "s3://lakehouse/other.json"},
        },
    )
    table = stream.table()

    with pytest.raises(CommitConflict, match="Another writer"):
        glue.register(
            stream.namespace,
            stream.topic.table,
            metadata_location="s3://lakehouse/ours.json",
            table_uuid=str(table.metadata.table_uuid),
            schema=table.schema(),
            location=table.location(),
            comment="",
            expected=outdated,
        )
    assert registered(stream)["Parameters"]["metadata_location"] == "s3://lakehouse/other.json"


def test_register_lost_response_is_recognized_as_done(resources, stream, proxied):
    glue, proxy = proxied
    proxy.lose_response = True
    location = stream.show("glue", glue=glue).metadata_location

    assert location == registered(stream)["Parameters"]["metadata_location"]
