"""The settings of a deployment as an environment of lakehouse.yaml."""

from __future__ import annotations

from typing import Any

from lakehouse.deploy.aws.table_locations import WAREHOUSE
from lakehouse.deploy.names import Names


def settings(names: Names, *, with_roles: bool = True) -> dict[str, dict[str, Any]]:
    """Return the settings of each system, by the fields of its Dagster resource. None is a secret.

    Args:
        names: The names of the deployment's resources.
        with_roles: Whether the deployment has roles for the principals that run Spark and Dagster.
    """
    systems = _systems(names)
    if with_roles:
        for system in ("kafka", "schema_registry", "catalog", "glue", "snowflake"):
            systems[system]["role_arn"] = names.role_arn("writer")
        systems["catalog"]["maintenance_role_arn"] = names.role_arn("maintenance")
        systems["catalog"]["reader_role_arn"] = systems["athena"]["role_arn"] = names.role_arn("reader")
    return systems


def _systems(names: Names) -> dict[str, dict[str, Any]]:
    return {
        "kafka": {
            "secret": f"{names.confluent_secrets}/kafka_cluster/spark/python_client",
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "PLAIN",
        },
        "schema_registry": {"secret": f"{names.confluent_secrets}/schema_registry_cluster/spark/python_client"},
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
