"""Registration in Glue: readable by others, and never over somebody else's change."""

import http.server
import json
import os
import threading
import urllib.request

import boto3
import pytest
from pyiceberg.catalog import load_catalog
from support import Stream, in_order

from lakehouse.core.errors import CommitConflict, UnclearState
from resources.aws import Glue


@pytest.fixture
def stream(resources):
    stream = Stream(resources)
    stream.produce_trades(range(100))
    stream.ingest()
    return stream


def through_glue(stream):
    """The table as another tool finds it: pyiceberg's own Glue catalog."""
    catalog = load_catalog(
        "elsewhere",
        type="glue",
        **{"s3.endpoint": os.environ["AWS_ENDPOINT_URL_S3"], "s3.region": os.environ["AWS_REGION"]},
    )
    return catalog.load_table((stream.namespace, stream.topic.table))


def registered(stream):
    glue = boto3.client("glue")
    return glue.get_table(DatabaseName=stream.namespace, Name=stream.topic.table)["Table"]


def test_others_find_and_read_the_registered_table(resources, stream):
    stream.show("glue")

    assert in_order(through_glue(stream).scan().to_arrow().to_pylist()) == stream.expected_rows()
    table = registered(stream)
    assert table["Parameters"]["table_type"] == "ICEBERG"
    assert table["TableType"] == "EXTERNAL_TABLE"
    columns = {c["Name"]: (c["Type"], c["Comment"]) for c in table["StorageDescriptor"]["Columns"]}
    assert columns["price"] == ("int", "A simulated random trade price in pennies")
    assert columns["kafka_offset"][0] == "bigint" and columns["kafka_timestamp"][0] == "timestamp"


def test_an_update_keeps_the_location_before(resources, stream):
    stream.show("glue")
    first = registered(stream)["Parameters"]["metadata_location"]
    stream.produce_trades(range(100, 120))
    stream.ingest()

    stream.show("glue")

    parameters = registered(stream)["Parameters"]
    assert parameters["previous_metadata_location"] == first != parameters["metadata_location"]
    assert in_order(through_glue(stream).scan().to_arrow().to_pylist()) == stream.expected_rows()


def test_registering_what_is_registered_changes_nothing(resources, stream):
    stream.show("glue")
    before = registered(stream)
    stream.show("glue")
    assert registered(stream) == before


def test_another_table_of_the_name_is_left_alone(resources, stream):
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
    """Glue as AWS has it where moto is kinder: stale versions are refused, and answers may get lost."""

    refuse_stale = lose_answer = False

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        action, request = self.headers["X-Amz-Target"].rpartition(".")[2], json.loads(body)
        if action == "UpdateTable" and self.refuse_stale:
            found = boto3.client("glue").get_table(
                DatabaseName=request["DatabaseName"], Name=request["TableInput"]["Name"]
            )
            if request.get("VersionId") != found["Table"].get("VersionId"):
                return self._answer(400, b'{"__type": "ConcurrentModificationException", "Message": "stale"}')
        headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
        forwarded = urllib.request.Request(os.environ["AWS_ENDPOINT_URL"], body, headers, method="POST")
        try:
            with urllib.request.urlopen(forwarded) as answer:
                status, content = answer.status, answer.read()
        except urllib.error.HTTPError as refused:
            status, content = refused.code, refused.read()
        if action in ("UpdateTable", "CreateTable") and self.lose_answer:
            status, content = 500, b'{"__type": "InternalServiceException", "Message": "try later"}'
        self._answer(status, content)

    def _answer(self, status, content):
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        """Quiet."""


@pytest.fixture
def proxied(resources, monkeypatch):
    """A Glue resource that reaches moto through a Proxy of its own; and the proxy's class, to set how it behaves."""
    handler = type("Handler", (Proxy,), {})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"

    class Proxied(Glue):
        def client(self):
            return boto3.client("glue", region_name=self.region, endpoint_url=address)

    yield Proxied(region=resources.glue.region, catalog_id=resources.glue.catalog_id), handler
    server.shutdown()


def test_a_change_by_somebody_else_since_it_was_read_is_not_overwritten(resources, stream, proxied):
    glue, proxy = proxied
    proxy.refuse_stale = True
    stream.show("glue", glue=glue)
    stale = glue.registration(stream.namespace, stream.topic.table)
    theirs = registered(stream)
    boto3.client("glue").update_table(
        DatabaseName=stream.namespace,
        TableInput={
            "Name": stream.topic.table,
            "Parameters": theirs["Parameters"] | {"metadata_location": "s3://lakehouse/theirs.json"},
        },
    )
    table = stream.table()

    with pytest.raises(CommitConflict, match="Somebody else"):
        glue.register(
            stream.namespace,
            stream.topic.table,
            metadata_location="s3://lakehouse/ours.json",
            table_uuid=str(table.metadata.table_uuid),
            schema=table.schema(),
            location=table.location(),
            comment="",
            expected=stale,
        )
    assert registered(stream)["Parameters"]["metadata_location"] == "s3://lakehouse/theirs.json"


def test_an_update_whose_answer_is_lost_is_found_to_have_happened(resources, stream, proxied):
    glue, proxy = proxied
    proxy.lose_answer = True
    location = stream.show("glue", glue=glue).metadata_location

    assert location == registered(stream)["Parameters"]["metadata_location"]
