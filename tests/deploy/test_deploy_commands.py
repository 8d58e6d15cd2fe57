"""The commands `lakehouse deploy` on a deployment in all three clouds, and programs that use its secrets."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable

import pytest
from click.testing import Result

from lakehouse.deploy import planner
from tests.support.clouds.all_clouds import Clouds
from tests.support.clouds.aws.world import REGION
from tests.support.clouds.confluent.deployment import inventory

pytestmark = pytest.mark.stack

SNOWFLAKE_PROGRAM = """
import base64, json, sys

import boto3, snowflake.connector
from cryptography.hazmat.primitives import serialization

path, slot, port = sys.argv[1:]
stored = boto3.client("secretsmanager").get_secret_value(SecretId=path)
secret = json.loads(stored["SecretString"])
assert secret["secrets_path"] == path
private_key = serialization.load_pem_private_key(
    base64.b64decode(secret[f"snowflake_rsa_private_key_{slot}_pem"]), password=None
)
public_key = private_key.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)
assert public_key.decode() == secret[f"rsa_public_key_{slot}_pem"]
assert "".join(public_key.decode().splitlines()[1:-1]) == secret[f"snowflake_rsa_public_key_{slot}_pem"]
with snowflake.connector.connect(
    account=secret["snowflake_account_identifier"],
    user=secret["snowflake_service_user"],
    private_key=private_key.private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ),
    host="127.0.0.1", port=int(port), protocol="http", login_timeout=10,
) as session:
    print(*session.cursor().execute("SELECT CURRENT_USER()").fetchone())
"""
REGISTRY_PROGRAM = """
import json, sys

import boto3, requests

stored = boto3.client("secretsmanager").get_secret_value(SecretId=sys.argv[1])
secret = json.loads(stored["SecretString"])
assert secret["schema.registry.basic.auth.credentials.source"] == "USER_INFO"
login = tuple(secret["schema.registry.basic.auth.user.info"].split(":"))
response = requests.get(secret["schema.registry.url"] + "/subjects", auth=login, timeout=10)
print(response.status_code)
"""
"""Programs that know only the fields of the Terraform kickstarter."""


@pytest.fixture(scope="module")
def created(clouds: Clouds) -> Clouds:
    """The clouds with a deployment."""
    planner.apply(clouds.resources(), clouds.reported.append)
    return clouds


def program(text: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", text, *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("slot", ["1", "2"])
def test_secret_of_snowflake_works_for_program_of_kickstarter(created: Clouds, slot: str):
    names = created.credentials().names
    user = program(SNOWFLAKE_PROGRAM, names.snowflake_secret, slot, str(created.snowflake.port))
    assert user == names.snowflake("USER")


def test_secret_of_registry_works_for_program_of_kickstarter(created: Clouds):
    path = f"{created.credentials().names.confluent_secrets}/schema_registry_cluster/python_client"
    assert program(REGISTRY_PROGRAM, path) == "200"


def test_graph_after_create_has_all_resources_unmarked(command: Callable[..., Result], created: Clouds):
    drawn, dot = command("graph"), command("graph", "--format", "dot")

    assert drawn.exit_code == dot.exit_code == 0, drawn.output + dot.output
    # The declared environment of the command has no REST catalog.
    labels = [resource.label for resource in created.resources() if not resource.address.startswith("snowflake/rest_")]
    assert len(labels) > 30
    for label in labels:
        assert label in drawn.output and label in dot.output
    assert set(re.findall(r"\((create|update|delete|unknown)\)", drawn.output)) <= {"create"}
    # Spark has created no table yet, so Snowflake has none either.
    assert drawn.output.count("(create)") == dot.output.count("(create)") <= 1


@pytest.mark.parametrize("name", ["create", "delete"])
def test_command_of_same_name_from_other_region_changes_nothing(
    command: Callable[..., Result], created: Clouds, name: str
):
    state, things = created.aws.state(), inventory(created.confluent)
    kinds = ("WAREHOUSES", "USERS", "DATABASES")
    objects = [sorted(created.snowflake.admin(f"SHOW {kind}")) for kind in kinds]

    refused = command(name, "--yes", *(["--delete-data"] if name == "delete" else []), region="us-east-1")

    assert refused.exit_code == 1 and "was left unchanged" in refused.output, refused.output
    assert created.aws.state() == state and inventory(created.confluent) == things
    assert [sorted(created.snowflake.admin(f"SHOW {kind}")) for kind in kinds] == objects


def test_create_with_day_count_replaces_keys(command: Callable[..., Result], created: Clouds):
    path = f"{created.credentials().names.confluent_secrets}/kafka_cluster/spark/python_client"
    client = created.aws.strict.client("secretsmanager", region=REGION)

    def current() -> str:
        # Without a label, moto returns the first version that was current.
        stored = client.get_secret_value(SecretId=path, VersionStage="AWSCURRENT")
        return str(json.loads(stored["SecretString"])["sasl.username"])

    before = current()
    kept = command("create", "--yes", "--day-count", "30")
    assert kept.exit_code == 0 and current() == before, kept.output

    replaced = command("create", "--yes", "--day-count", "0", "--number-of-api-keys-to-retain", "1")

    assert replaced.exit_code == 0 and current() != before, replaced.output
    assert {before, current()} <= created.confluent.state.keys.keys(), "the old key stays valid for its grace period"
