"""Display of the embedded stack's servers and address."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from lakehouse.local import show
from lakehouse.local.home import Credentials, Home
from lakehouse.local.stack import ServerState

ADDRESS = "http://127.0.0.1:3000"


class Terminal(StringIO):
    def isatty(self):
        return True


def rendered(home, output, state):
    show.servers(
        [ServerState("dagster", state, ADDRESS, Path("/logs/dagster.log"))], home, Console(file=output, width=40)
    )
    return output.getvalue()


@pytest.mark.parametrize(("state", "is_shown"), [("ready", True), ("not ready", False), ("stopped", False)])
@pytest.mark.parametrize("output", [StringIO, Terminal])
def test_servers_show_ui_only_when_ready(tmp_path, output, state, is_shown):
    assert (f"The UI: {ADDRESS}" in rendered(Home(tmp_path), output(), state)) is is_shown


def test_login_link_is_shown_in_terminal_but_not_in_log(tmp_path, monkeypatch):
    home = Home(tmp_path)
    token = Credentials.of(home).ui_token
    assert f"{ADDRESS}/login?token={token}\n" in rendered(home, Terminal(), "ready")
    monkeypatch.setenv("FORCE_COLOR", "1")  # as in continuous integration
    log = rendered(home, StringIO(), "ready")
    assert token not in log and "lakehouse ui" in log
