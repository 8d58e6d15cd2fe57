"""What the embedded stack shows of itself."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from lakehouse.local import show
from lakehouse.local.credentials import Credentials
from lakehouse.local.home import Home
from lakehouse.local.stack import State

ADDRESS = "http://127.0.0.1:3000"


class Terminal(StringIO):
    def isatty(self):
        return True


def shown(home, output, state):
    show.servers([State("dagster", state, ADDRESS, Path("/logs/dagster.log"))], home, Console(file=output, width=40))
    return output.getvalue()


@pytest.mark.parametrize(("state", "named"), [("ready", True), ("not ready", False), ("stopped", False)])
@pytest.mark.parametrize("output", [StringIO, Terminal])
def test_the_ui_is_named_only_where_it_answers(tmp_path, output, state, named):
    assert (f"The UI: {ADDRESS}" in shown(Home(tmp_path), output(), state)) is named


def test_the_login_link_goes_to_a_terminal_and_into_no_log(tmp_path, monkeypatch):
    home = Home(tmp_path)
    token = Credentials.of(home).ui_token
    assert f"{ADDRESS}/login?token={token}\n" in shown(home, Terminal(), "ready")
    monkeypatch.setenv("FORCE_COLOR", "1")  # as continuous integration sets it
    log = shown(home, StringIO(), "ready")
    assert token not in log and "lakehouse ui" in log
