"""A deployment as an environment of lakehouse.yaml: where its systems are, and which secrets have their credentials."""

from __future__ import annotations

from typing import Any

from lakehouse.deploy.aws.tables import WAREHOUSE
from lakehouse.deploy.names import Names


def settings(names: Names, warehouse: str | None = None) -> dict[str, dict[str, Any]]:
    """The settings of each system, by its resource's fields. None is a secret.

    Parameters: the Snowflake warehouse that was given to the deployment, if one was.
    """
    return {
        "kafka": {
            "secret": f"{names.confluent_secrets}/kafka_cluster/spark/python_client",
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "PLAIN",
        },
        "schema_registry": {"secret": f"{names.confluent_secrets}/schema_registry_cluster/spark/python_client"},
        "spark": {"remote": {"env": "SPARK_REMOTE"}},
        "catalog": {"type": "glue", "warehouse": f"s3://{names.bucket}/{WAREHOUSE}", "region": names.region},
        "glue": {
            "region": names.region,
            "catalog_id": names.account,
            "tableflow_database": {"env": "TABLEFLOW_DATABASE", "default": ""},
        },
        "snowflake": {
            "secret": names.snowflake_secret,
            "warehouse": warehouse or names.snowflake("WAREHOUSE"),
            "database": names.snowflake("DATABASE"),
            "aws_role_arn": names.role_arn("snowflake"),
            "external_volume": names.snowflake("VOLUME"),
            "catalog_integration": names.snowflake("GLUE"),
            "glue_catalog_id": names.account,
            "region": names.region,
        },
        "athena": {"region": names.region, "workgroup": names.workgroup},
    }
