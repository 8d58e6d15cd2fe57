"""A deployment's resources in Snowflake, with boto3 and the real connector on local servers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakehouse.config.deployment import ExistingObjects
from lakehouse.core.errors import LakehouseError, UnclearState
from lakehouse.core.polling import Clock
from lakehouse.deploy.aws.iam_policies import snowflake_trust
from lakehouse.deploy.planner import apply, destroy, plan, plan_destroy
from lakehouse.deploy.resource import Outputs
from lakehouse.deploy.waiting import TimedOut
from tests.support.clouds.snowflake.deployments import ACCOUNT, Deployed, aws, change, quiet, service_session
from tests.support.clouds.snowflake.rotated_users import Wire
from tests.support.clouds.snowflake.server import trades

pytestmark = pytest.mark.stack


def actions(changes: Any) -> dict[str, str]:
    return {change.resource.address: change.action for change in changes}


def test_plan_before_and_after_apply(new: Callable[..., Deployed], wire: Wire):
    deployed = new()
    wire.counts, wire.sent = change, 0
    assert set(actions(plan(deployed.resources())).values()) == {"create"}
    assert wire.sent == 0, "a plan changes nothing"
    apply(deployed.resources(), quiet)
    assert wire.sent > 20, "the wire sees changes"
    before, state = wire.sent, deployed.state()
    assert set(actions(plan(deployed.resources())).values()) == {"no-op"}
    apply(deployed.resources(), quiet)
    assert wire.sent == before, "again it changes nothing"
    assert deployed.state() == state


def test_service_user_queries_with_its_defaults(unchanged: Deployed):
    with service_session(unchanged) as session:
        rows = session.cursor().execute("select count(*), max(lots) from stock_trades").fetchall()
        assert rows == [(3, 2)]
        where = "select current_role(), current_warehouse(), current_database(), current_schema()"
        purposes = (unchanged.names.snowflake(purpose) for purpose in ("ROLE", "WAREHOUSE", "DATABASE"))
        assert session.cursor().execute(where).fetchone() == (*purposes, unchanged.schema)


def test_create_objects_have_comment_of_deployment(unchanged: Deployed):
    state = unchanged.state()
    for kind in ("ROLE", "USER", "WAREHOUSE", "DATABASE", "EXTERNAL VOLUME", "CATALOG INTEGRATION", "ICEBERG TABLE"):
        assert state[kind] and {row[2] for row in state[kind]} == {
            f"lakehouse:deployment=<name> {ACCOUNT} {unchanged.names.region}"
        }, kind
    assert state["USER"][0][1] == "LAKEHOUSE_<name>_SECURITY_ROLE", "who may change its keys"


def test_create_external_ids_are_those_of_the_deployment(unchanged: Deployed):
    principals = {
        resource.address: resource.read(Outputs()) for resource in unchanged.resources() if not resource.depends_on
    }
    assert principals["snowflake/volume"].external_id == unchanged.names.external_id("volume")
    shown = {
        row["property"]: row["property_value"]
        for row in unchanged.query(f"desc external volume {unchanged.names.snowflake('VOLUME')}")
    }
    assert shown["ALLOW_WRITES"] == "false"
    assert principals["snowflake/integration"].external_id == unchanged.names.external_id("catalog")


def test_apply_different_volume_or_integration_is_refused(deployed: Deployed):
    names = deployed.names
    for kind, purpose in (("ICEBERG TABLE", ""), ("CATALOG INTEGRATION", "GLUE"), ("EXTERNAL VOLUME", "VOLUME")):
        table = f"{names.snowflake('DATABASE')}.{deployed.schema}.STOCK_TRADES"
        deployed.server.admin(f"drop {kind} {names.snowflake(purpose) if purpose else table}")
    comment = f"comment = 'lakehouse:deployment={names.owner}'"
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
    changes = plan(deployed.resources())
    reasons = {change.resource.address: change.reason for change in changes if change.action == "update"}
    role = f"STORAGE_AWS_ROLE_ARN is 'arn:aws:iam::1:role/other' instead of '{names.role_arn('snowflake')}'"
    assert reasons["snowflake/volume"] == role
    namespace = f"CATALOG_NAMESPACE is 'elsewhere' instead of '{deployed.lake.database}'"
    assert reasons["snowflake/integration"] == namespace
    with pytest.raises(LakehouseError, match="differs: STORAGE_AWS_ROLE_ARN .*left unchanged.*deploy delete"):
        apply(deployed.resources(), quiet)
    assert deployed.state() == before
    destroy(deployed.resources(), quiet, delete_data=False)
    assert deployed.state() == {}


def test_lakehouse_uses_objects_of_the_deployment(deployed: Deployed, tmp_path: Path):
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
        snowflake.disable_auto_refresh(lake.database, name)
        snowflake.refresh(lake.database, name)
        assert snowflake.table_state(lake.database, name).row_count == rows
    assert set(actions(plan(deployed.resources())).values()) == {"no-op"}
    destroy(deployed.resources(), quiet, delete_data=False)
    assert deployed.state() == {}, "tables that use the volume exist"


def test_plan_topic_missing_in_glue_is_ignored(deployed: Deployed):
    assert [row[0] for row in deployed.state()["ICEBERG TABLE"]] == ["STOCK_TRADES"]
    deployed.lake.create("users_by_region", trades(1))
    [change] = [change for change in plan(deployed.resources()) if change.action != "no-op"]
    assert change.resource.address == "snowflake/tables"
    assert (change.action, change.reason) == ("update", "USERS_BY_REGION is missing")
    apply(deployed.resources(), quiet)
    assert [row[0] for row in deployed.state()["ICEBERG TABLE"]] == ["STOCK_TRADES", "USERS_BY_REGION"]


def test_delete_in_reverse_order_keeps_data(deployed: Deployed):
    deleted: list[str] = []

    def report(change: Any) -> None:
        if change.action == "delete" and change.seconds is None:
            deleted.append(change.resource.address)

    destroy(deployed.resources(), report, delete_data=False)
    assert deleted == [
        "snowflake/tables",
        "aws/role/snowflake",
        "snowflake/integration",
        "snowflake/volume",
        "snowflake/schema",
        "snowflake/database",
        "snowflake/warehouse",
        "snowflake/rotation_user",
        "snowflake/user",
        "snowflake/role/system",
        "snowflake/role/security",
    ]
    assert deployed.state() == {}
    assert deployed.lake.glue.load_table((deployed.lake.database, "stock_trades")).scan().count() == 3
    assert set(actions(plan_destroy(deployed.resources(), delete_data=True)).values()) == {"absent"}
    destroy(deployed.resources(), quiet, delete_data=True)


def test_delete_user_whose_secret_is_lost_works(deployed: Deployed):
    aws("secretsmanager").delete_secret(SecretId=deployed.names.snowflake_secret, ForceDeleteWithoutRecovery=True)
    with pytest.raises(UnclearState, match="There is no secret .* The user's slots were left as they are"):
        list(plan(deployed.resources()))
    destroy(deployed.resources(), quiet, delete_data=False)
    assert deployed.state() == {}


def test_create_after_delete_restores_objects(deployed: Deployed):
    before, key = deployed.state(), deployed.key()
    destroy(deployed.resources(), quiet, delete_data=False)
    apply(deployed.resources(), quiet)
    assert deployed.state() == before
    assert deployed.key() == key, "the secret was not ours to delete"
    with service_session(deployed) as session:
        assert session.cursor().execute("select count(*) from stock_trades").fetchone() == (3,)


def test_delete_schema_with_foreign_table_is_kept(deployed: Deployed):
    database = deployed.names.snowflake("DATABASE")
    deployed.server.admin(f"create table {database}.{deployed.schema}.theirs (id int)")
    destroy(deployed.resources(), quiet, delete_data=True)
    assert set(deployed.state()) >= {"DATABASE", "SCHEMA"}
    why = {change.resource.address: change.reason for change in plan_destroy(deployed.resources(), delete_data=True)}
    expected = f"holds what the deployment did not make: {deployed.schema}.THEIRS"
    assert why["snowflake/schema"] == why["snowflake/database"] == expected


def test_delete_existing_warehouse_and_database_stay(new: Callable[..., Deployed]):
    deployed = new(existing=ExistingObjects(snowflake_warehouse="wh", snowflake_database="theirs"))
    deployed.server.admin("create database theirs comment = 'mine'", "create schema theirs.more")
    apply(deployed.resources(), quiet)
    before = deployed.query("show warehouses like 'WH'"), deployed.query("show databases like 'THEIRS'")
    with service_session(deployed) as session:
        assert session.cursor().execute("select current_warehouse(), count(*) from stock_trades").fetchone() == (
            "WH",
            3,
        )
    destroy(deployed.resources(), quiet, delete_data=True)
    assert (deployed.query("show warehouses like 'WH'"), deployed.query("show databases like 'THEIRS'")) == before
    assert {row["name"] for row in deployed.query("show schemas in database theirs")} >= {"MORE"}
    deployed.names = replace(deployed.names, existing=ExistingObjects(snowflake_warehouse="nowhere"))
    with pytest.raises(LakehouseError, match="no warehouse NOWHERE .* None was created in its place"):
        list(plan(deployed.resources()))


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
def test_plan_and_destroy_foreign_object_are_refused(new: Callable[..., Deployed], statement: str, purpose: str):
    deployed = new()
    name = deployed.names.snowflake(purpose)
    deployed.server.admin(statement.format(name))
    before = deployed.state()
    for act in (
        lambda: list(plan(deployed.resources())),
        lambda: list(plan_destroy(deployed.resources(), delete_data=True)),
        lambda: destroy(deployed.resources(), quiet, delete_data=True),
    ):
        with pytest.raises(UnclearState, match=f"{name} that does not belong to this deployment: .* left unchanged"):
            act()
    assert deployed.state() == before


@pytest.mark.parametrize("elsewhere", [{"account": "999999999999"}, {"region": "us-west-2"}])
def test_create_same_name_from_elsewhere_is_refused(unchanged: Deployed, elsewhere: dict[str, str]):
    other = replace(unchanged, names=replace(unchanged.names, **elsewhere))
    before = unchanged.state()
    for act in (
        lambda: apply(other.resources(), quiet),
        lambda: list(plan(other.resources())),
        lambda: destroy(other.resources(), quiet, delete_data=True),
    ):
        with pytest.raises(UnclearState, match="that does not belong to this deployment: .* left unchanged"):
            act()
    assert unchanged.state() == before


def test_apply_and_destroy_leave_second_deployment_unchanged(deployed: Deployed, new: Callable[..., Deployed]):
    other = new()
    apply(other.resources(), quiet)
    before = other.state()
    assert before == deployed.state(), "they differ in their names only"
    destroy(deployed.resources(), quiet, delete_data=True)
    assert other.state() == before
    assert set(actions(plan(other.resources())).values()) == {"no-op"}


OF_ANOTHER = json.dumps(snowflake_trust(*["arn:aws:iam::123456789012:user/another", "its-id"] * 2))


def test_plan_foreign_grants_are_reported_and_kept(unchanged: Deployed):
    names = unchanged.names
    role, database, user = names.snowflake("ROLE"), names.snowflake("DATABASE"), names.snowflake("USER")
    security = names.snowflake("SECURITY_ROLE")
    [grants] = [resource for resource in unchanged.resources() if resource.address == "snowflake/grants"]
    assert grants.warning(Outputs(), grants.read(Outputs())) == ""
    unchanged.server.admin(
        f"grant create schema on database {database} to role {role}", f"grant role {security} to user {user}"
    )
    before = unchanged.state()

    [planned] = [change for change in plan(unchanged.resources()) if change.resource.address == "snowflake/grants"]

    assert planned.action == "no-op"
    revocations = (
        f"REVOKE CREATE SCHEMA ON DATABASE {database} FROM ROLE {role}",
        f"REVOKE ROLE {security} FROM USER {user}",
    )
    assert planned.reason.count("REVOKE") == 2 and all(
        f"`{revocation}`" in planned.reason for revocation in revocations
    ), planned.reason
    assert unchanged.state() == before
    unchanged.server.admin(*revocations)
    [planned] = [change for change in plan(unchanged.resources()) if change.resource.address == "snowflake/grants"]
    assert planned.reason == "is as it should be"


def test_apply_waits_until_trust_is_effective(new: Callable[..., Deployed]):
    paused: list[float] = []
    deployed = new()

    def pause(seconds: float) -> None:
        paused.append(seconds)
        if len(paused) == 3:
            aws("iam").update_assume_role_policy(RoleName=role, PolicyDocument=right.pop())

    deployed.clock = Clock(now=lambda: sum(paused), sleep=pause)
    role, right = deployed.names.role("snowflake"), []
    resources = deployed.resources()
    at = [resource.address for resource in resources].index("snowflake/volume_verified")
    apply(resources[:at], quiet)
    right.append(_replace_trust(role, OF_ANOTHER))
    apply(deployed.resources(), quiet)
    assert len(paused) == 3
    assert deployed.state()["ICEBERG TABLE"]


def test_apply_trust_never_effective_stops_but_delete_works(deployed: Deployed):
    paused: list[float] = []
    deployed.clock = Clock(now=lambda: sum(paused), sleep=paused.append)
    _replace_trust(deployed.names.role("snowflake"), OF_ANOTHER)
    with pytest.raises(TimedOut, match="after 120 seconds.*not authorized to perform: sts:AssumeRole"):
        apply(deployed.resources(), quiet)
    assert sum(paused) <= 120
    destroy(deployed.resources(), quiet, delete_data=True)
    assert deployed.state() == {}


def _replace_trust(role: str, policy: str) -> str:
    """Replace the trust policy of a role, and return the previous one."""
    before = aws("iam").get_role(RoleName=role)["Role"]["AssumeRolePolicyDocument"]
    aws("iam").update_assume_role_policy(RoleName=role, PolicyDocument=policy)
    return json.dumps(before)
