"""Protection of the token of a local Spark Connect server."""

import socket
import subprocess
import sys
from concurrent import futures
from contextlib import ExitStack, closing

import grpc
import pytest

from lakehouse.core.errors import Unreachable
from lakehouse.local.processes import ports, reserved
from resources.spark.servers import Connect

TOKEN = "canary-5b1e"


def has_ipv6():
    """Return whether [::1] is available; many containers have no IPv6."""
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="needs IPv6 on the loopback interface")


class Listener(grpc.GenericRpcHandler):
    """A server that records the `authorization` of each call and responds to none."""

    def __init__(self):
        self.authorizations = []

    def service(self, handler_call_details):
        metadata = dict(handler_call_details.invocation_metadata)
        self.authorizations.append(metadata.get("authorization"))


@pytest.fixture
def listen():
    """Return a function that starts a Listener at an address and returns it with its port."""
    with ExitStack() as servers:

        def listen(address):
            server, listener = grpc.server(futures.ThreadPoolExecutor(2)), Listener()
            server.add_generic_rpc_handlers((listener,))
            port = server.add_insecure_port(address)
            server.start()
            servers.callback(lambda: server.stop(None).wait())
            return listener, port

        yield listen


@pytest.fixture
def spark(monkeypatch):
    """Return a function that creates a resource for an address with a token."""
    monkeypatch.setenv("SPARK_CONNECT_AUTHENTICATE_TOKEN", TOKEN)
    return lambda remote: Connect(remote=remote).with_own_session()


@needs_ipv6
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_session_listener_on_ipv6_loopback_gets_no_token(listen, spark, host):
    server, port = listen("127.0.0.1:0")
    impostor, _ = listen(f"[::1]:{port}")

    with pytest.raises(Unreachable):
        spark(f"sc://{host}:{port}").session({})

    assert server.authorizations and set(server.authorizations) == {f"Bearer {TOKEN}"}
    assert impostor.authorizations == []


@needs_ipv6
def test_is_free_port_with_ipv6_listener_is_false(listen):
    _, port = listen("[::1]:0")
    assert not ports.is_free(port)


@needs_ipv6
@pytest.mark.parametrize("address", ["::1", "::"])
def test_reserved_port_prevents_listener_on_ipv6(address):
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_INET6) as impostor:
        port = server.getsockname()[1]
        waiting = (sys.executable, "-c", "print('ready', flush=True); input()")
        command = (sys.executable, "-m", "lakehouse.local.processes.reserved", str(port), *waiting)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == "ready\n"
            impostor.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            impostor.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with pytest.raises(OSError, match="already in use"):
                impostor.bind((address, port))
            process.stdin.close()
        impostor.bind((address, port))


@needs_ipv6
def test_reserved_start_beside_ipv6_listener_fails():
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as impostor:
        port = impostor.getsockname()[1]
        command = (
            sys.executable,
            "-m",
            "lakehouse.local.processes.reserved",
            str(port),
            sys.executable,
            "-c",
            "print('started')",
        )
        result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 1 and result.stdout == ""
    assert f"port {port} of [::1] is used by another program" in result.stderr


@needs_ipv6
def test_reserved_port_can_be_reused_immediately():
    with closing(reserved.bound(0)) as reservation:
        port = reservation.getsockname()[1]
    with closing(reserved.bound(port)):
        pass


@pytest.mark.parametrize(
    "remote",
    [
        f"sc://spark.example.com:15002/;use_ssl=true;token={TOKEN}=",
        f"sc://spark.example.com:15002;token={TOKEN}",
        f"sc://spark.example.com:15002/path;token={TOKEN}",
        f"sc://user:{TOKEN}@spark.example.com:port",
        f"https://spark.example.com;token={TOKEN}",
    ],
)
def test_session_invalid_address_error_has_no_token(remote):
    with pytest.raises(Unreachable, match=r"spark\.example\.com.*use_ssl=true") as raised:
        Connect(remote=remote).session({})
    error = raised.value
    assert TOKEN not in str(error)
    assert error.__cause__ is None and error.__context__ is None
