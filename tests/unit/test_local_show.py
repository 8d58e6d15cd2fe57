"""What the embedded stack shows of itself."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from lakehouse.local import show
from lakehouse.local.stack import State


@pytest.mark.parametrize(("state", "named"), [("ready", True), ("not ready", False), ("stopped", False)])
def test_the_ui_is_named_only_where_it_answers(state, named):
    printed = Console(file=StringIO(), width=200)
    show.servers([State("dagster", state, "http://127.0.0.1:3000", Path("/logs/dagster.log"))], printed)
    assert ("The UI: http://127.0.0.1:3000/asset-groups" in printed.file.getvalue()) is named
