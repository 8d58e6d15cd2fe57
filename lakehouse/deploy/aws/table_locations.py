"""Locations of tables and query results in the bucket, and of tables in Glue."""

from typing import NamedTuple

from lakehouse.config.loader import Config
from lakehouse.deploy.aws.iam.policies import Tables, tableflow_tables
from lakehouse.deploy.names import Names
from lakehouse.deploy.resource import Outputs, Resource
from resources.confluent.clusters import Cluster
from resources.confluent.organization import Environment

WAREHOUSE = "warehouse"
"""The prefix of the bucket under which Spark's tables are, by namespace."""
RESULTS = "athena"
"""The prefix of the bucket under which Athena keeps query results."""


class TableflowCluster(NamedTuple):
    """References to the Kafka cluster whose topics Tableflow keeps as tables in a bucket of the account."""

    environment: Resource[Environment]
    cluster: Resource[Cluster]
    bucket: str

    def tables(self, outputs: Outputs) -> Tables:
        """Return the tables that Tableflow creates; their location contains Confluent's ids."""
        environment, cluster = outputs[self.environment], outputs[self.cluster]
        return tableflow_tables(self.bucket, environment.organization_id, environment.id, cluster.id)


def location(names: Names, namespace: str) -> str:
    """Return the s3:// URI under which a namespace's tables are."""
    return f"s3://{names.bucket}/{WAREHOUSE}/{namespace}"


def results(names: Names) -> str:
    """Return the s3:// URI of Athena's results."""
    return f"s3://{names.bucket}/{RESULTS}/"


def spark_tables(config: Config) -> Tables:
    """Return the tables that Spark creates."""
    return Tables(config.namespace, f"{WAREHOUSE}/{config.namespace}")


def all_tables(config: Config, tableflow: TableflowCluster | None, outputs: Outputs) -> tuple[Tables, ...]:
    """Return Spark's tables, and Tableflow's if it creates any."""
    return spark_tables(config), *((tableflow.tables(outputs),) if tableflow else ())
