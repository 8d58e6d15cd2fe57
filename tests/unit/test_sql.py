"""Names and values in SQL: no content ends its quotes, and each engine reads back what was meant."""

import duckdb
import pytest
import sqlglot
from hostile import HOSTILE

from lakehouse.core.sql import DUCKDB, SNOWFLAKE, SPARK


@pytest.mark.parametrize("text", HOSTILE)
def test_duckdb_reads_back_names_and_texts(text):
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE {DUCKDB.identifier(text)} ({DUCKDB.identifier(text)} VARCHAR)")
        connection.execute(f"INSERT INTO {DUCKDB.identifier('main', text)} VALUES ({DUCKDB.literal(text)})")
        rows = connection.sql(f"SELECT * FROM {DUCKDB.identifier('memory', 'main', text)}")
        assert (rows.columns, rows.fetchall()) == ([text], [(text,)])


@pytest.mark.parametrize(("dialect", "name"), [(SPARK, "spark"), (SNOWFLAKE, "snowflake")])
@pytest.mark.parametrize("text", HOSTILE)
def test_parsers_of_spark_and_snowflake_read_back_names_and_texts(dialect, name, text):
    [statement] = sqlglot.parse(f"SELECT {dialect.literal(text)} AS {dialect.identifier(text)}", read=name)
    [column] = statement.selects
    assert (column.alias, column.this.this) == (text, text)


@pytest.mark.parametrize("dialect", [DUCKDB, SNOWFLAKE, SPARK])
@pytest.mark.parametrize(("value", "written"), [(True, "TRUE"), (False, "FALSE"), (-3, "-3"), (0.1, "0.1")])
def test_numbers_and_booleans_are_written_as_such(dialect, value, written):
    assert dialect.literal(value) == written


def test_identifiers_cannot_break_out_of_their_quotes():
    assert SPARK.identifier("a`b", "c") == "`a``b`.`c`"
    assert SNOWFLAKE.identifier('a"b', "c") == '"a""b"."c"'
