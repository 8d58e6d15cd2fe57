"""Run declared checks on rows that are not published yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehouse.config.checks import Check, RowCheck, Scope, SetCheck
from lakehouse.core.errors import ConfigError
from lakehouse.core.sql import SPARK
from lakehouse.pipeline.engine_values import CheckedRows
from spark.decoding.decoded import record

SAMPLE = 5
"""Maximum number of failing rows in a result."""


def run(
    spark: SparkSession, declared: Mapping[str, Check], scope: Scope, shown: Mapping[str, list[str]]
) -> dict[str, CheckedRows]:
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
    results = {name: CheckedRows(checked, 0, f"SELECT COUNT(*) FROM {scope.rows}") for name in declared}
    for name, count in failing.items():
        check = declared[name]
        assert isinstance(check, RowCheck | SetCheck)
        sql = check.failing_rows(scope)
        results[name] = CheckedRows(checked, count, sql, _sample(spark, sql, shown[name]) if count else [])
    return results


def quarantined(decided: DataFrame, check: str, columns: Sequence[str]) -> tuple[int, list[dict[str, Any]]]:
    """Return the number of rows that a check quarantines, and the first of them as text by column."""
    rows = decided.filter(record("check") == check)
    failing = rows.count()
    return failing, first(rows, columns) if failing else []


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


def first(rows: DataFrame, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return the first rows, ordered by the first two columns, as text by column."""
    text = [F.col(SPARK.identifier(column)).cast("string").alias(column) for column in columns]
    order = [F.col(SPARK.identifier(column)) for column in columns[:2]]
    return [row.asDict() for row in rows.orderBy(*order).limit(SAMPLE).select(*text).collect()]
