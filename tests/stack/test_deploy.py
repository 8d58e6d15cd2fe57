"""A whole deployment, in a strict AWS, a stand-in of Confluent Cloud and a local Snowflake server: made, found as it
should be, used, its keys replaced, taken away."""

from __future__ import annotations

import json
import logging
import re
import traceback
from typing import Any

import psutil
import pytest
from aws_world import REGION, Given
from click.testing import CliRunner
from clouds import Clouds
from confluent_server import ADMIN
from dagster._utils.error import serializable_error_info_from_exc_info
from failing import KINDS, Failing

from lakehouse.cli.main import main
from lakehouse.config import loader
from lakehouse.core.errors import LakehouseError
from lakehouse.deploy import planner
from lakehouse.deploy.aws import policies
from lakehouse.deploy.credentials import Access
from lakehouse.deploy.rotation import Policy, rotate
from lakehouse.deploy.settings import settings
from lakehouse.deploy.step import Step
from resources.snowflake import Snowflake

pytest_plugins = ["clouds", "failing"]
pytestmark = pytest.mark.stack


def verbs(steps: list[Step]) -> dict[str, str]:
    return {action.step.name: f"{action.verb}: {action.why}" for action in planner.plan(steps)}


def test_it_is_made_found_as_it_should_be_used_and_taken_away(clouds: Clouds, caplog: Any, capsys: Any):
    caplog.set_level(logging.DEBUG)
    before = clouds.aws.state()
    planned = verbs(clouds.steps())
    assert clouds.aws.state() == before, "a plan changes nothing"
    assert {said.partition(":")[0] for said in planned.values()} <= {"create", "keep"}

    planner.create(clouds.steps(), clouds.told.append)

    again = {name: said for name, said in verbs(clouds.steps()).items() if not said.startswith("keep")}
    # Tables are left to the running lakehouse as long as Glue has none.
    assert set(again) <= {"snowflake/tables"}, again
    _is_entered_with_its_own_settings(clouds)
    _keys_are_replaced_and_both_go_on(clouds)

    hidden = clouds.secrets()
    assert len(hidden) > 6

    # Another deployment in the same accounts, which the first one's end does not touch.
    planner.create(clouds.steps("staging", "other"), clouds.told.append)
    planner.delete(clouds.steps(), clouds.told.append, delete_data=False)
    left = clouds.aws.state()
    assert clouds.access().names.bucket in left["buckets"] and "trading" in dict(left["databases"])
    assert not [role for role in left["roles"] if "production" in role]
    assert not [name for name in left["secrets"] if "production" in name]
    staging = {name: said for name, said in verbs(clouds.steps("staging", "other")).items() if "keep" not in said}
    assert set(staging) <= {"snowflake/tables"}, staging

    planner.delete(clouds.steps(), clouds.told.append, delete_data=True)
    planner.delete(clouds.steps("staging", "other"), clouds.told.append, delete_data=True)
    assert clouds.aws.state() == before
    shown = caplog.text + "".join(capsys.readouterr()) + repr(clouds.told)
    assert not [secret for secret in hidden if secret in shown]


def _is_entered_with_its_own_settings(clouds: Clouds) -> None:
    """What `lakehouse deploy environment` prints lets the running lakehouse in."""
    made = settings(clouds.access().names)["snowflake"]
    resource = Snowflake(**made, host="127.0.0.1", port=clouds.snowflake.port, protocol="http")
    _, [(user, role)] = resource.query("SELECT CURRENT_USER(), CURRENT_ROLE()")
    names = clouds.access().names
    assert (user, role) == (names.snowflake("USER"), names.snowflake("ROLE"))


def _keys_are_replaced_and_both_go_on(clouds: Clouds) -> None:
    secret = f"{clouds.access().names.confluent_secrets}/kafka_cluster/spark/python_client"
    client = clouds.aws.strict.client("secretsmanager", region=REGION)

    def current(name: str) -> dict[str, str]:
        return json.loads(client.get_secret_value(SecretId=name, VersionStage="AWSCURRENT")["SecretString"])

    old, old_pair = current(secret), current(clouds.access().names.snowflake_secret)
    kept = list(rotate(clouds.steps(), Policy(day_count=30), clouds.sleepless.clock))
    assert (current(secret), current(clouds.access().names.snowflake_secret)) == (old, old_pair), kept

    said = list(rotate(clouds.steps(), Policy(day_count=0), clouds.sleepless.clock))

    new, new_pair = current(secret), current(clouds.access().names.snowflake_secret)
    assert new["sasl.username"] != old["sasl.username"], said
    assert new_pair["private_key"] != old_pair["private_key"], said
    assert {old["sasl.username"], new["sasl.username"]} <= set(clouds.confluent.state.keys)
    assert not [line for line in said if new["sasl.password"] in line or "PRIVATE" in line]


def test_a_plan_shows_each_cloud_that_can_be_asked(clouds: Clouds, monkeypatch: pytest.MonkeyPatch):
    """Through the command line, with AWS's credentials alone, and then without them."""
    declared = clouds.config().model_copy(update={"deployments": {"aws": clouds.access().deployment}})
    monkeypatch.setattr(loader, "load", lambda: declared)
    given = ["deploy", "plan", "--env", "aws", "--confluent-url", clouds.confluent.url]
    without = [*given, "--admin-user-secrets-root-path", "/nothing"]

    planned = CliRunner(env={"CONFLUENT_CLOUD_API_SECRET": "wrong"}).invoke(main, without)
    assert planned.exit_code == 1
    assert f"+ S3 bucket '{clouds.access().names.bucket}': is not there" in planned.output
    assert "? environment 'lakehouse-production': Confluent Cloud" in planned.output
    assert "There is no secret '/nothing'" in planned.output
    assert re.search(r"\d+ to create, .*\d+ unknown\n$", planned.output)

    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    key = {"CONFLUENT_CLOUD_API_KEY": ADMIN, "CONFLUENT_CLOUD_API_SECRET": clouds.confluent.admin_secret}
    planned = CliRunner(env=key).invoke(main, given)
    assert planned.exit_code == 1
    assert "+ environment 'lakehouse-production': is not there" in planned.output
    assert "does not answer" in planned.output


def test_whatever_fails_no_secret_shows(
    clouds: Clouds, failing: Failing, caplog: Any, capfd: Any, monkeypatch: pytest.MonkeyPatch
):
    """Each step in turn meets each failure: at its first request, and at each of its first changes."""
    table = {**clouds.topics["stock_trades"], "key": "userid", "engine": "tableflow"}
    totals = "CREATE TABLE totals AS SELECT quantity * price AS total FROM `stock_trades`"
    monkeypatch.setattr(clouds, "topics", {"stock_trades": table})
    monkeypatch.setattr(clouds, "flink", {"totals": totals})
    found: dict[str, Any] = {}
    hidden, seen, unexplained = set(clouds.secrets()), [], []
    caplog.set_level(logging.DEBUG)
    for step in clouds.steps("canaries", "canaries"):
        alone = [*(Given(needed, found[needed]) for needed in step.needs), step]
        for kind, changing, first in MOMENTS:
            failing.begin(kind, changing=changing, first=first)
            try:
                planner.create(alone, clouds.told.append)
            except Exception as error:
                seen.append(everything_of(error))
                if not isinstance(error, LakehouseError):
                    unexplained.append(f"{step.name}, {kind}: {error!r}")
            failing.end()
            # Also those that an answer had which was not understood.
            hidden |= {*clouds.confluent.state.secrets.values()}
        found[step.name] = planner.create(alone, clouds.told.append)[step.name]
        if step.name == "confluent/provider_integration":
            _is_there(clouds, found[step.name].iam_role_arn)
    hidden |= {*clouds.secrets()}
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    text = "\n".join([*seen, repr((clouds.told, found)), caplog.text, *capfd.readouterr(), *map(arguments, processes)])
    assert len(hidden) > 12 and len(seen) > 400
    assert "OAUTH_CLIENT_SECRET = '***'" in text
    assert not [secret for secret in hidden if shows(secret, text)]
    assert not unexplained


MOMENTS = [
    *((kind, False, 1) for kind in KINDS),
    *((kind, True, first) for first in (1, 2, 3) for kind in KINDS),
]
"""Kind of failure, whether changes alone meet it, and which is the first that does."""


def _is_there(clouds: Clouds, role: str) -> None:
    """Confluent's own role: AWS lets nobody be trusted who does not exist."""
    iam = clouds.aws.strict.client("iam", account=role.split(":")[4])
    trust = json.dumps(policies.own_trust(role))
    iam.create_role(RoleName=role.rpartition("/")[2], AssumeRolePolicyDocument=trust)


def arguments(process: psutil.Process) -> str:
    return " ".join(process.cmdline())


def everything_of(error: BaseException) -> str:
    """What an error says, also as the command line and as Dagster's events have it, and what it holds."""
    told = serializable_error_info_from_exc_info((type(error), error, error.__traceback__))
    said = [*traceback.format_exception(error), str(told)]
    while error is not None:
        said.append(f"{error!r} {vars(error)} {error.args}")
        error = error.__cause__ or error.__context__
    return "\n".join(said)


def shows(secret: str, text: str) -> bool:
    """Whether it is there, or a line of it where it is a PEM."""
    return any(line in text for line in secret.splitlines()[1:-1] or [secret])


def test_credentials_of_another_account_change_nothing(clouds: Clouds):
    access = clouds.access()
    other = Access(access.deployment.model_copy(update={"account": "999999999999"}))
    before = clouds.aws.state()
    with pytest.raises(loader.ConfigError, match="belongs into 999999999999"):
        other.check_account()
    assert clouds.aws.state() == before
