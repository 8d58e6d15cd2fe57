"""Start of Dagster's processes by the embedded stack."""

import pytest

from lakehouse.local.dagster import dagster_servers
from lakehouse.local.home import Credentials, Home
from lakehouse.local.processes.description import Context


@pytest.mark.parametrize(("value", "seconds"), [(None, 180), ("7", 7)])
def test_servers_grpc_timeout_is_long_and_configurable(tmp_path, monkeypatch, value, seconds):
    from dagster._grpc.utils import default_grpc_timeout

    name = "DAGSTER_GRPC_TIMEOUT_SECONDS"
    monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name, raising=False)
    home = Home(tmp_path)
    context = Context(home, {"dagster": 3000, "dagster-code": 4000}, Credentials.of(home), environment={})
    for server in (dagster_servers.code_server, dagster_servers.webserver, dagster_servers.daemon):
        monkeypatch.setenv(name, server(context).env[name])
        assert default_grpc_timeout() == seconds
