"""OAuth client credentials: the secret is only sent to the configured token endpoint."""

import pytest

from lakehouse.core.errors import LakehouseError
from resources.http_json import ClientCredentials
from tests.support.servers.listener import Listener


@pytest.mark.parametrize("status", [302, 307, 308])
def test_token_redirect_is_not_followed(status):
    with Listener().listening() as elsewhere, Listener().listening() as endpoint:
        endpoint.always = (status, "", {"Location": f"{elsewhere.address}/token"})
        client = ClientCredentials("The catalog", f"{endpoint.address}/token", "id", "secret", "all")
        with pytest.raises(LakehouseError, match=f"issued no token to .+status {status}"):
            client.token()
    assert len(endpoint.received) == 1
    assert elsewhere.received == []
