"""The one embedded stack that all stack tests share."""

import os

import boto3
import dagster as dg
import pytest

from lakehouse.config.loader import PROJECT, load
from lakehouse.local import stack as local_stack
from lakehouse.local.environment import environment
from lakehouse.local.home import Home
from resources.build import build_resources

CANARIES = {"CONFLUENT_CLOUD_API_SECRET": "canary-confluent", "AWS_SECRET_ACCESS_KEY": "canary-aws"}
"""What whoever starts the stack has in the environment, and no server needs."""

SERVERS = ("kafka", "registry", "s3", "aws", "spark", "snowflake")


def pytest_collection_modifyitems(items):
    """Everything in these folders needs the stack."""
    for item in items:
        if {"stack", "faults", "fuzz"} & set(item.path.relative_to(PROJECT).parts):
            item.add_marker(pytest.mark.stack)


@pytest.fixture(autouse=True)
def credentials_of_this_test():
    """boto3's default session keeps the credentials it was made with, whatever os.environ says later."""
    boto3.DEFAULT_SESSION = None


@pytest.fixture(scope="session")
def stack(tmp_path_factory):
    """The state folder of a stack that runs for the whole session; os.environ leads to it.

    Without Dagster and Datagen, so that nothing happens in it but what the tests do.
    """
    home = Home(tmp_path_factory.mktemp("stack") / "home")
    before = dict(os.environ)
    # Nothing here runs long enough to be worth Java's second compiler, which takes a fifth of the time.
    # Without it the first has a fifth of the room for what it compiles, and Spark ends when that is full.
    os.environ["JAVA_TOOL_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
    os.environ.update(CANARIES)
    try:
        local_stack.up(home, SERVERS)
        os.environ.pop("CONFLUENT_CLOUD_API_SECRET")
        os.environ.update(environment(home), LAKEHOUSE_HOME=str(home.path))
        yield home
    finally:
        os.environ.clear()
        os.environ.update(before)
        local_stack.down(home)


@pytest.fixture(scope="session")
def resources(stack):
    """The resources of the environment `local`, resolved, as attributes. Their Spark session ends before the stack."""
    with dg.build_resources(build_resources(load(PROJECT / "lakehouse.yaml"), "local")) as resolved:
        yield resolved
        resolved.spark.close()
