"""Pending dead letters for `lakehouse dead-letters`: counts of all, details of the newest, and no bytes."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from lakehouse.config.model import Topic
from lakehouse.core.tables.letter_columns import letter_schema
from lakehouse.core.tables.naming import TableRef
from lakehouse.pipeline.dead_letters.dead_letter_queries import pending_dead_letters
from resources.iceberg.catalog import Catalog

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def catalog(tmp_path):
    catalog = Catalog(type="sql", warehouse=f"file://{tmp_path}", uri=f"sqlite:///{tmp_path}/catalog.db")
    catalog.iceberg().create_namespace("n")
    catalog.iceberg().create_table(("n", "orders__dead_letters"), letter_schema())
    return catalog


def append(catalog, letters):
    """Append dead letters, given as number, reason, check, topic and whether it was redriven."""
    table = catalog.load(TableRef("n", "orders__dead_letters"))
    rows = [
        {
            "error_timestamp": START + timedelta(minutes=number),
            "error_reason": reason,
            "error_message": f"because of {reason}",
            "error_details": [("bytes", "3"), *([("check", check)] if check else [])],
            "source_record": {"topic": topic, "partition": 0, "offset": number, "value": b"abc"},
            "redriven_timestamp": START if redriven else None,
        }
        for number, reason, check, topic, redriven in letters
    ]
    table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))


def test_pending_counts_all_and_shows_newest(catalog):
    append(catalog, [(n, "undecodable", "", "orders", False) for n in range(5)])
    append(catalog, [(5, "check", "cheap", "orders", False), (6, "undecodable", "", "orders", True)])
    append(catalog, [(7, "null_value", "", "another", False), (8, "not_framed", "", "orders", False)])

    pending = pending_dead_letters(catalog, "n", Topic(name="orders"), 3)

    assert pending.by_reason == {"undecodable": 5, "cheap": 1, "not_framed": 1}
    assert [
        (letter.partition, letter.offset, letter.reason, letter.check, letter.message, letter.bytes, letter.at)
        for letter in pending.newest
    ] == [
        (0, 8, "not_framed", "", "because of not_framed", 3, START + timedelta(minutes=8)),
        (0, 5, "check", "cheap", "because of check", 3, START + timedelta(minutes=5)),
        (0, 4, "undecodable", "", "because of undecodable", 3, START + timedelta(minutes=4)),
    ]


def test_pending_counts_without_shown_letters(catalog):
    append(catalog, [(n, "undecodable", "", "orders", False) for n in range(2)])
    assert pending_dead_letters(catalog, "n", Topic(name="orders"), 0).newest == []
    assert pending_dead_letters(catalog, "n", Topic(name="orders"), 0).by_reason == {"undecodable": 2}
    assert pending_dead_letters(catalog, "n", Topic(name="other"), 5).by_reason == {}
