"""Requests that a web page can make a browser send to the servers on loopback: all are refused."""

import contextlib
import json
import os
import socket
import uuid
from urllib.parse import urlsplit

import boto3
import psutil
import pytest

from lakehouse.local.processes import process
from tests.support.servers.foreign import FOREIGN, Ask, assert_refused

SIGNED = (
    "AWS4-HMAC-SHA256 Credential=any/20260101/eu-west-1/secretsmanager/aws4_request, SignedHeaders=host, Signature=0"
)
LOGIN = {"data": {"LOGIN_NAME": "NOBODY", "PASSWORD": "x", "SESSION_PARAMETERS": {}}}
JSON = {"Content-Type": "application/json"}


def secret(call, **body):
    amazon = {"X-Amz-Target": f"secretsmanager.{call}", "Content-Type": "application/x-amz-json-1.1"}
    return Ask("POST", "/", json.dumps(body), {"Authorization": SIGNED, **amazon})


SUBJECT = f"/apis/ccompat/v7/subjects/{uuid.uuid4().hex}/versions"
REQUESTS = {
    "registry reads": ("SCHEMA_REGISTRY_URL", Ask("GET", "/apis/ccompat/v7/subjects")),
    "registry writes": ("SCHEMA_REGISTRY_URL", Ask("POST", SUBJECT, '{"schema": "\\"string\\""}', JSON)),
    "registry's own API": ("SCHEMA_REGISTRY_URL", Ask("GET", "/apis/registry/v3/system/info")),
    "registry's UI": ("SCHEMA_REGISTRY_URL", Ask("GET", "/")),
    "aws": ("AWS_ENDPOINT_URL", secret("ListSecrets")),
    "aws console": ("AWS_ENDPOINT_URL", Ask("GET", "/moto-api/")),
    "aws wiped": ("AWS_ENDPOINT_URL", Ask("POST", "/moto-api/reset", "", {"Content-Type": "text/plain"})),
    "snowflake": ("SNOWFLAKE_PORT", Ask("POST", "/session/v1/login-request", json.dumps(LOGIN), JSON)),
    "snowflake's health": ("SNOWFLAKE_PORT", Ask("GET", "/healthz")),
}


def port_of(variable):
    value = os.environ[variable]
    return int(value) if value.isdigit() else urlsplit(value).port


@pytest.fixture(params=REQUESTS)
def target(request, stack):
    variable, request_ = REQUESTS[request.param]
    return port_of(variable), request_


@pytest.mark.parametrize("foreign", FOREIGN)
def test_foreign_request_is_refused(target, foreign):
    port, request_ = target
    assert_refused(request_.send(port, **FOREIGN[foreign]))


def test_preflight_request_is_refused(target):
    port, request_ = target
    assert_refused(request_.preflight(port))


@pytest.mark.parametrize("name", [name for name in REQUESTS if name != "aws wiped"])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Host": "localhost:{port}"},
        {"Origin": "http://127.0.0.1:{port}", "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
    ],
)
def test_requests_of_programs_and_own_pages_are_answered(stack, name, headers):
    variable, request_ = REQUESTS[name]
    assert request_.send(port_of(variable), **headers).status < 400


def test_aws_state_survives_reset_by_foreign_page(stack):
    name = uuid.uuid4().hex
    boto3.client("secretsmanager").create_secret(Name=name, SecretString="kept")
    port = port_of("AWS_ENDPOINT_URL")
    page = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    assert_refused(Ask("POST", "/moto-api/reset").send(port, **page))
    assert_refused(secret("GetSecretValue", SecretId=name).send(port, **page))
    response = secret("GetSecretValue", SecretId=name).send(port)
    assert json.loads(response.text)["SecretString"] == "kept"
    assert not [header for header in response.headers if header.startswith("access-control")]


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", ["/", "/lakehouse", "/lakehouse/foreign/kept", "/lakehouse/foreign/new"])
def test_s3_request_without_signature_is_refused(stack, method, path):
    s3 = boto3.client("s3")
    s3.put_object(Bucket="lakehouse", Key="foreign/kept", Body=b"rows of a table")
    port = port_of("AWS_ENDPOINT_URL_S3")
    forged = SIGNED.replace("any/", f"{os.environ['AWS_ACCESS_KEY_ID']}/").replace("secretsmanager", "s3")
    for headers in ({}, {"Authorization": forged, "X-Amz-Date": "20260101T000000Z"}, *FOREIGN.values()):
        response = Ask(method, path).send(port, **headers)
        assert response.status >= 400 and "rows" not in response.text, response
        assert "access-control-allow-origin" not in response.headers
    assert s3.get_object(Bucket="lakehouse", Key="foreign/kept")["Body"].read() == b"rows of a table"
    assert s3.list_objects_v2(Bucket="lakehouse", Prefix="foreign/")["KeyCount"] == 1


def test_registry_guard_cannot_be_bypassed_by_browser(stack):
    registry = process.running(stack)["registry"]
    [java] = [member for member in registry.processes if member != registry.leader]
    [java_port] = [s.laddr.port for s in java.net_connections("tcp") if s.status == psutil.CONN_LISTEN]
    for request in (b"GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % java_port, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", java_port), 30) as connection:
            connection.sendall(request)
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(1) == b""
