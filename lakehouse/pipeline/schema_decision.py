"""The decision about the newest schema of a topic and its table: accept, use an older version, roll over, or refuse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lakehouse.config import sensitive
from lakehouse.config.topic import Topic
from lakehouse.core.errors import DoesNotFit
from lakehouse.formats import evolution
from lakehouse.formats.columns import table_schema
from lakehouse.formats.evolution import Change
from lakehouse.formats.schema import Shape
from lakehouse.pipeline.codecs import Formats, before_newest
from resources.catalog import Catalog

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

Action = Literal["accept", "use_older", "roll_over", "refuse"]


@dataclass(frozen=True)
class SchemaDecision:
    """What ingestion does about the newest schema.

    Attributes:
        action: `accept` the schema, `use_older` versions to read by, `roll_over` to a new table, or `refuse`.
        formats: How records are read, by the schema that fits the table where there is one.
        changes: The differences between the table and the newest schema.
        error: Why the newest schema does not fit the table; None where it does.
    """

    action: Action
    formats: Formats
    changes: tuple[Change, ...] = ()
    error: DoesNotFit | None = None

    def require_readable(self) -> Formats:
        """Return how records are read into the table as it is.

        Raises:
            DoesNotFit: They go to a new table, or the schema is refused.
        """
        if self.error is not None and self.action != "use_older":
            raise self.error
        return self.formats


def decide_schema(topic: Topic, newest: Formats, table: Table | None) -> SchemaDecision:
    """Compare the newest schema of a topic with its table, and apply the topic's `on_incompatible`.

    Args:
        newest: How records are read by the newest schema.
        table: The table; None where there is none yet.

    Raises:
        SchemaError: The schema cannot be a table.
    """
    if table is None:
        columns(topic, newest)
        return SchemaDecision("accept", newest)
    changes = _changes(topic, newest, table)
    try:
        evolution.refusals(changes, ".".join(table.name()))
    except DoesNotFit as error:
        if topic.on_incompatible == "new_table":
            return SchemaDecision("roll_over", newest, changes, error)
        if topic.on_incompatible == "dead_letter":
            for older in before_newest(newest):
                if all(change.accepted for change in _changes(topic, older, table)):
                    return SchemaDecision("use_older", older, changes, error)
        return SchemaDecision("refuse", newest, changes, error)
    return SchemaDecision("accept", newest, changes)


def ensure_table(
    catalog: Catalog, namespace: str, topic: Topic, formats: Formats, existing: Table | None = None
) -> Table:
    """Create or change the topic's table: columns by a schema, partitions and order as declared.

    Args:
        existing: The table, where it was loaded just now.

    Raises:
        SchemaError: The schema does not fit the table.
        ConfigError: `sensitive` names no column of the table.
        CommitConflict: Another writer changes the table at the same time.
    """
    table = catalog.ensure_table(namespace, topic.table, columns(topic, formats), formats.former, existing)
    catalog.arrange(table, topic.partition_by, topic.sort_by)
    sensitive.check(topic, table)
    return table


def columns(topic: Topic, formats: Formats) -> Schema:
    """Return the columns of a topic's table.

    Raises:
        SchemaError: The schema cannot be a table.
    """
    return table_schema(topic.metadata.names, formats.struct, formats.key.shape.struct if formats.key else None)


def _changes(topic: Topic, formats: Formats, table: Table) -> tuple[Change, ...]:
    shape = Shape(columns(topic, formats).as_struct(), formats.former)
    return tuple(evolution.changes(table.schema(), shape))
