"""The identities that replace keys: what they may do in Confluent Cloud and Snowflake, and what is refused to them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import boto3
import pytest
from snowflake.connector.errors import ProgrammingError

from lakehouse.core.errors import UnclearState
from lakehouse.deploy.confluent.key_rotation import rotate
from lakehouse.deploy.resource import Outputs
from lakehouse.deploy.rotation import Policy, recorded_outputs
from lakehouse.deploy.rotation import rotate as rotate_deployment
from lakehouse.deploy.snowflake.access import ServiceUserKey
from resources.confluent.api_client import Forbidden
from resources.confluent.clusters import Clusters
from resources.confluent.confluent_cloud import ConfluentCloud
from resources.confluent.organization import ApiKeys, Environments, KeyScope, RoleBindings, ServiceAccounts
from tests.support.clouds.confluent.deployment import REGION, SQL, Lake, account
from tests.support.clouds.snowflake.deployments import Deployed, aws, open_session, service_session

pytestmark = pytest.mark.stack

TOPICS = {"stock_trades": {"source": {"type": "datagen", "quickstart": "STOCK_TRADES", "schema_file": ""}}}
SECRET = "/confluent_cloud_resource/lake/rotation"


@pytest.fixture
def owner(lake: Lake) -> Lake:
    """A created deployment, with the credentials of the account that replaces its keys."""
    lake.topics, lake.flink = TOPICS, {"totals": SQL}
    lake.create()
    stored = json.loads(lake.secrets()[SECRET])
    cloud = ConfluentCloud(api_key=stored["api.key"], api_secret=stored["api.key.secret"], url=lake.vendor.url)
    return replace(lake, confluent=cloud)


def known(owner: Lake) -> Outputs:
    """Return the outputs that the account reads from its secret."""
    return recorded_outputs(owner.resources)


def test_rotate_as_owner_of_the_accounts_replaces_every_key(owner: Lake):
    before = {key_id: key["spec"]["owner"]["id"] for key_id, key in owner.vendor.state.keys.items()}

    rotated = list(rotate(owner.resources, day_count=0, known=known(owner), clock=owner.sleepless.clock))

    assert len(rotated) == len(before) == 8 and all(key.is_new for key in rotated)
    owners = [owner.vendor.state.keys[key.key_id]["spec"]["owner"]["id"] for key in rotated]
    assert owners == list(before.values()), "its own key, too"
    stored = json.loads(owner.secrets()[SECRET])
    assert stored["api.key"] == rotated[-1].key_id
    assert owner.vendor.state.secrets[rotated[-1].key_id] == stored["api.key.secret"]


def test_owner_of_the_accounts_may_do_nothing_else(owner: Lake):
    cloud, state = owner.confluent, owner.vendor.state
    foreign = "sa-999999"
    state.accounts[foreign] = {**state.accounts[account(owner, "spark")], "id": foreign, "display_name": "theirs"}
    [environment] = state.environments
    pattern = state.environments[environment]["metadata"]["resource_name"]
    refused = [
        lambda: Environments(cloud.client()).list(),
        lambda: Clusters(cloud.client(), environment).list(),
        lambda: RoleBindings(cloud.client()).create(f"User:{account(owner, 'rotation')}", "EnvironmentAdmin", pattern),
        lambda: ServiceAccounts(cloud.client()).create("another", "One more"),
        lambda: ApiKeys(cloud.client()).create("key", "A key", foreign, KeyScope.cloud()),
        lambda: Environments(cloud.client()).delete(environment),
    ]
    for call in refused:
        with pytest.raises(Forbidden):
            call()
    assert environment in state.environments
    assert ApiKeys(cloud.client()).list(foreign) == []
    assert ServiceAccounts(cloud.client()).find("theirs") is None
    owned = {account(owner, purpose) for purpose in ("spark", "rotation", "app_manager", "flink")}
    listed = {
        owner.vendor.state.keys[key.id]["spec"]["owner"]["id"]
        for account in owned
        for key in ApiKeys(cloud.client()).list(account)
    }
    assert listed == owned


def test_rotate_without_ownership_of_an_account_leaves_its_key(owner: Lake):
    recorded, spark = known(owner), account(owner, "spark")
    state = owner.vendor.state
    [binding] = [
        k for k, binding in state.bindings.items() if binding["crn_pattern"].endswith(f"service-account={spark}")
    ]
    del state.bindings[binding]
    before = [key_id for key_id, key in state.keys.items() if key["spec"]["owner"]["id"] == spark]

    with pytest.raises(UnclearState, match="of 'spark'.*Run `lakehouse deploy create`"):
        list(rotate(owner.resources, day_count=0, known=recorded, clock=owner.sleepless.clock))

    assert [key_id for key_id, key in state.keys.items() if key["spec"]["owner"]["id"] == spark] == before


def test_delete_key_without_ownership_is_refused_and_again_is_not(owner: Lake):
    state, spark = owner.vendor.state, account(owner, "spark")
    keys = [key_id for key_id, key in state.keys.items() if key["spec"]["owner"]["id"] == spark]
    ApiKeys(owner.confluent.client()).delete(keys[0], spark)
    ApiKeys(owner.confluent.client()).delete(keys[0], spark)
    assert keys[0] not in state.keys
    [binding] = [
        k for k, binding in state.bindings.items() if binding["crn_pattern"].endswith(f"service-account={spark}")
    ]
    del state.bindings[binding]

    for key_id in keys:
        with pytest.raises(Forbidden):
            ApiKeys(owner.confluent.client()).delete(key_id, spark)

    assert keys[1] in state.keys


def test_recorded_outputs_of_another_layout_refer_to_create(owner: Lake, lake: Lake):
    client = boto3.client("secretsmanager", region_name=REGION)
    stored = json.loads(lake.secrets()[SECRET])
    for value in ({**stored, "lakehouse.states": "{}"}, {"api.key": stored["api.key"]}):
        client.put_secret_value(SecretId=SECRET, SecretString=json.dumps(value))
        with pytest.raises(UnclearState, match="Run `lakehouse deploy create`"):
            recorded_outputs(owner.resources)
    client.put_secret_value(SecretId=SECRET, SecretString=json.dumps({**stored, "lakehouse.states": "{}"}))
    lake.create()
    assert json.loads(lake.secrets()[SECRET]) == stored
    assert recorded_outputs(owner.resources)


def current_value(secret: str) -> str:
    """Return the current version of a secret."""
    response = aws("secretsmanager").get_secret_value(SecretId=secret, VersionStage="AWSCURRENT")
    return str(response["SecretString"])


def rotation_session(deployed: Deployed) -> Any:
    """Open a session of the user that replaces keys, with the key of its secret and its default role."""
    stored = json.loads(current_value(deployed.names.snowflake_rotation_secret))
    return open_session(deployed.server, stored["user"], stored["private_key"])


def test_rotate_as_security_role_replaces_both_key_pairs(deployed: Deployed):
    secrets = (deployed.names.snowflake_secret, deployed.names.snowflake_rotation_secret)
    before = [current_value(secret) for secret in secrets]
    with rotation_session(deployed) as session:
        keys = [resource for resource in deployed.resources(session) if isinstance(resource, ServiceUserKey)]
        lines = list(rotate_deployment(keys, Policy(day_count=0)))
    after = [current_value(secret) for secret in secrets]
    assert [line.split(":")[0] for line in lines] == ["snowflake/key", "snowflake/rotation_key"]
    assert all("in RSA_PUBLIC_KEY_2, the one before until" in line for line in lines)
    assert not set(before) & set(after)
    with service_session(deployed) as service, rotation_session(deployed) as rotation:
        for session, role in ((service, "ROLE"), (rotation, "SECURITY_ROLE")):
            assert session.cursor().execute("select current_role()").fetchone() == (deployed.names.snowflake(role),)


def test_security_role_may_change_only_keys_of_its_users(deployed: Deployed):
    names = deployed.names
    service, rotation = names.snowflake("USER"), names.snowflake("ROTATION_USER")
    foreign = f"FOREIGN_{names.deployment.upper()}"
    deployed.server.admin(f"create user {foreign} type = service")
    key = "MIIB"
    refused = [
        f"alter user {foreign} set rsa_public_key = '{key}'",
        f"alter user {foreign} unset rsa_public_key",
        f"desc user {foreign}",
        f"drop user {foreign}",
        f"create user {foreign}_2 type = service",
        f"create role {foreign}_ROLE",
        f"grant role {names.snowflake('ROLE')} to user {rotation}",
        f"grant role ACCOUNTADMIN to user {rotation}",
        "use role ACCOUNTADMIN",
        f"use role {names.snowflake('ROLE')}",
        f"use warehouse {names.snowflake('WAREHOUSE')}",
        f"create database {foreign}",
        f"select * from {names.snowflake('DATABASE')}.{deployed.schema}.stock_trades",
    ]
    with rotation_session(deployed) as session:
        for statement in refused:
            with pytest.raises(ProgrammingError):
                session.cursor().execute(statement)
        for user in (service, rotation):
            assert session.cursor().execute(f"desc user {user}").fetchall()
    deployed.server.admin(f"drop user {foreign}")


def test_service_user_may_change_no_key(deployed: Deployed):
    names = deployed.names
    with service_session(deployed) as session:
        for user in (names.snowflake("USER"), names.snowflake("ROTATION_USER")):
            for statement in (f"alter user {user} unset rsa_public_key_2", f"drop user {user}"):
                with pytest.raises(ProgrammingError):
                    session.cursor().execute(statement)
        with pytest.raises(ProgrammingError):
            session.cursor().execute(f"use role {names.snowflake('SECURITY_ROLE')}")
