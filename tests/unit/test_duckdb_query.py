"""DuckDB as a query engine over a catalog on the local disk."""

import datetime as dt
from decimal import Decimal
from types import SimpleNamespace

import pyarrow as pa
import pytest

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
