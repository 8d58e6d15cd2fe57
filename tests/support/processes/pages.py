"""Pages of Dagster's UI in a browser."""

import os
from urllib.parse import urlsplit

import dagster as dg

from lakehouse.core.polling import poll
from lakehouse.local.dagster import ui_login
from tools.repository import PROJECT

CHECKS = {"side_known": {"type": "accepted_values", "column": "side", "values": ["BUY", "SELL"]}}
"""A blocking check of trades."""

SCREENSHOTS = PROJECT / "reports" / "screenshots"
TIMEOUT_MS = 300_000


def log_in(page, token):
    page.goto(ui_login.link(os.environ["LAKEHOUSE_UI_URL"], token))
    page.wait_for_url(f"**{ui_login.HOME_PAGE}")


def verdict(page, stream, check):
    """Return `Passed` or `Failed` from the page of a check, once it shows either."""
    page.goto(f"{os.environ['LAKEHOUSE_UI_URL']}/assets/{stream.name}/iceberg?view=checks&checkDetail={check}")
    result = page.get_by_text("Passed", exact=True).or_(page.get_by_text("Failed", exact=True)).first
    result.wait_for()
    return result.inner_text()


def keep(page, name):
    """Write a picture of the page to reports/screenshots."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{name}.png")


def materialize(page, path):
    """Start a run with the button of a page, wait for its end, and return the status that its page shows.

    Another page is open until the end: Chromium draws that of a running run without a pause, which takes a third of the
    test's CPU time.
    """
    page.goto(f"{os.environ['LAKEHOUSE_UI_URL']}/{path}")
    page.get_by_role("button", name="Materialize").first.click()
    page.get_by_text("View", exact=True).click()
    page.wait_for_url("**/runs/*")
    address = page.url
    page.goto("about:blank")
    run_id = urlsplit(address).path.rpartition("/")[2]
    with dg.DagsterInstance.get() as instance:
        assert poll(lambda: instance.get_run_by_id(run_id).is_finished, pause=1, deadline_seconds=TIMEOUT_MS / 1000)
    page.goto(address)
    status = page.get_by_text("Success", exact=True).or_(page.get_by_text("Failure", exact=True)).first
    status.wait_for()
    return status.inner_text()


def snowflake_rows(stream):
    """Return the number of the topic's rows in Snowflake, as Snowflake returns it."""
    sql = f'SELECT COUNT(*) FROM {stream.namespace}."{stream.topic.table.upper()}"'
    return stream.resources.snowflake.query(sql)[1]
