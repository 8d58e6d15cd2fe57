"""Plans, creations and deletions of one cloud, with the resources of the others only read."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from click.testing import Result
from pyiceberg.catalog.glue import GlueCatalog

from lakehouse.deploy import planner
from tests.support.clouds.all_clouds import Clouds
from tests.support.clouds.aws.world import REGION
from tests.support.clouds.snowflake.server import TRADES, trades

pytestmark = pytest.mark.stack


def exists(clouds: Clouds) -> set[str]:
    """Return the clouds in which the deployment has an object with a state of its own."""
    outputs = planner.read_all(clouds.resources())
    marks = {"aws": "aws/bucket", "confluent": "confluent/cluster", "snowflake": "snowflake/volume"}
    by_address = {resource.address: resource for resource in clouds.resources()}
    return {cloud for cloud, address in marks.items() if by_address[address] in outputs}


def write_table(clouds: Clouds) -> None:
    """Write the table of a topic to Glue, as the running lakehouse does."""
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    catalog = GlueCatalog("glue", **{"s3.endpoint": endpoint, "s3.region": REGION, "client.region": REGION})
    location = f"s3://{clouds.credentials().names.bucket}/warehouse/trading/stock_trades"
    catalog.create_table(("trading", "stock_trades"), TRADES, location=location).append(trades(3))


def test_create_and_delete_of_one_cloud_only_reads_the_others(clouds: Clouds, command: Callable[..., Result]):
    before = clouds.aws.state()

    # The role that Snowflake assumes trusts users that Snowflake has not named yet.
    planned = command("plan", "--only", "aws")
    needed = "which does not exist: run `lakehouse deploy create --env aws --only snowflake` first"
    assert planned.exit_code == 1 and "? IAM role 'lakehouse-production-snowflake': needs " in planned.output
    assert needed in planned.output and "service account" not in planned.output
    assert clouds.aws.state() == before, "a plan changes nothing"

    created = command("create", "--only", "aws", "--yes")
    assert created.exit_code == 1 and needed in created.output
    assert exists(clouds) == {"aws"}

    created = command("create", "--only", "snowflake", "--yes")
    assert created.exit_code == 1 and "run `lakehouse deploy create --env aws --only aws` first" in created.output
    assert exists(clouds) == {"aws", "snowflake"}
    assert "role/lakehouse-production-snowflake" not in clouds.aws.state()["roles"], "the other cloud is only read"

    write_table(clouds)
    for cloud in ("aws", "snowflake", "confluent"):
        created = command("create", "--only", cloud, "--yes")
        assert created.exit_code == 0, (cloud, created.output)
    database = clouds.credentials().names.snowflake("DATABASE")
    assert [row[1] for row in clouds.snowflake.admin(f"SHOW ICEBERG TABLES IN DATABASE {database}")] == ["STOCK_TRADES"]
    assert exists(clouds) == {"aws", "confluent", "snowflake"}

    role = clouds.credentials().names.snowflake("ROLE")
    clouds.snowflake.admin(f"REVOKE USAGE ON DATABASE {database} FROM ROLE {role}")
    planned = command("plan", "--only", "snowflake")
    assert planned.exit_code == 0 and f"{role} lacks USAGE on DATABASE {database}" in planned.output

    refused = command("delete", "--only", "aws", "--yes", "--delete-data")
    assert refused.exit_code == 1
    assert "depends on resources that would be deleted in aws. Nothing was deleted" in refused.output
    assert exists(clouds) == {"aws", "confluent", "snowflake"}

    for cloud in ("snowflake", "confluent", "aws"):
        deleted = command("delete", "--only", cloud, "--yes", "--delete-data")
        assert deleted.exit_code == 0, (cloud, deleted.output)
        assert cloud not in exists(clouds)
    assert clouds.aws.state() == before
