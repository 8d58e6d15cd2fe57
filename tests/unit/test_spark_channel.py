"""Who gets the token of a Spark Connect server on this machine."""

import socket
import subprocess
import sys
from concurrent import futures
from contextlib import ExitStack, closing

import grpc
import pytest

from lakehouse.core.errors import Unreachable
from lakehouse.local import ports, reserved
from resources.spark import Spark

TOKEN = "canary-5b1e"


def _has_ipv6():
    """Whether anybody could listen on [::1]: many containers have no IPv6."""
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


needs_ipv6 = pytest.mark.skipif(not _has_ipv6(), reason="needs IPv6 on the loopback interface")


class Listener(grpc.GenericRpcHandler):
    """Keeps the `authorization` of each call, and answers none."""

    def __init__(self):
        self.authorizations = []

    def service(self, handler_call_details):
        metadata = dict(handler_call_details.invocation_metadata)
        self.authorizations.append(metadata.get("authorization"))


@pytest.fixture
def listen():
    """Start a Listener at an address; returns it and its port."""
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
    """A resource that leads to an address with a token."""
    monkeypatch.setenv("SPARK_CONNECT_AUTHENTICATE_TOKEN", TOKEN)
    return lambda remote: Spark(remote=remote).apart()


@needs_ipv6
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_listener_on_the_ipv6_loopback_address_gets_no_token(listen, spark, host):
    server, port = listen("127.0.0.1:0")
    impostor, _ = listen(f"[::1]:{port}")

    with pytest.raises(Unreachable):
        spark(f"sc://{host}:{port}").session({})

    assert server.authorizations and set(server.authorizations) == {f"Bearer {TOKEN}"}
    assert impostor.authorizations == []


@needs_ipv6
def test_a_port_that_is_listened_to_on_the_ipv6_loopback_address_is_not_chosen(listen):
    _, port = listen("[::1]:0")
    assert not ports.is_free(port)


@needs_ipv6
@pytest.mark.parametrize("address", ["::1", "::"])
def test_nobody_can_listen_beside_a_server_that_was_started_with_its_port_reserved(address):
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_INET6) as impostor:
        port = server.getsockname()[1]
        waits = (sys.executable, "-c", "print('ready', flush=True); input()")
        command = (sys.executable, "-m", "lakehouse.local.reserved", str(port), *waits)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
            assert running.stdout.readline() == "ready\n"
            impostor.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            impostor.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with pytest.raises(OSError, match="already in use"):
                impostor.bind((address, port))
            running.stdin.close()
        impostor.bind((address, port))


@needs_ipv6
def test_a_server_does_not_start_beside_another_listener():
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as impostor:
        port = impostor.getsockname()[1]
        command = (
            sys.executable,
            "-m",
            "lakehouse.local.reserved",
            str(port),
            sys.executable,
            "-c",
            "print('started')",
        )
        done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == ""
    assert f"port {port} of [::1] is taken by another program" in done.stderr


@needs_ipv6
def test_a_reserved_port_is_free_again_at_once():
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
def test_an_address_that_pyspark_refuses_is_reported_without_its_token(remote):
    with pytest.raises(Unreachable, match=r"spark\.example\.com.*use_ssl=true") as failed:
        Spark(remote=remote).session({})
    error = failed.value
    assert TOKEN not in str(error)
    assert error.__cause__ is None and error.__context__ is None
