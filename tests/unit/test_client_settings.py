"""Settings of Kafka's clients and the registry's: their translation, their files, and the documentation's examples."""

from __future__ import annotations

import json
import re
from pathlib import Path

import boto3
import pytest
import yaml
from confluent_kafka import Consumer
from cryptography.hazmat.primitives.serialization import PrivateFormat, load_pem_private_key
from moto import mock_aws

from lakehouse.config.loader import load
from lakehouse.config.model import Config
from lakehouse.core.errors import ConfigError
from lakehouse.local.processes.description import for_project_code
from resources.build import build_resources, environment_faults, require_variables
from resources.kafka.kafka import Kafka
from resources.kafka.settings import CONNECTION, FETCH
from resources.schema_registry import SchemaRegistry
from tests.support.declared import declare
from tests.support.servers.certificates import Authority
from tools.repository import PROJECT

PAGE = (PROJECT / "docs/logins.md").read_text()
VALUES = {"client.dns.lookup": "use_all_dns_ips", "metadata.recovery.strategy": "rebootstrap"}
SETTINGS = {name: VALUES.get(name, "2000000" if "bytes" in name else "1000") for name in CONNECTION | FETCH}
"""A valid value for each setting without a file."""


def test_known_settings_are_known_to_librdkafka():
    kafka = Kafka(bootstrap_servers="127.0.0.1:1", settings=SETTINGS)
    kafka.consumer("group").close()
    kafka.producer().flush(0)
    with pytest.raises(Exception, match="No such configuration property"):
        Consumer({"group.id": "group", "bootstrap.servers": "127.0.0.1:1", "socket.send.bytes": 1})


def test_settings_of_consumers_reach_no_other_client():
    kafka = Kafka(bootstrap_servers="127.0.0.1:1", settings=SETTINGS)
    assert not FETCH.keys() & kafka.client_config().keys()
    assert {f"kafka.{name}" for name in FETCH} <= kafka.spark_options().keys()


@pytest.mark.parametrize(("password", "form"), [("", PrivateFormat.TraditionalOpenSSL), ("pass", PrivateFormat.PKCS8)])
def test_key_reaches_both_clients_in_the_form_that_java_reads(tmp_path, password, form):
    issued = Authority(tmp_path, "authority").issue("client", password=password, form=form)
    settings = {"ssl.certificate.location": str(issued.certificate), "ssl.key.location": str(issued.key)}
    settings |= {"ssl.key.password": password}
    kafka = Kafka(bootstrap_servers="b:1", security_protocol="SSL", settings=settings)
    text = kafka.spark_options()["kafka.ssl.keystore.key"]
    assert text.startswith("-----BEGIN PRIVATE" + " KEY-----") and kafka.client_config()["ssl.key.pem"] == text
    original = load_pem_private_key(issued.key.read_bytes(), password.encode() or None)
    assert load_pem_private_key(text.encode(), None).private_numbers() == original.private_numbers()
    assert not [name for name in (*kafka.client_config(), *kafka.spark_options()) if "password" in name]


def test_wrong_password_of_key_is_refused_without_its_text(tmp_path):
    issued = Authority(tmp_path, "authority").issue("client", password="right")
    settings = {"ssl.certificate.location": str(issued.certificate), "ssl.key.location": str(issued.key)}
    kafka = Kafka(bootstrap_servers="b:1", security_protocol="SSL", settings=settings | {"ssl.key.password": "canary"})
    with pytest.raises(ConfigError, match="`ssl.key.password` is not its password") as raised:
        kafka.spark_options()
    assert "canary" not in str(raised.value)


@pytest.mark.parametrize("password", ["", "the password"])
def test_keystore_reaches_both_clients_as_pem_in_order_of_issuers(tmp_path, password):
    intermediate = Authority(tmp_path, "inner", Authority(tmp_path, "outer", Authority(tmp_path, "root")))
    issued = intermediate.issue("client")
    settings = {"ssl.keystore.location": str(issued.pkcs12(password)), "ssl.keystore.password": password}
    kafka = Kafka(bootstrap_servers="b:1", security_protocol="SSL", settings=settings)
    options, config = kafka.spark_options(), kafka.client_config()
    assert options["kafka.ssl.keystore.certificate.chain"] == config["ssl.certificate.pem"]
    assert config["ssl.certificate.pem"] == issued.certificate.read_text()
    assert options["kafka.ssl.keystore.key"] == config["ssl.key.pem"] == issued.key.read_text()
    assert not [name for name in (*config, *options) if "location" in name or "password" in name]


@pytest.mark.parametrize("content", [b"", b"\xfe\xed\xfe\xed a keystore of Java", None])
def test_unreadable_keystore_is_refused_without_its_password(tmp_path, content):
    file = Authority(tmp_path, "authority").issue("client").pkcs12("right")
    if content is not None:
        file.write_bytes(content)
    settings = {"ssl.keystore.location": str(file), "ssl.keystore.password": "canary"}
    kafka = Kafka(bootstrap_servers="b:1", security_protocol="SSL", settings=settings)
    with pytest.raises(ConfigError, match=r"client\.p12 is no keystore of type PKCS #12, or .*keytool") as raised:
        kafka.client_config()
    assert "canary" not in str(raised.value)


def test_missing_file_is_named():
    settings = {"ssl.ca.location": "/nowhere/ca.pem"}
    with pytest.raises(ConfigError, match=r"/nowhere/ca.pem of `ssl.ca.location` cannot be read: No such file"):
        Kafka(bootstrap_servers="b:1", security_protocol="SSL", settings=settings).client_config()
    with pytest.raises(ConfigError, match=r"/nowhere/k.p12 of `ssl.keystore.location` cannot be read: No such file"):
        keystore = {"ssl.keystore.location": "/nowhere/k.p12"}
        Kafka(bootstrap_servers="b:1", security_protocol="SSL", settings=keystore).client_config()
    with pytest.raises(ConfigError, match=r"ssl.ca.location cannot be used: No such file"):
        SchemaRegistry(url="https://127.0.0.1:1", settings=settings).client()


def test_values_of_variables_are_validated_when_they_are_known():
    with pytest.raises(ConfigError, match="kafka.settings.metadata.max.age.ms: must be a positive integer"):
        Kafka(bootstrap_servers="b:1", settings={"metadata.max.age.ms": "5m"}).client_config()
    with pytest.raises(ConfigError, match="kafka.settings.ssl.ca.pem: it has no effect"):
        Kafka(bootstrap_servers="b:1", settings={"ssl.ca.pem": "x"}).spark_options()
    with pytest.raises(ConfigError, match="schema_registry.settings.ssl.ca.location: must be an absolute path"):
        SchemaRegistry(url="https://h", settings={"ssl.ca.location": "ca.pem"}).client()


def test_value_that_librdkafka_refuses_is_an_error_of_the_file():
    kafka = Kafka(bootstrap_servers="b:1", settings={"metadata.max.age.ms": "99999999999"})
    with pytest.raises(ConfigError, match=r"refuses the settings.*metadata.max.age.ms"):
        kafka.topics()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", "REGISTRY_ADDRESS not set, or empty. Nothing was changed"),
        ("registry:8081", "variable REGISTRY_ADDRESS must be a URL that begins with http:// or https://. Write it as"),
        ("ftp://key:canary@host", "variable REGISTRY_ADDRESS must be a URL"),
    ],
)
def test_values_of_variables_have_the_form_of_their_keys(tmp_path, monkeypatch, value, message):
    declare(
        monkeypatch,
        tmp_path,
        systems={"schema_registry": {"url": {"env": "REGISTRY_ADDRESS"}}},
        namespace="n",
        topics={},
    )
    monkeypatch.setenv("REGISTRY_ADDRESS", value)
    with pytest.raises(ConfigError, match=re.escape(message)) as refused:
        require_variables(load(), "here")
    assert "canary" not in str(refused.value)


def test_variables_in_settings_are_required_and_inherited(tmp_path, monkeypatch):
    settings = {"client.id": {"env": "NAME_OF_CLIENT"}}
    declare(monkeypatch, tmp_path, systems={"kafka": {"settings": settings}}, namespace="n", topics={})
    config = load()
    assert "NAME_OF_CLIENT" in for_project_code()
    with pytest.raises(ConfigError, match="NAME_OF_CLIENT not set"):
        require_variables(config, "here")


def test_boolean_and_integer_are_written_as_clients_read_them(tmp_path, monkeypatch):
    settings = {"client.id": True, "client.rack": 7, "metadata.max.age.ms": {"env": "AGE", "default": 5}}
    declare(monkeypatch, tmp_path, systems={"kafka": {"settings": settings}}, namespace="n", topics={})
    kafka = build_resources(load(), "here")["kafka"].process_config_and_initialize()
    config = kafka.client_config()
    assert [config[name] for name in settings] == ["true", "7", "5"]


def test_key_in_secret_of_aws_is_used(tmp_path, monkeypatch):
    issued = Authority(tmp_path, "authority").issue("client")
    for variable in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_SECRETS_MANAGER", "AWS_PROFILE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    secret = {"bootstrap.servers": "b:1", "ssl.key.pem": issued.key.read_text(), "client_id": "of another program"}
    with mock_aws():
        client = boto3.client("secretsmanager", region_name="eu-west-1")
        client.create_secret(Name="certified", SecretString=json.dumps(secret))
        settings = {"ssl.certificate.location": str(issued.certificate)}
        options = Kafka(secret="certified", security_protocol="SSL", settings=settings).spark_options()
    assert options["kafka.ssl.keystore.key"] == issued.key.read_text()


@pytest.mark.parametrize("block", re.findall(r"^```yaml (\w+)\n", PAGE, re.MULTILINE))
def test_example_of_the_documentation_is_valid(block, tmp_path):
    [text] = re.findall(rf"^```yaml {block}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    others = {"spark": {"remote": "sc://h"}, "catalog": {"type": "sql", "uri": "sqlite:///c.db", "warehouse": "s3://w"}}
    systems = {"schema_registry": {"url": "http://h"}, **others, **yaml.safe_load(text)}
    file: Path = tmp_path / "lakehouse.yaml"
    file.write_text(yaml.safe_dump({"namespace": "n", "topics": {}, "environments": {"here": systems}}))
    load(file, validations=[environment_faults])


def test_catalog_in_database_needs_its_address():
    environment = {"catalog": {"type": "sql", "warehouse": "s3://bucket/lake"}}
    config = Config.model_validate({"namespace": "n", "topics": {}, "environments": {"here": environment}})
    [fault] = [fault for at, fault in environment_faults(config) if at == ("environments", "here", "catalog", "uri")]
    assert fault == "missing. Write the database as a URL, such as {env: NAME} for postgresql://lake@database/lake"
