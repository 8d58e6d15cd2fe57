"""Requests without credentials to each server, at the level of its protocol; True means that access was granted."""

from __future__ import annotations

import json
import os
import socket
import struct
import urllib.error
import urllib.request
from pathlib import Path

import grpc

NOBODY = 65534
SECONDS = 10
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def exchange(port: int, sent: bytes, wanted: int = 1 << 16) -> bytes:
    """Return the response to some bytes, up to a length or the end of the connection."""
    received = b""
    with socket.create_connection(("127.0.0.1", port), SECONDS) as connection:
        connection.sendall(sent)
        while len(received) < wanted:
            try:
                part = connection.recv(1 << 16)
            except (ConnectionResetError, TimeoutError):
                break
            if not part:
                break
            received += part
    return received


def kafka(port: int) -> bool:
    """Request DescribeCluster from a broker (Kafka protocol, API key 60, version 1)."""
    return _describe_cluster(port, endpoint_type=1)


def kafka_controller(port: int) -> bool:
    """Request DescribeCluster from a controller."""
    return _describe_cluster(port, endpoint_type=2)


def _describe_cluster(port: int, endpoint_type: int) -> bool:
    header = struct.pack(">hhih", 60, 1, 1, -1) + b"\0"
    request = header + struct.pack(">bb", 0, endpoint_type) + b"\0"
    reply = exchange(port, struct.pack(">i", len(request)) + request, wanted=15)
    # Size, correlation id, tagged fields, throttle time, error code.
    return len(reply) >= 15 and struct.unpack(">h", reply[13:15]) == (0,)


def spark_connect(port: int) -> bool:
    """Call Spark Connect without a token."""
    import pyspark.sql.connect.proto as proto
    from pyspark.sql.connect.proto.base_pb2_grpc import SparkConnectServiceStub

    request = proto.ConfigRequest(session_id="00000000-0000-0000-0000-000000000000")
    request.operation.get_all.SetInParent()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            SparkConnectServiceStub(channel).Config(request, timeout=SECONDS)
        except grpc.RpcError as error:
            assert error.code() is grpc.StatusCode.UNAUTHENTICATED, error
            return False
    return True


def spark_rpc(port: int) -> bool:
    """Send a request (org.apache.spark.network.protocol): frame, type 3 (RpcRequest), id, body.

    A server with authentication accepts only a challenge as the first message.
    """
    body = b"not a challenge"
    request = struct.pack(">bqi", 3, 1, len(body)) + body
    reply = exchange(port, struct.pack(">q", len(request) + 8) + request, wanted=64)
    assert reply[8:9] == b"\x05", f"not an RpcFailure: {reply!r}"
    return b"SaslMessage" not in reply and b"Unknown challenge" not in reply


def ask(port: int, path: str = "/", body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
    """Return the status and body of an HTTP response."""
    all_headers = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, all_headers)
    try:
        with OPENER.open(request, timeout=SECONDS) as reply:
            return reply.status, reply.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def registry(port: int) -> bool:
    """List the subjects."""
    return ask(port, "/apis/ccompat/v7/subjects")[0] == 200


def s3(port: int) -> bool:
    """List the buckets."""
    return ask(port)[0] != 403


def aws(port: int) -> bool:
    """List the secrets with an invented signature."""
    target = {"X_Amz_Target": "secretsmanager.ListSecrets", "Content_Type": "application/x-amz-json-1.1"}
    credential = "AWS4-HMAC-SHA256 Credential=x/20260101/eu-west-1/secretsmanager/aws4_request, Signature=0"
    return ask(port, "/", b"{}", Authorization=credential, **target)[0] == 200


def snowflake(port: int) -> bool:
    """Log in with a wrong password."""
    login = {"data": {"LOGIN_NAME": "ADMIN", "PASSWORD": "guessed", "ACCOUNT_NAME": "LOCAL"}}
    status, body = ask(port, "/session/v1/login-request", json.dumps(login).encode(), Content_Type="application/json")
    return status == 200 and json.loads(body)["success"]


def dagster(port: int) -> bool:
    """Send a GraphQL query."""
    status, _ = ask(port, "/graphql", b'{"query": "{ version }"}', Content_Type="application/json")
    return status == 200


def get(port: int, path: str, *headers: str) -> bytes:
    """Return the bytes of a GET request."""
    lines = (f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", *headers, "Connection: close", "", "")
    return "\r\n".join(lines).encode()


def registry_behind_the_guard(port: int) -> bool:
    """List the subjects with a forged PROXY line."""
    request = b"PROXY UNKNOWN\r\n" + get(port, "/apis/ccompat/v7/subjects")
    return exchange(port, request, wanted=12).startswith(b"HTTP/1.1 200")


def page(port: int, path: str) -> bool:
    """Request a path as a browser does for a page of another site."""
    foreign = ("Origin: https://evil.example", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors")
    reply = exchange(port, get(port, path, *foreign), wanted=12)
    return reply.startswith(b"HTTP/") and reply[9:10] not in b"45"


def as_nobody(action) -> bool:
    """Return whether the user `nobody` may do something, which a child process of root tries."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            action()
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def unix_socket(path: Path) -> bool:
    """Connect to a Unix socket as another user."""
    with socket.socket(socket.AF_UNIX) as client:
        return as_nobody(lambda: client.connect(str(path)))
