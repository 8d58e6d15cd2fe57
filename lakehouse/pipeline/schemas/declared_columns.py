"""Columns that lakehouse.yaml names: the table has each of them once it has the columns of the newest schema.

They are compared before anything is changed: otherwise an unknown name would leave a table without rows, or a renamed
column, and a batch that no retry publishes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyiceberg.schema import Schema
from pyiceberg.types import StructType

from lakehouse.config import sensitive
from lakehouse.config.known_columns import value_faults
from lakehouse.core.errors import SchemaError
from lakehouse.core.tables import layout

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from lakehouse.config.model import Topic
    from lakehouse.formats.evolution import SchemaChange
    from lakehouse.pipeline.schemas.decoding import TopicSchemas


def require_columns(
    topic: Topic,
    schemas: TopicSchemas,
    new: Schema,
    present: Schema | None,
    changes: Iterable[SchemaChange],
    table: Table | None = None,
) -> None:
    """Require that a table has the columns that `partition_by`, `sort_by`, `sensitive` and `checks` name.

    Args:
        topic: The topic.
        schemas: The schemas that define the columns.
        new: The columns of these schemas.
        present: The columns of the table that gets them; None if it does not exist yet.
        changes: The changes of the table.
        table: The table, of which `sensitive` may name earlier columns; None if only its columns are known.

    Raises:
        SchemaError: A column does not exist, or its type does not support its transform.
    """
    renamed = {change.at for change in changes if change.rule == "FIELD_RENAMED"}
    kept = [field for field in present.fields if (field.name,) not in renamed] if present else []
    layout.require_columns([new, Schema(*kept)], topic.partition_by, topic.sort_by)
    _require_columns_of_checks(topic, StructType(*kept, *new.fields))
    earlier = [field for schema in (table.metadata.schemas if table else ()) for field in schema.fields]
    previous = {**(sensitive.previous_names(table) if table else {}), **schemas.previous_names}
    if unknown := sensitive.unmatched_names(topic.sensitive, [*new.fields, *kept, *earlier], previous):
        raise SchemaError(
            f"Topic '{topic.name}' declares 'sensitive', and its table "
            f"{sensitive.unknown_columns(unknown, new.fields)} Nothing was ingested. Correct the name in "
            f"lakehouse.yaml, since a name that matches no column hides nothing"
        )


def _require_columns_of_checks(topic: Topic, row: StructType) -> None:
    names = [field.name for field in row.fields]
    known = {name.casefold() for name in names}
    for check, declared in topic.checks.items():
        if unknown := [column for column in declared.columns if column.casefold() not in known]:
            raise SchemaError(
                f"Check '{check}' of topic '{topic.name}' names the column '{unknown[0]}', which is not one of "
                f"{', '.join(dict.fromkeys(names))}. Nothing was ingested. Correct the check in lakehouse.yaml"
            )
        for at, problem in value_faults(declared, row):
            where = ".".join(map(str, ("checks", check, *at)))
            raise SchemaError(f"Topic '{topic.name}': {where}: {problem}. Nothing was ingested")
