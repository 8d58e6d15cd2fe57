"""The README's quick start prints the output in the README, and the UI shows the chain of its picture."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lakehouse.core.polling import poll
from lakehouse.local import stack
from lakehouse.local.dagster import ui_login
from lakehouse.local.home import Credentials, Home
from lakehouse.local.processes.process import running
from tests.support.documentation import block, pattern
from tests.support.processes.pages import keep

READY = "Ctrl-C stops the stack"
RUN_SECONDS = 800
pytestmark = pytest.mark.timeout(RUN_SECONDS + 80)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """Yield the state folder, the file with the output and the process of a demo that has finished its job."""
    folder = tmp_path_factory.mktemp("demo")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("LAKEHOUSE")}
    environment = {**inherited, "LAKEHOUSE_HOME": str(folder / "home"), "COLUMNS": "120"}
    output = folder / "output"
    command = [str(Path(sys.executable).parent / "lakehouse"), "demo"]
    with output.open("w") as file, subprocess.Popen(command, env=environment, stdout=file, stderr=file) as process:
        try:
            poll(
                lambda: READY in output.read_text() or process.poll() is not None, pause=1, deadline_seconds=RUN_SECONDS
            )
            yield Home(folder / "home"), output, process
        finally:
            # Not Ctrl-C: a process started in the background of a shell ignores that signal.
            process.kill()
            subprocess.run([command[0], "down"], env=environment, check=True, timeout=120)


def test_quick_start_prints_output_in_readme(demo):
    output = demo[1].read_text()
    _, expected = block("README.md", "console", "make demo").split("\n", 1)
    assert re.search(pattern(expected), output), output


def test_asset_graph_shows_chain_of_topic(demo, page):
    home = demo[0]
    server = running(home)["dagster"]
    address = f"http://127.0.0.1:{server.ports['dagster']}"
    page.goto(ui_login.link(address, Credentials.of(home).ui_token))
    page.wait_for_url(f"**{ui_login.HOME_PAGE}")
    page.goto(f"{address}/locations/lakehouse/asset-groups/stock_trades")
    page.get_by_text("Materialized", exact=True).first.wait_for()
    for kind in ("Kafka", "Spark", "S3", "glue", "Snowflake"):
        assert page.get_by_text(kind, exact=True).first.is_visible(), kind
    keep(page, "asset-graph")


def test_demo_ends_when_another_command_stops_stack(demo):
    home, output, process = demo
    stack.down(home)
    assert process.wait(120) == 0
    assert output.read_text().endswith("Another command stopped the stack.\n")
