"""Run declared checks on rows that are not published yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehouse.config.checks import Check, RowCheck, Scope, SetCheck
from lakehouse.core.errors import ConfigError
from lakehouse.core.sql import SPARK
from spark.decoding.decoded import record

SAMPLE = 5
"""Maximum number of failing rows in a result."""


@dataclass(frozen=True)
class Result:
    """Result of a check.

    Attributes:
        checked: The number of rows that were checked.
        failing: The number of rows that fail.
        sql: The query that returns all failing rows.
        sample: The first failing rows, as text by column.
    """

    checked: int
    failing: int
    sql: str
    sample: list[dict[str, Any]] = field(default_factory=list)


def run(
    spark: SparkSession, declared: Mapping[str, Check], scope: Scope, shown: Mapping[str, list[str]]
) -> dict[str, Result]:
    """Run checks: those of single rows in one pass over the rows, each other check in a separate query.

    Args:
        spark: The Spark session.
        declared: The checks by name.
        scope: The rows to check, and the tables that checks refer to.
        shown: The columns of a sample, by check.

    Raises:
        ConfigError: A check does not fit the table.
    """
    row_checks = {name: check for name, check in declared.items() if isinstance(check, RowCheck)}
    counts_sql = ", ".join(["COUNT(*)", *(f"COUNT_IF({check.failure_condition})" for check in row_checks.values())])
    try:
        [(checked, *counts)] = spark.sql(f"SELECT {counts_sql} FROM {scope.rows}").collect()
        failing = dict(zip(row_checks, counts, strict=True))
        for name, check in declared.items():
            if isinstance(check, SetCheck):
                [(failing[name],)] = spark.sql(f"SELECT COUNT(*) FROM ({check.failing_rows(scope)})").collect()
    except PySparkException:
        validate(spark, declared, scope)
        raise
    results = {name: Result(checked, 0, f"SELECT COUNT(*) FROM {scope.rows}") for name in declared}
    for name, count in failing.items():
        check = declared[name]
        assert isinstance(check, RowCheck | SetCheck)
        sql = check.failing_rows(scope)
        results[name] = Result(checked, count, sql, _sample(spark, sql, shown[name]) if count else [])
    return results


def quarantine_result(decoded: DataFrame, name: str, columns: list[str], sql: str, checked: int, any_: bool) -> Result:
    """Return the result of a quarantining check.

    Args:
        decoded: The decoded records; see spark.decoding.decode.
        name: The name of the check.
        columns: The columns of a sample.
        sql: The query that returns all quarantined rows.
        checked: The number of rows that were checked.
        any_: Whether any row is in quarantine.
    """
    rows = decoded.filter(record("check") == name)
    failing = rows.count() if any_ else 0
    return Result(checked, failing, sql, first(rows, columns) if failing else [])


def validate(spark: SparkSession, declared: Mapping[str, Check], scope: Scope) -> None:
    """Require that checks fit the table, without reading rows.

    Raises:
        ConfigError: A check does not fit.
    """
    for name, check in declared.items():
        if not isinstance(check, RowCheck | SetCheck):
            continue
        try:
            # Collect no rows instead of only analyzing the plan: an invalid pattern is only detected by the optimizer.
            spark.sql(check.failing_rows(scope)).limit(0).collect()
        except PySparkException as error:
            raise ConfigError(
                f"lakehouse.yaml: check '{name}' does not fit the table: {str(error).partition(chr(10))[0]}. Nothing "
                f"was published. Correct the check"
            ) from error


def _sample(spark: SparkSession, sql: str, columns: list[str]) -> list[dict[str, Any]]:
    failing = spark.sql(sql)
    present = [column for column in columns if column in failing.columns]
    return first(failing, present) if present else []


def first(rows: DataFrame, columns: list[str]) -> list[dict[str, Any]]:
    """Return the first rows, ordered by the first two columns, as text by column."""
    text = [F.col(SPARK.identifier(column)).cast("string").alias(column) for column in columns]
    order = [F.col(SPARK.identifier(column)) for column in columns[:2]]
    return [row.asDict() for row in rows.orderBy(*order).limit(SAMPLE).select(*text).collect()]
