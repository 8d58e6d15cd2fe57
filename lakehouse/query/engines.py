"""The query engines by name. The same statement runs in each: tables are named `namespace.table`."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger

from lakehouse.core.errors import LakehouseError
from lakehouse.core.tables import naming
from lakehouse.query import duckdb
from lakehouse.query.result import Result
from resources.aws.athena import Athena
from resources.by_key import Resources, find_resource, resource_of
from resources.snowflake.snowflake import Snowflake


def in_snowflake(statement: str, resources: Resources) -> Result:
    """Run a statement in Snowflake.

    Raises:
        LakehouseError: Snowflake refuses the statement.
        Unreachable: Snowflake does not answer.
    """
    return Result(*resource_of(resources, "snowflake", Snowflake).query(statement))


def in_spark(statement: str, resources: Resources) -> Result:
    """Run a statement in Spark.

    Raises:
        LakehouseError: Spark refuses the statement.
        Unreachable: Spark does not answer.
    """
    # This logger prints every error as JSON, in addition to raising it.
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel("CRITICAL")
    session = resources.spark.session(resources.catalog.spark_settings())
    try:
        session.catalog.setCurrentCatalog(naming.CATALOG)
        # Not collect(), which returns timestamps as local times without a time zone.
        return Result.of_arrow(session.sql(statement).toArrow())
    except PySparkException as error:
        problem = str(error).partition("\n\nJVM stacktrace")[0].strip()
        raise LakehouseError(
            f"Spark refused the statement: {problem}. Correct the SQL and run `lakehouse query` again"
        ) from error


def in_athena(statement: str, resources: Resources) -> Result:
    """Run a statement in Athena.

    Raises:
        LakehouseError: The environment has no Athena, or Athena refuses the statement.
        Unreachable: Athena does not answer.
    """
    if (athena := find_resource(resources, "athena", Athena)) is None:
        raise LakehouseError(
            "The current environment has no Athena. Nothing was run. Add `athena: {region: …}` to it in "
            "lakehouse.yaml, or choose another environment with LAKEHOUSE_ENV"
        )
    return Result(*athena.query(statement))


ENGINES: dict[str, Callable[[str, Resources], Result]] = {
    "snowflake": in_snowflake,
    "athena": in_athena,
    "duckdb": duckdb.query,
    "spark": in_spark,
}
"""Functions that run a statement, by engine. Arguments: the statement, and the environment's resources."""
