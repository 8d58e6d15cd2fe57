"""The list of all resources of a deployment, its environment, and the secrets of its commands."""

import json
import os
import pty
import re
import select
import socket
import subprocess
import sys
import time

import click
import psutil
import pytest
import yaml
from click.testing import CliRunner

from lakehouse.cli.main import main
from lakehouse.config import loader
from lakehouse.config.deployment import Deployment
from lakehouse.config.discovery import config_path
from lakehouse.config.environment import EnvRef
from lakehouse.config.model import Config
from lakehouse.core.errors import ConfigError
from lakehouse.definitions import defs
from lakehouse.deploy.credentials import CloudCredentials
from lakehouse.deploy.graph import deployment_resources, in_dependency_order
from lakehouse.deploy.settings import settings
from lakehouse.deploy.snowflake.catalogs import client_of
from resources.build import build_resources, lazy_resource
from tests.support.servers.listener import Listener
from tools.repository import PROJECT

CANARY = "canary-51aa"
SECONDS = 120
"""Seconds in which a command starts on a busy machine."""


@pytest.fixture
def declared(tmp_path, monkeypatch):
    """A lakehouse.yaml with a deployment of its environment `aws`, without reachable clouds."""
    text = yaml.safe_load(config_path().read_text())
    text["topics"]["orders"] = {"engine": "tableflow"}
    text["deployments"] = {
        "aws": {
            "name": "production",
            "account": "123456789012",
            "spark_principals": ["arn:aws:iam::123456789012:role/spark"],
            "flink": {"totals": "CREATE TABLE totals AS SELECT quantity * price AS total FROM stock_trades"},
        }
    }
    (tmp_path / "schemas").symlink_to(PROJECT / "schemas")
    (tmp_path / "lakehouse.yaml").write_text(yaml.safe_dump(text))
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(tmp_path / "lakehouse.yaml"))
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("CONFLUENT_CLOUD_API_SECRET", CANARY)
    return loader.load()


def administrator(config, rest_catalog=None):
    """Return credentials for the deployment of the environment `aws`."""
    return CloudCredentials(
        config.deployment("aws"),
        confluent_secret=CANARY,
        confluent_url="http://127.0.0.1:9",
        rest_catalog=rest_catalog,
    )


def test_resources_of_all_clouds_are_in_dependency_order(declared):
    resources = deployment_resources(declared, administrator(declared))
    names = [resource.address for resource in resources]
    assert len(names) == len(set(names))
    for n, resource in enumerate(resources):
        assert set(names[:n]).issuperset(dependency.address for dependency in resource.depends_on), resource.address
    assert names[0] == "aws/secrets", "deleted last, for others need them until then"
    for before, after in [
        ("confluent/provider_integration", "aws/role/confluent"),
        ("aws/role/confluent", "confluent/catalog_integration"),
        ("snowflake/volume", "aws/role/snowflake"),
        ("aws/role/snowflake", "snowflake/volume_verified"),
    ]:
        assert names.index(before) < names.index(after)


def test_dependency_order_missing_dependency_raises(declared):
    resources = deployment_resources(declared, administrator(declared))
    with pytest.raises(ValueError, match="never satisfied"):
        in_dependency_order([resource for resource in resources if resource.address != "confluent/environment"])


def test_environment_has_all_settings_and_no_secret(declared, monkeypatch):
    environment = settings(administrator(declared).names)
    text = yaml.safe_load(config_path().read_text())
    text["environments"]["created"] = environment
    config = Config.model_validate({**declared.model_dump(by_alias=True), "environments": text["environments"]})
    monkeypatch.setenv("SPARK_REMOTE", "sc://localhost:1")
    assert set(build_resources(config, "created")) >= {"kafka", "schema_registry", "catalog", "glue", "snowflake"}
    assert CANARY not in str(environment)
    printed = CliRunner().invoke(main, ["deploy", "environment", "--env", "aws"])
    assert yaml.safe_load(printed.output) == {"aws": environment}


def test_environment_with_storage_of_confluent_has_its_catalog(declared, monkeypatch):
    file = config_path()
    text = yaml.safe_load(file.read_text())
    text["deployments"]["aws"]["tableflow"] = {"storage": "confluent"}
    file.write_text(yaml.safe_dump(text))
    printed = yaml.safe_load(CliRunner().invoke(main, ["deploy", "environment", "--env", "aws"]).output)
    assert printed["aws"]["tableflow_catalog"] == {
        "secret": "/confluent_cloud_resource/production/tableflow/spark/python_client",
        "region": "us-east-1",
        "role_arn": "arn:aws:iam::123456789012:role/lakehouse-production-writer",
    }
    assert "tableflow_external_volume" not in printed["aws"]["snowflake"], "no such volume is created"
    text["environments"]["aws"] = printed["aws"]
    file.write_text(yaml.safe_dump(text))
    monkeypatch.setenv("LAKEHOUSE_ENV", "aws")
    monkeypatch.setenv("SPARK_REMOTE", "sc://localhost:1")
    graph = defs().resolve_asset_graph()
    assert {key.path[1] for key in graph.get_all_asset_keys() if key.path[0] == "orders"} == {"kafka", "iceberg"}
    assert {key.path[1] for key in graph.get_all_asset_keys() if key.path[0] == "users"} >= {"glue", "snowflake"}


@pytest.mark.parametrize(
    ("settings", "namespace"),
    [({"namespace": "staging"}, "staging"), ({"existing": {"glue_database": "theirs"}}, "theirs")],
)
def test_namespace_of_deployment_replaces_that_of_file(declared, monkeypatch, settings, namespace):
    file = config_path()
    text = yaml.safe_load(file.read_text())
    text["deployments"]["aws"] |= settings
    file.write_text(yaml.safe_dump(text))
    assert loader.load().namespace == declared.namespace, "the environment `local` has no deployment"
    config = loader.load(environment="aws")
    resources = deployment_resources(config, administrator(config))
    assert f"Glue database '{namespace}'" in [resource.label for resource in resources]
    monkeypatch.setenv("LAKEHOUSE_ENV", "aws")
    assert loader.load().namespace == namespace, "runs write where the deployment's roles may write"


def test_definitions_do_not_import_the_deployment(declared, monkeypatch):
    monkeypatch.setenv("LAKEHOUSE_ENV", "aws")
    code = (
        "import socket\n"
        "def refuse(*_): raise AssertionError('connected')\n"
        "socket.socket.connect = refuse\n"
        "import sys\n"
        "from lakehouse.definitions import defs\n"
        "import dagster as dg\n"
        "loaded = defs(); dg.Definitions.validate_loadable(loaded)\n"
        "assert loaded.resolve_asset_graph().get_all_asset_keys()\n"
        "print(*sorted(name for name in sys.modules if name.startswith('lakehouse.deploy')))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr[-2000:]


def test_rest_catalog_resources_read_credentials_on_use(declared, monkeypatch):
    assert (
        lazy_resource(declared, "aws", "rest_catalog") is None
        and lazy_resource(declared, "not declared", "kafka") is None
    )
    credential = EnvRef(env="REST_CATALOG_CREDENTIAL")
    settings = {"uri": "https://polaris.example/api/catalog", "warehouse": "lake", "credential": credential}
    environments = {"aws": {**declared.environments["aws"], "rest_catalog": settings}}
    rest_catalog = lazy_resource(declared.model_copy(update={"environments": environments}), "aws", "rest_catalog")
    monkeypatch.delenv("REST_CATALOG_CREDENTIAL", raising=False)
    resources = deployment_resources(declared, administrator(declared, rest_catalog))
    added = {"snowflake/rest_schema", "snowflake/rest_integration", "snowflake/rest_verified", "snowflake/rest_tables"}
    assert added < {resource.address for resource in resources}
    with pytest.raises(
        ConfigError, match="aws.rest_catalog: REST_CATALOG_CREDENTIAL not set, or empty. Nothing was changed"
    ):
        rest_catalog()
    monkeypatch.setenv("REST_CATALOG_CREDENTIAL", f"reader:{CANARY}")
    assert client_of(rest_catalog()).client_secret == CANARY
    assert CANARY not in repr((resources, rest_catalog()))


def test_check_account_other_account_is_refused(declared, monkeypatch):
    from moto import mock_aws

    for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    with mock_aws():
        administrator(declared).check_account()
        other = declared.deployment("aws").model_copy(update={"account": "999999999999"})
        with pytest.raises(loader.ConfigError, match="are of account 123456789012.*is of account 999999999999"):
            CloudCredentials(other).check_account()


def test_plan_environment_without_deployment_has_remedy():
    done = CliRunner().invoke(main, ["deploy", "plan", "--env", "nowhere"])
    assert done.exit_code == 1 and "has no deployment in lakehouse.yaml. Add one" in done.output


@pytest.mark.parametrize("name", ["Prod", "a", "x_y", "-a", "a" * 40])
def test_deployment_invalid_name_is_refused(name):
    with pytest.raises(ValueError, match="name"):
        Deployment(name=name, account="123456789012")


@pytest.mark.parametrize("region", ["cn-north-1", "us-gov-west-1", "us-iso-east-1", "eusc-de-east-1"])
def test_deployment_region_of_other_partition_is_refused(region):
    with pytest.raises(ValueError, match="region"):
        Deployment(name="production", account="123456789012", region=region)


@pytest.mark.parametrize("region", ["us-east-1", "ca-central-1", "ap-southeast-2", "mx-central-1", "il-central-1"])
def test_deployment_commercial_region_is_accepted(region):
    assert Deployment(name="production", account="123456789012", region=region).region == region


@pytest.mark.parametrize("key", ["spark_principals", "rotation_principals"])
@pytest.mark.parametrize("name", ["*", "sp ark", "team/*"])
def test_deployment_principal_that_no_policy_can_name_is_refused(key, name):
    with pytest.raises(ValueError, match=key):
        Deployment(name="production", account="123456789012", **{key: [f"arn:aws:iam::123456789012:role/{name}"]})


def test_deployment_vpc_endpoint_without_roles_is_refused():
    declared = {"name": "production", "account": "123456789012", "vpc_endpoint": "vpce-0a1b"}
    with pytest.raises(ValueError, match="vpc_endpoint restricts the roles of spark_principals"):
        Deployment(**declared)
    principals = ("arn:aws:iam::123456789012:role/spark",)
    assert Deployment(**declared, spark_principals=principals).vpc_endpoint == "vpce-0a1b"


@pytest.mark.parametrize("option", ["--day-count", "--number-of-api-keys-to-retain"])
def test_create_only_one_cloud_refuses_to_rotate_all_keys(declared, option):
    result = CliRunner().invoke(main, ["deploy", "create", "--env", "aws", "--only", "aws", option, "1"])
    assert result.exit_code == 2
    assert "Keys of all clouds are rotated together. Nothing was changed. Omit --only" in result.output


def test_commands_escape_control_characters_of_servers(declared, monkeypatch):
    detail = "\x1b]52;c;aGk=\x07 \x9b2J \u202e"
    refusal = json.dumps({"errors": [{"detail": detail}]})
    error = "<ErrorResponse><Error><Code>AccessDenied</Code><Message>&#x9b;2J</Message></Error></ErrorResponse>"
    options = ["--env", "aws", "--confluent-api-key", "K"]
    with (
        Listener((403, refusal, {"Content-Type": "application/json"})).listening() as confluent,
        Listener((403, error, {"Content-Type": "text/xml"})).listening() as aws,
    ):
        monkeypatch.setenv("AWS_ENDPOINT_URL", aws.address)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
        planned = CliRunner().invoke(main, ["deploy", "plan", *options, "--confluent-url", confluent.address])
        created = CliRunner().invoke(main, ["deploy", "create", "--debug", *options])
    assert "\\x1b]52;c;aGk=\\x07 \\x9b2J \\u202e" in planned.output
    assert "Traceback" in created.output and "\\x9b2J" in created.output
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", planned.output + created.output)


def read_until(terminal, text):
    """Return the output of a program to a terminal up to a text, or until it closes the terminal."""
    shown, deadline = b"", time.monotonic() + SECONDS
    while text not in shown:
        readable, _, _ = select.select([terminal], [], [], deadline - time.monotonic())
        assert readable, f"nothing more within {SECONDS} s: {shown}"
        try:
            part = os.read(terminal, 1000)
        except OSError:  # Linux reports the end of a terminal as an error
            part = b""
        if not part:
            break
        shown += part
    return shown


def test_plan_prompted_secret_is_hidden_and_no_argument(declared, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.delenv("CONFLUENT_CLOUD_API_SECRET")
        for name, value in {"AWS_ACCESS_KEY_ID": "ours", "AWS_SECRET_ACCESS_KEY": "k", "NO_PROXY": "127.0.0.1"}.items():
            monkeypatch.setenv(name, value)
        command = [
            sys.executable,
            "-m",
            "lakehouse.cli.main",
            "deploy",
            "plan",
            "--env",
            "aws",
            "--confluent-api-key",
            "ID",
        ]
        terminal, end = pty.openpty()
        with subprocess.Popen(command, stdin=end, stdout=end, stderr=end, start_new_session=True) as running:
            os.close(end)
            try:
                shown = read_until(terminal, b"Secret of the Confluent Cloud API key ID:")
                os.write(terminal, f"{CANARY}\n".encode())
                silent.settimeout(SECONDS)
                silent.accept()  # the command continues with a request to AWS
                arguments = psutil.Process(running.pid).cmdline()
            finally:
                running.kill()
        shown += read_until(terminal, b"\0")
        os.close(terminal)
    assert CANARY not in shown.decode() and CANARY not in " ".join(arguments)


def test_command_options_contain_no_secret():
    secret = re.compile("secret|password|token|private|credential")
    options = {option for options in _options(main) for option in options}
    assert "--confluent-api-key" in options
    # The expected options contain names of secrets in AWS Secrets Manager.
    assert {option for option in options if secret.search(option)} == {
        "--admin-user-secrets-root-path",
        "--admin-service-user-secrets-root-path",
    }


def _options(command):
    for parameter in command.params:
        yield parameter.opts
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from _options(command.get_command(context, name))
