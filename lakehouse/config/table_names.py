"""Which topics may have the tables that their names make: two never share one, now or when one continues beside.

A table's name stands for a family: `orders` may continue as `orders__v2` (on_incompatible: new_table), and each of them
has `…__dead_letters`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from lakehouse.config.topic import Topic
from lakehouse.core import naming


class Taken:
    """The tables of topics that were accepted so far."""

    def __init__(self, topics: Iterable[Topic] = ()) -> None:
        """Take the tables of topics whose names were checked before."""
        self._families: dict[str, list[Topic]] = defaultdict(list)
        for topic in topics:
            self.take(topic)

    def take(self, topic: Topic) -> None:
        """Take the table of a topic."""
        self._families[naming.family(topic.table)[0]].append(topic)

    def fault(self, topic: Topic) -> str | None:
        """Return why the name of a topic's table cannot be used beside those that are taken; None where it can be."""
        table = topic.table
        if table.endswith(naming.DEAD_LETTERS):
            return f"'{naming.DEAD_LETTERS}' names dead-letter tables. Rename the topic"
        if len(table) > naming.LONGEST_TABLE:
            said = f"a table's name has at most {naming.LONGEST_TABLE} characters, and '{table[:40]}…' has {len(table)}"
            return f"{said}. Add 'table: <shorter name>'"
        for other in self._families[naming.family(table)[0]]:
            if other.table == table:
                return f"becomes table '{table}', and so does topic '{other.name}'. Rename one of them"
            older, newer = sorted((topic, other), key=lambda one: naming.family(one.table)[1])
            if older.on_incompatible == "new_table":
                return (
                    f"table '{newer.table}' is where '{older.name}' may continue (on_incompatible: new_table), and "
                    f"topic '{newer.name}' becomes it, too. Add 'table: <another name>' to one of them"
                )
        return None
