"""Quoting of names and values in SQL, read back by each engine's parser."""

import duckdb
import pytest
import sqlglot
from pydantic import ValidationError

from lakehouse.config.checks import AcceptedValues, Range
from lakehouse.core.sql import DUCKDB, SNOWFLAKE, SPARK
from tests.support.hostile import HOSTILE


@pytest.mark.parametrize("text", HOSTILE)
def test_duckdb_reads_back_quoted_names_and_texts(text):
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE {DUCKDB.identifier(text)} ({DUCKDB.identifier(text)} VARCHAR)")
        connection.execute(f"INSERT INTO {DUCKDB.identifier('main', text)} VALUES ({DUCKDB.literal(text)})")
        rows = connection.sql(f"SELECT * FROM {DUCKDB.identifier('memory', 'main', text)}")
        assert (rows.columns, rows.fetchall()) == ([text], [(text,)])


@pytest.mark.parametrize(("dialect", "name"), [(SPARK, "spark"), (SNOWFLAKE, "snowflake")])
@pytest.mark.parametrize("text", HOSTILE)
def test_spark_and_snowflake_read_back_quoted_names_and_texts(dialect, name, text):
    [statement] = sqlglot.parse(f"SELECT {dialect.literal(text)} AS {dialect.identifier(text)}", read=name)
    [column] = statement.selects
    assert (column.alias, column.this.this) == (text, text)


@pytest.mark.parametrize("dialect", [DUCKDB, SNOWFLAKE, SPARK])
@pytest.mark.parametrize(("value", "sql"), [(True, "TRUE"), (False, "FALSE"), (-3, "-3"), (0.1, "0.1")])
def test_literal_of_number_or_boolean_is_unquoted(dialect, value, sql):
    assert dialect.literal(value) == sql


@pytest.mark.parametrize("text", ["inf", "-inf", "nan"])
def test_limit_that_is_not_finite_is_refused(text):
    """YAML has `.inf` and `.nan`; each row would pass such a check, or none."""
    with pytest.raises(ValidationError, match="finite number"):
        Range(type="range", column="a", max=float(text))
    with pytest.raises(ValidationError, match="finite number"):
        AcceptedValues(type="accepted_values", column="a", values=[float(text)])


def test_identifier_escapes_quotes():
    assert SPARK.identifier("a`b", "c") == "`a``b`.`c`"
    assert SNOWFLAKE.identifier('a"b', "c") == '"a""b"."c"'
