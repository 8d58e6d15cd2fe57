"""A deployed lakehouse with IAM enforced: each plane works under its role and needs each statement of its policy.

The simulated AWS decides on every call of Python, pyarrow and the JVM by the policies that `create` made.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import threading
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import boto3
import dagster as dg
import pyarrow as pa
import pytest
import requests
from confluent_kafka.admin import AdminClient, NewTopic
from moto.backends import get_backend
from pyiceberg.catalog.glue import GlueCatalog

from lakehouse.config.loader import Config
from lakehouse.core.tables import naming
from lakehouse.core.tables.table_ref import TableRef
from lakehouse.deploy.aws.iam import policies
from lakehouse.deploy.confluent.keys.stored_api_keys import ApiKeyResource
from lakehouse.deploy.planning import planner
from lakehouse.deploy.planning.planner import needed_by
from lakehouse.deploy.rotation import Policy, rotate
from lakehouse.deploy.settings import settings
from lakehouse.deploy.verification.permission_probe import Finding
from lakehouse.deploy.verification.role_diagnosis import examine
from lakehouse.deploy.verification.verify import Verification
from lakehouse.local import client_environment, jars
from lakehouse.local import stack as local_stack
from lakehouse.local.home import Home
from lakehouse.local.processes import ports, process
from lakehouse.local.servers import spark_server
from lakehouse.pipeline.batches.dry_run import dry_run
from lakehouse.pipeline.maintenance import maintain
from lakehouse.query import duckdb
from lakehouse.readers import reader_of
from resources.build import build_resources
from tests.support.clouds.all_clouds import Clouds
from tests.support.clouds.aws.calls import Asked
from tests.support.clouds.aws.enforced import Enforced, is_allowed
from tests.support.clouds.aws.world import ACCOUNT, REGION
from tests.support.clouds.confluent.state import ORGANIZATION_ID
from tests.support.processes.cluster import free_ports
from tests.support.topics import Stream

pytestmark = pytest.mark.stack

PLANES = ("writer", "maintenance", "reader", "rotation", "snowflake")


@dataclass
class Chain:
    """A deployment in the three clouds, with the resources of its environment."""

    clouds: Clouds
    resources: Any
    stream: Stream
    enforced: Enforced
    keys: dict[str, Any]
    """The access keys of the users that assume roles, by name."""

    @property
    def cluster(self) -> str:
        return str(next(iter(self.clouds.confluent.state.clusters)))


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """Kafka and a schema registry, to which the environment variables lead."""
    home = Home(tmp_path_factory.mktemp("kafka") / "home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m")
        try:
            local_stack.up(home, ("kafka", "registry"))
            for name in ("KAFKA_BOOTSTRAP_SERVERS", "SCHEMA_REGISTRY_URL"):
                patch.setenv(name, client_environment.environment(home)[name])
            yield home
        finally:
            local_stack.down(home)


@pytest.fixture(scope="module")
def chain(kafka: Home, clouds: Clouds, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    """The chain after one run in which all calls were allowed."""
    table = {**clouds.topics["stock_trades"], "key": "userid", "engine": "tableflow"}
    clouds.topics = {**clouds.topics, "stock_trades": table}
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        # IAM refuses trust in missing roles, and the simulated Confluent Cloud names this role.
        create_role(clouds, "arn:aws:iam::000000000000:role/cspi-000008")
        planner.apply(clouds.resources(), clouds.reported.append)
        _lead_to_kafka(clouds)
        iam = clouds.aws.strict.client("iam")
        keys = {user: iam.create_access_key(UserName=user)["AccessKey"] for user in ("spark", "rotation")}
        names = clouds.access().names
        enforced = Enforced(clouds.aws.gaps, frozenset({"ours"}), names.role("snowflake"))
        clouds.aws.guard = enforced
        as_user(patch, keys["spark"])
        patch.delenv("PYICEBERG_CATALOG__GLUE__S3__ENDPOINT", raising=False)
        patch.setenv("SPARK_REMOTE", stack.enter_context(serving_spark(kafka, tmp_path_factory.mktemp("spark"))))
        built = build_resources(deployed(clouds), "aws")
        resources = stack.enter_context(dg.build_resources(built))
        stack.callback(resources.spark.close)
        stream = Stream(resources, namespace="trading")
        create_topics(clouds.topics)
        chain = Chain(clouds, resources, stream, enforced, keys)
        run(chain)
        as_user(patch, keys["rotation"])
        keys_of_confluent = needed_by(clouds.rotated_resources(), ApiKeyResource)
        list(rotate(keys_of_confluent, Policy(day_count=0), clouds.sleepless.clock))
        _lead_to_kafka(clouds)
        yield chain
        clouds.aws.guard = clouds.aws.gaps


def create_topics(names: Iterable[str]) -> None:
    admin = AdminClient({"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]})
    for created in admin.create_topics([NewTopic(name, 1) for name in names]).values():
        created.result()


def create_role(clouds: Clouds, arn: str) -> None:
    iam = clouds.aws.strict.client("iam", account=arn.split(":")[4])
    trust = json.dumps(policies.own_trust(f"arn:aws:iam::{ACCOUNT}:user/spark"))
    iam.create_role(RoleName=arn.rpartition("/")[2], AssumeRolePolicyDocument=trust)


def as_user(patch: pytest.MonkeyPatch, key: Any) -> None:
    patch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
    patch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])
    boto3.DEFAULT_SESSION = None


def _lead_to_kafka(clouds: Clouds) -> None:
    """Change the Kafka addresses in the secrets, because the simulated Confluent Cloud has no Kafka."""
    client, path = clouds.aws.strict.client("secretsmanager", region=REGION), clouds.access().names.confluent_secrets
    addresses = {
        "kafka_cluster/spark/python_client": {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]},
        "schema_registry_cluster/spark/python_client": {"schema.registry.url": os.environ["SCHEMA_REGISTRY_URL"]},
    }
    for name, address in addresses.items():
        secret = f"{path}/{name}"
        current = client.get_secret_value(SecretId=secret, VersionStage="AWSCURRENT")
        value = json.dumps(json.loads(current["SecretString"]) | address)
        # moto does not move AWSCURRENT from a version that has AWSPENDING, too.
        changed = client.put_secret_value(SecretId=secret, SecretString=value, VersionStages=["AWSPENDING"])
        client.update_secret_version_stage(
            SecretId=secret,
            VersionStage="AWSCURRENT",
            MoveToVersionId=changed["VersionId"],
            RemoveFromVersionId=current["VersionId"],
        )


@contextmanager
def serving_spark(kafka: Home, folder: Path) -> Iterator[str]:
    """Run a Spark server that uses the AWS endpoints of this process."""
    home, [port] = Home(folder / "home"), free_ports(1)
    jars.fetch(["spark"])
    context = client_environment.context(kafka, ports.recorded(kafka))
    aws = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    variables = {**context.environment, **aws, "SPARK_REMOTE": f"sc://localhost:{port}"}
    variables.pop("AWS_ENDPOINT_URL_S3", None)
    server = spark_server.server(
        replace(context, home=home, ports={**context.ports, "spark": port}, environment=variables), {}
    )
    running = process.start(server, home)
    try:
        process.wait_until_ready(server, running.leader, home, threading.Event())
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SPARK_CONNECT_AUTHENTICATE_TOKEN", variables["SPARK_CONNECT_AUTHENTICATE_TOKEN"])
            yield server.address
    finally:
        process.stop(server.name, home)


def deployed(clouds: Clouds) -> Config:
    """Return the environment that `lakehouse deploy environment` prints, with local addresses."""
    systems = settings(clouds.access().names)
    systems["kafka"]["security_protocol"] = "PLAINTEXT"
    del systems["kafka"]["sasl_mechanism"]
    systems["glue"]["tableflow_database"] = next(iter(clouds.confluent.state.clusters))
    systems["catalog"]["s3_endpoint"] = os.environ["AWS_ENDPOINT_URL"]
    systems["snowflake"] |= {"host": "127.0.0.1", "port": clouds.snowflake.port, "protocol": "http"}
    declared = clouds.config().model_dump(by_alias=True)
    declared["topics"] = {name: {**topic, "name": name} for name, topic in declared["topics"].items()}
    return Config.model_validate({**declared, "environments": {"aws": systems}})


def run(chain: Chain) -> None:
    """Ingest, publish, maintain, query and dry-run one topic, and read a table of Tableflow."""
    stream, resources = chain.stream, chain.resources
    stream.schema()
    dry_run(stream.namespace, stream.topic, stream.systems, 10)
    for first in (0, 100, 200):
        stream.produce_trades(range(first, first + 100))
        stream.ingest()
    stream.produce([{"value": b"no trade"}])
    stream.ingest()
    ref, table = resources.catalog.published(stream.topic.table_in(stream.namespace))
    reader_of("glue").publish(stream.topic, ref, table, resources)
    reader_of("snowflake").publish(stream.topic, ref, table, resources)
    dry_run(stream.namespace, stream.topic, stream.systems, 10)
    _tableflow_table(chain)
    _leave_orphan(chain)
    done = list(maintain(stream.namespace, stream.topic, resources.catalog, resources.spark))
    assert "removed 1 orphaned files" in done[0].done, done
    assert duckdb.query(f'SELECT count(*) FROM "{ref.namespace}"."{ref.name}"', resources).rows == [(300,)]
    resources.athena.query("SELECT 1")
    _, [(count,)] = resources.snowflake.query(f'SELECT count(*) FROM {ref.namespace}."{ref.name.upper()}"')
    assert count == 300


def _tableflow_table(chain: Chain) -> None:
    """Write a table as Tableflow does, and read it as its asset does."""
    endpoint, clouds = os.environ["AWS_ENDPOINT_URL"], chain.clouds
    credentials = {"s3.access-key-id": "ours", "s3.secret-access-key": "secret"}
    credentials |= {"client.access-key-id": "ours", "client.secret-access-key": "secret"}
    catalog = GlueCatalog("tableflow", **credentials, **{"s3.endpoint": endpoint, "client.region": REGION})
    catalog.create_namespace(chain.cluster)
    rows = pa.table({"userid": ["User_1"], "price": [5]})
    env = next(iter(clouds.confluent.state.environments))
    prefix = f"1011/0110/{ORGANIZATION_ID}/{env}/{chain.cluster}/v1"
    location = f"s3://{clouds.access().names.tableflow_bucket}/{prefix}/{uuid.uuid4()}"
    table = catalog.create_table((chain.cluster, "stock_trades"), rows.schema, location=location)
    table.append(rows)
    resources = chain.resources
    table_of_asset = resources.catalog.load(TableRef(chain.cluster, "stock_trades"))
    session = resources.spark.session(resources.catalog.spark_settings())
    name = f"`{chain.cluster}`.stock_trades"
    assert session.sql(f"SELECT count(*) FROM {naming.CATALOG}.{name}").first()[0] == 1
    assert table_of_asset.scan().to_arrow().num_rows == 1


def _leave_orphan(chain: Chain) -> None:
    """Create an unreferenced file that is old enough to be removed."""
    names = chain.clouds.access().names
    s3 = chain.clouds.aws.strict.client("s3", region=REGION)
    key = f"warehouse/trading/{chain.stream.topic.table}/data/orphan.parquet"
    s3.put_object(Bucket=names.bucket, Key=key, Body=b"")
    orphan = get_backend("s3")[ACCOUNT]["aws"].buckets[names.bucket].keys[key]
    orphan.last_modified -= dt.timedelta(days=7)


def test_chain_all_calls_are_allowed(chain: Chain) -> None:
    denied = {(each.role, each.asked) for each in chain.enforced.decided if not each.allowed}
    assert not denied
    names = chain.clouds.access().names
    assert {each.role for each in chain.enforced.decided} == {names.role(plane) for plane in PLANES}


def test_jvm_assumes_the_roles_of_its_plane(chain: Chain) -> None:
    names = chain.clouds.access().names
    roles = {each.role for each in chain.enforced.decided if each.program == "java"}
    assert roles == {names.role("writer"), names.role("maintenance")}


def test_policies_have_no_superfluous_statement(chain: Chain) -> None:
    """Decide every call again without each statement of the policy of its role."""
    names, iam = chain.clouds.access().names, chain.clouds.aws.strict.client("iam")
    calls = {role: {each.asked for each in chain.enforced.decided if each.role == names.role(role)} for role in PLANES}
    for role, asked in vendor_calls(chain).items():
        calls[role] = calls.get(role, set()) | asked
    superfluous = []
    for role, asked in calls.items():
        answer = iam.get_role_policy(RoleName=names.role(role), PolicyName="lakehouse")
        policy = answer["PolicyDocument"]
        assert asked and not [each for each in asked if not is_allowed([policy], each)], role
        for number, statement in enumerate(policy["Statement"]):
            without = {**policy, "Statement": [each for n, each in enumerate(policy["Statement"]) if n != number]}
            if all(is_allowed([without], each) for each in asked):
                superfluous.append((role, statement))
    assert not superfluous


def test_doctor_reports_role_of_each_plane_and_reads_on_executors(chain: Chain) -> None:
    names = chain.clouds.access().names
    config = deployed(chain.clouds).model_copy(update={"topics": {chain.stream.topic.name: chain.stream.topic}})
    with pytest.MonkeyPatch.context() as patch:
        as_user(patch, chain.keys["spark"])
        diagnostics = list(examine(config, chain.resources))
        assert not [each for each in diagnostics if not each.ok]
        shown = {each.subject: each.observation for each in diagnostics}
        assert f"assumed-role/{names.role('maintenance')}/lakehouse" in shown["maintenance"]
        assert f"assumed-role/{names.role('writer')}/lakehouse" in shown["ingestion"]
        assert shown["Spark executors"].startswith("read trading.")

        as_user(patch, chain.keys["rotation"])
        refused = {each.subject for each in examine(config, chain.resources) if not each.ok}
        assert refused >= {"ingestion", "maintenance", "DuckDB", "Athena"}


def test_verify_with_all_permissions_reports_them_and_cleans_up(chain: Chain) -> None:
    before = state_of_tables(chain)
    findings = [finding for user in chain.keys for finding in verify(chain, user)]
    assert not [each for each in findings if each.outcome not in ("allowed", "unchecked")]
    assert state_of_tables(chain) == before
    for role, policy in policies_of_planes(chain).items():
        granted = {action for statement in policy["Statement"] for action in statement["Action"]}
        listed = " ".join(each.permission for each in findings if each.role == role)
        assert not [action for action in granted if f"{action} " not in listed], role


def test_verify_without_a_statement_names_the_missing_permission(chain: Chain) -> None:
    """Verify without each statement of each policy in turn."""
    before, silent = state_of_tables(chain), []
    snowflake = chain.clouds.access().names.role("snowflake")
    for role, policy in policies_of_planes(chain).items():
        user = "rotation" if role.endswith("rotation") else "spark"
        for number, statement in enumerate(policy["Statement"]):
            kept = [each for n, each in enumerate(policy["Statement"]) if n != number]
            chain.enforced.replaced = {role: {**policy, "Statement": kept}}
            findings = verify(chain, user)
            chain.enforced.replaced = {}
            denied = [each for each in findings if each.outcome == "denied"]
            missing = [f"{role} lacks {action} " for action in statement["Action"]]
            if not any(words in each.reason for words in missing for each in denied):
                silent.append((role, statement, denied))
            assert {each.role for each in denied} <= {role, snowflake}
            if [each for each in findings if each.permission.startswith("removal of ")]:
                # Maintenance may not remove the table, which is reported. The next verification removes it.
                assert role.endswith("maintenance"), (role, statement)
                verify(chain, user)
            assert state_of_tables(chain) == before, (role, statement)
    assert not silent


def policies_of_planes(chain: Chain) -> dict[str, Any]:
    """Return the policies of the roles that the deployment's own programs assume, by name of the role."""
    names, iam = chain.clouds.access().names, chain.clouds.aws.strict.client("iam")
    roles = map(names.role, ("writer", "maintenance", "reader", "rotation"))
    return {role: iam.get_role_policy(RoleName=role, PolicyName="lakehouse")["PolicyDocument"] for role in roles}


def verify(chain: Chain, user: str) -> list[Finding]:
    """Verify the deployment as a user. The simulated Athena has to be given a result for each of its two queries."""
    column = {"Name": "n", "Type": "bigint"}
    counted = {"rows": [{"Data": [{"VarCharValue": value}]} for value in ("n", "3")], "column_info": [column]}
    results = {"account_id": ACCOUNT, "region": REGION, "results": [counted, counted]}
    url = f"{chain.clouds.aws.strict.address}/moto-api/static/athena/query-results"
    requests.post(url, json=results, timeout=30).raise_for_status()
    access = replace(chain.clouds.access(), environment="aws")
    with pytest.MonkeyPatch.context() as patch:
        as_user(patch, chain.keys[user])
        return list(Verification(deployed(chain.clouds), access, chain.resources).run())


def state_of_tables(chain: Chain) -> Any:
    """Return the tables in Glue and Snowflake, and the files."""
    names, client = chain.clouds.access().names, chain.clouds.aws.strict.client
    tables = client("glue", region=REGION).get_tables(DatabaseName="trading")["TableList"]
    files = client("s3", region=REGION).list_objects_v2(Bucket=names.bucket).get("Contents", ())
    uploads = client("s3", region=REGION).list_multipart_uploads(Bucket=names.bucket).get("Uploads", ())
    with pytest.MonkeyPatch.context() as patch:
        as_user(patch, chain.keys["spark"])
        _, rows = chain.resources.snowflake.query(f'SHOW ICEBERG TABLES IN DATABASE "{names.snowflake("DATABASE")}"')
    return (
        [(each["Name"], each["Parameters"]["metadata_location"]) for each in tables],
        [each["Key"] for each in files],
        list(uploads),
        len(rows),
    )


def vendor_calls(chain: Chain) -> dict[str, set[Asked]]:
    """Return documented calls of vendors that the local servers do not make.

    Athena calls with the rights of its caller, Snowflake and Tableflow with those of their roles.
    """
    names, table = chain.clouds.access().names, chain.stream.topic.table
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

    location = {Asked("s3:GetBucketLocation", each) for each in (bucket, tableflow_bucket)}
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
