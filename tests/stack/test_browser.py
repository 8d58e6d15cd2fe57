"""The UI as a person uses it: materialize a chain, see its checks pass, break the data, see it stop."""

import os
import shutil
from pathlib import Path

import pytest
from dagster_stack import dagster_of
from support import TRADES, Stream, framed, trade

from lakehouse.config import PROJECT

sync_api = pytest.importorskip("playwright.sync_api")

SCREENSHOTS = PROJECT / "reports" / "screenshots"
CHECKS = {"side_known": {"type": "accepted_values", "column": "side", "values": ["BUY", "SELL"]}}
PATIENCE_MS = 300_000


@pytest.fixture(scope="module")
def page():
    """A page in Chromium: the system's, else the one that `playwright install chromium` brought."""
    names = ("chromium", "chromium-browser", "google-chrome", "chromium-shell")
    chromium = next(filter(None, map(shutil.which, names)), None)
    with sync_api.sync_playwright() as playwright:
        if not chromium and not Path(playwright.chromium.executable_path).exists():
            pytest.skip("no Chromium; install it, or run `playwright install chromium`")
        options = {"args": ["--no-sandbox"], "executable_path": chromium}
        with playwright.chromium.launch(**options) as browser:
            page = browser.new_page(viewport={"width": 1600, "height": 1000})
            page.set_default_timeout(PATIENCE_MS)
            yield page


@pytest.fixture(scope="module")
def stream(stack, resources, tmp_path_factory):
    """A topic with a blocking check, in a Dagster of its own on the shared stack."""
    stream = Stream(resources, partitions=1, settings={"checks": CHECKS})
    with dagster_of(stream, stack, tmp_path_factory.mktemp("browser")):
        yield stream


def produce(stream, *sides):
    schema_id = stream.schema()
    stream.produce([{"value": framed(schema_id, TRADES, trade(n, side=side))} for n, side in enumerate(sides)])


def verdict(page, stream, check):
    """What the page of a check says, once it is one of `Passed` and `Failed`."""
    page.goto(f"{os.environ['LAKEHOUSE_UI_URL']}/assets/iceberg/{stream.name}?view=checks&checkDetail={check}")
    found = page.get_by_text("Passed", exact=True).or_(page.get_by_text("Failed", exact=True)).first
    found.wait_for()
    return found.inner_text()


def keep(page, name):
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{name}.png")


def materialize(page, path):
    """Press the button of that page and wait for the run that it starts; returns how the run ended."""
    page.goto(f"{os.environ['LAKEHOUSE_UI_URL']}/{path}")
    page.get_by_role("button", name="Materialize").first.click()
    page.get_by_text("View", exact=True).click()
    ended = page.get_by_text("Success", exact=True).or_(page.get_by_text("Failure", exact=True)).first
    ended.wait_for()
    return ended.inner_text()


def snowflake_rows(stream):
    sql = f'SELECT COUNT(*) FROM {stream.namespace}."{stream.topic.table.upper()}"'
    return stream.resources.snowflake.query(sql)[1]


def test_a_person_sees_a_chain_work_and_a_check_stop_it(page, stream):
    produce(stream, "BUY", "SELL")
    ended = materialize(page, f"locations/lakehouse/asset-groups/{stream.topic.table}")
    keep(page, "run-of-a-chain")
    assert ended == "Success"
    assert verdict(page, stream, "side_known") == "Passed"
    keep(page, "check-passed")
    assert snowflake_rows(stream) == [(2,)]

    produce(stream, "HOLD")
    ended = materialize(page, f"assets/iceberg/{stream.name}")
    keep(page, "run-stopped-by-a-check")
    assert ended == "Failure"
    assert verdict(page, stream, "side_known") == "Failed"
    page.get_by_text("1 of 1 rows fail").first.wait_for()
    keep(page, "check-failed")
    assert len(stream.rows()) == 2 and snowflake_rows(stream) == [(2,)]
