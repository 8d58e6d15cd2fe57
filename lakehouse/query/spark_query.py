"""Query tables of the Iceberg catalog with the Spark server."""

from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger

from lakehouse.core.errors import LakehouseError
from lakehouse.core.tables import naming
from lakehouse.query.result import Result
from resources.by_key import Resources


def query(statement: str, resources: Resources) -> Result:
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
