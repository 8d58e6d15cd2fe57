"""The query engines by name. The same statement runs in each: tables are named `namespace.table`."""

from pkgutil import resolve_name

from lakehouse.core.errors import LakehouseError
from lakehouse.query.read_only import require_query
from lakehouse.query.result import Result
from resources.aws.athena import Athena
from resources.by_key import Resources, find_resource, resource_of
from resources.snowflake.snowflake import Snowflake

ENGINES = {
    "snowflake": "engines:in_snowflake",
    "athena": "engines:in_athena",
    "duckdb": "duckdb:query",
    "spark": "spark_query:query",
}
"""The function that runs a statement, by engine. Arguments: the statement, and the environment's resources."""


def run(statement: str, engine: str, resources: Resources) -> Result:
    """Run a query in an engine, whose module is imported here: Spark's client takes a second to import.

    Raises:
        LakehouseError: The statement is not a single query, or the engine refuses it.
        Unreachable: The engine does not answer.
    """
    require_query(statement, engine)
    result: Result = resolve_name(f"lakehouse.query.{ENGINES[engine]}")(statement, resources)
    return result


def in_snowflake(statement: str, resources: Resources) -> Result:
    """Run a statement in Snowflake.

    Raises:
        LakehouseError: Snowflake refuses the statement.
        Unreachable: Snowflake does not answer.
    """
    return Result(*resource_of(resources, "snowflake", Snowflake).query(statement))


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
