"""Sessions of the local Snowflake server: expiry, renewal, their number, and access to all that exists."""

import gzip
import threading
import time

import fakesnow.server
import pytest
import snowflake.connector
import uvicorn

from lakehouse.local.snowflake.account import Account
from lakehouse.local.snowflake.iceberg import Lake
from lakehouse.local.snowflake.login import Sessions, Validity
from lakehouse.local.snowflake.server import MAX_BODY_BYTES, application


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def connections():
    """Fakesnow's connections, without those of other tests."""
    fakesnow.server.sessions.clear()
    return fakesnow.server.sessions


@pytest.fixture
def sessions(connections, clock):
    return Sessions(connections, Validity(10, 100), limit=3, clock=clock)


def test_renew_expired_token_works_once(sessions, connections, clock):
    first = sessions.open("connection")
    assert not sessions.has_expired(first.token) and connections[first.token] == "connection"
    clock.now = 10
    assert sessions.has_expired(first.token)
    second = sessions.renew(first.master_token)
    assert connections == {second.token: "connection"} and not sessions.has_expired(second.token)
    assert {second.token, second.master_token}.isdisjoint({first.token, first.master_token})
    for unknown in (first.master_token, second.token, "", "ü"):
        assert sessions.renew(unknown) is None


def test_session_expires_with_master_token(sessions, connections, clock):
    unused = sessions.open("forgotten")
    clock.now = 100
    assert sessions.renew(unused.master_token) is None
    fresh = sessions.open("fresh")
    assert connections == {fresh.token: "fresh"}


def test_open_above_limit_closes_least_recently_used(sessions, connections, clock):
    opened = [sessions.open(number) for number in range(3)]
    clock.now = 1
    sessions.has_expired(opened[0].token)
    sessions.open(3)
    assert sorted(connections.values()) == [0, 2, 3]
    sessions.close(opened[2].token)
    assert sorted(connections.values()) == [0, 3]


@pytest.fixture
def port(tmp_path, sessions):
    """The port of a server with these sessions."""
    lake = Lake.from_environment(
        dict(AWS_ENDPOINT_URL="http://127.0.0.1:1", AWS_REGION="r", AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b")
    )
    app = application(
        account=Account("LOCAL"), admin_password="p", lake=lake, folder=tmp_path / "data", sessions=sessions
    )
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join(10)


def connect(port):
    return snowflake.connector.connect(
        account="LOCAL",
        user="ADMIN",
        password="p",
        host="127.0.0.1",
        port=port,
        protocol="http",
        login_timeout=5,
        network_timeout=5,
        platform_detection_timeout_seconds=0,
    )


def post(port, path, body=b"{}", **headers):
    import requests

    return requests.post(f"http://127.0.0.1:{port}{path}", data=body, headers=headers, timeout=30)


def test_connector_renews_session_then_must_log_in(port, clock):
    with connect(port) as connection:
        cursor = connection.cursor()
        old = connection.rest.token
        assert cursor.execute("SELECT 1").fetchall() == [(1,)]
        clock.now = 10
        authorization = f'Snowflake Token="{old}"'
        assert post(port, "/session/heartbeat", Authorization=authorization).json()["code"] == "390112"
        assert post(port, "/queries/v1/query-request", Authorization=authorization).json()["code"] == "390112"
        assert cursor.execute("SELECT 2").fetchall() == [(2,)]
        assert connection.rest.token != old
        clock.now = 200
        with pytest.raises(snowflake.connector.errors.ProgrammingError, match="must authenticate again"):
            cursor.execute("SELECT 3")


def test_login_decompression_bomb_is_refused_before_password(port):
    bomb = gzip.compress(bytes(MAX_BODY_BYTES + 1))
    response = post(port, "/session/v1/login-request", bomb, **{"Content-Encoding": "gzip"})
    assert response.status_code == 413 and "Nothing was done" in response.text
    assert post(port, "/session/v1/login-request", bytes(MAX_BODY_BYTES + 1)).status_code == 413
    assert connect(port).cursor().execute("SELECT 1").fetchall() == [(1,)]


def test_grants_are_accepted_and_missing_objects_are_refused(port):
    with connect(port) as connection:
        cursor = connection.cursor()
        for statement in (
            "create warehouse W warehouse_size = XSMALL auto_suspend = 60",
            "create role R",
            "grant usage on warehouse W to role R",
            "use role R",
            "use warehouse W",
        ):
            cursor.execute(statement)
        assert cursor.execute("select current_role(), current_warehouse()").fetchall() == [("R", "W")]
        for statement in ("use warehouse NONE", "use role NONE", "drop schema DB.S"):
            with pytest.raises(snowflake.connector.errors.ProgrammingError, match="does not exist"):
                cursor.execute(statement)


def test_dollar_in_quoted_text_is_no_session_variable(port):
    with connect(port) as connection:
        cursor = connection.cursor()
        cursor.execute("set schema = 5")
        texts = "'$other', 'it''s $other' -- $other\n, a /* $other */"
        query = f'select $schema, "$schema", {texts} from (select 1 as "$schema", 2 as a)'
        assert cursor.execute(query).fetchall() == [(5, 1, "$other", "it's $other", 2)]
        with pytest.raises(snowflake.connector.errors.ProgrammingError, match="UNSET' does not exist"):
            cursor.execute("select $unset")
