"""Run declared checks on rows that are not published yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from lakehouse.config.checks import Check, RowCheck, Scope, SetCheck
from lakehouse.core.errors import ConfigError
from lakehouse.core.pattern_syntax import pattern_problem
from lakehouse.core.patterns import Matches
from lakehouse.core.sql import SPARK
from lakehouse.pipeline.engine_values import CheckedRows
from spark.decoding.conditions import is_true
from spark.decoding.decoded import record
from spark.decoding.row_tests import outcome
from spark.tables import places

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
    try:
        return _results(spark, declared, scope, shown)
    except PySparkException:
        validate(spark, declared, scope)
    return {name: _alone(spark, name, check, scope, shown) for name, check in declared.items()}


def _alone(spark: SparkSession, name: str, check: Check, scope: Scope, shown: Mapping[str, list[str]]) -> CheckedRows:
    """Return the result of one check. If it raises an error although the rows can be read, it fails by that error.

    Spark attributes some errors neither to a row nor to the data, such as those of Java's own functions.
    """
    try:
        return _results(spark, {name: check}, scope, shown)[name]
    except PySparkException as error:
        rows = spark.sql(f"SELECT * FROM {scope.rows}")
        rows.write.format("noop").mode("overwrite").save()
        sql = check.failing_rows(scope) if isinstance(check, RowCheck | SetCheck) else ""
        return CheckedRows(rows.count(), 0, sql, error=_name(error))


def _results(
    spark: SparkSession, declared: Mapping[str, Check], scope: Scope, shown: Mapping[str, list[str]]
) -> dict[str, CheckedRows]:
    row_checks = {name: check for name, check in declared.items() if isinstance(check, RowCheck)}
    results = {}
    rows = spark.sql(f"SELECT * FROM {scope.rows}")
    checked, failing, raising = _counts(rows, [check.test for check in row_checks.values()])
    for name, check in declared.items():
        sql = check.failing_rows(scope) if isinstance(check, RowCheck | SetCheck) else ""
        if isinstance(check, RowCheck):
            count, errors = failing.pop(0), raising.pop(0)
            sample = _sample(rows.filter(~is_true(outcome(check.test))), shown[name]) if count else []
            error = _error(spark, check, scope) if errors else ""
            results[name] = CheckedRows(checked, count, sql, sample, errors, error)
        elif isinstance(check, SetCheck):
            results[name] = _of_query(spark, sql, checked, shown[name])
        else:
            results[name] = CheckedRows(checked, 0, f"SELECT COUNT(*) FROM {scope.rows}")
    return results


def _counts(rows: DataFrame, tests: Sequence[str | Matches]) -> tuple[int, list[int], list[int]]:
    """Return the number of rows, and how many do not pass each test, and for how many each test raises an error."""
    tested = rows.select(*(outcome(test).alias(f"test_{number}") for number, test in enumerate(tests)))
    columns = [F.col(f"test_{number}") for number in range(len(tests))]
    counts = [*(~is_true(column) for column in columns), *(column.isNull() for column in columns)]
    [(checked, *numbers)] = tested.agg(F.count(F.lit(1)), *map(F.count_if, counts)).collect()
    return checked, numbers[: len(tests)], numbers[len(tests) :]


def _of_query(spark: SparkSession, sql: str, checked: int, shown: list[str]) -> CheckedRows:
    """Return the result of a query for failing rows. If the data make it raise an error, it fails by that error.

    Raises:
        PySparkException: The query fails for another reason, such as a lost connection or a missing column.
    """
    try:
        [(count,)] = spark.sql(f"SELECT COUNT(*) FROM ({sql})").collect()
        return CheckedRows(checked, count, sql, _sample(spark.sql(sql), shown) if count else [])
    except PySparkException as error:
        if not _is_of_data(error):
            raise
        return CheckedRows(checked, 0, sql, error=_name(error))


def _error(spark: SparkSession, check: RowCheck, scope: Scope) -> str:
    """Return the name of the first error that the condition of a check raises."""
    rows = f"SELECT * FROM {scope.rows} WHERE {check.test} IS NULL"
    try:
        spark.sql(f"SELECT COUNT_IF({check.condition}) FROM ({rows})").collect()
    except PySparkException as error:
        if not _is_of_data(error):
            raise
        return _name(error)
    return "an error"


def _is_of_data(error: PySparkException) -> bool:
    """Return whether the rows cause an error, by its SQLSTATE: data exception, cardinality, constraint, or user."""
    return (error.getSqlState() or "")[:2] in ("21", "22", "23", "P0")


def _name(error: PySparkException) -> str:
    """Return the name of an error, because its text quotes values."""
    return error.getCondition() or "an error"


def quarantined(
    decided: DataFrame, shown: Mapping[str, Sequence[str]]
) -> Mapping[str, tuple[int, list[dict[str, Any]]]]:
    """Return the number of rows that each check quarantines, and the first of them as text by column.

    Args:
        decided: The decided records; see spark.decoding.decode.
        shown: The columns of a sample, by check.
    """
    of_check = Window.partitionBy("check")
    position = F.row_number().over(of_check.orderBy(*places.in_query()))
    names = list(dict.fromkeys(name for columns in shown.values() for name in columns))
    text = [F.col(SPARK.identifier(name)).cast("string").alias(f"text_{n}") for n, name in enumerate(names)]
    columns = [record("check").alias("check"), *places.in_decoded().named(), *text]
    rows = decided.filter(record("check").isNotNull()).select(*columns)
    numbered = rows.select("*", F.count(F.lit(1)).over(of_check).alias("failing"), position.alias("position"))
    results: dict[str, tuple[int, list[dict[str, Any]]]] = {}
    for row in numbered.filter(F.col("position") <= SAMPLE).orderBy("check", "position").collect():
        _, sample = results.setdefault(row["check"], (row["failing"], []))
        sample.append({name: row[f"text_{names.index(name)}"] for name in shown[row["check"]]})
    return results


def validate(spark: SparkSession, declared: Mapping[str, Check], scope: Scope) -> None:
    """Require that checks fit the table, without reading rows.

    Raises:
        ConfigError: A check does not fit.
    """
    for name, check in declared.items():
        if not isinstance(check, RowCheck | SetCheck):
            continue
        try:
            if isinstance(check, RowCheck):
                _ = spark.sql(f"SELECT * FROM {scope.rows}").select(outcome(check.test)).schema
                if isinstance(check.test, Matches) and (problem := pattern_problem(check.test)):
                    raise ConfigError(
                        f"lakehouse.yaml: the pattern of check '{name}' is not valid: {problem}. Nothing was "
                        f"published. Correct the check"
                    )
            else:
                _ = spark.sql(check.failing_rows(scope)).schema
        except PySparkException as error:
            raise ConfigError(
                f"lakehouse.yaml: check '{name}' does not fit the table: {str(error).partition(chr(10))[0]}. Nothing "
                f"was published. Correct the check"
            ) from error


def _sample(failing: DataFrame, columns: list[str]) -> list[dict[str, Any]]:
    present = [column for column in columns if column in failing.columns]
    return first(failing, present) if present else []


def first(rows: DataFrame, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return the first rows, ordered by the first two columns, as text by column."""
    text = [F.col(SPARK.identifier(column)).cast("string").alias(column) for column in columns]
    order = [F.col(SPARK.identifier(column)) for column in columns[:2]]
    return [row.asDict() for row in rows.orderBy(*order).limit(SAMPLE).select(*text).collect()]
