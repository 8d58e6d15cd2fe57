"""What people are told of records that are no rows."""

from lakehouse.config.loader import PROJECT
from lakehouse.core.errors import BadRecords
from spark import dead_letters
from spark.decode import REASONS


def test_docs_name_every_column_and_every_reason_of_a_dead_letter():
    section = (PROJECT / "docs/checks.md").read_text().split("## What a dead letter holds")[1].split("\n## ")[0]
    columns = [field.name for field in dead_letters.schema().fields]
    assert [name for name in (*columns, *REASONS) if f"`{name}`" not in section] == []


def test_a_reason_is_told_once_for_all_of_its_records():
    places = [(0, 5, "It is late"), (0, 7, "It is odd"), (1, 2, "It is late")]
    told = str(BadRecords("orders", 9, places))
    assert told.startswith(
        "9 records of 'orders' cannot be decoded (partition 0 offset 5, partition 1 offset 2: It is late; "
        "partition 0 offset 7: It is odd, and 6 more)."
    )
