"""The steps of a deployment against the vendors themselves, for whoever has accounts. They cost a little.

Set LAKEHOUSE_REAL to the clouds to go to (`aws confluent snowflake`), LAKEHOUSE_REAL_ACCOUNT to the AWS account, and
the variables of `lakehouse deploy` to an administrator's credentials. Everything that is made has a name of its own.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest

from lakehouse import config as configuration
from lakehouse.cloud import perform
from lakehouse.cloud.access import Access
from lakehouse.cloud.doctor import examine
from lakehouse.cloud.step import Step
from lakehouse.cloud.steps import deployment_steps
from lakehouse.deployment import Deployment

CLOUDS = ("aws", "confluent", "snowflake")


def quiet(action: perform.Action) -> None:
    """Nobody is told."""


@pytest.fixture
def access() -> Access:
    account = os.environ.get("LAKEHOUSE_REAL_ACCOUNT", "")
    region = os.environ.get("AWS_REGION", "us-east-1")
    return Access.from_environment(Deployment(name=f"t{uuid.uuid4().hex[:8]}", account=account, region=region))


def alone(steps: list[Step], cloud: str) -> list[Step]:
    """The steps of one cloud that stand on no other cloud."""
    kept: list[Step] = []
    for step in steps:
        if step.name.startswith(f"{cloud}/") and {each.name for each in kept}.issuperset(step.needs):
            kept.append(step)
    return kept


@pytest.fixture(params=[pytest.param(cloud, marks=getattr(pytest.mark, f"real_{cloud}")) for cloud in CLOUDS])
def steps(request: pytest.FixtureRequest) -> Iterator[list[Step]]:
    if request.param not in os.environ.get("LAKEHOUSE_REAL", "").split():
        pytest.skip(f"goes to {request.param} itself: set LAKEHOUSE_REAL and an administrator's credentials")
    access: Access = request.getfixturevalue("access")
    access.check_account()
    assert all(finding.ok for finding in examine(access, configuration.load()))
    found = alone(deployment_steps(configuration.load(), access), request.param)
    try:
        yield found
    finally:
        perform.delete(found, quiet, delete_data=True)


def test_it_is_made_found_as_it_should_be_and_taken_away(steps: list[Step]):
    perform.create(steps, quiet)
    assert {action.verb for action in perform.plan(steps)} == {"keep"}
    perform.delete(steps, quiet, delete_data=True)
    assert {action.verb for action in perform.plan_deletion(steps, delete_data=True)} == {"absent"}
