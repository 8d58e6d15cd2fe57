"""What a web page can make a browser send to the servers on loopback: nothing that they answer."""

import contextlib
import json
import os
import socket
import uuid
from urllib.parse import urlsplit

import boto3
import psutil
import pytest
from foreign import FOREIGN, Ask, assert_refused

from lakehouse.local import process

SIGNED = (
    "AWS4-HMAC-SHA256 Credential=any/20260101/eu-west-1/secretsmanager/aws4_request, SignedHeaders=host, Signature=0"
)
LOGIN = {"data": {"LOGIN_NAME": "NOBODY", "PASSWORD": "x", "SESSION_PARAMETERS": {}}}
JSON = {"Content-Type": "application/json"}


def secret(call, **body):
    amazon = {"X-Amz-Target": f"secretsmanager.{call}", "Content-Type": "application/x-amz-json-1.1"}
    return Ask("POST", "/", json.dumps(body), {"Authorization": SIGNED, **amazon})


SUBJECT = f"/apis/ccompat/v7/subjects/{uuid.uuid4().hex}/versions"
ASKS = {
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


@pytest.fixture(params=ASKS)
def asked(request, stack):
    variable, ask = ASKS[request.param]
    return port_of(variable), ask


@pytest.mark.parametrize("foreign", FOREIGN)
def test_a_foreign_request_is_refused(asked, foreign):
    port, ask = asked
    assert_refused(ask.send(port, **FOREIGN[foreign]))


def test_a_preflight_is_refused(asked):
    port, ask = asked
    assert_refused(ask.preflight(port))


@pytest.mark.parametrize("name", [name for name in ASKS if name != "aws wiped"])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Host": "localhost:{port}"},
        {"Origin": "http://127.0.0.1:{port}", "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
    ],
)
def test_programs_and_the_servers_own_pages_are_answered(stack, name, headers):
    variable, ask = ASKS[name]
    assert ask.send(port_of(variable), **headers).status < 400


def test_what_is_in_aws_outlives_a_page_that_resets_it(stack):
    name = uuid.uuid4().hex
    boto3.client("secretsmanager").create_secret(Name=name, SecretString="kept")
    port = port_of("AWS_ENDPOINT_URL")
    page = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    assert_refused(Ask("POST", "/moto-api/reset").send(port, **page))
    assert_refused(secret("GetSecretValue", SecretId=name).send(port, **page))
    answer = secret("GetSecretValue", SecretId=name).send(port)
    assert json.loads(answer.text)["SecretString"] == "kept"
    assert not [header for header in answer.headers if header.startswith("access-control")]


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", ["/", "/lakehouse", "/lakehouse/foreign/kept", "/lakehouse/foreign/new"])
def test_s3_answers_nobody_without_a_signature(stack, method, path):
    s3 = boto3.client("s3")
    s3.put_object(Bucket="lakehouse", Key="foreign/kept", Body=b"rows of a table")
    port = port_of("AWS_ENDPOINT_URL_S3")
    forged = SIGNED.replace("any/", f"{os.environ['AWS_ACCESS_KEY_ID']}/").replace("secretsmanager", "s3")
    for headers in ({}, {"Authorization": forged, "X-Amz-Date": "20260101T000000Z"}, *FOREIGN.values()):
        answer = Ask(method, path).send(port, **headers)
        assert answer.status >= 400 and "rows" not in answer.text, answer
        assert "access-control-allow-origin" not in answer.headers
    assert s3.get_object(Bucket="lakehouse", Key="foreign/kept")["Body"].read() == b"rows of a table"
    assert s3.list_objects_v2(Bucket="lakehouse", Prefix="foreign/")["KeyCount"] == 1


def test_a_browser_cannot_go_round_the_registrys_guard(stack):
    registry = process.running(stack)["registry"]
    [java] = [member for member in registry.processes if member != registry.leader]
    [behind] = [s.laddr.port for s in java.net_connections("tcp") if s.status == psutil.CONN_LISTEN]
    for request in (b"GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % behind, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", behind), 30) as connection:
            connection.sendall(request)
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(1) == b""
