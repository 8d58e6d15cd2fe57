"""The settings of a deployment as an environment of lakehouse.yaml."""

from collections.abc import Mapping
from typing import Any

from lakehouse.config.deployment import Deployment
from lakehouse.config.environment import EnvRef, SettingValue
from lakehouse.config.model import Config
from lakehouse.deploy.aws.foundation import WAREHOUSE
from lakehouse.deploy.confluent.declared import DeclaredTopics
from lakehouse.deploy.names import Names
from resources.build import system
from resources.spark.spark import Spark


def settings_of(deployment: Deployment, names: Names, config: Config) -> dict[str, dict[str, Any]]:
    """Return the settings of each system of a deployment with the topics of lakehouse.yaml."""
    return settings(
        names,
        spark=declared_spark(config, deployment),
        with_roles=bool(deployment.spark_principals),
        stored_by_confluent=bool(DeclaredTopics(config, deployment).stored_by_confluent),
    )


def declared_spark(config: Config, deployment: Deployment) -> Mapping[str, SettingValue]:
    """Return the settings of Spark in the environment of a deployment, if they name a kind of server."""
    environments = (name for name, declared in config.deployments.items() if declared == deployment)
    spark = config.environments.get(next(environments, ""), {}).get("spark", {})
    return spark if "type" in spark else {}


def spark_class(config: Config, deployment: Deployment) -> type[Spark]:
    """Return the kind of Spark server of a deployment."""
    class_ = system("spark", declared_spark(config, deployment))
    assert issubclass(class_, Spark)
    return class_


def settings(
    names: Names,
    *,
    spark: Mapping[str, SettingValue] | None = None,
    with_roles: bool = True,
    stored_by_confluent: bool = False,
) -> dict[str, dict[str, Any]]:
    """Return the settings of each system, by the fields of its Dagster resource. None is a secret.

    Args:
        names: The names of the deployment's resources.
        spark: Those of Spark, if the environment declares another kind than an address.
        with_roles: Whether the deployment has roles for the principals that run Spark and Dagster.
        stored_by_confluent: Whether tables of Tableflow are in Confluent's storage.
    """
    systems = _systems(names)
    if spark:
        systems["spark"] = {
            key: value.model_dump(exclude_none=True) if isinstance(value, EnvRef) else value
            for key, value in spark.items()
        }
    if stored_by_confluent:
        systems["tableflow_catalog"] = {"secret": names.confluent_secret("spark", "tableflow"), "region": names.region}
        # Snowflake reads none of these tables.
        del systems["snowflake"]["tableflow_external_volume"]
    if with_roles:
        for name in systems.keys() - {"athena"}:
            if "role_arn" in system(name, systems[name]).model_fields:
                systems[name]["role_arn"] = names.role_arn("writer")
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
