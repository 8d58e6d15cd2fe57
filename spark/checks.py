"""Declared checks, run on rows that nobody can see yet."""

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
from spark.decoded import record

SAMPLE = 5
"""How many failing rows a result shows."""


@dataclass(frozen=True)
class Result:
    """How many of the rows that a check looked at fail, the first of them, and the query that finds all."""

    checked: int
    failing: int
    sql: str
    sample: list[dict[str, Any]] = field(default_factory=list)


def run(
    spark: SparkSession, declared: Mapping[str, Check], scope: Scope, shown: Mapping[str, list[str]]
) -> dict[str, Result]:
    """Run checks; those of single rows in one pass over the rows, each other in a query of its own.

    Parameters: `shown` are the columns of a sample by check.
    Raises: ConfigError for a check that does not fit the table.
    """
    of_rows = {name: check for name, check in declared.items() if isinstance(check, RowCheck)}
    counted = ", ".join(["COUNT(*)", *(f"COUNT_IF({check.fails})" for check in of_rows.values())])
    try:
        [(checked, *counts)] = spark.sql(f"SELECT {counted} FROM {scope.rows}").collect()
        failing = dict(zip(of_rows, counts, strict=True))
        for name, check in declared.items():
            if isinstance(check, SetCheck):
                [(failing[name],)] = spark.sql(f"SELECT COUNT(*) FROM ({check.failing(scope)})").collect()
    except PySparkException:
        validate(spark, declared, scope)
        raise
    results = {name: Result(checked, 0, f"SELECT COUNT(*) FROM {scope.rows}") for name in declared}
    for name, count in failing.items():
        check = declared[name]
        assert isinstance(check, RowCheck | SetCheck)
        sql = check.failing(scope)
        results[name] = Result(checked, count, sql, _sample(spark, sql, shown[name]) if count else [])
    return results


def set_aside(decoded: DataFrame, name: str, columns: list[str], sql: str, checked: int, any_: bool) -> Result:
    """What a quarantining check kept from the table.

    Parameters: `decoded` as spark.decode answers it; `columns` are those of a sample; `any_` says that there is a row
    in quarantine at all.
    """
    rows = decoded.filter(record("check") == name)
    failing = rows.count() if any_ else 0
    return Result(checked, failing, sql, first(rows, columns) if failing else [])


def validate(spark: SparkSession, declared: Mapping[str, Check], scope: Scope) -> None:
    """Whether checks fit the table; nothing is read.

    Raises: ConfigError for the first that does not.
    """
    for name, check in declared.items():
        if not isinstance(check, RowCheck | SetCheck):
            continue
        try:
            # No row, and yet all of the planning: a pattern that is none is told by nothing less.
            spark.sql(check.failing(scope)).limit(0).collect()
        except PySparkException as error:
            raise ConfigError(
                f"lakehouse.yaml: check '{name}' does not fit the table: {str(error).partition(chr(10))[0]}. Nothing "
                f"was published. Correct the check"
            ) from error


def _sample(spark: SparkSession, sql: str, columns: list[str]) -> list[dict[str, Any]]:
    found = spark.sql(sql)
    there = [column for column in columns if column in found.columns]
    return first(found, there) if there else []


def first(rows: DataFrame, columns: list[str]) -> list[dict[str, Any]]:
    """The first rows in the order of those columns, as text by column."""
    text = [F.col(SPARK.identifier(column)).cast("string").alias(column) for column in columns]
    order = [F.col(SPARK.identifier(column)) for column in columns[:2]]
    return [row.asDict() for row in rows.orderBy(*order).limit(SAMPLE).select(*text).collect()]
