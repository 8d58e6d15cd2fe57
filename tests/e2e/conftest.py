"""A page in a browser, and the login of Dagster's UI."""

import shutil
from pathlib import Path

import pytest

from lakehouse.local.home import Credentials
from tests.support.processes.pages import TIMEOUT_MS


@pytest.fixture(scope="module")
def page():
    """Yield a page in Chromium: the system's, or the one that `playwright install chromium` installs."""
    sync_api = pytest.importorskip("playwright.sync_api")
    names = ("chromium", "chromium-browser", "google-chrome", "chromium-shell")
    chromium = next(filter(None, map(shutil.which, names)), None)
    with sync_api.sync_playwright() as playwright:
        if not chromium and not Path(playwright.chromium.executable_path).exists():
            pytest.skip("no Chromium; install it, or run `playwright install chromium`")
        # Other browsers let pages of any site send requests to loopback: Chromium's refusal must not hide the stack's.
        arguments = ["--no-sandbox", "--disable-features=LocalNetworkAccessChecks"]
        options = {"args": arguments, "executable_path": chromium}
        with playwright.chromium.launch(**options) as browser:
            page = browser.new_page(viewport={"width": 1600, "height": 1000})
            page.set_default_timeout(TIMEOUT_MS)
            yield page


@pytest.fixture(scope="module")
def token(stack):
    return Credentials.of(stack).ui_token
