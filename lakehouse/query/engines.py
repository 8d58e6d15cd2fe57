"""The engines by name. The same statement runs in each: tables are `namespace.table`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lakehouse.core import naming
from lakehouse.core.errors import LakehouseError
from lakehouse.query import duckdb
from lakehouse.query.result import Result


def in_snowflake(statement: str, systems: Any) -> Result:
    """Raises: LakehouseError when Snowflake refuses it; Unreachable."""
    return Result(*systems.snowflake.query(statement))


def in_spark(statement: str, systems: Any) -> Result:
    """Raises: LakehouseError when Spark refuses it; Unreachable."""
    from pyspark.errors import PySparkException
    from pyspark.logger import PySparkLogger

    # It prints as JSON what is raised as well.
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel("CRITICAL")
    session = systems.spark.session(systems.catalog.spark_settings())
    try:
        session.catalog.setCurrentCatalog(naming.CATALOG)
        # Not collect(), which returns instants without their zone, in that of this machine.
        return Result.of_arrow(session.sql(statement).toArrow())
    except PySparkException as error:
        said = str(error).partition("\n\nJVM stacktrace")[0].strip()
        raise LakehouseError(f"Spark refused the statement. Correct it and ask again. It said: {said}") from error


def in_athena(statement: str, systems: Any) -> Result:
    """Raises: LakehouseError when the environment has no Athena, or it refuses; Unreachable."""
    if not hasattr(systems, "athena"):
        raise LakehouseError(
            "This environment has no Athena, so nothing was asked. Add `athena: {region: …}` to it in lakehouse.yaml, "
            "or choose another with LAKEHOUSE_ENV"
        )
    return Result(*systems.athena.query(statement))


ENGINES: dict[str, Callable[[str, Any], Result]] = {
    "snowflake": in_snowflake,
    "athena": in_athena,
    "duckdb": duckdb.query,
    "spark": in_spark,
}
"""What asks each engine. Parameters: the statement, and the environment's resources as attributes."""
