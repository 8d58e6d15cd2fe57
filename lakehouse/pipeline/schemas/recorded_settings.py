"""Settings that decide what the rows of a table mean: the table stores them, and lakehouse.yaml is compared with them.

Rows of different settings in one table would be wrong silently. A topic that changes from `append` to `upsert`, for
example, would keep several rows of a key, and another key would leave rows that a record should have replaced.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING

from lakehouse.core.errors import IncompatibleSettings, NewerFormat
from lakehouse.core.table_protocol import SETTINGS
from lakehouse.core.tables.naming import TableRef

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from lakehouse.config.model import Topic
    from lakehouse.pipeline.schemas.decoding import TopicSchemas


@dataclass(frozen=True)
class RecordedSettings:
    """The settings with which the rows of a table were made."""

    entry: str
    """The entry of lakehouse.yaml, which may be renamed."""
    mode: str
    key: tuple[str, ...]
    key_format: str | None
    """The effective format of keys."""
    record: str
    naming: str
    """The names of metadata columns, by which rows are found."""
    delete: tuple[str, ...]
    """The column, and its value, of records that delete the row of their key; empty if none do."""

    @staticmethod
    def of(topic: Topic) -> RecordedSettings:
        """Return the settings that lakehouse.yaml declares for a topic."""
        key_format, naming = topic.effective_key_format, topic.metadata.naming
        delete = (topic.delete.column, topic.delete.value) if topic.delete else ()
        return RecordedSettings(topic.name, topic.mode, topic.key, key_format, topic.record, naming, delete)

    @staticmethod
    def stored(table: Table) -> RecordedSettings | None:
        """Return the settings that a table stores; None if it stores none.

        Raises:
            NewerFormat: A newer release stored others.
        """
        if SETTINGS not in table.properties:
            return None
        values = json.loads(table.properties[SETTINGS])
        if values.keys() != {field.name for field in fields(RecordedSettings)}:
            raise NewerFormat(
                f"Another release stored the settings of table {'.'.join(table.name())}: {table.properties[SETTINGS]}. "
                f"Nothing was changed. Use that release, or choose another `table`"
            )
        return RecordedSettings(**{**values, **{name: tuple(values[name]) for name in ("key", "delete")}})

    def properties(self) -> dict[str, str]:
        """Return the table property that stores the settings."""
        return {SETTINGS: json.dumps(asdict(self))}

    def with_renamed_columns(self, declared: RecordedSettings, table: Table, newest: TopicSchemas) -> RecordedSettings:
        """Return the settings with the declared names of columns that the newest schema renames.

        Args:
            declared: The declared settings.
            table: The table that stores the settings.
            newest: The schemas with the columns of the newest version.
        """
        columns = set(table.schema().column_names)

        def renamed(before: Sequence[str], after: Sequence[str]) -> tuple[str, ...]:
            present = {
                old: new
                for new in after
                for old in newest.previous_names.get(new, ())
                if old not in after and not {old, new} <= columns
            }
            return tuple(present.get(name, name) for name in before)

        column, value = self.delete[:1], self.delete[1:]
        delete = (*renamed(column, declared.delete[:1]), *value)
        return replace(self, key=renamed(self.key, declared.key), delete=delete)

    def conflicts(self, declared: RecordedSettings, *, is_key_in_message: bool) -> list[str]:
        """Return the names of the settings that must not differ and do.

        A table that only has rows added to it does not depend on its key. A topic of which only one record type was
        ingested may get others, which the table then leaves out. Records that mark deletions are rows of a table that
        was made without `delete`, and rows are missing in one that was made with it.

        Args:
            declared: The declared settings.
            is_key_in_message: Whether the message key has a column of the key that values lack.
        """
        names = ["mode", "naming", "delete"]
        names += [] if self.mode == declared.mode == "append" else ["key"]
        names += ["key_format"] if is_key_in_message else []
        names += ["record"] if self.record else []
        before, after = (replace(of, key=tuple(sorted(of.key))) for of in (self, declared))
        return [name for name in names if getattr(before, name) != getattr(after, name)]


def as_text(name: str, value: str | tuple[str, ...] | None) -> str:
    """Return a setting as an error shows it."""
    if name == "delete" and value:
        text: str | None = "{{column: {}, value: {}}}".format(*value)
    else:
        text = ", ".join(value) if isinstance(value, tuple) else value
    return f"`{name}: {text}`" if text else f"no `{name}`"


def conflict(topic: Topic, table: Table | None, newest: TopicSchemas | None = None) -> IncompatibleSettings | None:
    """Return why a topic's settings do not fit the rows of its table; None if they do, or if there are no rows yet.

    Args:
        topic: The topic.
        table: The table; None if it does not exist.
        newest: The schemas with the columns of the newest version. Without them, a renamed column counts as
            another one, and formats of keys are not compared.

    Raises:
        NewerFormat: Another release stored the settings of the table.
    """
    if table is None or table.current_snapshot() is None:
        return None
    declared, stored, full_name = RecordedSettings.of(topic), RecordedSettings.stored(table), ".".join(table.name())
    if stored is None:
        return IncompatibleSettings(
            f"Table {full_name} has rows, but no record of the settings that made them, such as `mode` and `key`: "
            f"an earlier release or another program wrote them",
            "Nothing was changed",
            f"If lakehouse.yaml declares these settings, record them with `lakehouse resume {topic.name} --at POSITION "
            f"--reason …`; otherwise, choose another `table`",
        )
    is_key_in_message = False
    if newest is not None:
        stored = stored.with_renamed_columns(declared, table, newest)
        of_value = {field.name for field in newest.struct.fields}
        is_key_in_message = topic.mode != "append" and not of_value.issuperset(topic.key)
    different = stored.conflicts(declared, is_key_in_message=is_key_in_message)
    if not different:
        return None
    before, after = (", ".join(as_text(name, getattr(of, name)) for name in different) for of in (stored, declared))
    by = "" if stored.entry == topic.name else f" by entry '{stored.entry}'"
    # The rows of all tables of a topic are found by the same names.
    is_continuable, following = "naming" not in different, TableRef(*table.name()).next_version.name
    continued = f", or set `on_incompatible: new_table` to continue in {following}" if is_continuable else ""
    remedy = f"Restore the settings, choose another `table`, which gets all records that the topic still has{continued}"
    if is_continuable and topic.on_incompatible == "new_table":
        remedy = f"The next batch continues in {following}"
    return IncompatibleSettings(
        f"The rows of table {full_name} were made{by} with {before}, but '{topic.name}' declares {after}",
        "Nothing was changed",
        remedy,
        is_continuable=is_continuable,
    )


def rolls_over(topic: Topic, error: IncompatibleSettings) -> bool:
    """Return whether the next batch of a topic continues in a new table because of its settings."""
    return error.is_continuable and topic.on_incompatible == "new_table"


def require_ingestible(topic: Topic, table: Table | None) -> None:
    """Require that the settings of a topic fit the rows of its table, or that its next batch continues in another one.

    Raises:
        IncompatibleSettings: Ingestion refuses the settings.
        NewerFormat: Another release stored the settings of the table.
    """
    if (error := conflict(topic, table)) and not rolls_over(topic, error):
        raise error


def require_same(topic: Topic, table: Table | None) -> None:
    """Require that the settings of a topic fit the rows of its table.

    Raises:
        IncompatibleSettings: They do not.
        NewerFormat: Another release stored the settings of the table.
    """
    if error := conflict(topic, table):
        raise error


def changed(topic: Topic, table: Table | None) -> dict[str, str]:
    """Return the table property that stores a topic's settings; none if the table has it.

    It is set in the commit that publishes rows, after `conflict` found none.
    """
    properties = RecordedSettings.of(topic).properties()
    return {} if table is not None and properties.items() <= table.properties.items() else properties
