"""The UI in a browser: login, refused requests, and a chain that a failed check stops."""

import json
import os
from importlib.metadata import version
from urllib.parse import quote, urlsplit

import pytest

from lakehouse import DISTRIBUTION
from lakehouse.local.dagster import ui_login
from lakehouse.local.processes import process
from tests.support.processes.dagster_stack import dagster_of
from tests.support.processes.pages import CHECKS, keep, log_in, materialize, snowflake_rows, verdict
from tests.support.servers.foreign import FOREIGN, Ask, assert_refused, hostile_page
from tests.support.topics import TRADES, Stream, framed, trade


@pytest.fixture(scope="module")
def stream(stack, resources, tmp_path_factory):
    """Yield a topic with a blocking check, with its own Dagster on the shared stack."""
    stream = Stream(resources, partitions=1, settings={"checks": CHECKS})
    with dagster_of(stream, stack, tmp_path_factory.mktemp("browser")):
        yield stream


@pytest.fixture(scope="module")
def ui(stream):
    """Return the port of Dagster's UI."""
    return urlsplit(os.environ["LAKEHOUSE_UI_URL"]).port


MUTATION = 'mutation { setConcurrencyLimit(concurrencyKey: "foreign", limit: 0) }'
BY_GET = f"/graphql?query={quote(MUTATION)}"
JSON = {"Content-Type": "application/json"}
WEBSOCKET = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    "Sec-WebSocket-Protocol": "graphql-ws",
}


def ask(query):
    return Ask("POST", "/graphql", json.dumps({"query": query}), JSON)


def was_changed(ui, token):
    query = "{ instance { concurrencyLimits { concurrencyKey } } }"
    response = ask(query).send(ui, **ui_login.bearer(token))
    return "foreign" in [
        limit["concurrencyKey"] for limit in json.loads(response.text)["data"]["instance"]["concurrencyLimits"]
    ]


def test_dagster_request_of_another_site_with_token_is_refused(ui, token):
    requests = (ask(MUTATION), Ask("GET", BY_GET), Ask("GET", "/graphql", "", WEBSOCKET), Ask("GET", "/server_info"))
    for request in requests:
        for foreign in FOREIGN.values():
            assert request.send(ui, **ui_login.bearer(token), **foreign).status == 403, (request, foreign)
        assert_refused(request.preflight(ui))
    assert not was_changed(ui, token)


def test_dagster_request_without_token_is_refused(ui, token):
    same_origin = {"Origin": f"http://127.0.0.1:{ui}", "Sec-Fetch-Site": "same-origin"}
    for wrong in ({}, same_origin, ui_login.bearer("wrong"), {"Cookie": f"lakehouse-ui-{ui}=9999999999.00"}):
        assert ask(MUTATION).send(ui, **wrong).status == 401
        assert Ask("GET", "/server_info").send(ui, **wrong).status == 401
        assert Ask("GET", "/graphql", "", WEBSOCKET).send(ui, **wrong).status == 403
    assert not was_changed(ui, token)


def test_dagster_request_of_image_or_form_changes_nothing(ui, token):
    logged_in = ui_login.bearer(token)
    assert Ask("GET", BY_GET).send(ui, **logged_in).status == 405
    for content_type in ("text/plain", "application/x-www-form-urlencoded", "application/graphql"):
        form = Ask("POST", BY_GET, MUTATION, {"Content-Type": content_type})
        assert form.send(ui, **logged_in).status == 415
    assert not was_changed(ui, token)


def test_deployment_shows_version_and_configuration(ui, token):
    location = "... on RepositoryLocation { dagsterLibraryVersions { name version } }"
    entries = f"locationEntries {{ displayMetadata {{ key value }} locationOrLoadError {{ {location} }} }}"
    response = ask(f"{{ workspaceOrError {{ ... on Workspace {{ {entries} }} }} }}").send(ui, **ui_login.bearer(token))
    [entry] = json.loads(response.text)["data"]["workspaceOrError"]["locationEntries"]
    libraries = {
        library["name"]: library["version"] for library in entry["locationOrLoadError"]["dagsterLibraryVersions"]
    }
    assert libraries[DISTRIBUTION] == version(DISTRIBUTION)
    shown = {metadata["key"]: metadata["value"] for metadata in entry["displayMetadata"]}
    assert (shown["configuration"], shown["environment"]) == (os.environ["LAKEHOUSE_CONFIG"], "local")


def test_login_by_link_and_by_token_succeeds(page, stream, ui, token):
    address = os.environ["LAKEHOUSE_UI_URL"]
    response = page.goto(f"{address}/assets")
    assert response.status == 401
    page.get_by_text("lakehouse ui").wait_for()
    keep(page, "login")
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    page.get_by_text("not the token").wait_for()

    log_in(page, token)
    assert token not in page.url and token not in page.evaluate("document.referrer")
    page.goto(f"{address}/locations/lakehouse/asset-groups/{stream.topic.table}")
    page.get_by_role("button", name="Materialize").first.wait_for()
    keep(page, "assets-after-login")
    assert token not in json.dumps(page.context.cookies())

    assert json.loads(ask("{ version }").send(ui, **ui_login.bearer(token)).text)["data"]["version"]
    assert Ask("GET", "/graphql", "", WEBSOCKET).send(ui, **ui_login.bearer(token)).status == 101


def test_link_of_another_site_needs_one_more_click(page, ui, token):
    address = os.environ["LAKEHOUSE_UI_URL"]
    log_in(page, token)
    hostile = hostile_page(address, MUTATION)
    page.route("http://evil.example/**", lambda route: route.fulfill(body=hostile, content_type="text/html"))
    page.goto("http://evil.example/")
    form, script, listening = page.evaluate("window.attack()")
    assert form in ("opaque", "refused") and (script, listening) == ("refused", "refused")
    assert not was_changed(ui, token)

    page.get_by_text("an alert").click()
    page.get_by_text("Continue to Dagster", exact=True).wait_for()
    keep(page, "link-from-another-site")
    page.get_by_text("Continue to Dagster", exact=True).click()
    page.get_by_text("Overview", exact=True).first.wait_for()
    assert "/assets" in page.url


def test_token_is_in_no_log_and_no_command_line(stack, ui, token):
    for name in ("dagster", "dagster-code", "dagster-daemon"):
        server = process.running(stack)[name]
        output = stack.log(name).read_text(errors="replace") + " ".join(server.leader.cmdline())
        assert token not in output, name
    files = (path for path in (stack.path / "dagster").rglob("*") if path.is_file())
    assert not [path for path in files if token.encode() in path.read_bytes()]


def test_ui_shows_chain_that_a_failed_check_stops(page, stream, token):
    log_in(page, token)
    stream.produce_trades(range(2))
    stream.ingest()
    stream.show("glue")
    stream.show("snowflake")

    schema_id = stream.schema()
    stream.produce([{"value": framed(schema_id, TRADES, trade(2, side="HOLD"))}])
    status = materialize(page, f"assets/{stream.name}/iceberg")
    keep(page, "run-stopped-by-a-check")
    assert status == "Failure"
    assert verdict(page, stream, "side_known") == "Failed"
    page.get_by_text("1 of 1 rows fail").first.wait_for()
    keep(page, "check-failed")
    assert len(stream.rows()) == 2 and snowflake_rows(stream) == [(2,)]
