"""`lakehouse query` on the real stack: each engine prints the same rows with the same digits."""

import csv
import io
import json
from decimal import Decimal

import pytest
from click.testing import CliRunner

from lakehouse.cli.main import main
from tests.support.topics import Stream, framed

SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Sale",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}},
            {"name": "sold_at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "raw", "type": ["null", "bytes"], "default": None},
            {"name": "note", "type": ["null", "string"], "default": None},
            {"name": "ratio", "type": "double"},
        ],
    }
)
SALES = [
    {"id": 1, "price": Decimal("123456789012345678.99"), "sold_at": 1, "raw": b"\x00\xff", "note": "", "ratio": 0.1},
    {"id": 2, "price": Decimal("-0.10"), "sold_at": -1, "raw": None, "note": None, "ratio": 1e300},
    {
        "id": 2**63 - 1,
        "price": Decimal("0.00"),
        "sold_at": 1767225600000000,
        "raw": b"",
        "note": 'a "b",\n',
        "ratio": -0.5,
    },
]
COLUMNS = "id, price, sold_at, raw, note, ratio"
ENGINES = ("snowflake", "duckdb", "spark")


@pytest.fixture(scope="module")
def sales(resources, tmp_path_factory):
    """Return the name of a table of sales that every engine shows, with LAKEHOUSE_CONFIG set to its declaration."""
    stream = Stream(resources, partitions=1, settings={"key": "id"})
    stream.produce([{"value": framed(stream.schema(SCHEMA), SCHEMA, sale)} for sale in SALES])
    stream.ingest()
    stream.show("glue")
    stream.show("snowflake")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAKEHOUSE_CONFIG", str(stream.declare(tmp_path_factory.mktemp("sales"))))
        yield f"{stream.namespace}.{stream.topic.table}"


def query(statement, engine, output="json"):
    result = CliRunner().invoke(main, ["query", statement, "--engine", engine, "--output", output])
    assert result.exit_code == 0, result.output
    return result.output


def in_lower_case(row):
    return {name.lower(): value for name, value in row.items()}


@pytest.mark.parametrize("engine", ENGINES)
def test_query_json_is_equal_in_each_engine(engine, sales):
    rows = [in_lower_case(row) for row in json.loads(query(f"SELECT {COLUMNS} FROM {sales}", engine))]
    assert sorted(rows, key=lambda row: row["id"]) == [
        {
            "id": 1,
            "price": "123456789012345678.99",
            "sold_at": "1970-01-01T00:00:00.000001+00:00",
            "raw": "00ff",
            "note": "",
            "ratio": 0.1,
        },
        {
            "id": 2,
            "price": "-0.10",
            "sold_at": "1969-12-31T23:59:59.999999+00:00",
            "raw": None,
            "note": None,
            "ratio": 1e300,
        },
        {
            "id": 2**63 - 1,
            "price": "0.00",
            "sold_at": "2026-01-01T00:00:00.000000+00:00",
            "raw": "",
            "note": 'a "b",\n',
            "ratio": -0.5,
        },
    ]


def test_query_csv_is_equal_in_each_engine(sales):
    printed = {engine: query(f"SELECT {COLUMNS} FROM {sales} WHERE id > 0", engine, "csv") for engine in ENGINES}
    header, *lines = csv.reader(io.StringIO(printed["spark"], newline=""))
    assert header == COLUMNS.split(", ") and len(lines) == 3
    for text in printed.values():
        lines_of_engine = list(csv.reader(io.StringIO(text, newline="")))
        assert [name.lower() for name in lines_of_engine[0]] == header
        assert sorted(lines_of_engine[1:]) == sorted(lines)


@pytest.mark.parametrize("engine", ("snowflake", "duckdb", "spark"))
def test_query_sum_over_join_is_equal_in_each_engine(engine, sales):
    statement = (
        f"SELECT COUNT(*) AS n, SUM(a.price) AS total FROM {sales} a JOIN {sales} b ON a.id = b.id WHERE a.id < 9"
    )
    assert [in_lower_case(row) for row in json.loads(query(statement, engine))] == [
        {"n": 2, "total": "123456789012345678.89"}
    ]


@pytest.mark.parametrize("engine", ENGINES)
def test_query_table_output_shows_cells(engine, sales):
    shown = query(f"SELECT id, raw, note FROM {sales} WHERE id = 1", engine, "table")
    assert "00ff" in shown and "┃" in shown


@pytest.mark.parametrize("engine", ENGINES)
def test_query_unknown_column_is_error_with_exit_code_1(engine, sales):
    result = CliRunner().invoke(main, ["query", f"SELECT nothing FROM {sales}", "--engine", engine])
    assert result.exit_code == 1
    assert result.output.startswith("Error: ") and "nothing" in result.output.lower()
    assert "Traceback" not in result.output and "stacktrace" not in result.output


@pytest.mark.parametrize("engine", ENGINES)
def test_query_that_drops_the_table_is_refused(engine, sales):
    result = CliRunner().invoke(main, ["query", f"DROP TABLE {sales}", "--engine", engine])
    assert result.exit_code == 1
    assert result.output.startswith("Error: The SQL is not a single query: it is DROP. Nothing was run.")
    [row] = json.loads(query(f"SELECT count(*) AS n FROM {sales}", engine))
    assert in_lower_case(row) == {"n": len(SALES)}
