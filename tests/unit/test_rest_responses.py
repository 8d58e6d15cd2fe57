"""Responses of REST catalogs that are neither the requested content nor a clear refusal."""

import json

import pytest

from lakehouse.core.errors import CommitConflict, LakehouseError, TransientError, is_transient
from resources.iceberg.rest_catalog import RestCatalog, RestRegistration
from tests.support.servers.listener import Listener

OLD, NEW, UUID = "s3://lake/1.metadata.json", "s3://lake/2.metadata.json", "0d0f3b0e-6c1c-4b8a-9f6e-2f0f5d9a6f10"
CONFIG = (200, "{}", {})
TOO_MANY = (429, '{"error": {"message": "slow down", "type": "TooManyRequests", "code": 429}}', {})
LOADED = (200, json.dumps({"metadata-location": NEW, "metadata": {"table-uuid": UUID, "current-snapshot-id": 1}}), {})


@pytest.fixture
def server():
    with Listener().listening() as server:
        yield server


def connect(server, **settings):
    return RestCatalog(uri=server.address, warehouse="lake", **settings)


def refused(status, message):
    return status, json.dumps({"error": {"message": message, "type": "NotFoundException", "code": status}}), {}


def publish(catalog):
    expected = RestRegistration(OLD, UUID, 1)
    return catalog.publish("trading", "orders", metadata_location=NEW, table_uuid=UUID, expected=expected)


def test_missing_table_has_no_registration(server):
    server.responses.extend([CONFIG, refused(404, "Table does not exist: trading.orders")])
    assert connect(server).registration("trading", "orders") is None


def test_missing_warehouse_is_no_missing_table(server):
    server.always = refused(404, "Unable to find warehouse lake")
    with pytest.raises(LakehouseError, match="Unable to find warehouse lake.* Check the warehouse's name"):
        connect(server).registration("trading", "orders")


def test_page_in_place_of_json_names_the_address(server):
    server.always = (200, "<html>Console</html>", {"Content-Type": "text/html"})
    with pytest.raises(LakehouseError, match=r"responded to GET /v1/config without JSON.* `uri`") as raised:
        connect(server).registration("trading", "orders")
    assert not is_transient(raised.value)


@pytest.mark.parametrize("move", ["overwrite", "notify", "replace"])
def test_limited_rate_is_transient_and_changes_nothing(server, move):
    server.responses.append(CONFIG)
    server.always = TOO_MANY
    with pytest.raises(TransientError, match=r"status 429: slow down.*The call changed nothing.* Retry"):
        publish(connect(server, move=move))


def test_limited_rate_of_logins_is_transient(server):
    server.always = TOO_MANY
    with pytest.raises(TransientError, match="status 429"):
        connect(server, credential="id:secret").registration("trading", "orders")


EXISTS = refused(409, "Table already exists: trading.orders")
DROPPED = (204, "", {})


def test_limited_rate_after_drop_reports_missing_table(server):
    server.responses.extend([CONFIG, EXISTS, DROPPED, TOO_MANY, refused(404, "Table does not exist")])
    with pytest.raises(TransientError, match=r"was dropped .* not registered again.*slow down"):
        publish(connect(server, move="replace"))


@pytest.mark.parametrize("message", ["not authorized", "Unsupported format version"])
def test_replacement_that_is_refused_beforehand_drops_nothing(server, message):
    server.responses.extend([CONFIG, refused(403, message)])
    with pytest.raises(LakehouseError, match=f"{message}.* The call changed nothing"):
        publish(connect(server, move="replace"))
    assert [request.path.rpartition("/")[2] for request in server.received] == ["config?warehouse=lake", "register"]


def test_refusal_after_drop_registers_previous_file_again(server):
    server.responses.extend([CONFIG, EXISTS, DROPPED, refused(400, "Unsupported format version"), LOADED])
    with pytest.raises(LakehouseError, match=r"Unsupported format version.* previous .* registered again") as raised:
        publish(connect(server, move="replace"))
    assert not is_transient(raised.value)
    locations = [json.loads(r.body)["metadata-location"] for r in server.received if "register" in r.path]
    assert locations == [NEW, NEW, OLD]


def test_refusal_of_both_files_after_drop_reports_missing_table(server):
    forbidden = refused(403, "not authorized")
    server.responses.extend([CONFIG, EXISTS, DROPPED, forbidden, forbidden, refused(404, "Table does not exist")])
    with pytest.raises(LakehouseError, match=r"was dropped .* not registered again.*not authorized"):
        publish(connect(server, move="replace"))


def test_table_registered_by_another_writer_after_drop_is_conflict(server):
    server.responses.extend([CONFIG, EXISTS, DROPPED, EXISTS])
    with pytest.raises(CommitConflict, match="Another writer changed trading.orders"):
        publish(connect(server, move="replace"))


def test_replacement_of_dropped_table_registers_it(server):
    server.responses.extend([CONFIG, LOADED, LOADED])
    assert publish(connect(server, move="replace")).metadata_location == NEW


def test_replacement_of_table_that_is_dropped_meanwhile_registers_it(server):
    server.responses.extend([CONFIG, EXISTS, refused(404, "Table does not exist"), LOADED, LOADED])
    assert publish(connect(server, move="replace")).metadata_location == NEW
