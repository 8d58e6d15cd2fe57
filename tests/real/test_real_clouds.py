"""Resources of a deployment in the real clouds, for developers with accounts. The tests cost a little.

Set LAKEHOUSE_REAL to the clouds (`aws confluent snowflake`), LAKEHOUSE_REAL_ACCOUNT to the AWS account, and the
variables of `lakehouse deploy` to an administrator's credentials. Each run creates resources with a unique name.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest

from lakehouse.config import loader
from lakehouse.config.deployment import Deployment
from lakehouse.deploy import planner
from lakehouse.deploy.cloud_doctor import examine
from lakehouse.deploy.credentials import ADMIN_SECRET, CloudCredentials
from lakehouse.deploy.graph import deployment_resources
from lakehouse.deploy.resource import Resource

CLOUDS = ("aws", "confluent", "snowflake")


def quiet(change: planner.Change) -> None:
    """Report no change."""


@pytest.fixture
def credentials() -> CloudCredentials:
    account = os.environ.get("LAKEHOUSE_REAL_ACCOUNT", "")
    region = os.environ.get("AWS_REGION", "us-east-1")
    return CloudCredentials(
        Deployment(name=f"t{uuid.uuid4().hex[:8]}", account=account, region=region),
        confluent_key=os.environ.get("CONFLUENT_CLOUD_API_KEY", ""),
        confluent_secret=os.environ.get("CONFLUENT_CLOUD_API_SECRET", ""),
        admin_secret=os.environ.get("LAKEHOUSE_ADMIN_SECRET") or ADMIN_SECRET,
        warehouse=os.environ.get("LAKEHOUSE_SNOWFLAKE_WAREHOUSE"),
    )


def independent(resources: list[Resource], cloud: str) -> list[Resource]:
    """Return the resources of one cloud that depend on no other cloud."""
    selected: list[Resource] = []
    for resource in resources:
        if resource.address.startswith(f"{cloud}/") and all(
            dependency in selected for dependency in resource.depends_on
        ):
            selected.append(resource)
    return selected


@pytest.fixture(params=[pytest.param(cloud, marks=getattr(pytest.mark, f"real_{cloud}")) for cloud in CLOUDS])
def resources(request: pytest.FixtureRequest) -> Iterator[list[Resource]]:
    if request.param not in os.environ.get("LAKEHOUSE_REAL", "").split():
        pytest.skip(f"goes to {request.param} itself: set LAKEHOUSE_REAL and an administrator's credentials")
    credentials: CloudCredentials = request.getfixturevalue("credentials")
    credentials.check_account()
    assert all(finding.ok for finding in examine(credentials, loader.load()))
    created = independent(deployment_resources(loader.load(), credentials), request.param)
    try:
        yield created
    finally:
        planner.destroy(created, quiet, delete_data=True)


def test_real_resource_is_created_verified_and_deleted(resources: list[Resource]):
    planner.apply(resources, quiet)
    assert {change.action for change in planner.plan(resources)} == {"no-op"}
    planner.destroy(resources, quiet, delete_data=True)
    assert {change.action for change in planner.plan_destroy(resources, delete_data=True)} == {"absent"}
