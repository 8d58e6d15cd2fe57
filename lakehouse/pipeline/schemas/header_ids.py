"""The decision whether the schema ids of a topic's records are read from headers.

To read them takes a sixth of the time of an append (docs/performance.md). A batch of a topic that had none so far is
therefore written without, and again if one of its records has one. The table stores that its topic has some.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehouse.core.table_protocol import HEADER_IDS

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from lakehouse.pipeline.schemas.decoding import TopicSchemas


def are_known(table: Table | None) -> bool:
    """Return whether records of a table had schema ids in headers."""
    return table is not None and HEADER_IDS in table.properties


def properties(table: Table, schemas: TopicSchemas) -> dict[str, str]:
    """Return the table property that stores it; none if there is nothing to store."""
    return {HEADER_IDS: "true"} if schemas.reads_header_ids and not are_known(table) else {}
