"""What `lakehouse dead-letters` shows: counts of all letters, the newest of them, and no bytes."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from lakehouse.config.topic import Topic
from lakehouse.pipeline.waiting_letters import waiting
from resources.catalog import Catalog
from spark import dead_letters

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def catalog(tmp_path):
    catalog = Catalog(type="sql", warehouse=f"file://{tmp_path}", uri=f"sqlite:///{tmp_path}/catalog.db")
    catalog.iceberg().create_namespace("n")
    catalog.iceberg().create_table(("n", "orders__dead_letters"), dead_letters.schema())
    return catalog


def keep(catalog, letters):
    """Append letters, given as number, reason, check, topic and whether it became a row."""
    table = catalog.load("n", "orders__dead_letters")
    rows = [
        {
            "error_timestamp": BEGAN + timedelta(minutes=number),
            "error_reason": reason,
            "error_message": f"because of {reason}",
            "error_details": [("bytes", "3"), *([("check", check)] if check else [])],
            "source_record": {"topic": topic, "partition": 0, "offset": number, "value": b"abc"},
            "redriven_timestamp": BEGAN if redriven else None,
        }
        for number, reason, check, topic, redriven in letters
    ]
    table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))


def test_the_newest_are_shown_and_all_that_wait_are_counted(catalog):
    keep(catalog, [(n, "undecodable", "", "orders", False) for n in range(5)])
    keep(catalog, [(5, "check", "cheap", "orders", False), (6, "undecodable", "", "orders", True)])
    keep(catalog, [(7, "null_value", "", "another", False), (8, "not_framed", "", "orders", False)])

    found = waiting(catalog, "n", Topic(name="orders"), 3)

    assert found.by_reason == {"undecodable": 5, "cheap": 1, "not_framed": 1}
    assert [(x.partition, x.offset, x.reason, x.check, x.said, x.bytes, x.at) for x in found.newest] == [
        (0, 8, "not_framed", "", "because of not_framed", 3, BEGAN + timedelta(minutes=8)),
        (0, 5, "check", "cheap", "because of check", 3, BEGAN + timedelta(minutes=5)),
        (0, 4, "undecodable", "", "because of undecodable", 3, BEGAN + timedelta(minutes=4)),
    ]


def test_counts_need_no_letter_to_be_shown(catalog):
    keep(catalog, [(n, "undecodable", "", "orders", False) for n in range(2)])
    assert waiting(catalog, "n", Topic(name="orders"), 0).newest == []
    assert waiting(catalog, "n", Topic(name="orders"), 0).by_reason == {"undecodable": 2}
    assert waiting(catalog, "n", Topic(name="other"), 5).by_reason == {}
