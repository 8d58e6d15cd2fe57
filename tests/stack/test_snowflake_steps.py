"""A deployment's steps in Snowflake: real boto3 and the real connector against the local servers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rotated_users import Wire
from snowflake_deployments import ACCOUNT, Deployed, aws, change, quiet, service_session
from snowflake_fixtures import trades

from lakehouse.core.errors import LakehouseError, UnclearState
from lakehouse.core.polling import Clock
from lakehouse.deploy.aws.policies import snowflake_trust
from lakehouse.deploy.planner import create, delete, plan, plan_deletion
from resources.confluent.waiting import TimedOut

pytest_plugins = ["snowflake_fixtures", "rotated_users", "snowflake_deployments"]
pytestmark = pytest.mark.stack


def verbs(actions: Any) -> dict[str, str]:
    return {action.step.name: action.verb for action in actions}


def test_a_plan_before_and_after(new: Callable[..., Deployed], wire: Wire):
    deployed = new()
    wire.counts, wire.sent = change, 0
    assert set(verbs(plan(deployed.steps())).values()) == {"create"}
    assert wire.sent == 0, "a plan changes nothing"
    create(deployed.steps(), quiet)
    assert wire.sent > 20, "the wire sees changes"
    before, state = wire.sent, deployed.state()
    assert set(verbs(plan(deployed.steps())).values()) == {"keep"}
    create(deployed.steps(), quiet)
    assert wire.sent == before, "again it changes nothing"
    assert deployed.state() == state


def test_the_service_user_queries_with_its_defaults(deployed: Deployed):
    with service_session(deployed) as session:
        rows = session.cursor().execute("select count(*), max(lots) from stock_trades").fetchall()
        assert rows == [(3, 2)]
        where = "select current_role(), current_warehouse(), current_database(), current_schema()"
        purposes = (deployed.names.snowflake(purpose) for purpose in ("ROLE", "WAREHOUSE", "DATABASE"))
        assert session.cursor().execute(where).fetchone() == (*purposes, deployed.schema)


def test_everything_says_whose_it_is(deployed: Deployed):
    state = deployed.state()
    for kind in ("ROLE", "USER", "WAREHOUSE", "DATABASE", "EXTERNAL VOLUME", "CATALOG INTEGRATION", "ICEBERG TABLE"):
        assert state[kind] and {row[2] for row in state[kind]} == {"lakehouse:deployment=<name>"}, kind
    assert state["USER"][0][1] == "LAKEHOUSE_<name>_SECURITY_ROLE", "who may change its keys"


def test_the_trust_is_of_external_ids_that_were_chosen(deployed: Deployed):
    found = {step.name: step.find({}) for step in deployed.steps() if not step.needs}
    assert found["snowflake/volume"].external_id == deployed.names.external_id("volume")
    shown = {
        row["property"]: row["property_value"]
        for row in deployed.query(f"desc external volume {deployed.names.snowflake('VOLUME')}")
    }
    assert shown["ALLOW_WRITES"] == "false"
    assert found["snowflake/integration"].external_id == deployed.names.external_id("catalog")


def test_a_way_into_aws_with_other_settings_is_named_and_left(deployed: Deployed):
    names = deployed.names
    for kind, purpose in (("ICEBERG TABLE", ""), ("CATALOG INTEGRATION", "GLUE"), ("EXTERNAL VOLUME", "VOLUME")):
        table = f"{names.snowflake('DATABASE')}.{deployed.schema}.STOCK_TRADES"
        deployed.server.admin(f"drop {kind} {names.snowflake(purpose) if purpose else table}")
    comment = f"comment = 'lakehouse:deployment={names.deployment}'"
    deployed.server.admin(
        f"create external volume {names.snowflake('VOLUME')} storage_locations = ((name = 'v' storage_provider = 's3'"
        f" storage_base_url = 's3://{names.bucket}/' storage_aws_role_arn = 'arn:aws:iam::1:role/other'"
        f" storage_aws_external_id = '{names.external_id('volume')}')) {comment}",
        f"create catalog integration {names.snowflake('GLUE')} catalog_source = iceberg_rest table_format = iceberg"
        " catalog_namespace = 'elsewhere' rest_config = (catalog_uri = 'https://glue.eu-west-1.amazonaws.com/iceberg'"
        f" catalog_api_type = aws_glue catalog_name = '{ACCOUNT}') rest_authentication = (type = sigv4"
        f" sigv4_iam_role = '{names.role_arn('snowflake')}' sigv4_signing_region = 'eu-west-1'"
        f" sigv4_external_id = '{names.external_id('catalog')}') enabled = true {comment}",
    )
    before = deployed.state()
    said = {action.step.name: action.why for action in plan(deployed.steps()) if action.verb == "change"}
    role = f"STORAGE_AWS_ROLE_ARN is 'arn:aws:iam::1:role/other' instead of '{names.role_arn('snowflake')}'"
    assert said["snowflake/volume"] == role
    namespace = f"CATALOG_NAMESPACE is 'elsewhere' instead of '{deployed.lake.database}'"
    assert said["snowflake/integration"] == namespace
    with pytest.raises(LakehouseError, match="differs: STORAGE_AWS_ROLE_ARN .*left as it is.*deploy delete"):
        create(deployed.steps(), quiet)
    assert deployed.state() == before
    delete(deployed.steps(), quiet, delete_data=False)
    assert deployed.state() == {}


def test_the_running_lakehouse_uses_what_the_deployment_made(deployed: Deployed, tmp_path: Path):
    names, lake = deployed.names, deployed.lake
    key = tmp_path / "key.p8"
    key.write_text(deployed.key())
    snowflake = deployed.server.resource(
        user=names.snowflake("USER"),
        private_key_path=str(key),
        role=names.snowflake("ROLE"),
        warehouse=names.snowflake("WAREHOUSE"),
        database=names.snowflake("DATABASE"),
        external_volume=names.snowflake("VOLUME"),
        catalog_integration=names.snowflake("GLUE"),
        aws_role_arn=names.role_arn("snowflake"),
    )
    table = lake.sql.load_table((lake.database, "stock_trades"))
    table.append(trades(2))
    lake.promote(table)
    lake.create("made_later", trades(4))
    for name, rows in (("stock_trades", 5), ("made_later", 4)):
        snowflake.ensure_account_objects(f"s3://{names.bucket}/warehouse")
        snowflake.ensure_iceberg_table(lake.database, name, lake.database, name)
        snowflake.take_over(lake.database, name)
        snowflake.refresh(lake.database, name)
        assert snowflake.table_state(lake.database, name).row_count == rows
    assert set(verbs(plan(deployed.steps())).values()) == {"keep"}
    delete(deployed.steps(), quiet, delete_data=False)
    assert deployed.state() == {}, "its tables stood on the volume"


def test_a_topic_that_glue_does_not_have_yet_is_left_to_the_lakehouse(deployed: Deployed):
    assert [row[0] for row in deployed.state()["ICEBERG TABLE"]] == ["STOCK_TRADES"]
    deployed.lake.create("users_by_region", trades(1))
    [action] = [action for action in plan(deployed.steps()) if action.verb != "keep"]
    assert (action.step.name, action.verb, action.why) == ("snowflake/tables", "change", "USERS_BY_REGION is missing")
    create(deployed.steps(), quiet)
    assert [row[0] for row in deployed.state()["ICEBERG TABLE"]] == ["STOCK_TRADES", "USERS_BY_REGION"]


def test_a_deletion_goes_backward_and_leaves_nothing_but_data(deployed: Deployed):
    told: list[str] = []
    delete(
        deployed.steps(),
        lambda action: told.append(action.step.name) if action.verb == "delete" and action.seconds is None else None,
        delete_data=False,
    )
    assert told == [
        "snowflake/tables",
        "aws/role/snowflake",
        "snowflake/integration",
        "snowflake/volume",
        "snowflake/schema",
        "snowflake/database",
        "snowflake/warehouse",
        "snowflake/user",
        "snowflake/role/system",
        "snowflake/role/security",
    ]
    assert deployed.state() == {}
    assert deployed.lake.glue.load_table((deployed.lake.database, "stock_trades")).scan().count() == 3
    assert set(verbs(plan_deletion(deployed.steps(), delete_data=True)).values()) == {"absent"}
    delete(deployed.steps(), quiet, delete_data=True)


def test_what_was_deleted_is_made_again(deployed: Deployed):
    before, key = deployed.state(), deployed.key()
    delete(deployed.steps(), quiet, delete_data=False)
    create(deployed.steps(), quiet)
    assert deployed.state() == before
    assert deployed.key() == key, "the secret was not ours to delete"
    with service_session(deployed) as session:
        assert session.cursor().execute("select count(*) from stock_trades").fetchone() == (3,)


def test_what_others_put_into_the_schema_stays_there(deployed: Deployed):
    database = deployed.names.snowflake("DATABASE")
    deployed.server.admin(f"create table {database}.{deployed.schema}.theirs (id int)")
    delete(deployed.steps(), quiet, delete_data=True)
    assert set(deployed.state()) >= {"DATABASE", "SCHEMA"}
    why = {action.step.name: action.why for action in plan_deletion(deployed.steps(), delete_data=True)}
    expected = f"holds what the deployment did not make: {deployed.schema}.THEIRS"
    assert why["snowflake/schema"] == why["snowflake/database"] == expected


def test_a_warehouse_that_was_given_is_used_and_stays(new: Callable[..., Deployed]):
    deployed = new(warehouse="wh")
    create(deployed.steps(), quiet)
    assert "WAREHOUSE" not in deployed.state()
    with service_session(deployed) as session:
        assert session.cursor().execute("select current_warehouse(), count(*) from stock_trades").fetchone() == (
            "WH",
            3,
        )
    delete(deployed.steps(), quiet, delete_data=True)
    assert deployed.query("show warehouses like 'WH'")
    deployed.warehouse = "nowhere"
    with pytest.raises(LakehouseError, match="no warehouse NOWHERE .* Nothing was changed"):
        list(plan(deployed.steps()))


@pytest.mark.parametrize(
    ("statement", "purpose"),
    [
        ("create role {}", "ROLE"),
        ("create user {} comment = 'lakehouse:deployment=another'", "USER"),
        ("create warehouse {} comment = 'mine'", "WAREHOUSE"),
        ("create database {}", "DATABASE"),
        (
            "create external volume {} storage_locations = ((name = 'v' storage_provider = 's3'"
            " storage_base_url = 's3://theirs/' storage_aws_role_arn = 'arn'))",
            "VOLUME",
        ),
        (
            "create catalog integration {} catalog_source = glue table_format = iceberg glue_aws_role_arn = 'arn'"
            " glue_catalog_id = '1' enabled = true",
            "GLUE",
        ),
    ],
)
def test_what_is_somebody_elses_is_left_untouched(new: Callable[..., Deployed], statement: str, purpose: str):
    deployed = new()
    name = deployed.names.snowflake(purpose)
    deployed.server.admin(statement.format(name))
    before = deployed.state()
    for act in (
        lambda: list(plan(deployed.steps())),
        lambda: list(plan_deletion(deployed.steps(), delete_data=True)),
        lambda: delete(deployed.steps(), quiet, delete_data=True),
    ):
        with pytest.raises(UnclearState, match=f"{name} that is not of the deployment .* left untouched"):
            act()
    assert deployed.state() == before


def test_two_deployments_do_not_touch_each_other(deployed: Deployed, new: Callable[..., Deployed]):
    other = new()
    create(other.steps(), quiet)
    before = other.state()
    assert before == deployed.state(), "they differ in their names only"
    delete(deployed.steps(), quiet, delete_data=True)
    assert other.state() == before
    assert set(verbs(plan(other.steps())).values()) == {"keep"}


OF_ANOTHER = json.dumps(snowflake_trust(*["arn:aws:iam::123456789012:user/another", "its-id"] * 2))


def test_grants_that_others_gave_a_role_are_named_and_left(deployed: Deployed):
    names = deployed.names
    role, database, user = names.snowflake("ROLE"), names.snowflake("DATABASE"), names.snowflake("USER")
    security = names.snowflake("SECURITY_ROLE")
    [grants] = [step for step in deployed.steps() if step.name == "snowflake/grants"]
    found = {step.name: step.find({}) for step in deployed.steps() if not step.needs}
    assert grants.remark(found, grants.find(found)) == ""
    deployed.server.admin(
        f"grant create schema on database {database} to role {role}", f"grant role {security} to user {user}"
    )
    before = deployed.state()

    [told] = [action for action in plan(deployed.steps()) if action.step.name == "snowflake/grants"]

    assert told.verb == "keep"
    revocations = (
        f"REVOKE CREATE SCHEMA ON DATABASE {database} FROM ROLE {role}",
        f"REVOKE ROLE {security} FROM USER {user}",
    )
    assert told.why.count("REVOKE") == 2 and all(f"`{each}`" in told.why for each in revocations), told.why
    assert deployed.state() == before
    deployed.server.admin(*revocations)
    [told] = [action for action in plan(deployed.steps()) if action.step.name == "snowflake/grants"]
    assert told.why == "is as it should be"


def test_iam_may_take_its_time(new: Callable[..., Deployed]):
    paused: list[float] = []
    deployed = new()

    def pause(seconds: float) -> None:
        paused.append(seconds)
        if len(paused) == 3:
            aws("iam").update_assume_role_policy(RoleName=role, PolicyDocument=right.pop())

    deployed.clock = Clock(now=lambda: sum(paused), sleep=pause)
    role, right = deployed.names.role("snowflake"), []
    steps = deployed.steps()
    at = [step.name for step in steps].index("snowflake/volume_verified")
    create(steps[:at], quiet)
    right.append(_replace_trust(role, OF_ANOTHER))
    create(deployed.steps(), quiet)
    assert len(paused) == 3
    assert deployed.state()["ICEBERG TABLE"]


def test_a_trust_that_never_comes_stops_the_deployment_and_not_its_deletion(deployed: Deployed):
    paused: list[float] = []
    deployed.clock = Clock(now=lambda: sum(paused), sleep=paused.append)
    _replace_trust(deployed.names.role("snowflake"), OF_ANOTHER)
    with pytest.raises(TimedOut, match="after 120 seconds.*not authorized to perform: sts:AssumeRole"):
        create(deployed.steps(), quiet)
    assert sum(paused) <= 120
    delete(deployed.steps(), quiet, delete_data=True)
    assert deployed.state() == {}


def _replace_trust(role: str, policy: str) -> str:
    """Returns the one before."""
    before = aws("iam").get_role(RoleName=role)["Role"]["AssumeRolePolicyDocument"]
    aws("iam").update_assume_role_policy(RoleName=role, PolicyDocument=policy)
    return json.dumps(before)
