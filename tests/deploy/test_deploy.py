"""Creation, use, key rotation and deletion of a whole deployment.

It uses a strict AWS, a simulated Confluent Cloud and a local Snowflake server.
"""

from __future__ import annotations

import json
import logging
import re
import traceback
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner
from dagster._utils.error import serializable_error_info_from_exc_info

from lakehouse.cli.main import main
from lakehouse.config import loader
from lakehouse.core.errors import LakehouseError
from lakehouse.deploy import planner
from lakehouse.deploy.aws import iam_policies
from lakehouse.deploy.credentials import CloudCredentials
from lakehouse.deploy.resource import Resource
from lakehouse.deploy.rotation import Policy, rotate
from lakehouse.deploy.settings import settings
from resources.snowflake.snowflake import Snowflake
from tests.support.clouds.all_clouds import Clouds
from tests.support.clouds.aws.world import REGION, ForeignResource
from tests.support.clouds.confluent.server import ADMIN
from tests.support.clouds.failing import KINDS, Failing

pytestmark = pytest.mark.stack


def actions(resources: list[Resource]) -> dict[str, str]:
    return {change.resource.address: f"{change.action}: {change.reason}" for change in planner.plan(resources)}


def test_deployment_create_plan_use_and_delete(clouds: Clouds, caplog: Any, capsys: Any):
    caplog.set_level(logging.DEBUG)
    before = clouds.aws.state()
    planned = actions(clouds.resources())
    assert clouds.aws.state() == before, "a plan changes nothing"
    assert {action.partition(":")[0] for action in planned.values()} <= {"create", "no-op"}

    planner.apply(clouds.resources(), clouds.reported.append)

    again = {name: action for name, action in actions(clouds.resources()).items() if not action.startswith("no-op")}
    # The running lakehouse creates the tables that Glue does not contain yet.
    assert set(again) <= {"snowflake/tables"}, again
    _log_in_with_its_settings(clouds)
    _rotate_keys_with_overlap(clouds)

    hidden = clouds.secrets()
    assert len(hidden) > 6

    # The deletion of the first deployment does not change another one in the same accounts.
    planner.apply(clouds.resources("staging", "other"), clouds.reported.append)
    planner.destroy(clouds.resources(), clouds.reported.append, delete_data=False)
    remaining = clouds.aws.state()
    assert clouds.credentials().names.bucket in remaining["buckets"] and "trading" in dict(remaining["databases"])
    assert not [role for role in remaining["roles"] if "production" in role]
    assert not [name for name in remaining["secrets"] if "production" in name]
    planned = actions(clouds.resources("staging", "other"))
    staging = {name: action for name, action in planned.items() if "no-op" not in action}
    assert set(staging) <= {"snowflake/tables"}, staging

    planner.destroy(clouds.resources(), clouds.reported.append, delete_data=True)
    planner.destroy(clouds.resources("staging", "other"), clouds.reported.append, delete_data=True)
    assert clouds.aws.state() == before
    shown = caplog.text + "".join(capsys.readouterr()) + repr(clouds.reported)
    assert not [secret for secret in hidden if secret in shown]


def _log_in_with_its_settings(clouds: Clouds) -> None:
    """Log in with the settings that `lakehouse deploy environment` prints, as the user that the writer role trusts."""
    declared = settings(clouds.credentials().names)["snowflake"]
    key = clouds.aws.strict.client("iam").create_access_key(UserName="spark")["AccessKey"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
        patch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])
        resource = Snowflake(**declared, host="127.0.0.1", port=clouds.snowflake.port, protocol="http")
        _, [(user, role)] = resource.query("SELECT CURRENT_USER(), CURRENT_ROLE()")
    names = clouds.credentials().names
    assert (user, role) == (names.snowflake("USER"), names.snowflake("ROLE"))


def _rotate_keys_with_overlap(clouds: Clouds) -> None:
    secret = f"{clouds.credentials().names.confluent_secrets}/kafka_cluster/spark/python_client"
    client = clouds.aws.strict.client("secretsmanager", region=REGION)

    def current(name: str) -> dict[str, str]:
        return json.loads(client.get_secret_value(SecretId=name, VersionStage="AWSCURRENT")["SecretString"])

    old, old_pair = current(secret), current(clouds.credentials().names.snowflake_secret)
    kept = list(rotate(clouds.resources(), Policy(day_count=30), clouds.sleepless.clock))
    assert (current(secret), current(clouds.credentials().names.snowflake_secret)) == (old, old_pair), kept

    with pytest.MonkeyPatch.context() as patch:
        key = clouds.aws.strict.client("iam").create_access_key(UserName="rotation")["AccessKey"]
        patch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
        patch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])
        lines = clouds.rotate(Policy(day_count=0))

    new, new_pair = current(secret), current(clouds.credentials().names.snowflake_secret)
    assert new["sasl.username"] != old["sasl.username"], lines
    assert new_pair["private_key"] != old_pair["private_key"], lines
    assert {old["sasl.username"], new["sasl.username"]} <= set(clouds.confluent.state.keys)
    assert not [line for line in lines if new["sasl.password"] in line or "PRIVATE" in line]


def test_plan_unreachable_cloud_shows_the_others(clouds: Clouds, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Plan on the command line with credentials of AWS alone, and then without them."""
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(clouds.declare(tmp_path)))
    arguments = ["deploy", "plan", "--env", "aws", "--confluent-url", clouds.confluent.url]
    arguments_without_secret = [*arguments, "--admin-user-secrets-root-path", "/nothing"]

    planned = CliRunner(env={"CONFLUENT_CLOUD_API_SECRET": "wrong"}).invoke(main, arguments_without_secret)
    assert planned.exit_code == 1
    assert f"+ S3 bucket '{clouds.credentials().names.bucket}': does not exist" in planned.output
    assert "? service account 'lakehouse-production-app-manager': Confluent Cloud" in planned.output
    assert "There is no secret '/nothing'" in planned.output
    assert re.search(r"\d+ to create, .*\d+ unknown\n$", planned.output)

    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    key = {"CONFLUENT_CLOUD_API_KEY": ADMIN, "CONFLUENT_CLOUD_API_SECRET": clouds.confluent.admin_secret}
    planned = CliRunner(env=key).invoke(main, arguments)
    assert planned.exit_code == 1
    assert "+ environment 'lakehouse-production': does not exist" in planned.output
    assert "does not answer" in planned.output


def test_apply_with_any_failure_shows_no_secret(
    clouds: Clouds, failing: Failing, caplog: Any, capfd: Any, monkeypatch: pytest.MonkeyPatch
):
    """Inject each failure into each type of resource, at its first request and at each of its first changes."""
    table = {**clouds.topics["stock_trades"], "key": "userid", "engine": "tableflow"}
    totals = "CREATE TABLE totals AS SELECT quantity * price AS total FROM `stock_trades`"
    monkeypatch.setattr(clouds, "topics", {"stock_trades": table})
    monkeypatch.setattr(clouds, "flink", {"totals": totals})
    outputs: dict[str, Any] = {}
    hidden, errors, unexplained = set(clouds.secrets()), [], []
    caplog.set_level(logging.DEBUG)
    types: set[type[Resource]] = set()
    for resource in clouds.resources("canaries", "canaries"):
        needed = {needed.address for needed in resource.depends_on}
        alone = [*(ForeignResource(address, outputs[address]) for address in sorted(needed)), resource]
        for kind, changing, first in () if type(resource) in types else MOMENTS:
            failing.begin(kind, changing=changing, first=first)
            try:
                planner.apply(alone, clouds.reported.append)
            except Exception as error:
                errors.append(texts_of(error))
                if not isinstance(error, LakehouseError):
                    unexplained.append(f"{resource.address}, {kind}: {error!r}")
            failing.end()
            if changing and not failing.struck:
                break  # The resource made fewer changes than that, and makes none at the later moments.
            # This includes secrets in malformed responses.
            hidden |= {*clouds.confluent.state.secrets.values()}
        types.add(type(resource))
        outputs[resource.address] = planner.apply(alone, clouds.reported.append)[resource]
        if resource.address == "confluent/provider_integration":
            _create_trusted_role(clouds, outputs[resource.address].iam_role_arn)
    hidden |= {*clouds.secrets()}
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    text = "\n".join(
        [*errors, repr((clouds.reported, outputs)), caplog.text, *capfd.readouterr(), *map(arguments, processes)]
    )
    assert len(hidden) > 12 and len(errors) > 250
    assert "OAUTH_CLIENT_SECRET = '***'" in text
    assert not [secret for secret in hidden if shows(secret, text)]
    assert not unexplained


MOMENTS = [
    *((kind, False, 1) for kind in KINDS),
    *((kind, True, first) for first in (1, 2, 3) for kind in KINDS),
]
"""Kind of failure, whether it affects only changes, and the number of the first affected request."""


def _create_trusted_role(clouds: Clouds, role: str) -> None:
    """Create Confluent's role, because AWS refuses trust in roles that do not exist."""
    iam = clouds.aws.strict.client("iam", account=role.split(":")[4])
    trust = json.dumps(iam_policies.own_trust(role))
    iam.create_role(RoleName=role.rpartition("/")[2], AssumeRolePolicyDocument=trust)


def arguments(process: psutil.Process) -> str:
    return " ".join(process.cmdline())


def texts_of(error: BaseException) -> str:
    """Return all texts of an error: traceback, Dagster's event, attributes and arguments, with its causes."""
    reported = serializable_error_info_from_exc_info((type(error), error, error.__traceback__))
    texts = [*traceback.format_exception(error), str(reported)]
    while error is not None:
        texts.append(f"{error!r} {vars(error)} {error.args}")
        error = error.__cause__ or error.__context__
    return "\n".join(texts)


def shows(secret: str, text: str) -> bool:
    """Return whether a text contains a secret, or a line of it if it is a PEM."""
    return any(line in text for line in secret.splitlines()[1:-1] or [secret])


def test_check_account_other_account_changes_nothing(clouds: Clouds):
    credentials = clouds.credentials()
    other = CloudCredentials(credentials.deployment.model_copy(update={"account": "999999999999"}))
    before = clouds.aws.state()
    with pytest.raises(loader.ConfigError, match="is of account 999999999999"):
        other.check_account()
    assert clouds.aws.state() == before


def test_graph_shows_plan_and_deployment(clouds: Clouds, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(clouds.declare(tmp_path)))
    arguments = ["deploy", "graph", "--env", "aws", "--confluent-url", clouds.confluent.url]
    runner = CliRunner(env={"CONFLUENT_CLOUD_API_KEY": ADMIN, "CONFLUENT_CLOUD_API_SECRET": "wrong"})

    drawn = runner.invoke(main, arguments)

    assert drawn.exit_code == 0, drawn.output
    assert f"S3 bucket '{clouds.credentials().names.bucket}'<br>(create)" in drawn.output
    assert "environment 'lakehouse-production'<br>(unknown)" in drawn.output

    bucket = next(resource for resource in clouds.resources() if resource.address == "aws/bucket")
    planner.apply(planner.needed_by(clouds.resources(), type(bucket)), clouds.reported.append)
    drawn = runner.invoke(main, [*arguments, "--format", "dot"])

    assert drawn.output.startswith("digraph deployment {")
    assert f"label=\"S3 bucket '{clouds.credentials().names.bucket}'\"" in drawn.output
