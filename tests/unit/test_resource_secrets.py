"""Secrets of resources: read from AWS Secrets Manager (moto), and never shown."""

import base64
import importlib
import inspect
import json
import pkgutil
import re
import traceback
import uuid

import boto3
import dagster as dg
import pytest
from moto import mock_aws
from openlineage.client.event_v2 import Job, Run, RunEvent, RunState

import resources
from lakehouse.config.environment import SYSTEMS
from lakehouse.core.errors import ConfigError, LakehouseError
from resources.aws import secret_reader
from resources.build import system
from resources.confluent.confluent_cloud import ConfluentCloud
from resources.confluent.organization import Environments
from resources.iceberg.rest_catalog import RestCatalog
from resources.kafka.kafka import Kafka
from resources.open_lineage import OpenLineage
from resources.schema_registry import SchemaRegistry
from resources.snowflake.snowflake import Snowflake
from resources.spark.servers import Connect
from resources.webhook import Webhook
from tests.support.servers.listener import Listener

HIDDEN = "a-hidden-value"
KAFKA = {"bootstrap.servers": "pkc-1.example:9092", "sasl.username": "KEY", "sasl.password": HIDDEN}
REGISTRY = {"schema.registry.url": "https://psrc-1.example", "schema.registry.basic.auth.user.info": f"KEY:{HIDDEN}"}
SNOWFLAKE = {"account": "ORG-ACCT", "user": "LOADER", "role": "R", "private_key": HIDDEN}


@pytest.fixture
def client(monkeypatch):
    for variable in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_SECRETS_MANAGER", "AWS_PROFILE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    with mock_aws():
        yield boto3.client("secretsmanager", region_name="eu-west-1")


def store(client, content):
    """Store a secret whose name differs from those that processes have in memory, and return the name."""
    name = f"/{uuid.uuid4()}"
    client.create_secret(Name=name, SecretString=json.dumps(content))
    return name


def test_kafka_secret_is_used_for_login(client):
    kafka = Kafka(secret=store(client, KAFKA), security_protocol="SASL_SSL", sasl_mechanism="PLAIN")
    config = kafka.client_config()
    assert (config["bootstrap.servers"], config["sasl.username"], config["sasl.password"]) == tuple(KAFKA.values())
    options = kafka.spark_options()
    assert options["kafka.bootstrap.servers"] == "pkc-1.example:9092"
    assert f'username="KEY" password="{HIDDEN}"' in options["kafka.sasl.jaas.config"]
    assert HIDDEN not in repr(kafka)


def test_schema_registry_secret_is_used_for_login(client):
    with Listener(always=(200, "[]", {})).listening() as server:
        content = REGISTRY | {"schema.registry.url": server.address}
        SchemaRegistry(secret=store(client, content)).client().get_subjects()
    authorizations = [request.headers["Authorization"] for request in server.received]
    assert authorizations == ["Basic " + base64.b64encode(f"KEY:{HIDDEN}".encode()).decode()]


def test_snowflake_secret_is_used_for_login(client):
    snowflake = Snowflake(
        secret=store(client, SNOWFLAKE),
        warehouse="W",
        database="DB",
        aws_role_arn="a",
        glue_catalog_id="c",
        region="eu-west-1",
    )
    login = snowflake.login()
    assert (login.account, login.user, login.role) == ("ORG-ACCT", "LOADER", "R")
    assert login.key == {"private_key": HIDDEN}
    assert HIDDEN not in repr(login) + repr(snowflake)


def test_kafka_rotated_secret_is_read_again(client, monkeypatch):
    name = store(client, KAFKA)
    kafka = Kafka(secret=name, security_protocol="SASL_SSL", sasl_mechanism="PLAIN")
    assert kafka.client_config()["sasl.password"] == HIDDEN
    client.put_secret_value(SecretId=name, SecretString=json.dumps(KAFKA | {"sasl.password": "new"}))
    assert kafka.client_config()["sasl.password"] == HIDDEN
    monkeypatch.setattr(secret_reader, "MAX_AGE_SECONDS", -1)
    assert kafka.client_config()["sasl.password"] == "new"


def test_secret_missing_or_of_other_system_is_explained(client):
    with pytest.raises(ConfigError, match="no secret '/none' in region eu-west-1"):
        Kafka(secret="/none").client_config()
    with pytest.raises(ConfigError, match="has no bootstrap.servers") as raised:
        Kafka(secret=store(client, REGISTRY)).client_config()
    assert HIDDEN not in str(raised.value)


def test_secret_without_region_names_the_variable(client, monkeypatch):
    for variable in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(ConfigError, match="'/mine' cannot be read without a region.* Set AWS_REGION"):
        Kafka(secret="/mine").client_config()


def resource_classes():
    """Yield every resource class of the project."""
    for module in pkgutil.walk_packages(resources.__path__, "resources."):
        for value in vars(importlib.import_module(module.name)).values():
            if (
                isinstance(value, type)
                and issubclass(value, dg.ConfigurableResource)
                and value.__module__ == module.name
                and not inspect.isabstract(value)
            ):
                yield value


RESOURCES = sorted(set(resource_classes()), key=lambda resource: resource.__name__)
SECRET_WORDS = {"settings", "secret", "token", "password", "credential", "key", "remote", "url", "uri", "endpoint"}
NO_SECRETS = {
    "api_key": "an id",
    "secret": "a name in AWS Secrets Manager",
    "tableflow_api_key": "an id",
    "tableflow_secret": "a name in AWS Secrets Manager",
    "private_key_path": "a path",
    "ui_url": "a link in messages",
}
"""Fields whose names look like a secret's, and their actual content."""


def is_marked(field):
    return not field.repr and (field.json_schema_extra or {}).get("dagster__is_secret") is True


def with_secrets(resource):
    """Return the resource with a canary in every secret field, in addresses as the password."""
    arguments = {}
    for name, field in resource.model_fields.items():
        if is_marked(field):
            is_address = re.search("url|uri|endpoint", name)
            value = f"http://user:{HIDDEN}@127.0.0.1:1" if is_address else HIDDEN
            arguments[name] = {"ssl.key.password": value} if name == "settings" else value
        elif field.is_required():
            arguments[name] = "x"
    return resource(**arguments)


def test_resource_classes_include_every_system():
    assert {system(name) for name in SYSTEMS} <= set(RESOURCES)


@pytest.mark.parametrize("resource", RESOURCES)
def test_field_named_like_secret_is_marked(resource):
    suspicious = {name for name in resource.model_fields if SECRET_WORDS & set(name.split("_"))}
    # OpenLineage's key is the whole credential; elsewhere it is only its id.
    exempt = NO_SECRETS.keys() - ({"api_key"} if resource is OpenLineage else set())
    unmarked = {name for name in suspicious - exempt if not is_marked(resource.model_fields[name])}
    assert unmarked == set()


@pytest.mark.parametrize("resource", RESOURCES)
def test_resource_representations_contain_no_secret(resource):
    instance = with_secrets(resource)
    fields = resource.to_config_schema().as_field().config_type.fields
    defaults = [field.default_value for field in fields.values() if field.default_provided]
    texts = [repr(instance), str(instance), f"{instance!s:>9}", repr(defaults)]
    assert not any(HIDDEN in text for text in texts)
    marked = {name for name, field in resource.model_fields.items() if is_marked(field)}
    assert {name for name, field in fields.items() if field.is_secret} == marked


EVENT = RunEvent(
    eventTime="2026-01-01T00:00:00Z",
    eventType=RunState.START,
    run=Run("3f5e83fa-3480-44ff-99c5-ff943904e5e8"),
    job=Job("namespace", "name"),
    producer="https://example.com",
)
CALLS = {
    "SchemaRegistry": lambda url: SchemaRegistry(url=url, api_key="KEY", api_secret=HIDDEN).versions("subject"),
    "OpenLineage": lambda url: OpenLineage(url=url, api_key=HIDDEN).emit(EVENT),
    "RestCatalog": lambda url: RestCatalog(uri=url, warehouse="w", credential=f"id:{HIDDEN}").registration("a", "b"),
    "RestCatalog by another token endpoint": lambda url: RestCatalog(
        uri="http://127.0.0.1:1", warehouse="w", client_id="id", client_secret=HIDDEN, oauth2_server_uri=url
    ).registration("a", "b"),
    "Webhook": lambda url: Webhook(url=url).send("headline"),
    "Spark": lambda url: Connect(remote=f"sc://user:{HIDDEN}@127.0.0.1:1/;token={HIDDEN}").session({}),
    "ConfluentCloud": lambda url: Environments(
        ConfluentCloud(api_key="KEY", api_secret=HIDDEN, url=url).client()
    ).list(),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
@pytest.mark.parametrize("address", ["http://user:{}@127.0.0.1:{}", "http://user:{}@bad host"])
def test_error_of_address_with_password_does_not_quote_it(call, address):
    listener = Listener(always=(403, "{}", {}))
    with listener.listening() as server, pytest.raises((LakehouseError, ValueError)) as raised:
        call(address.format(HIDDEN, server.server_port))
    assert HIDDEN not in "".join(traceback.format_exception(raised.value))
