"""DuckDB as a query engine over a catalog on the local disk."""

import csv
import datetime as dt
import io
import json
from decimal import Decimal
from types import SimpleNamespace

import pyarrow as pa
import pytest

from lakehouse.cli import console
from lakehouse.core.errors import LakehouseError
from lakehouse.query.engines import run
from resources.iceberg.catalog import Catalog

ROWS = [
    {"id": 1, "price": Decimal("10.50"), "name": "x_1", "At": dt.datetime(2026, 1, 1, tzinfo=dt.UTC)},
    {"id": 2, "price": None, "name": "xy1", "At": dt.datetime(2026, 1, 2, tzinfo=dt.UTC)},
    {"id": 3, "price": Decimal("0.01"), "name": None, "At": None},
]


@pytest.fixture(scope="module")
def systems(tmp_path_factory):
    folder = tmp_path_factory.mktemp("catalog")
    catalog = Catalog(type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    schema = pa.schema(
        [("id", pa.int64()), ("price", pa.decimal128(9, 2)), ("name", pa.string()), ("At", pa.timestamp("us", "UTC"))]
    )
    rows = pa.Table.from_pylist(ROWS, schema)
    iceberg = catalog.iceberg()
    iceberg.create_namespace("ns")
    iceberg.create_table("ns.t", schema).append(rows)
    return SimpleNamespace(catalog=catalog)


def test_query_returns_all_rows_typed(systems):
    result = run("select * from ns.t", "duckdb", systems)
    assert list(result.columns) == list(ROWS[0])
    assert [dict(zip(result.columns, row, strict=True)) for row in result.rows] == ROWS


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("id >= 2", [2, 3]),
        ("price = 10.50", [1]),
        ("price <> 10.50", [3]),
        ("NOT price = 10.50", [3]),
        ("price IS NULL OR name IS NULL", [2, 3]),
        ("name NOT IN ('xy1', 'z')", [1]),
        ("NOT (name IN ('xy1', 'z') AND id = 2)", [1, 3]),
        ("name LIKE 'x%'", [1, 2]),
        ("\"At\" > '2026-01-01T12:00:00+00:00'", [2]),
        ("ID BETWEEN 1 AND 2 AND NAME = 'x_1'", [1]),
    ],
)
def test_query_condition_has_sql_semantics(condition, expected, systems):
    rows = run(f"SELECT id FROM ns.t WHERE {condition}", "duckdb", systems).rows
    assert [row[0] for row in rows] == expected


def test_query_joins_and_aggregates(systems):
    statement = """
        WITH a AS (SELECT * FROM ns.t) SELECT count(*), sum(a.price), max(b."At")::varchar, sum(a.id)
        FROM a, ns.t b WHERE a.id IN (SELECT id FROM ns.t)
    """
    assert run(statement, "duckdb", systems).json().count("31.53") == 1
    [row] = run(statement, "duckdb", systems).rows
    assert row == (9, Decimal("31.53"), "2026-01-02 00:00:00+00", 18)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SELECT * FROM ns.none", "no table ns.none"),
        ("SELECT * FROM ns.t TABLESAMPLE", "syntax error"),
        ("SELECT * FROM statement", "does not exist"),
        ("SELECT * FROM '/etc/hostname'", "does not exist|disabled"),
        ("SELECT * FROM read_text('/etc/hostname')", "disabled"),
    ],
)
def test_query_outside_catalog_or_invalid_is_refused(statement, message, systems):
    with pytest.raises(LakehouseError, match=message):
        run(statement, "duckdb", systems)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("340282366920938463463374607431768211455::UHUGEINT", "340282366920938463463374607431768211455"),
        ("170141183460469231731687303715884105727::HUGEINT", 170141183460469231731687303715884105727),
        (
            "-12345678901234567890123456789012345678901234567890::BIGNUM",
            "-12345678901234567890123456789012345678901234567890",
        ),
        ("TIMETZ '12:00:00.000001+02:30'", "12:00:00.000001+02:30"),
        ("'10101'::BIT", "10101"),
        ("INTERVAL '1 month 2 days 0.000003 seconds'", "1 month 2 days 00:00:00.000003"),
        ("TIME_NS '12:00:00.123456789'", "12:00:00.123456789"),
        ("TIME '24:00:00'", "24:00:00.000000"),
        ("{'a': [1, 2]}::VARIANT", "{'a': [1, 2]}"),
        (r"'\x00\xFFa'::BLOB", "00ff61"),
        ("MAP {[1, 2]: 'a', []: NULL}", [{"key": [1, 2], "value": "a"}, {"key": [], "value": None}]),
        ("MAP {{'k': DATE '2026-01-01'}: 1.50}", [{"key": {"k": "2026-01-01"}, "value": "1.50"}]),
        (
            "{'m': MAP {{'k': TIMETZ '12:00:00+02'}: '101'::BIT}}",
            {"m": [{"key": {"k": "12:00:00+02"}, "value": "101"}]},
        ),
        ("MAP {'nan'::DOUBLE: INTERVAL 1 DAY}", {"NaN": "1 day"}),
        ("['nan'::DOUBLE, '-inf'::DOUBLE, 0.1]", ["NaN", "-Infinity", 0.1]),
        ("{'n': [{'d': 1.10::DECIMAL(38, 2), 'f': 'nan'::FLOAT}]}", {"n": [{"d": "1.10", "f": "NaN"}]}),
        ("['101'::BIT, NULL]::BIT[2]", ["101", None]),
        ("[DATE '20000-01-01']::DATE[1]", ["+20000-01-01"]),
        ("[TIMESTAMP_NS '2026-01-01 00:00:00.123456789']", ["2026-01-01T00:00:00.123456789"]),
        ("union_value(a := '101'::BIT)", "101"),
        ("row(1, INTERVAL 1 DAY)", "(1, 1 day)"),
    ],
)
def test_query_value_of_each_duckdb_type_is_exact(value, expected, systems):
    result = run(f'SELECT {value} AS "a ""b", {value} AS "a ""b"', "duckdb", systems)
    assert result.columns == ['a "b', 'a "b']
    once = run(f"SELECT {value} AS v", "duckdb", systems)
    assert json.loads(once.json()) == [{"v": expected}]
    text = expected if isinstance(expected, str) else json.dumps(expected)
    assert list(csv.reader(io.StringIO(result.csv(), newline="")))[1:] == [[text, text]]
    console.console.begin_capture()
    console.console.print(console.rows(once.columns, once.terminal_rows()))
    assert text in console.console.end_capture()


def test_query_order_remains_if_values_become_text(systems):
    rows = run("SELECT n, n::UHUGEINT FROM range(100000) t(n) ORDER BY hash(n)", "duckdb", systems).rows
    expected = run("SELECT n FROM range(100000) t(n) ORDER BY hash(n)", "duckdb", systems).rows
    assert [n for n, _ in rows] == [n for (n,) in expected] and all(str(n) == text for n, text in rows)
