"""Dagster's web application behind the guard: login, and protection from links, forms and foreign sites."""

import json
import time

import pytest
from dagster import DagsterInstance
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster_webserver.app import create_app_from_workspace_process_context
from starlette.testclient import TestClient, WebSocketDenialResponse, WebSocketDisconnect

from lakehouse.local.dagster import ui_login
from lakehouse.local.dagster.webserver import Door, guarded
from lakehouse.local.guard import Hosts

BASE = "http://127.0.0.1:3000"
TOKEN = "a-token-of-this-test"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
MUTATION = 'mutation { setConcurrencyLimit(concurrencyKey: "pool", limit: 0) }'
PAGE = {"Accept": "text/html", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dagster")
    with (
        DagsterInstance.local_temp(str(folder)) as instance,
        WorkspaceProcessContext(instance, None) as context,
    ):
        yield guarded(create_app_from_workspace_process_context(context), Hosts.of(3000, ""), Door(TOKEN, 3000))


@pytest.fixture
def client(app):
    """A client without a cookie."""
    return TestClient(app, base_url=BASE, follow_redirects=False)


@pytest.fixture
def browser(client):
    """A client that is logged in by the link."""
    assert client.get(f"/login?token={TOKEN}", headers=PAGE | {"Sec-Fetch-Site": "none"}).status_code == 200
    return client


def limits(client):
    query = "{ instance { concurrencyLimits { concurrencyKey } } }"
    response = client.post("/graphql", json={"query": query}, headers=BEARER)
    return response.json()["data"]["instance"]["concurrencyLimits"]


def test_request_without_token_is_refused_with_instructions(client):
    for path in ("/graphql", "/server_info", "/assets", "/logs/a.out", "/favicon.png"):
        response = client.get(path)
        assert response.status_code == 401 and "lakehouse ui" in response.json()["error"], path
    assert client.post("/graphql", json={"query": MUTATION}).status_code == 401
    page = client.get("/runs/1", headers=PAGE | {"Sec-Fetch-Site": "none"})
    assert page.status_code == 401 and "lakehouse ui" in page.text and "<form" in page.text
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]


@pytest.mark.parametrize("token", ["", "wrong", TOKEN[:-1], TOKEN + "x", "Bearer", "ü"])
def test_request_with_wrong_token_is_refused(client, token):
    authorization = {"Authorization": f"Bearer {token}".encode("latin-1")}
    assert client.post("/graphql", json={"query": MUTATION}, headers=authorization).status_code == 401
    assert client.get("/login", params={"token": token}).status_code == 401
    assert client.post("/login", data={"token": token}).status_code == 401
    assert not client.cookies and limits(client) == []


def test_login_link_sets_cookie_other_than_token(client):
    response = client.get(f"/login?token={TOKEN}", headers=PAGE | {"Sec-Fetch-Site": "none"})
    cookie = response.headers["set-cookie"]
    assert cookie.startswith("lakehouse-ui-3000=") and "HttpOnly" in cookie and "SameSite=Strict" in cookie
    assert TOKEN not in cookie and TOKEN not in response.text
    assert f"url={ui_login.HOME_PAGE}" in response.text and 'content="no-referrer"' in response.text
    assert client.get("/server_info").status_code == 200
    assert "version" in client.post("/graphql", json={"query": "{ version }"}).json()["data"]


def test_login_form_sets_cookie(client):
    assert client.post("/login", data={"token": TOKEN}, headers={"Origin": BASE}).status_code == 200
    assert client.get("/server_info").status_code == 200


def test_login_form_too_long_is_not_read(client):
    assert client.post("/login", data={"a": "x" * 10_000, "token": TOKEN}).status_code == 401


def test_cookie_forged_expired_or_foreign_is_refused(client, monkeypatch):
    valid = Door(TOKEN, 3000).cookie().partition(";")[0]
    other_port = Door(TOKEN, 3001).cookie().partition(";")[0].replace("3001", "3000")
    other_token = Door("another", 3000).cookie().partition(";")[0]
    monkeypatch.setattr(time, "time", lambda: 0)
    expired = Door(TOKEN, 3000).cookie().partition(";")[0]
    monkeypatch.undo()
    later = "lakehouse-ui-3000=9" + valid.partition("=")[2]
    assert client.get("/server_info", headers={"Cookie": f"other=1; {valid}"}).status_code == 200
    for invalid in (
        other_port,
        other_token,
        expired,
        later,
        "lakehouse-ui-3000=",
        "lakehouse-ui-3000=x.y",
        "lakehouse-ui",
    ):
        assert client.get("/server_info", headers={"Cookie": invalid}).status_code == 401, invalid


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example:3000"},
        {"Origin": "https://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://localhost:5173", "Sec-Fetch-Site": "same-site"},
        {"Origin": "null"},
    ],
)
def test_foreign_site_is_refused_despite_login(browser, headers):
    for request in (
        lambda: browser.get("/graphql", params={"query": MUTATION}, headers=headers),
        lambda: browser.post("/graphql", json={"query": MUTATION}, headers=headers),
        lambda: browser.post("/login", data={"token": TOKEN}, headers=headers),
        lambda: browser.options("/graphql", headers=headers | {"Access-Control-Request-Method": "POST"}),
        lambda: browser.get("/server_info", headers=headers),
    ):
        response = request()
        assert response.status_code == 403 and "access-control-allow-origin" not in response.headers
    assert limits(browser) == []


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_graphql_by_get_is_refused(browser, method):
    image = {"Accept": "image/avif,*/*;q=0.8", "Sec-Fetch-Dest": "image", "Sec-Fetch-Site": "same-origin"}
    for headers in (image, image | BEARER, PAGE):
        response = browser.request(method, "/graphql", params={"query": MUTATION}, headers=headers)
        assert response.status_code == 405
    assert browser.get("/graphql?%71uery=mutation", headers=image).status_code == 405
    assert limits(browser) == []


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "text/plain; a=application/json",
        "application/graphql",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=application/json",
        "application/json; charset=utf-8; x=y",
        "application/json, text/plain",
        "",
    ],
)
def test_graphql_by_form_is_refused(browser, content_type):
    headers = {"Content-Type": content_type, "Origin": BASE}
    for body in (json.dumps({"query": MUTATION}), MUTATION, ""):
        response = browser.post("/graphql", params={"query": MUTATION}, content=body, headers=headers)
        assert response.status_code == 415
    assert browser.post("/report_asset_materialization/a", headers=headers).status_code == 415
    assert limits(browser) == []


def test_graphql_by_ui_is_accepted(browser):
    same_origin = {"Origin": BASE, "Sec-Fetch-Site": "same-origin", "Content-Type": "application/json; charset=utf-8"}
    response = browser.post("/graphql", content=json.dumps({"query": MUTATION}), headers=same_origin)
    assert response.json() == {"data": {"setConcurrencyLimit": True}}
    assert [limit["concurrencyKey"] for limit in limits(browser)] == ["pool"]
    delete = 'mutation { deleteConcurrencyLimit(concurrencyKey: "pool") }'
    assert browser.post("/graphql", json={"query": delete}, headers=same_origin).status_code == 200
    assert browser.get("/graphql", headers=PAGE | {"Sec-Fetch-Site": "same-origin"}).status_code == 200


def test_foreign_link_needs_confirmation(browser):
    foreign = PAGE | {"Sec-Fetch-Site": "cross-site"}
    response = browser.get("/runs/1", headers=foreign)
    assert response.status_code == 403 and '<a href="">' in response.text and "set-cookie" not in response.headers
    # Not in a frame, where the click could be stolen, and not for a name that may resolve to another server later.
    for more_headers in ({"Sec-Fetch-Dest": "iframe"}, {"Host": "evil.example:3000"}):
        response = browser.get("/runs/1", headers=foreign | more_headers)
        assert response.status_code == 403 and response.headers["content-type"].startswith("text/plain")


def test_login_link_on_foreign_site_works(client):
    foreign = PAGE | {"Sec-Fetch-Site": "cross-site"}
    assert client.get("/login?token=wrong", headers=foreign).status_code == 401
    assert client.get(f"/login?token={TOKEN}", headers=foreign).status_code == 200
    assert client.get("/server_info").status_code == 200


def is_refused(client, headers):
    try:
        with client.websocket_connect(
            "ws://127.0.0.1:3000/graphql", subprotocols=["graphql-ws"], headers=dict(headers)
        ):
            return False
    except (WebSocketDisconnect, WebSocketDenialResponse):
        return True


def test_websocket_needs_same_origin_or_token(browser):
    assert is_refused(browser, {"Origin": "https://evil.example"})
    assert is_refused(browser, {"Origin": "https://evil.example"} | BEARER)
    assert is_refused(browser, {"Host": "evil.example:3000", "Origin": "http://evil.example:3000"})
    assert is_refused(browser, {"Sec-Fetch-Site": "cross-site"} | BEARER)
    assert is_refused(browser, {})
    assert not is_refused(browser, {"Origin": BASE})
    assert not is_refused(browser, BEARER)
    browser.cookies.clear()
    assert is_refused(browser, {"Origin": BASE})
