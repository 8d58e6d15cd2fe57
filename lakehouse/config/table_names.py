"""Conflicts between the table names of topics.

A table name reserves a family of names: `orders` may continue as `orders__v2` (on_incompatible: new_table), and each of
these tables has a table `…__dead_letters`. Two topics never share a table, now or after a continuation.
"""

from collections import defaultdict
from collections.abc import Iterable

from lakehouse.config.topic import Topic
from lakehouse.core.tables import naming


class TableNames:
    """The table names of the topics that were accepted so far."""

    def __init__(self, topics: Iterable[Topic] = ()) -> None:
        """Accept the tables of topics whose names were checked before."""
        self._families: dict[str, list[Topic]] = defaultdict(list)
        for topic in topics:
            self.add(topic)

    def add(self, topic: Topic) -> None:
        """Accept the table of a topic."""
        self._families[naming.family(topic.table)[0]].append(topic)

    def conflict(self, topic: Topic) -> str | None:
        """Return why a topic's table name is invalid or conflicts with an accepted one, or None."""
        table = topic.table
        if table.endswith(naming.DEAD_LETTERS):
            return f"names ending in '{naming.DEAD_LETTERS}' are dead-letter tables. Rename the topic"
        if len(table) > naming.MAX_TABLE_CHARACTERS:
            limit = (
                f"a table name has at most {naming.MAX_TABLE_CHARACTERS} characters, '{table[:40]}…' has {len(table)}"
            )
            return f"{limit}. Add 'table: <shorter name>'"
        for other in self._families[naming.family(table)[0]]:
            if other.table == table:
                return f"maps to table '{table}', like topic '{other.name}'. Rename one of them"
            older, newer = sorted((topic, other), key=lambda one: naming.family(one.table)[1])
            if older.on_incompatible == "new_table":
                return (
                    f"table '{newer.table}' is where topic '{older.name}' may continue (on_incompatible: new_table), "
                    f"but topic '{newer.name}' maps to it. Add 'table: <another name>' to one of them"
                )
        return None
