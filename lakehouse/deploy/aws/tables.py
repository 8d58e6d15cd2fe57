"""Where tables and results of queries are: in the bucket, and in Glue."""

from __future__ import annotations

from lakehouse.config.loader import Config
from lakehouse.deploy.aws.policies import Tables, tableflow_tables
from lakehouse.deploy.names import Names
from lakehouse.deploy.step import Found

WAREHOUSE = "warehouse"
"""The prefix of the bucket under which Spark's tables are, by namespace."""
RESULTS = "athena"
"""The prefix of the bucket under which Athena keeps results of queries."""

CONFLUENT = ("confluent/environment", "confluent/cluster")
"""The steps whose ids are in the names that Tableflow gives."""


def location(names: Names, namespace: str) -> str:
    """The s3:// URI under which a namespace's tables are."""
    return f"s3://{names.bucket}/{WAREHOUSE}/{namespace}"


def results(names: Names) -> str:
    """The s3:// URI of Athena's results."""
    return f"s3://{names.bucket}/{RESULTS}/"


def has_tableflow(config: Config) -> bool:
    """Whether Tableflow makes any of the tables."""
    return any(topic.engine == "tableflow" for topic in config.topics.values())


def spark_tables(config: Config) -> Tables:
    """The tables that Spark makes."""
    return Tables(config.namespace, f"{WAREHOUSE}/{config.namespace}")


def confluent_tables(found: Found) -> Tables:
    """The tables that Tableflow makes."""
    environment, cluster = (found[name] for name in CONFLUENT)
    return tableflow_tables(environment.organization_id, environment.id, cluster.id)


def all_tables(config: Config, found: Found) -> tuple[Tables, ...]:
    """Spark's tables, and Tableflow's if it makes any."""
    return spark_tables(config), *((confluent_tables(found),) if has_tableflow(config) else ())
