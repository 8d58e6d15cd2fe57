"""The steps of a deployment against the vendors themselves, for whoever has accounts. They cost a little.

Set LAKEHOUSE_REAL to the clouds to go to (`aws confluent snowflake`), LAKEHOUSE_REAL_ACCOUNT to the AWS account, and
the variables of `lakehouse deploy` to an administrator's credentials. Everything that is made has a name of its own.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest

from lakehouse.config import loader
from lakehouse.config.deployment import Deployment
from lakehouse.deploy import planner
from lakehouse.deploy.credentials import Access
from lakehouse.deploy.doctor import examine
from lakehouse.deploy.step import Step
from lakehouse.deploy.steps import deployment_steps

CLOUDS = ("aws", "confluent", "snowflake")


def quiet(action: planner.Action) -> None:
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
    assert all(finding.ok for finding in examine(access, loader.load()))
    found = alone(deployment_steps(loader.load(), access), request.param)
    try:
        yield found
    finally:
        planner.delete(found, quiet, delete_data=True)


def test_it_is_made_found_as_it_should_be_and_taken_away(steps: list[Step]):
    planner.create(steps, quiet)
    assert {action.verb for action in planner.plan(steps)} == {"keep"}
    planner.delete(steps, quiet, delete_data=True)
    assert {action.verb for action in planner.plan_deletion(steps, delete_data=True)} == {"absent"}
