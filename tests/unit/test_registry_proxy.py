"""The proxy in front of the schema registry: unchanged forwarding, time limits and size limits."""

import http.client
import socket
import threading
from contextlib import contextmanager

import pytest
import uvicorn

from lakehouse.local.servers.registry_proxy import MAX_BODY_BYTES, proxy

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@contextmanager
def serving(app):
    """Serve an application and yield its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", date_header=False, server_header=False))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(10)


def request(port, method="GET", path="/", body=b"", headers=()):
    """Send a request with only these headers, and return the response and its content."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in (("Host", "127.0.0.1:8081"), ("Content-Length", str(len(body))), *headers):
        connection.putheader(name, value)
    connection.endheaders(body)
    response = connection.getresponse()
    content = response.read()
    connection.close()
    return response, content


@contextmanager
def registry(*responses):
    """Serve these responses, one per connection; yield the port of a proxy to them, and what they received."""
    received = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            for response in responses:
                connection, _ = listener.accept()
                with connection:
                    received.append(b"")
                    connection.settimeout(0.3)
                    try:
                        while not received[-1].endswith(b"END") and (part := connection.recv(1 << 16)):
                            received[-1] += part
                    except TimeoutError:
                        pass
                    if response is None:
                        released.wait(30)
                    else:
                        connection.sendall(response)

        released = threading.Event()
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        with serving(proxy(listener.getsockname()[1], seconds=1)) as port:
            try:
                yield port, received
            finally:
                released.set()
        thread.join(10)


def test_request_is_forwarded_unchanged():
    headers = [("X-Twice", "1"), ("X-Twice", "2"), ("Connection", "x"), ("Authorization", "Basic a")]
    with registry(OK) as (port, received):
        request(port, "PUT", "/apis/subjects/a%2Fb%20c/versions?deleted=true&x=%2f", b"bodyEND", headers)
    line, message = received[0].split(b"\r\n", 1)
    head, body = message.split(b"\r\n\r\n")
    assert line == b"PROXY UNKNOWN" and body == b"bodyEND"
    assert head.startswith(b"PUT /apis/subjects/a%2Fb%20c/versions?deleted=true&x=%2f HTTP/1.1\r\n")
    headers = head.lower().split(b"\r\n")[1:]
    assert {b"host: 127.0.0.1:8081", b"x-twice: 1", b"x-twice: 2", b"authorization: basic a"} <= set(headers)
    assert headers.count(b"content-length: 7") == 1 and b"connection: x" not in headers


@pytest.mark.parametrize(
    ("response", "status", "body"),
    [
        (OK, 200, b"ok"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        (b"HTTP/1.1 404 No\r\nContent-Type: a/b\r\nX: 1\r\nX: 2\r\nContent-Length: 3\r\n\r\nnot", 404, b"not"),
        (b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n", 500, b"abc"),
        (b"HTTP/1.1 302 No\r\nLocation: http://127.0.0.1:8081/x\r\nContent-Length: 0\r\n\r\n", 302, b""),
    ],
)
def test_response_is_forwarded_unchanged(response, status, body):
    with registry(response) as (port, _):
        proxied, content = request(port)
    assert (proxied.status, content) == (status, body)
    if status == 404:
        assert proxied.headers.get_all("x") == ["1", "2"] and proxied.headers["content-type"] == "a/b"


def test_response_to_head_has_length_without_body():
    with registry(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n") as (port, _):
        proxied, content = request(port, "HEAD")
    assert (proxied.status, proxied.headers["content-length"], content) == (200, "5", b"")


def test_registry_without_response_gives_504():
    with registry(None) as (port, _):
        proxied, content = request(port)
    assert proxied.status == 504 and b"does not respond" in content


@pytest.mark.parametrize("incomplete", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\n"])
def test_registry_with_incomplete_response_gives_502(incomplete):
    with registry(incomplete) as (port, _):
        assert request(port)[0].status == 502


def test_response_cut_off_does_not_look_complete():
    with (
        registry(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf") as (port, _),
        pytest.raises(http.client.IncompleteRead),
    ):
        request(port)


def test_registry_down_gives_502():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with serving(proxy(unused.getsockname()[1])) as port:
            assert request(port)[0].status == 502


def test_request_above_limit_never_reaches_registry():
    with registry(OK) as (port, received):
        assert request(port, "POST", body=bytes(MAX_BODY_BYTES + 1))[0].status == 413
        assert not received
        assert request(port, "POST", body=b"END")[0].status == 200
