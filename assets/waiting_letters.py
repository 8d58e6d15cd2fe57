"""What waits among a topic's dead letters: how many for which reason, and where the newest are from."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from lakehouse import naming
from lakehouse.topic import Topic
from resources.catalog import Catalog


@dataclass(frozen=True)
class Letter:
    """One dead letter, without its bytes: they may be sensitive. `check` is the one that put it into quarantine."""

    partition: int
    offset: int
    reason: str
    check: str
    said: str
    bytes: int
    at: datetime


@dataclass(frozen=True)
class Waiting:
    """The letters that are no rows yet: how many by reason, or by check, and the newest of them."""

    by_reason: dict[str, int]
    newest: list[Letter]


def waiting(catalog: Catalog, namespace: str, topic: Topic, newest: int) -> Waiting:
    """What waits. All letters' reasons are read, and `newest` of the letters are shown.

    Raises: Unreachable.
    """
    table = catalog.load(namespace, naming.dead_letter_table(catalog.current(namespace, topic).table))
    if table is None or table.current_snapshot() is None:
        return Waiting({}, [])
    columns = ("error_timestamp", "error_reason", "error_message", "error_details", "source_record")
    rows = table.scan(row_filter="redriven_timestamp IS NULL", selected_fields=columns).to_arrow()
    rows = rows.filter(
        [name == topic.topic for name in rows["source_record"].combine_chunks().field("topic").to_pylist()]
    )
    letters = [
        Letter(
            row["source_record"]["partition"],
            row["source_record"]["offset"],
            row["error_reason"],
            dict(row["error_details"] or ()).get("check", ""),
            row["error_message"],
            len(row["source_record"]["value"] or b""),
            row["error_timestamp"],
        )
        for row in rows.sort_by([("error_timestamp", "descending")]).to_pylist()
    ]
    return Waiting(dict(Counter(letter.check or letter.reason for letter in letters)), letters[:newest])
