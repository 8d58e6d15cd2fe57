"""A deployed lakehouse with IAM enforced: each role allows its work and needs each statement of its policy.

The simulated AWS decides on every call of Python, pyarrow and the JVM by the policies that `create` made.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import requests

from lakehouse.deploy import planner
from lakehouse.deploy.rotation import Policy
from lakehouse.deploy.verification.deployment_role import Finding
from lakehouse.deploy.verification.role_diagnosis import examine
from lakehouse.deploy.verification.verify import Verification
from lakehouse.local.home import Home
from resources.build import build_resources
from tests.support.clouds.all_clouds import Clouds
from tests.support.clouds.aws.calls import Asked, Caller
from tests.support.clouds.aws.enforced import Enforced, denied, is_allowed
from tests.support.clouds.aws.world import ACCOUNT, REGION
from tests.support.clouds.confluent.state import ORGANIZATION_ID
from tests.support.clouds.enforced_chain import (
    Chain,
    as_user,
    command_variables,
    create_role,
    deployed,
    lead_to_kafka,
    run,
    run_verify,
    serving_spark,
    topics,
)
from tests.support.servers.proxy import Request, Response
from tests.support.topics import Stream

pytestmark = pytest.mark.stack

ROLES = ("writer", "maintenance", "reader", "rotation", "snowflake")


@pytest.fixture(scope="module")
def chain(stack: Home, clouds: Clouds, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    """The chain after one run in which all calls were allowed, with the Kafka and the registry of the shared stack."""
    table = {**clouds.topics["stock_trades"], "key": "userid", "engine": "tableflow"}
    clouds.topics = {**clouds.topics, "stock_trades": table}
    with pytest.MonkeyPatch.context() as patch, ExitStack() as opened:
        # IAM refuses trust in missing roles, and the simulated Confluent Cloud names this role.
        create_role(clouds, "arn:aws:iam::000000000000:role/cspi-000009")
        planner.apply(clouds.resources(), clouds.reported.append)
        lead_to_kafka(clouds)
        iam = clouds.aws.strict.client("iam")
        keys = {user: iam.create_access_key(UserName=user)["AccessKey"] for user in ("spark", "rotation")}
        names = clouds.credentials().names
        enforced = Enforced(clouds.aws.gaps, frozenset({"ours"}), names.role("snowflake"))
        clouds.aws.guard = enforced
        as_user(patch, keys["spark"])
        patch.delenv("PYICEBERG_CATALOG__GLUE__S3__ENDPOINT", raising=False)
        patch.setenv("SPARK_REMOTE", opened.enter_context(serving_spark(stack, tmp_path_factory.mktemp("spark"))))
        built = build_resources(deployed(clouds), "aws")
        resources = opened.enter_context(dg.build_resources(built))
        opened.callback(resources.spark.close)
        stream = Stream(resources, namespace="trading")
        opened.enter_context(topics(clouds.topics))
        chain = Chain(clouds, resources, stream, enforced, keys)
        run(chain)
        as_user(patch, keys["rotation"])
        rotated = clouds.rotate(Policy(day_count=0))
        assert [line for line in rotated if line.startswith("snowflake/key: ")]
        lead_to_kafka(clouds)
        yield chain
        clouds.aws.guard = clouds.aws.gaps


def test_chain_all_calls_are_allowed(chain: Chain) -> None:
    denied = {(decision.role, decision.asked) for decision in chain.enforced.decided if not decision.allowed}
    assert not denied
    names = chain.clouds.credentials().names
    assert {decision.role for decision in chain.enforced.decided} == {names.role(purpose) for purpose in ROLES}


def test_jvm_assumes_the_roles_of_its_plane(chain: Chain) -> None:
    names = chain.clouds.credentials().names
    roles = {decision.role for decision in chain.enforced.decided if decision.program == "java"}
    assert roles == {names.role("writer"), names.role("maintenance")}


def test_policies_have_no_superfluous_statement(chain: Chain) -> None:
    """Decide every call again without each statement of the policy of its role."""
    names, iam = chain.clouds.credentials().names, chain.clouds.aws.strict.client("iam")
    calls = {
        role: {decision.asked for decision in chain.enforced.decided if decision.role == names.role(role)}
        for role in ROLES
    }
    for role, asked in vendor_calls(chain).items():
        calls[role] = calls.get(role, set()) | asked
    superfluous = []
    for role, asked in calls.items():
        response = iam.get_role_policy(RoleName=names.role(role), PolicyName="lakehouse")
        policy = response["PolicyDocument"]
        assert asked and not [call for call in asked if not is_allowed([policy], call)], role
        for number, statement in enumerate(policy["Statement"]):
            without = {
                **policy,
                "Statement": [statement for n, statement in enumerate(policy["Statement"]) if n != number],
            }
            if all(is_allowed([without], call) for call in asked):
                superfluous.append((role, statement))
    assert not superfluous


def test_secret_of_rotation_is_read_by_its_role_alone(chain: Chain) -> None:
    names = chain.clouds.credentials().names
    for secret in (f"{names.confluent_secrets}/rotation", names.snowflake_rotation_secret):
        asked = Asked("secretsmanager:GetSecretValue", f"{names.secret_arn(secret)}-a1b2c3")
        allowed = {role for role, policy in policies_of_roles(chain).items() if is_allowed([policy], asked)}
        assert allowed == {names.role("rotation")}


def test_doctor_reports_each_role_and_reads_on_executors(chain: Chain) -> None:
    names = chain.clouds.credentials().names
    config = deployed(chain.clouds).model_copy(update={"topics": {chain.stream.topic.name: chain.stream.topic}})
    with pytest.MonkeyPatch.context() as patch:
        as_user(patch, chain.keys["spark"])
        diagnostics = list(examine(config, chain.resources))
        assert not [diagnostic for diagnostic in diagnostics if not diagnostic.ok]
        shown = {diagnostic.subject: diagnostic.observation for diagnostic in diagnostics}
        assert f"assumed-role/{names.role('maintenance')}/lakehouse" in shown["maintenance"]
        assert f"assumed-role/{names.role('writer')}/lakehouse" in shown["ingestion"]
        assert shown["Spark executors"].startswith("read trading.")

        as_user(patch, chain.keys["rotation"])
        refused = {diagnostic.subject for diagnostic in examine(config, chain.resources) if not diagnostic.ok}
        assert refused >= {"ingestion", "maintenance", "DuckDB", "Athena"}


def test_doctor_command_finds_executors_without_credentials(chain: Chain, tmp_path_factory: Any) -> None:
    """Replace the access key of this process, and then delete that of Spark's, which are of the same user."""
    clouds, of_spark = chain.clouds, chain.keys["spark"]
    other = clouds.aws.strict.client("iam").create_access_key(UserName="spark")["AccessKey"]

    def examined() -> subprocess.CompletedProcess[str]:
        variables = command_variables(clouds, other, tmp_path_factory.mktemp("doctor"), [chain.stream.topic])
        command = [sys.executable, "-m", "lakehouse.cli.main", "doctor", "--env", "aws"]
        return subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=180)

    healthy = examined()
    assert healthy.returncode == 0 and "read trading." in healthy.stdout, healthy.stdout + healthy.stderr

    def refuse(request: Request) -> Response | None:
        caller = Caller.of(request)
        is_deleted = caller is not None and caller.access_key == of_spark["AccessKeyId"]
        return denied("the access key does not exist", is_json=False) if is_deleted else chain.enforced(request)

    clouds.aws.guard = refuse
    try:
        broken = examined()
    finally:
        clouds.aws.guard = chain.enforced
    assert broken.returncode == 1, broken.stdout + broken.stderr
    failed = [line for line in broken.stdout.splitlines() if line.startswith("failed")]
    assert len(failed) == 1 and "Spark executors" in failed[0], broken.stdout
    assert "executors have credentials of their own" in broken.stdout


def test_verify_with_all_permissions_reports_them_and_cleans_up(chain: Chain) -> None:
    before = state_of_tables(chain)
    findings = [finding for user in chain.keys for finding in verify(chain, user)]
    assert not [finding for finding in findings if finding.outcome not in ("allowed", "unchecked")]
    assert state_of_tables(chain) == before
    for role, policy in policies_of_roles(chain).items():
        granted = {action for statement in policy["Statement"] for action in statement["Action"]}
        listed = " ".join(finding.permission for finding in findings if finding.role == role)
        assert not [action for action in granted if f"{action} " not in listed], role


def test_verify_command_of_a_spark_principal_succeeds(chain: Chain, tmp_path: Path) -> None:
    before = state_of_tables(chain)
    queue_results_of_athena(chain)
    done = run_verify(chain.clouds, chain.keys["spark"], tmp_path)
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    outcomes = [line.split()[0] for line in lines[:-1]]
    assert {*outcomes} == {"allowed", "unchecked"} and outcomes.count("allowed") > 50, done.stdout
    reason = "its credentials need its IAM role, which the caller may not assume"
    assert {f"unchecked {name}: all its permissions: {reason}" for name in rotation_identities(chain)} <= {*lines}
    assert not [secret for secret in chain.clouds.secrets() if secret in done.output]
    assert state_of_tables(chain) == before


def test_verify_without_rotation_principals_names_identities(chain: Chain) -> None:
    deployment = chain.clouds.credentials().deployment.model_copy(update={"rotation_principals": ()})
    findings = verify(chain, "spark", deployment=deployment)
    reason = "the deployment has no `rotation_principals`"
    unchecked = {finding.role for finding in findings if reason in finding.reason}
    assert unchecked == rotation_identities(chain)


def test_verify_without_a_statement_names_the_missing_permission(chain: Chain) -> None:
    """Verify without each statement of each policy in turn. The reader and maintenance do not affect each other."""
    before, silent = state_of_tables(chain), []
    snowflake = chain.clouds.credentials().names.role("snowflake")
    policies = policies_of_roles(chain)
    statements = {role: policy["Statement"] for role, policy in policies.items()}
    writer, maintenance, reader, rotation = policies
    for user, roles in (("spark", (writer,)), ("spark", (maintenance, reader)), ("rotation", (rotation,))):
        for number in range(max(len(statements[role]) for role in roles)):
            removed = {role: statements[role][number] for role in roles if number < len(statements[role])}
            chain.enforced.replaced = {
                role: {**policies[role], "Statement": [kept for kept in statements[role] if kept is not statement]}
                for role, statement in removed.items()
            }
            findings = verify(chain, user)
            chain.enforced.replaced = {}
            denied = [finding for finding in findings if finding.outcome == "denied"]
            for role, statement in removed.items():
                missing = [f"{role} lacks {action} " for action in statement["Action"]]
                if not any(words in finding.reason for words in missing for finding in denied):
                    silent.append((role, statement, denied))
            assert {finding.role for finding in denied} <= {*removed, snowflake}
            if [finding for finding in findings if finding.permission.startswith("removal of ")]:
                # Maintenance may not remove the table, which is reported. The next verification removes it.
                assert maintenance in removed, removed
                verify(chain, user)
            assert state_of_tables(chain) == before, removed
    assert not silent


def policies_of_roles(chain: Chain) -> dict[str, Any]:
    """Return the policies of the roles that the deployment's own programs assume, by name of the role."""
    names, iam = chain.clouds.credentials().names, chain.clouds.aws.strict.client("iam")
    roles = map(names.role, ("writer", "maintenance", "reader", "rotation"))
    return {role: iam.get_role_policy(RoleName=role, PolicyName="lakehouse")["PolicyDocument"] for role in roles}


def rotation_identities(chain: Chain) -> set[str]:
    """Return the names of the service account and the user that replace keys."""
    names = chain.clouds.credentials().names
    return {names.service_account("rotation"), names.snowflake("ROTATION_USER")}


def verify(chain: Chain, user: str, **changes: Any) -> list[Finding]:
    """Verify the deployment as a user.

    Args:
        chain: The deployment.
        user: The name of the user.
        changes: Fields of the administrator's credentials.
    """
    queue_results_of_athena(chain)
    credentials = replace(chain.clouds.credentials(), environment="aws", **changes)
    with pytest.MonkeyPatch.context() as patch:
        as_user(patch, chain.keys[user])
        return list(Verification(deployed(chain.clouds), credentials, chain.resources).run())


def queue_results_of_athena(chain: Chain) -> None:
    """Give the simulated Athena the results of a verification's two queries."""
    column = {"Name": "n", "Type": "bigint"}
    counted = {"rows": [{"Data": [{"VarCharValue": value}]} for value in ("n", "3")], "column_info": [column]}
    results = {"account_id": ACCOUNT, "region": REGION, "results": [counted, counted]}
    url = f"{chain.clouds.aws.strict.address}/moto-api/static/athena/query-results"
    requests.post(url, json=results, timeout=30).raise_for_status()


def state_of_tables(chain: Chain) -> Any:
    """Return the tables in Glue and Snowflake, and the files."""
    names, client = chain.clouds.credentials().names, chain.clouds.aws.strict.client
    tables = client("glue", region=REGION).get_tables(DatabaseName="trading")["TableList"]
    files = client("s3", region=REGION).list_objects_v2(Bucket=names.bucket).get("Contents", ())
    uploads = client("s3", region=REGION).list_multipart_uploads(Bucket=names.bucket).get("Uploads", ())
    with pytest.MonkeyPatch.context() as patch:
        as_user(patch, chain.keys["spark"])
        _, rows = chain.resources.snowflake.query(f'SHOW ICEBERG TABLES IN DATABASE "{names.snowflake("DATABASE")}"')
    return (
        [(table["Name"], table["Parameters"]["metadata_location"]) for table in tables],
        [file["Key"] for file in files],
        list(uploads),
        len(rows),
    )


def vendor_calls(chain: Chain) -> dict[str, set[Asked]]:
    """Return documented calls of vendors that the local servers do not make.

    Athena calls with the rights of its caller, Snowflake and Tableflow with those of their roles.
    """
    names, table = chain.clouds.credentials().names, chain.stream.topic.table
    env = next(iter(chain.clouds.confluent.state.environments))
    bucket, tableflow_bucket = (f"arn:aws:s3:::{name}" for name in (names.bucket, names.tableflow_bucket))
    tableflow_prefix = f"1011/0110/{ORGANIZATION_ID}/{env}/{chain.cluster}/v1/t"
    prefix, result = f"warehouse/trading/{table}", "athena/1.csv"
    glue = f"arn:aws:glue:{REGION}:{ACCOUNT}"
    spark_tables = (f"{glue}:database/trading", f"{glue}:table/trading/{table}")
    tableflow = (f"{glue}:database/{chain.cluster}", f"{glue}:table/{chain.cluster}/stock_trades")

    def bucket_of(key: str) -> str:
        return tableflow_bucket if key.startswith(tableflow_prefix) else bucket

    def objects(actions: str, *keys: str) -> set[Asked]:
        return {Asked(f"s3:{action}", f"{bucket_of(key)}/{key}") for action in actions.split() for key in keys}

    def listing(*keys: str) -> set[Asked]:
        return {Asked("s3:ListBucket", bucket_of(key), (("s3:prefix", key),)) for key in keys}

    def tables(actions: str, *resources: str) -> set[Asked]:
        return {Asked(f"glue:{a}", r) for a in actions.split() for r in (f"{glue}:catalog", *resources)}

    location = {Asked("s3:GetBucketLocation", name) for name in (bucket, tableflow_bucket)}
    uploads = "PutObject AbortMultipartUpload ListMultipartUploadParts"
    return {
        # Amazon Athena, "Control access to Amazon S3 from Athena"; "Configure access to databases and tables".
        "reader": location
        | listing(f"{prefix}/", f"{tableflow_prefix}/", "athena/")
        | objects("GetObject", f"{prefix}/f", f"{tableflow_prefix}/f", result)
        | objects(uploads, result)
        | tables("GetDatabase", f"{glue}:database/default")
        | tables("GetTable GetDatabase", *spark_tables, *tableflow),
        # Snowflake, "Configure an external volume for Amazon S3".
        "snowflake": location
        | listing(f"{prefix}/", f"{tableflow_prefix}/")
        | objects("GetObject GetObjectVersion", f"{prefix}/f", f"{tableflow_prefix}/f"),
        # Confluent, "Integrate Tableflow with the AWS Glue Catalog".
        "confluent": {
            Asked(f"s3:{action}", tableflow_bucket)
            for action in ("GetBucketLocation", "ListBucket", "ListBucketMultipartUploads")
        }
        | objects(f"GetObject PutObjectTagging {uploads}", f"{tableflow_prefix}/f")
        | tables("GetTable CreateTable UpdateTable DeleteTable", *tableflow)
        | tables("CreateDatabase DeleteDatabase", f"{glue}:database/{chain.cluster}"),
    }
