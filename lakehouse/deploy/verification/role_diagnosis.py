"""Diagnosis of AWS identities: the caller, the role that each component assumes, and Spark's executors."""

from collections.abc import Iterator

from botocore.exceptions import BotoCoreError
from pyspark.errors import PySparkException

from lakehouse.config.model import Config
from lakehouse.core.errors import Diagnostic, LakehouseError
from lakehouse.deploy.aws.aws_service import Service
from resources.aws.clients import TIMEOUT_SECONDS, boto3_session
from resources.iceberg.rest_settings import NONE, VENDED
from resources.kafka.msk import MSK_IAM
from resources.protocols import Resources

ROLE_SETTINGS = {
    "ingestion": ("catalog", "role_arn"),
    "maintenance": ("catalog", "maintenance_role_arn"),
    "DuckDB": ("catalog", "reader_role_arn"),
    "Athena": ("athena", "role_arn"),
    "Glue": ("glue", "role_arn"),
    "Kafka": ("kafka", "role_arn"),
    "schema registry": ("schema_registry", "role_arn"),
    "Snowflake": ("snowflake", "role_arn"),
    "Confluent Cloud": ("confluent_cloud", "role_arn"),
    "Tableflow": ("tableflow_catalog", "role_arn"),
}
"""System and setting with the role, by the component that assumes it. An environment need not have all systems."""
ONLY_AWS = ("athena", "glue", "tableflow_catalog")
"""Systems of AWS."""
AWS_SETTINGS = ("maintenance_role_arn", "reader_role_arn", "role_arn", "secret", "sigv4", "tableflow_secret")
"""Settings of the other systems that need AWS."""
TRUST = (
    "Run the command as a principal in `spark_principals` of the deployment, or add the principal and run `lakehouse "
    "deploy create`"
)


def examine(config: Config, resources: Resources) -> Iterator[Diagnostic]:
    """Yield a diagnostic of the caller, of each component, and of the executors. Nothing is changed.

    Args:
        config: lakehouse.yaml.
        resources: Those of the environment; `catalog` and `spark` at least.
    """
    region = resources.catalog.region
    if _needs_aws(resources):
        yield _identity("AWS credentials", "", region, "Set AWS credentials: `aws sts get-caller-identity` has to work")
    else:
        yield Diagnostic("AWS credentials", True, "not checked: no system of the environment is in AWS")
    for component, (system, setting) in ROLE_SETTINGS.items():
        if not hasattr(resources, system):
            continue
        if role_arn := getattr(getattr(resources, system), setting, ""):
            yield _identity(component, role_arn, region, TRUST)
        else:
            yield Diagnostic(component, True, "assumes no role: the credentials of the process apply")
    yield _executors(config, resources)


def _needs_aws(resources: Resources) -> bool:
    """Return whether a system is in AWS: S3, too, unless it is elsewhere or the catalog issues credentials for it."""
    catalog, kafka = resources.catalog, getattr(resources, "kafka", None)
    is_s3_of_aws = not getattr(catalog, "s3_endpoint", None) and getattr(catalog, "access_delegation", NONE) != VENDED
    systems = [getattr(resources, system, None) for system, _ in ROLE_SETTINGS.values()]
    return (
        is_s3_of_aws
        or any(hasattr(resources, system) for system in ONLY_AWS)
        or any(getattr(system, setting, None) for system in systems for setting in AWS_SETTINGS)
        or getattr(kafka, "sasl_mechanism", None) == MSK_IAM
    )


def _identity(subject: str, role_arn: str, region: str | None, remedy: str) -> Diagnostic:
    try:
        # A missing profile is an error of the session already.
        service = Service(boto3_session(role_arn, region), "sts", region or "", TIMEOUT_SECONDS)
        return Diagnostic(subject, True, str(service.call("get_caller_identity")["Arn"]))
    except (LakehouseError, BotoCoreError) as error:
        return Diagnostic(subject, False, f"{role_arn} {error}".strip(), remedy)


def _executors(config: Config, resources: Resources) -> Diagnostic:
    """Let executors read a row of the first table that has one: they assume the role by themselves."""
    subject, remedy = "Spark executors", f"{TRUST}: executors have credentials of their own, and must reach AWS STS"
    try:
        for topic in config.topics.values():
            if not topic.is_ingested:
                continue
            published = resources.catalog.chain(topic.table_in(config.namespace)).published
            if published is None:
                continue
            ref, _ = published
            session = resources.spark.session(resources.catalog.spark_settings())
            session.table(ref.spark_path()).limit(1).collect()
            return Diagnostic(subject, True, f"read {ref} as {resources.catalog.role_arn or 'themselves'}")
    except (LakehouseError, PySparkException) as error:
        return Diagnostic(subject, False, str(error).partition("\n")[0], remedy)
    return Diagnostic(
        subject, True, "not checked: no table has rows yet. Ingest a topic and run `lakehouse doctor` again"
    )
