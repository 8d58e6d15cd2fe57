"""Documentation and messages about records that cannot be decoded."""

from lakehouse.core.errors import BadRecords
from lakehouse.core.tables.letter_columns import REASONS, letter_schema
from tools.repository import PROJECT


def test_docs_dead_letter_columns_and_reasons_are_complete():
    section = (PROJECT / "docs/rejected-data.md").read_text().split("## Columns of a dead letter")[1].split("\n## ")[0]
    columns = [field.name for field in letter_schema().fields]
    assert [name for name in (*columns, *REASONS) if f"`{name}`" not in section] == []


def test_bad_records_message_groups_offsets_by_reason():
    places = [(0, 5, "It is late"), (0, 7, "It is odd"), (1, 2, "It is late")]
    message = str(BadRecords("orders", 9, places))
    assert message.startswith(
        "9 records of 'orders' cannot be decoded (partition 0 offset 5, partition 1 offset 2: It is late; "
        "partition 0 offset 7: It is odd, and 6 more)."
    )
