"""A client's secret goes to the token endpoint that is declared, and nowhere else."""

import pytest
from listener import Listener

from lakehouse.core.errors import LakehouseError
from resources.oauth import ClientCredentials


@pytest.mark.parametrize("status", [302, 307, 308])
def test_redirects_of_a_token_endpoint_are_not_followed(status):
    with Listener().listening() as elsewhere, Listener().listening() as endpoint:
        endpoint.always = (status, "", {"Location": f"{elsewhere.address}/token"})
        client = ClientCredentials("The catalog", f"{endpoint.address}/token", "id", "secret", "all")
        with pytest.raises(LakehouseError, match=f"no token at .+status {status}"):
            client.token()
    assert len(endpoint.received) == 1
    assert elsewhere.received == []
