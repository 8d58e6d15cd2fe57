"""The catalog of the tables as a REST catalog: its settings in each client, and responses that are no success."""

import json
import logging
from dataclasses import replace

import dagster as dg
import pytest
from botocore.credentials import Credentials

from lakehouse.core.errors import LakehouseError, RequestRejected, TransientError, Unreachable
from lakehouse.core.tables.naming import TableRef
from resources.iceberg.catalog import Catalog
from tests.support.clouds.rest.signed import signature_fault
from tests.support.servers.listener import Listener
from tests.support.servers.proxy import Request

CONFIG = (200, '{"defaults": {}, "overrides": {}}', {})
TABLE = TableRef("shop", "orders")
SETTINGS = {"type": "rest", "warehouse": "lake"}


@pytest.fixture
def server():
    with Listener().listening() as server:
        yield server


def connect(server, **settings):
    return Catalog(**SETTINGS, uri=server.address, **settings)


def refused(status, message, kind="ServiceFailureException"):
    return status, json.dumps({"error": {"message": message, "type": kind, "code": status}}), {}


def token(value, seconds=3600):
    return 200, json.dumps({"access_token": value, "token_type": "bearer", "expires_in": seconds}), {}


def test_settings_of_spark_contain_no_login():
    """Spark writes the settings of sessions to its event log."""
    common = {**SETTINGS, "uri": "https://polaris.example/api/catalog/"}
    login = {"credential": "me:hidden", "scope": "PRINCIPAL_ROLE:ALL", "oauth2_server_uri": "https://idp.example/t"}

    with_credential = Catalog(**common, **login).spark_settings()
    with_token = Catalog(**common, token="hidden", prefix="p", headers="x-project=7").spark_settings()

    assert "hidden" not in repr((with_credential, with_token))
    of = "spark.sql.catalog.lake"
    assert with_credential[f"{of}.credential"] == "env:ICEBERG_CATALOG_CREDENTIAL"
    assert with_credential[f"{of}.oauth2-server-uri"] == "https://idp.example/t"
    assert with_credential[f"{of}.scope"] == "PRINCIPAL_ROLE:ALL"
    assert with_token[f"{of}.token"] == "env:ICEBERG_CATALOG_TOKEN"
    assert (with_token[f"{of}.prefix"], with_token[f"{of}.header.x-project"]) == ("p", "7")
    for settings in (with_credential, with_token):
        assert settings[f"{of}.uri"] == "https://polaris.example/api/catalog"
        assert (settings[f"{of}.type"], settings[f"{of}.warehouse"]) == ("rest", "lake")


def test_request_is_signed_for_the_declared_service(server, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    server.responses.extend([CONFIG, refused(404, "no table", "NoSuchTableException")])
    catalog = connect(server, sigv4="s3tables", region="eu-west-1")

    assert catalog.load(TABLE) is None

    keys = Credentials("AKIDEXAMPLE", "hidden")
    for received in server.received:
        request = Request("GET", received.path, list(received.headers.items()), received.body)
        assert signature_fault(request, keys, "s3tables", "eu-west-1") == ""
        assert "does not match" in signature_fault(replace(request, body=b"{}"), keys, "s3tables", "eu-west-1")
    settings = catalog.spark_settings()
    assert settings["spark.sql.catalog.lake.rest.signing-name"] == "s3tables"
    assert "hidden" not in repr((settings, catalog.iceberg().properties))


def test_settings_of_variables_are_validated_once_known(monkeypatch):
    declared = Catalog(**SETTINGS, uri="https://h", credential=dg.EnvVar("REST_LOGIN"))
    monkeypatch.setenv("REST_LOGIN", "hidden-without-an-id")
    with pytest.raises(LakehouseError, match="credential: the client has no id or no secret") as raised:
        declared.process_config_and_initialize().spark_settings()
    assert "hidden" not in str(raised.value)


def test_request_has_token_and_declared_headers_only(server):
    server.responses.extend([token("t1"), CONFIG, refused(404, "no table", "NoSuchTableException")])

    catalog = connect(server, credential="me:hidden", headers="x-project=7")

    assert catalog.load(TABLE) is None
    login, config, load = server.received
    assert b"client_secret=hidden" in login.body and b"scope=catalog" in login.body
    for request in (config, load):
        assert request.headers["Authorization"] == "Bearer t1" and request.headers["x-project"] == "7"
        assert request.headers["X-Iceberg-Access-Delegation"] is None
    assert "warehouse=lake" in config.path and load.path == "/v1/namespaces/shop/tables/orders"
    assert "hidden" not in repr((catalog, catalog.iceberg().properties))


def test_request_without_login_has_none(server):
    server.responses.extend([CONFIG, refused(404, "no table", "NoSuchTableException")])
    assert connect(server).load(TABLE) is None
    assert {request.headers["Authorization"] for request in server.received} == {None}


def test_request_with_refused_token_logs_in_again(server):
    server.responses.extend([token("t1"), CONFIG, refused(401, "expired"), token("t2"), refused(404, "no table")])
    assert connect(server, credential="me:hidden").load(TABLE) is None
    assert server.received[-1].headers["Authorization"] == "Bearer t2"


def test_refused_client_is_reported_without_secret(server, caplog):
    caplog.set_level(logging.DEBUG)
    server.always = 401, json.dumps({"error": "invalid_client", "error_description": "hidden?"}), {}
    with pytest.raises(LakehouseError, match="issued no token to client 'me'.*invalid_client") as raised:
        connect(server, credential="me:hidden").load(TABLE)
    assert "hidden" not in str(raised.value) + caplog.text


@pytest.mark.parametrize(
    ("response", "kind", "message"),
    [
        (refused(500, "boom"), Unreachable, "does not answer at .*boom"),
        (refused(503, "busy"), Unreachable, "busy"),
        (refused(429, "slow down"), TransientError, "slow down"),
        (refused(401, "who"), RequestRejected, "refused the request: .*who.*login and its rights"),
        (refused(403, "not yours"), RequestRejected, "not yours"),
        ((200, "<html>", {}), LakehouseError, "something other than TableResponse .*Set `uri` of `catalog`"),
    ],
)
def test_response_that_is_no_table_is_explained(server, response, kind, message):
    server.responses.append(CONFIG)
    server.always = response
    with pytest.raises(kind, match=message) as raised:
        connect(server).load(TABLE)
    assert server.address in str(raised.value)


def test_address_of_another_server_is_explained(server):
    server.always = 200, "<html>", {}
    with pytest.raises(LakehouseError, match="something other than ConfigResponse"):
        connect(server).load(TABLE)


def test_unreachable_server_is_reported(server):
    catalog = connect(server, headers="x-project=7")
    server.server_close()
    with pytest.raises(Unreachable, match="The REST catalog does not answer at http://127.0.0.1"):
        catalog.load(TABLE)


def test_server_without_an_endpoint_is_a_refusal(server):
    """Some servers cannot change the properties of a namespace, which a pause is stored in."""
    config = {"defaults": {}, "overrides": {}, "endpoints": ["GET /v1/{prefix}/namespaces/{namespace}"]}
    server.always = 200, json.dumps(config), {}
    catalog = connect(server)
    with pytest.raises(RequestRejected, match="does not support endpoint: GET /v1/.prefix./.*tables"):
        catalog.load(TABLE)
