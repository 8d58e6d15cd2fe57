"""Credentials from AWS Secrets Manager, in the layout that the deployment writes; on moto in this process."""

import base64
import json

import boto3
import pytest
from listener import Listener
from moto import mock_aws

from lakehouse.errors import ConfigError
from resources import secret
from resources.kafka import Kafka
from resources.schema_registry import SchemaRegistry
from resources.snowflake import Snowflake

HIDDEN = "a-hidden-value"
KAFKA = {"bootstrap.servers": "pkc-1.example:9092", "sasl.username": "KEY", "sasl.password": HIDDEN}
REGISTRY = {"schema.registry.url": "https://psrc-1.example", "schema.registry.basic.auth.user.info": f"KEY:{HIDDEN}"}
SNOWFLAKE = {"account": "ORG-ACCT", "user": "LOADER", "role": "R", "private_key": HIDDEN}


@pytest.fixture
def client(monkeypatch):
    for variable in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_SECRETS_MANAGER", "AWS_PROFILE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setattr(secret, "_read", {})
    with mock_aws():
        yield boto3.client("secretsmanager", region_name="eu-west-1")


def stored(client, name, content):
    client.create_secret(Name=name, SecretString=json.dumps(content))
    return name


def test_kafka_enters_with_its_secret(client):
    kafka = Kafka(secret=stored(client, "/kafka", KAFKA), security_protocol="SASL_SSL", sasl_mechanism="PLAIN")
    config = kafka.client_config()
    assert (config["bootstrap.servers"], config["sasl.username"], config["sasl.password"]) == tuple(KAFKA.values())
    options = kafka.spark_options()
    assert options["kafka.bootstrap.servers"] == "pkc-1.example:9092"
    assert f'username="KEY" password="{HIDDEN}"' in options["kafka.sasl.jaas.config"]
    assert HIDDEN not in repr(kafka)


def test_the_registry_enters_with_its_secret(client):
    with Listener(always=(200, "[]", {})).listening() as server:
        content = REGISTRY | {"schema.registry.url": server.address}
        SchemaRegistry(secret=stored(client, "/registry", content)).client().get_subjects()
    asked = [request.headers["Authorization"] for request in server.received]
    assert asked == ["Basic " + base64.b64encode(f"KEY:{HIDDEN}".encode()).decode()]


def test_snowflake_enters_with_its_secret(client):
    snowflake = Snowflake(
        secret=stored(client, "/snowflake", SNOWFLAKE),
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


def test_a_rotated_key_is_found_by_a_process_that_goes_on(client, monkeypatch):
    kafka = Kafka(secret=stored(client, "/kafka", KAFKA), sasl_mechanism="PLAIN")
    assert kafka.client_config()["sasl.password"] == HIDDEN
    client.put_secret_value(SecretId="/kafka", SecretString=json.dumps(KAFKA | {"sasl.password": "new"}))
    assert kafka.client_config()["sasl.password"] == HIDDEN
    monkeypatch.setattr(secret, "FRESH_SECONDS", -1)
    assert kafka.client_config()["sasl.password"] == "new"


def test_no_such_secret_and_one_of_another_kind_are_explained(client):
    with pytest.raises(ConfigError, match="no secret '/none' in region eu-west-1"):
        Kafka(secret="/none").client_config()
    with pytest.raises(ConfigError, match="has no bootstrap.servers") as failed:
        Kafka(secret=stored(client, "/registry", REGISTRY)).client_config()
    assert HIDDEN not in str(failed.value)
