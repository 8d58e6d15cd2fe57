"""The settings of a deployment as an environment of lakehouse.yaml."""

from typing import Any

from lakehouse.config.deployment import Deployment
from lakehouse.config.model import Config
from lakehouse.deploy.aws.objects import WAREHOUSE
from lakehouse.deploy.confluent.declared import DeclaredTopics
from lakehouse.deploy.names import Names


def settings_of(deployment: Deployment, names: Names, config: Config) -> dict[str, dict[str, Any]]:
    """Return the settings of each system of a deployment with the topics of lakehouse.yaml."""
    return settings(
        names,
        with_roles=bool(deployment.spark_principals),
        stored_by_confluent=bool(DeclaredTopics(config, deployment).stored_by_confluent),
    )


def settings(names: Names, *, with_roles: bool = True, stored_by_confluent: bool = False) -> dict[str, dict[str, Any]]:
    """Return the settings of each system, by the fields of its Dagster resource. None is a secret.

    Args:
        names: The names of the deployment's resources.
        with_roles: Whether the deployment has roles for the principals that run Spark and Dagster.
        stored_by_confluent: Whether tables of Tableflow are in Confluent's storage.
    """
    systems = _systems(names)
    if stored_by_confluent:
        systems["tableflow_catalog"] = {"secret": names.confluent_secret("spark", "tableflow"), "region": names.region}
        # Snowflake reads none of these tables.
        del systems["snowflake"]["tableflow_external_volume"]
    if with_roles:
        for system in systems.keys() - {"spark", "athena"}:
            systems[system]["role_arn"] = names.role_arn("writer")
        systems["catalog"]["maintenance_role_arn"] = names.role_arn("maintenance")
        systems["catalog"]["reader_role_arn"] = systems["athena"]["role_arn"] = names.role_arn("reader")
    return systems


def _systems(names: Names) -> dict[str, dict[str, Any]]:
    return {
        "kafka": {
            "secret": names.confluent_secret("spark", "kafka"),
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "PLAIN",
        },
        "schema_registry": {"secret": names.confluent_secret("spark", "schema_registry")},
        "spark": {"remote": {"env": "SPARK_REMOTE"}},
        "catalog": {"type": "glue", "warehouse": f"s3://{names.bucket}/{WAREHOUSE}", "region": names.region},
        "glue": {"region": names.region, "catalog_id": names.account},
        "snowflake": {
            "secret": names.snowflake_secret,
            "warehouse": names.snowflake("WAREHOUSE"),
            "database": names.snowflake("DATABASE"),
            "aws_role_arn": names.role_arn("snowflake"),
            "external_volume": names.snowflake("VOLUME"),
            "tableflow_external_volume": names.snowflake("TABLEFLOW_VOLUME"),
            "catalog_integration": names.snowflake("GLUE"),
            "glue_catalog_id": names.account,
            "region": names.region,
        },
        "athena": {"region": names.region, "workgroup": names.workgroup},
    }
