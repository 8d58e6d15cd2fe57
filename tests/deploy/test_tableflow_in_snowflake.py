"""Tableflow's tables in Snowflake: a volume over their bucket, and the Open Catalog that has them."""

from __future__ import annotations

import json

import pytest

from lakehouse.config.deployment import OpenCatalog, TableflowStorage
from lakehouse.deploy import planner
from lakehouse.deploy.aws import iam_policies
from lakehouse.deploy.settings import settings
from tests.support.clouds.all_clouds import Clouds
from tests.support.clouds.aws.world import ACCOUNT, REGION
from tests.support.clouds.snowflake.server import Server

pytestmark = pytest.mark.stack

SECRET = "/catalogs/open"


@pytest.fixture
def tableflow(clouds: Clouds) -> Clouds:
    """A deployment with a table of Tableflow in its bucket, in Glue and in an Open Catalog."""
    client = {"client_id": "reader", "client_secret": clouds.rest.secret}
    clouds.aws.strict.client("secretsmanager", region=REGION).create_secret(
        Name=SECRET, SecretString=json.dumps(client)
    )
    clouds.topics = {"stock_trades": {**clouds.topics["stock_trades"], "key": "userid", "engine": "tableflow"}}
    catalog = OpenCatalog(endpoint=clouds.rest.address, warehouse="lake", secret=SECRET, namespace="topics")
    clouds.tableflow = TableflowStorage(open_catalog=catalog)
    # IAM refuses trust in missing roles, and the simulated Confluent Cloud names this role.
    trust = json.dumps(iam_policies.own_trust(f"arn:aws:iam::{ACCOUNT}:user/spark"))
    confluent = clouds.aws.strict.client("iam", account="000000000000")
    confluent.create_role(RoleName="cspi-000009", AssumeRolePolicyDocument=trust)
    planner.apply(clouds.resources(), clouds.reported.append)
    return clouds


def shown(snowflake: Server, kind: str) -> set[str]:
    with snowflake.administrator() as session, session.cursor() as cursor:
        return {row[0 if kind != "SCHEMAS" else 1] for row in cursor.execute(f"SHOW {kind}").fetchall()}


def described(snowflake: Server, kind: str, name: str) -> str:
    with snowflake.administrator() as session, session.cursor() as cursor:
        return str(cursor.execute(f"DESC {kind} {name}").fetchall())


def test_deployment_reads_tableflow_bucket_and_open_catalog(tableflow: Clouds):
    names, snowflake = tableflow.credentials().names, tableflow.snowflake
    volume, integration = names.snowflake("TABLEFLOW_VOLUME"), names.snowflake("OPEN_CATALOG")
    assert f"s3://{names.tableflow_bucket}/" in described(snowflake, "EXTERNAL VOLUME", volume)
    settings_of_integration = described(snowflake, "CATALOG INTEGRATION", integration)
    assert "POLARIS" in settings_of_integration and "topics" in settings_of_integration
    assert settings(names)["snowflake"]["tableflow_external_volume"] == volume
    planned = {change.resource.address: change for change in planner.plan(tableflow.resources())}
    verified = [planned[f"snowflake/{part}_verified"].action for part in ("tableflow_volume", "open_catalog")]
    assert verified == ["no-op", "no-op"]
    changes = {change.resource.address for change in planned.values() if change.action != "no-op"}
    assert changes <= {"snowflake/tables", "snowflake/tableflow_tables", "snowflake/open_catalog_tables"}
    assert tableflow.rest.secret not in repr((tableflow.reported, list(planned.values())))

    planner.destroy(tableflow.resources(), tableflow.reported.append, delete_data=True)

    assert volume not in shown(snowflake, "EXTERNAL VOLUMES")
    assert integration not in shown(snowflake, "CATALOG INTEGRATIONS")
    assert names.tableflow_bucket not in tableflow.aws.state()["buckets"]
