"""`lakehouse deploy verify` as the job that replaces keys runs it, with IAM enforced."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from lakehouse.deploy import planner
from lakehouse.deploy.names import ACCOUNTS
from tests.support.clouds.all_clouds import Clouds
from tests.support.clouds.aws.enforced import Enforced
from tests.support.clouds.aws.world import REGION
from tests.support.clouds.enforced_chain import run_verify

pytestmark = pytest.mark.stack

Verify = Callable[[], Result]
ROTATION = "lakehouse-production-rotation"
"""The service account in Confluent Cloud, and the IAM role."""


@pytest.fixture(scope="module")
def rotation_key(clouds: Clouds) -> Any:
    """The access key of a principal in `rotation_principals`."""
    return clouds.aws.strict.client("iam").create_access_key(UserName="rotation")["AccessKey"]


@pytest.fixture
def verify(clouds: Clouds, rotation_key: Any, tmp_path: Path) -> Verify:
    """A function that verifies a created deployment with `rotation_key`. Creation repairs what the last test broke."""
    clouds.flink = {"totals": "CREATE TABLE totals AS SELECT quantity * price AS total FROM stock_trades"}
    planner.apply(clouds.resources(), clouds.reported.append)

    def run() -> Result:
        clouds.aws.guard = Enforced(clouds.aws.gaps, frozenset({"ours"}), clouds.credentials().names.role("snowflake"))
        try:
            return run_verify(clouds, rotation_key, tmp_path)
        finally:
            clouds.aws.guard = clouds.aws.gaps

    return run


def test_verify_reports_each_permission_of_the_rotation(clouds: Clouds, verify: Verify):
    before = keys(clouds)
    done = verify()
    assert done.exit_code == 0, done.output
    names, lines = clouds.credentials().names, done.stdout.splitlines()
    owned = {f"ResourceOwner on service account '{names.service_account(purpose)}'" for purpose in ACCOUNTS}
    users = {f"OWNERSHIP on Snowflake user '{names.snowflake(user)}'" for user in ("USER", "ROTATION_USER")}
    expected = {f"allowed   {ROTATION}: {permission}" for permission in owned}
    expected |= {f"allowed   {names.snowflake('ROTATION_USER')}: {permission}" for permission in users}
    assert expected <= {*lines}
    assert any(line.startswith(f"unchecked {ROTATION}: creation and deletion of API keys") for line in lines)
    assert any(line.startswith("unchecked lakehouse-production-writer: all its permissions") for line in lines)
    assert keys(clouds) == before
    assert not [secret for secret in clouds.secrets() if secret in done.output]


def test_verify_without_ownership_names_what_is_missing(clouds: Clouds, verify: Verify):
    names, state = clouds.credentials().names, clouds.confluent.state
    [spark] = [k for k, account in state.accounts.items() if account["display_name"] == names.service_account("spark")]
    [binding] = [
        k for k, binding in state.bindings.items() if binding["crn_pattern"].endswith(f"service-account={spark}")
    ]
    del state.bindings[binding]
    user = names.snowflake("USER")
    clouds.snowflake.admin(f"GRANT OWNERSHIP ON USER {user} TO ROLE ACCOUNTADMIN")
    done = verify()
    assert done.exit_code == 1, done.output
    denied = [line for line in done.stdout.splitlines() if line.startswith(("denied", "failed"))]
    account = (
        f"{ROTATION}: ResourceOwner on service account 'lakehouse-production-spark': {ROTATION} lacks ResourceOwner"
    )
    identity = names.snowflake("ROTATION_USER")
    ownership = f"{identity}: OWNERSHIP on Snowflake user '{user}': {identity} lacks OWNERSHIP"
    assert len(denied) == 2 and f"denied    {account}" in denied[0] and f"denied    {ownership}" in denied[1], denied


def test_verify_with_deleted_keys_names_each(clouds: Clouds, verify: Verify):
    names, state = clouds.credentials().names, clouds.confluent.state
    name = names.service_account("app_manager")
    [manager] = [account_id for account_id, account in state.accounts.items() if account["display_name"] == name]
    for key_id in [key_id for key_id, key in state.keys.items() if key["spec"]["owner"]["id"] == manager]:
        del state.keys[key_id], state.secrets[key_id]
    done = verify()
    assert done.exit_code == 1, done.output
    [failed] = [line for line in done.stdout.splitlines() if line.startswith(("denied", "failed"))]
    assert failed.startswith(
        f"failed    {ROTATION}: ResourceOwner on service account '{name}': API key of 'app_manager'"
    )
    assert "does not exist. It was not created. Run `lakehouse deploy create`" in failed


def test_verify_without_recorded_states_fails(clouds: Clouds, verify: Verify):
    names, client = clouds.credentials().names, clouds.aws.strict.client("secretsmanager", region=REGION)
    secret = f"{names.confluent_secrets}/rotation"
    stored = json.loads(client.get_secret_value(SecretId=secret, VersionStage="AWSCURRENT")["SecretString"])
    client.put_secret_value(SecretId=secret, SecretString=json.dumps({**stored, "lakehouse.states": "{}"}))
    done = verify()
    assert done.exit_code == 1, done.output
    [failed] = [line for line in done.stdout.splitlines() if line.startswith(("denied", "failed"))]
    assert failed.startswith(f"failed    {ROTATION}: ") and "Run `lakehouse deploy create`, which writes it" in failed


def keys(clouds: Clouds) -> Any:
    """Return the ids of Confluent's keys and the current value of each secret."""
    return sorted(clouds.confluent.state.keys), sorted(clouds.secrets())
