"""How the stack starts Dagster."""

import pytest

from lakehouse.local import dagster
from lakehouse.local.context import Context
from lakehouse.local.credentials import Credentials
from lakehouse.local.home import Home


@pytest.mark.parametrize(("set_to", "seconds"), [(None, 180), ("7", 7)])
def test_a_code_server_that_answers_late_does_not_cost_a_run(tmp_path, monkeypatch, set_to, seconds):
    from dagster._grpc.utils import default_grpc_timeout

    name = "DAGSTER_GRPC_TIMEOUT_SECONDS"
    monkeypatch.setenv(name, set_to) if set_to else monkeypatch.delenv(name, raising=False)
    home = Home(tmp_path)
    context = Context(home, {"dagster": 3000, "dagster-code": 4000}, Credentials.of(home), environment={})
    for server in (dagster.code_server, dagster.webserver, dagster.daemon):
        monkeypatch.setenv(name, server(context).env[name])
        assert default_grpc_timeout() == seconds
