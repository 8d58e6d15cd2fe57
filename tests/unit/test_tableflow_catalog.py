"""Tokens of Tableflow's catalog."""

import json

import pytest

from lakehouse.core.errors import RequestRejected
from lakehouse.core.tables.naming import TableRef
from resources.iceberg.tableflow_catalog import TableflowCatalog
from tests.support.servers.listener import Listener

REF = TableRef("lkc-1", "trades")
CONFIG = (200, json.dumps({"defaults": {}, "overrides": {}}), {})
MISSING = (404, json.dumps({"error": {"message": "none", "type": "NoSuchTableException", "code": 404}}), {})


def token(name):
    return 200, json.dumps({"access_token": name, "token_type": "bearer", "expires_in": 3600}), {}


def refused(status):
    return status, json.dumps({"error": {"message": "no", "type": "NotAuthorizedException", "code": status}}), {}


@pytest.mark.parametrize("status", [401, 419])
@pytest.mark.parametrize("at", ["config", "table"])
def test_load_refused_token_is_renewed_before_its_expiry(status, at):
    # pyiceberg sends a refused request for a table twice, with the same token.
    first = [refused(status)] if at == "config" else [CONFIG, refused(status), refused(status)]
    with Listener(MISSING).listening() as server:
        server.responses.extend([token("one"), *first, token("two"), CONFIG])
        catalog = TableflowCatalog(uri=server.address, api_key="k", api_secret="s", region="us-east-1")
        assert catalog.load(REF) is None
        assert catalog.load(REF) is None
    sent = [received.headers["Authorization"] for received in server.received if "oauth" not in received.path]
    assert sent == ["Bearer one"] * len(first) + ["Bearer two"] * 3


def test_load_refused_again_raises():
    with Listener(refused(401)).listening() as server:
        server.responses.extend([token("one"), refused(401), token("two")])
        catalog = TableflowCatalog(uri=server.address, api_key="k", api_secret="s", region="us-east-1")
        with pytest.raises(RequestRejected, match="DeveloperRead"):
            catalog.load(REF)
    assert [received.path for received in server.received].count("/v1/oauth/tokens") == 2
