"""Conversion and display of dates and times outside of Python's range."""

import json
from datetime import UTC, date, datetime, time

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from assets.topics.iceberg_asset import table_metadata
from lakehouse.config.model import Topic
from lakehouse.core.tables.arrow_values import pylist
from lakehouse.query.result import QueryResult

DAYS = {
    -719_162: date(1, 1, 1),
    2_932_896: date(9999, 12, 31),
    -719_163: "0000-12-31",
    -719_529: "-0001-12-31",
    2_932_897: "+10000-01-01",
    3_000_000: "+10183-09-21",
    2**31 - 1: "+5881580-07-11",
    -(2**31): "-5877641-06-23",
    0: date(1970, 1, 1),
    None: None,
}
MOMENTS = {
    0: datetime(1970, 1, 1, tzinfo=UTC),
    -62_135_596_800_000_000: datetime(1, 1, 1, tzinfo=UTC),
    -62_135_596_800_000_001: "0000-12-31T23:59:59.999999+00:00",
    253_402_300_800_000_000: "+10000-01-01T00:00:00.000000+00:00",
    1_700_000_000_000_000_000: "+55840-11-08T22:13:20.000000+00:00",
    2**63 - 1: "+294247-01-10T04:00:54.775807+00:00",
    None: None,
}


def days(values):
    return pa.array(values, pa.int32()).cast(pa.date32())


def moments(values, type_):
    return pa.array(values, pa.int64()).cast(type_)


def test_pylist_date_outside_python_range_is_iso_text():
    # Spark and java.time write `+10183-09-21` and the others likewise.
    assert pylist(days([*DAYS])) == [*DAYS.values()]
    assert pylist(moments([*MOMENTS], pa.timestamp("us", "UTC"))) == [*MOMENTS.values()]
    assert pylist(moments([2**62], pa.timestamp("ms"))) == ["+146140482-04-24T15:36:27.904000"]


def test_pylist_nested_dates_are_converted():
    far, near = 2_932_897, 0
    lists = pa.ListArray.from_arrays([0, 2], days([far, near]))
    maps = pa.MapArray.from_arrays([0, 1], ["k"], lists)
    structs = pa.StructArray.from_arrays([maps, days([None])], ["m", "d"])
    assert pylist(structs) == [{"m": {"k": ["+10000-01-01", date(1970, 1, 1)]}, "d": None}]


def test_pylist_nanoseconds_beside_far_date_are_exact():
    nanos = moments([1_700_000_000_123_456_789, 0], pa.timestamp("ns", "UTC"))
    values = pylist(pa.StructArray.from_arrays([days([3_000_000, 0]), nanos], ["d", "t"]))
    assert values[0] == {"d": "+10183-09-21", "t": "2023-11-14T22:13:20.123456789+00:00"}
    assert values[1] == {"d": date(1970, 1, 1), "t": datetime(1970, 1, 1, tzinfo=UTC)}


def test_pylist_time_that_python_lacks_is_text():
    assert pylist(pa.array([1, None, 86_399_999_999_999, 1000], pa.time64("ns"))) == [
        "00:00:00.000000001",
        None,
        "23:59:59.999999999",
        time(microsecond=1),
    ]
    assert pylist(pa.array([86_400_000_000], pa.time64("us"))) == ["24:00:00.000000"]


def test_pylist_map_with_nested_keys_is_list_of_entries():
    maps = pa.MapArray.from_arrays([0, 2, 2], pa.array([[1], None], pa.list_(pa.int8())).fill_null([]), days([0, None]))
    assert pylist(maps) == [[{"key": [1], "value": date(1970, 1, 1)}, {"key": [], "value": None}], []]


@pytest.mark.filterwarnings("ignore:Encountered key")
@pytest.mark.parametrize("day", [0, 3_000_000])
def test_pylist_map_with_key_twice_is_refused_unless_lossy(day):
    maps = pa.MapArray.from_arrays([0, 2], ["a", "a"], days([day, day]))
    with pytest.raises(KeyError):
        pylist(maps)
    assert list(pylist(maps, "lossy")[0]) == ["a"]


def test_query_result_shows_dates_outside_python_range():
    table = pa.table({"d": days([3_000_000, 0]), "t": moments([2**63 - 1, 0], pa.timestamp("us", "UTC"))})
    result = QueryResult.of_arrow(table)
    assert json.loads(result.json())[0] == {"d": "+10183-09-21", "t": "+294247-01-10T04:00:54.775807+00:00"}
    assert result.csv().splitlines()[2] == "1970-01-01,1970-01-01T00:00:00.000000+00:00"


@pytest.mark.parametrize("day", [3_000_000, -800_000, 0])
def test_table_preview_shows_dates_outside_python_range(tmp_path, day):
    catalog = SqlCatalog("test", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("ns")
    rows = pa.table({"d": days([day]), "t": moments([day * 86_400_000_000], pa.timestamp("us", "UTC"))})
    # pyiceberg cannot write the bounds of such values; Spark can.
    without_bounds = {"write.metadata.metrics.default": "counts"}
    table = catalog.create_table("ns.t", rows.schema, properties=without_bounds)
    table.append(rows)
    [record] = table_metadata(table, Topic(name="t"))["preview"].records
    assert record.data["d"].startswith({3_000_000: "+10183", -800_000: "-0221", 0: "1970"}[day])
    assert record.data["t"].startswith(record.data["d"])
