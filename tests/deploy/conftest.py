"""Fixtures for AWS, Confluent Cloud and Snowflake, alone and together, and for deployments in them."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import botocore.endpoint
import botocore.httpsession
import pytest
import requests
from botocore.exceptions import ConnectionClosedError, ReadTimeoutError
from click.testing import CliRunner, Result
from moto import mock_aws
from moto.core.models import responses_mock
from snowflake.connector import network, time_util
from snowflake.connector.vendored import requests as snowflake_requests

from lakehouse.cli.main import main
from lakehouse.core import polling
from lakehouse.deploy import credentials
from lakehouse.deploy.credentials import ADMIN_SECRET
from lakehouse.deploy.planner import apply, plan
from lakehouse.deploy.snowflake.key_pair_rotation import ServiceUser
from lakehouse.local.snowflake.iceberg_commands import IAM_USER_ARN
from resources.aws.secrets_manager import Secrets
from resources.confluent.clusters import Clusters
from resources.confluent.confluent_cloud import ConfluentCloud
from resources.confluent.organization import ApiKeys, Environments, KeyScope, RoleBindings, ServiceAccounts
from resources.confluent.tableflow import ProviderIntegrations, own_bucket
from tests.support.clouds.all_clouds import Clouds
from tests.support.clouds.aws.enforced import SNOWFLAKE
from tests.support.clouds.aws.world import REGION, World, world
from tests.support.clouds.confluent.deployment import Lake
from tests.support.clouds.confluent.server import ADMIN, ConfluentServer
from tests.support.clouds.failing import (
    Failing,
    aws_changes,
    aws_cut,
    aws_response,
    http_cut,
    http_response,
    snowflake_response,
)
from tests.support.clouds.rest.stand_in import RestStandIn
from tests.support.clouds.snowflake.deployments import Deployed, change, quiet
from tests.support.clouds.snowflake.rotated_users import Case, Wire
from tests.support.clouds.snowflake.server import Server, key_pair, started, trades
from tests.support.sleepless import Sleepless

CONNECTOR = {
    "connector.class": "DatagenSource",
    "name": "datagen-trades",
    "kafka.auth.mode": "SERVICE_ACCOUNT",
    "kafka.service.account.id": "sa-1",
    "kafka.topic": "trades",
    "output.data.format": "AVRO",
    "quickstart": "USERS",
    "tasks.max": "1",
}


@pytest.fixture(scope="module")
def shared() -> Iterator[World]:
    """A moto server for a module."""
    with pytest.MonkeyPatch.context() as patch, world(patch) as running:
        yield running


@pytest.fixture
def aws(shared: World) -> World:
    """An AWS account that contains only the users that roles trust."""
    shared.reset()
    return shared


@pytest.fixture
def direct(aws: World) -> Callable[[str], Any]:
    """A function that returns clients of moto without any checks."""
    return lambda service: aws.strict.client(service, region=REGION)


@pytest.fixture
def vendor() -> Iterator[ConfluentServer]:
    """An empty simulated Confluent Cloud; violations of the vendor's documents fail the test."""
    with ConfluentServer() as vendor:
        yield vendor
    assert not vendor.violations


@pytest.fixture
def confluent(vendor: ConfluentServer) -> ConfluentCloud:
    """A client of the simulated Confluent Cloud."""
    return ConfluentCloud(api_key=ADMIN, api_secret=vendor.admin_secret, url=vendor.url)


@pytest.fixture
def cloud(vendor: ConfluentServer, confluent: ConfluentCloud) -> ConfluentCloud:
    """The resource of an environment with a connector and a Tableflow table for the topic `trades`."""
    vendor.state.polls = 0
    environment = Environments(confluent.client()).create("lake")
    created = Clusters(confluent.client(), environment.id).create("lake", "us-east-1")
    cluster = Clusters(confluent.client(), environment.id).get(created.id)
    account = ServiceAccounts(confluent.client()).create("manager", "Manages")
    integration = ProviderIntegrations(confluent.client(), environment.id).create(
        "aws", "arn:aws:iam::123456789012:role/lake"
    )
    pattern = f"{environment.crn}/provider-integration={integration.id}"
    RoleBindings(confluent.client()).create(account.principal, "Assigner", pattern)
    kafka, tableflow = (
        ApiKeys(confluent.client()).create("key", "A key", account.id, scope).key
        for scope in (KeyScope.cluster(cluster.id), KeyScope.tableflow())
    )
    confluent.topics(cluster, kafka).create("trades", 1)
    connectors = confluent.connectors(cluster)
    connectors.put(CONNECTOR)
    connectors.find("datagen-trades")
    tables = confluent.tableflow_topics(cluster, tableflow)
    tables.create("trades", own_bucket("lake", integration.id), {})
    tables.find("trades")
    return ConfluentCloud(
        api_key=ADMIN,
        api_secret=vendor.admin_secret,
        url=vendor.url,
        environment_id=environment.id,
        cluster_id=cluster.id,
        tableflow_api_key=tableflow.id,
        tableflow_api_secret=tableflow.secret,
        deadline_seconds=1,
    )


@pytest.fixture
def lake(
    vendor: ConfluentServer, confluent: ConfluentCloud, sleepless: Sleepless, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Lake]:
    """A deployment without any resources."""
    for variable in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_SECRETS_MANAGER", "AWS_PROFILE"):
        monkeypatch.delenv(variable, raising=False)
    # Without the list, moto would search all services at each call.
    with mock_aws(config={"core": {"service_whitelist": ["secretsmanager"]}}):
        # Only botocore calls AWS. Moto would also compare each request to the simulated Confluent Cloud with the
        # addresses of all services.
        responses_mock.stop()
        yield Lake(vendor, confluent, sleepless)
        responses_mock.start()


@pytest.fixture
def other(lake: Lake) -> Lake:
    """Another deployment in the same accounts."""
    return Lake(lake.vendor, lake.confluent, lake.sleepless, name="other")


@pytest.fixture(scope="module")
def clouds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clouds]:
    folder = tmp_path_factory.mktemp("clouds")
    with pytest.MonkeyPatch.context() as patch, world(patch) as aws:
        patch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
        patch.setenv("AWS_REGION", REGION)
        patch.setenv("AWS_DEFAULT_REGION", REGION)
        aws.reset()
        vendor = IAM_USER_ARN.split(":")[4]
        aws.strict.client("iam", account=vendor).create_user(UserName=IAM_USER_ARN.rpartition("/")[2])
        with ConfluentServer() as confluent, RestStandIn() as rest, _snowflake(folder) as snowflake:
            key, public = key_pair(folder, "administrator.p8")
            snowflake.admin(
                "CREATE USER DEPLOYER TYPE = SERVICE DEFAULT_ROLE = ACCOUNTADMIN",
                "GRANT ROLE ACCOUNTADMIN TO USER DEPLOYER",
                f"ALTER USER DEPLOYER SET RSA_PUBLIC_KEY = '{public}'",
            )
            administrator = {
                "snowflake_account_identifier": "LOCAL",
                "admin_service_user": "DEPLOYER",
                "active_key_number": "1",
                "snowflake_rsa_private_key_1_pem": base64.b64encode(key.read_bytes()).decode(),
            }
            aws.strict.client("secretsmanager", region=REGION).create_secret(
                Name=ADMIN_SECRET, SecretString=json.dumps(administrator)
            )
            for name, value in {"HOST": "127.0.0.1", "PORT": str(snowflake.port), "PROTOCOL": "http"}.items():
                patch.setenv(f"SNOWFLAKE_{name}", value)
            yield Clouds(aws, confluent, snowflake, rest)
        assert not confluent.violations


@pytest.fixture
def command(clouds: Clouds, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Result]:
    """A function that runs `lakehouse deploy` with an administrator's credentials, and without the pauses of waiting.

    Its keyword arguments are settings of the deployment.
    """
    clock = clouds.sleepless.clock
    monkeypatch.setattr(polling, "time", SimpleNamespace(monotonic=clock.now, sleep=clock.sleep))

    def run(name: str, *arguments: str, **settings: Any) -> Result:
        monkeypatch.setenv("LAKEHOUSE_CONFIG", str(clouds.declare(tmp_path, **settings)))
        secret = {"CONFLUENT_CLOUD_API_KEY": ADMIN, "CONFLUENT_CLOUD_API_SECRET": clouds.confluent.admin_secret}
        options = ["--env", "aws", "--confluent-url", clouds.confluent.url, *arguments]
        return CliRunner(env=secret).invoke(main, ["deploy", name, *options])

    return run


@contextlib.contextmanager
def _snowflake(folder: Path) -> Iterator[Server]:
    """Run a server whose calls to AWS have a separate access key."""
    with contextlib.ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AWS_ACCESS_KEY_ID", SNOWFLAKE)
            running = stack.enter_context(started(folder))
        yield running


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Failing:
    failure = Failing()
    http, aws, snowflake = requests.Session, botocore.httpsession.URLLib3Session, snowflake_requests.Session
    transports = (
        (
            http,
            lambda request: request.method != "GET",
            http_response,
            lambda request: requests.ReadTimeout(request=request),
            http_cut,
        ),
        (aws, aws_changes, aws_response, lambda request: ReadTimeoutError(endpoint_url=request.url), aws_cut),
        (
            snowflake,
            lambda request: bool(change(request)) or "login-request" in request.url,
            snowflake_response,
            lambda request: snowflake_requests.exceptions.ReadTimeout(request=request),
            http_cut,
        ),
    )
    for transport, *behavior in transports:
        monkeypatch.setattr(transport, "send", failure.through(transport.send, *behavior))
    monkeypatch.setattr(time_util, "get_time_millis", lambda: failure.milliseconds)
    # Requests to Confluent are not repeated, and those to AWS are repeated without pauses.
    monkeypatch.setattr(credentials, "DEADLINE_SECONDS", 1)
    monkeypatch.setattr(botocore.endpoint, "time", SimpleNamespace(sleep=lambda seconds: None))
    return failure


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    wire = Wire()
    aws, connector = botocore.httpsession.URLLib3Session, snowflake_requests.Session
    lost = snowflake_requests.exceptions.ConnectionError("lost")
    monkeypatch.setattr(aws, "send", wire.through(aws.send, ConnectionClosedError(endpoint_url="http://aws")))
    monkeypatch.setattr(connector, "send", wire.through(connector.send, lost))
    # Both libraries repeat a request whose response was lost after up to 16 s.
    monkeypatch.setattr(botocore.endpoint, "time", SimpleNamespace(sleep=lambda seconds: None))
    monkeypatch.setattr(network, "time", SimpleNamespace(time=time.time, sleep=lambda seconds: None))
    return wire


@pytest.fixture
def new_case(server: Server) -> Iterator[Callable[[], Case]]:
    """A function that creates users with a role and without keys."""
    with contextlib.ExitStack() as sessions:

        def new() -> Case:
            name = f"ROTATED_{uuid.uuid4().hex[:8].upper()}"
            server.admin(
                f"create user {name} type = service default_role = LOADER_ROLE",
                f"grant role LOADER_ROLE to user {name}",
            )
            user = ServiceUser(
                account="LOCAL",
                name=name,
                role="LOADER_ROLE",
                secret=f"/lakehouse/snowflake/{name}",
                secrets=Secrets(os.environ["AWS_REGION"], "rotated"),
                session=sessions.enter_context(contextlib.closing(server.administrator())),
                address={"host": "127.0.0.1", "port": server.port, "protocol": "http"},
            )
            case = Case(server, user)
            sessions.callback(lambda: [session.close() for session in case.opened])
            return case

        yield new


@pytest.fixture
def new(server: Server, tmp_path: Path) -> Callable[..., Deployed]:
    """A function that returns deployments that contain only a table in Glue."""
    deployments: list[Deployed] = []

    def make(**settings: Any) -> Deployed:
        deployed = Deployed.new(server, tmp_path / str(len(deployments)), **settings)
        deployed.lake.create("stock_trades", trades(3))
        deployments.append(deployed)
        return deployed

    return make


@pytest.fixture(scope="module")
def unchanged(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """A created deployment of a module, which each of its tests leaves as it was."""
    deployed = Deployed.new(server, tmp_path_factory.mktemp("unchanged"))
    deployed.lake.create("stock_trades", trades(3))
    apply(deployed.resources(), quiet)
    yield deployed
    assert {change.action for change in plan(deployed.resources())} == {"no-op"}


@pytest.fixture
def deployed(new: Callable[..., Deployed]) -> Deployed:
    """A created deployment."""
    deployed = new()
    apply(deployed.resources(), quiet)
    return deployed
