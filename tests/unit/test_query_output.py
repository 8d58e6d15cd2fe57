"""Query results as CSV and JSON, without rounding or truncation."""

import csv
import datetime as dt
import io
import json
from decimal import Decimal
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from lakehouse.core.errors import LakehouseError
from lakehouse.query.result import QueryResult

EXACT = [
    (Decimal("12345678901234567890.10"), "12345678901234567890.10"),
    (Decimal("0E-9"), "0.000000000"),
    (Decimal("7"), 7),
    (2**63 - 1, 2**63 - 1),
    (0.1, 0.1),
    (float("nan"), "NaN"),
    (float("-inf"), "-Infinity"),
    (True, True),
    (b"\x00\xff", "00ff"),
    (dt.date(1969, 12, 31), "1969-12-31"),
    (dt.time(23, 59), "23:59:00.000000"),
    (dt.datetime(1969, 12, 31, 23, 59, 59, 1), "1969-12-31T23:59:59.000001"),
    (dt.datetime(2026, 7, 1, 12, tzinfo=ZoneInfo("Europe/Berlin")), "2026-07-01T10:00:00.000000+00:00"),
    ({"city": "Zürich", "tags": [Decimal("1.0"), None]}, {"city": "Zürich", "tags": ["1.0", None]}),
    ("", ""),
    ("null", "null"),
    (None, None),
]


@pytest.mark.parametrize(("value", "expected"), EXACT)
def test_json_each_value_is_exact(value, expected):
    [row] = json.loads(QueryResult(["v"], [(value,)]).json())
    assert row == {"v": expected} and type(row["v"]) is type(expected)


@pytest.mark.parametrize(("value", "expected"), EXACT)
def test_csv_each_value_is_exact(value, expected):
    [_, row] = csv.reader(io.StringIO(QueryResult(["v", "w"], [(value, 1)]).csv(), newline=""))
    plain = "" if expected is None else expected if isinstance(expected, str) else json.dumps(expected)
    assert row == [plain, "1"]


def test_csv_null_differs_from_empty_and_text_is_quoted():
    text = 'a "quoted", text\r\nof two lines'
    output = QueryResult(["a", "b, c"], [(None, ""), (text, " padded")]).csv()
    assert output.splitlines()[1] == ',""'
    assert list(csv.reader(io.StringIO(output, newline=""))) == [["a", "b, c"], ["", ""], [text, " padded"]]


def test_output_without_rows_has_header_or_empty_array():
    assert QueryResult(["a", "b"], []).csv() == "a,b\r\n"
    assert json.loads(QueryResult(["a", "b"], []).json()) == []


def test_json_duplicate_column_is_refused():
    duplicate = QueryResult.of_arrow(pa.table([[1], [2]], names=["a", "a"]))
    assert duplicate.csv() == "a,a\r\n1,2\r\n"
    with pytest.raises(LakehouseError, match="several columns named a"):
        duplicate.json()


def test_nanoseconds_are_exact():
    moments = pa.array([1_700_000_000_123_456_789, 1_700_000_000_123_456_000, None], pa.timestamp("ns"))
    output = QueryResult.of_arrow(pa.table({"a": moments, "b": moments.cast(pa.timestamp("ns", "UTC"))})).csv()
    assert output.splitlines()[1:] == [
        "2023-11-14T22:13:20.123456789,2023-11-14T22:13:20.123456789+00:00",
        "2023-11-14T22:13:20.123456,2023-11-14T22:13:20.123456+00:00",
        ",",
    ]


def test_json_arrow_maps_are_objects():
    table = pa.table({"m": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64()))})
    assert json.loads(QueryResult.of_arrow(table).json()) == [{"m": {"a": 1}}, {"m": {}}]
