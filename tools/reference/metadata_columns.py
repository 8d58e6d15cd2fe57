"""Page of metadata columns."""

from __future__ import annotations

from lakehouse.config.settings import Metadata
from lakehouse.core.tables.metadata_columns import COLUMNS, internal, names
from tools.reference.markdown import code, page, table

_INTRODUCTION = """\
Metadata columns identify the Kafka record of each row. `metadata.columns` of a topic lists the columns of its table,
and `metadata.naming` selects one of three sets of names. `partition` and `offset` are required.

The set `portable` has names that every engine reads without quotes. Confluent Tableflow has two other sets:
`confluent`, which it calls `DEFAULT`, and `confluent_portable`, which it calls `PORTABLE`. A table that Tableflow
creates has one of these two.
"""


def metadata_columns() -> str:
    """Return the page."""
    default = Metadata().columns
    columns = [column.name for column in COLUMNS]
    confluent, confluent_portable = names(columns, "confluent"), names(columns, "confluent_portable")
    rows = [
        [
            code(column.name),
            code(internal(column.name)),
            code(confluent[internal(column.name)]),
            code(confluent_portable[internal(column.name)]),
            code(column.type if isinstance(column.type, str) else "list<struct<key: string, value: binary>>"),
            "yes" if column.name in default else "",
            column.comment,
        ]
        for column in COLUMNS
    ]
    header = [
        "`metadata.columns`",
        "`portable`",
        "`confluent`",
        "`confluent_portable`",
        "Iceberg type",
        "default",
        "value",
    ]
    return page("Metadata columns", _INTRODUCTION, table(header, rows))
