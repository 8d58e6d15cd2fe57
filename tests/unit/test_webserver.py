"""Dagster's own web application behind the guard: who gets in, and what even they cannot do by a link or a form."""

import json

import pytest
from dagster import DagsterInstance
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster_webserver.app import create_app_from_workspace_process_context
from starlette.testclient import TestClient, WebSocketDenialResponse, WebSocketDisconnect

from lakehouse.local import ui_login
from lakehouse.local.guard import Hosts
from lakehouse.local.ui_login import Door
from lakehouse.local.webserver import guarded

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
    """A browser that has logged in by the link."""
    assert client.get(f"/login?token={TOKEN}", headers=PAGE | {"Sec-Fetch-Site": "none"}).status_code == 200
    return client


def limits(client):
    query = "{ instance { concurrencyLimits { concurrencyKey } } }"
    answer = client.post("/graphql", json={"query": query}, headers=BEARER)
    return answer.json()["data"]["instance"]["concurrencyLimits"]


def test_without_a_token_a_program_gets_401_and_a_browser_a_page_that_asks_for_it(client):
    for path in ("/graphql", "/server_info", "/assets", "/logs/a.out", "/favicon.png"):
        answer = client.get(path)
        assert answer.status_code == 401 and "lakehouse ui" in answer.json()["error"], path
    assert client.post("/graphql", json={"query": MUTATION}).status_code == 401
    page = client.get("/runs/1", headers=PAGE | {"Sec-Fetch-Site": "none"})
    assert page.status_code == 401 and "lakehouse ui" in page.text and "<form" in page.text
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]


@pytest.mark.parametrize("token", ["", "wrong", TOKEN[:-1], TOKEN + "x", "Bearer", "ü"])
def test_a_wrong_token_opens_nothing(client, token):
    wrong = {"Authorization": f"Bearer {token}".encode("latin-1")}
    assert client.post("/graphql", json={"query": MUTATION}, headers=wrong).status_code == 401
    assert client.get("/login", params={"token": token}).status_code == 401
    assert client.post("/login", data={"token": token}).status_code == 401
    assert not client.cookies and limits(client) == []


def test_the_link_gives_a_cookie_that_is_not_the_token_and_leads_on_without_it(client):
    answer = client.get(f"/login?token={TOKEN}", headers=PAGE | {"Sec-Fetch-Site": "none"})
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("lakehouse-ui-3000=") and "HttpOnly" in cookie and "SameSite=Strict" in cookie
    assert TOKEN not in cookie and TOKEN not in answer.text
    assert f"url={ui_login.HOME_PAGE}" in answer.text and 'content="no-referrer"' in answer.text
    assert client.get("/server_info").status_code == 200
    assert "version" in client.post("/graphql", json={"query": "{ version }"}).json()["data"]


def test_the_form_logs_in_too(client):
    assert client.post("/login", data={"token": TOKEN}, headers={"Origin": BASE}).status_code == 200
    assert client.get("/server_info").status_code == 200


def test_a_form_of_any_length_is_not_read_to_its_end(client):
    assert client.post("/login", data={"a": "x" * 10_000, "token": TOKEN}).status_code == 401


def test_a_cookie_that_was_forged_or_has_expired_or_is_another_stacks_opens_nothing(client, monkeypatch):
    good = Door(TOKEN, 3000).cookie().partition(";")[0]
    other_port = Door(TOKEN, 3001).cookie().partition(";")[0].replace("3001", "3000")
    other_token = Door("another", 3000).cookie().partition(";")[0]
    monkeypatch.setattr(ui_login.time, "time", lambda: 0)
    expired = Door(TOKEN, 3000).cookie().partition(";")[0]
    monkeypatch.undo()
    later = "lakehouse-ui-3000=9" + good.partition("=")[2]
    assert client.get("/server_info", headers={"Cookie": f"other=1; {good}"}).status_code == 200
    for bad in (other_port, other_token, expired, later, "lakehouse-ui-3000=", "lakehouse-ui-3000=x.y", "lakehouse-ui"):
        assert client.get("/server_info", headers={"Cookie": bad}).status_code == 401, bad


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
def test_another_sites_page_is_refused_although_the_browser_is_logged_in(browser, headers):
    for ask in (
        lambda: browser.get("/graphql", params={"query": MUTATION}, headers=headers),
        lambda: browser.post("/graphql", json={"query": MUTATION}, headers=headers),
        lambda: browser.post("/login", data={"token": TOKEN}, headers=headers),
        lambda: browser.options("/graphql", headers=headers | {"Access-Control-Request-Method": "POST"}),
        lambda: browser.get("/server_info", headers=headers),
    ):
        answer = ask()
        assert answer.status_code == 403 and "access-control-allow-origin" not in answer.headers
    assert limits(browser) == []


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_graphql_is_not_answered_by_get_as_an_image_in_the_ui_itself_would_ask(browser, method):
    image = {"Accept": "image/avif,*/*;q=0.8", "Sec-Fetch-Dest": "image", "Sec-Fetch-Site": "same-origin"}
    for headers in (image, image | BEARER, PAGE):
        answer = browser.request(method, "/graphql", params={"query": MUTATION}, headers=headers)
        assert answer.status_code == 405
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
def test_what_a_form_can_send_changes_nothing(browser, content_type):
    sent = {"Content-Type": content_type, "Origin": BASE}
    for body in (json.dumps({"query": MUTATION}), MUTATION, ""):
        answer = browser.post("/graphql", params={"query": MUTATION}, content=body, headers=sent)
        assert answer.status_code == 415
    assert browser.post("/report_asset_materialization/a", headers=sent).status_code == 415
    assert limits(browser) == []


def test_what_the_ui_itself_sends_works(browser):
    own = {"Origin": BASE, "Sec-Fetch-Site": "same-origin", "Content-Type": "application/json; charset=utf-8"}
    answer = browser.post("/graphql", content=json.dumps({"query": MUTATION}), headers=own)
    assert answer.json() == {"data": {"setConcurrencyLimit": True}}
    assert [limit["concurrencyKey"] for limit in limits(browser)] == ["pool"]
    delete = 'mutation { deleteConcurrencyLimit(concurrencyKey: "pool") }'
    assert browser.post("/graphql", json={"query": delete}, headers=own).status_code == 200
    assert browser.get("/graphql", headers=PAGE | {"Sec-Fetch-Site": "same-origin"}).status_code == 200


def test_a_link_on_another_site_leads_in_by_one_more_click(browser):
    foreign = PAGE | {"Sec-Fetch-Site": "cross-site"}
    answer = browser.get("/runs/1", headers=foreign)
    assert answer.status_code == 403 and '<a href="">' in answer.text and "set-cookie" not in answer.headers
    # Not in a frame, where the click could be stolen, and not under a name that leads to another server next time.
    for unsafe in ({"Sec-Fetch-Dest": "iframe"}, {"Host": "evil.example:3000"}):
        answer = browser.get("/runs/1", headers=foreign | unsafe)
        assert answer.status_code == 403 and answer.headers["content-type"].startswith("text/plain")


def test_a_login_link_works_wherever_it_is_clicked(client):
    foreign = PAGE | {"Sec-Fetch-Site": "cross-site"}
    assert client.get("/login?token=wrong", headers=foreign).status_code == 401
    assert client.get(f"/login?token={TOKEN}", headers=foreign).status_code == 200
    assert client.get("/server_info").status_code == 200


def refused(client, headers):
    try:
        with client.websocket_connect(
            "ws://127.0.0.1:3000/graphql", subprotocols=["graphql-ws"], headers=dict(headers)
        ):
            return False
    except (WebSocketDisconnect, WebSocketDenialResponse):
        return True


def test_a_websocket_is_for_the_uis_own_pages_and_for_programs_with_the_token(browser):
    assert refused(browser, {"Origin": "https://evil.example"})
    assert refused(browser, {"Origin": "https://evil.example"} | BEARER)
    assert refused(browser, {"Host": "evil.example:3000", "Origin": "http://evil.example:3000"})
    assert refused(browser, {"Sec-Fetch-Site": "cross-site"} | BEARER)
    assert refused(browser, {})
    assert not refused(browser, {"Origin": BASE})
    assert not refused(browser, BEARER)
    browser.cookies.clear()
    assert refused(browser, {"Origin": BASE})
