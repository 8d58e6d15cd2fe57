"""Parts of generated cases: types with their expected columns, and values with their expected cells.

The expectations follow the rules of docs/types.md and use no code of the project.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from hypothesis import strategies as st

from lakehouse.formats.schema import RegisteredSchema
from tests.support.fuzz.cells import Column

Fate = Literal["row", "either", "letter"]
"""Expected result of a record: a row with exactly the expected cells, a dead letter, or either of them."""

FATES: tuple[Fate, ...] = ("row", "either", "letter")


@dataclass(frozen=True)
class Value:
    """A value for the encoder, and its expected cell."""

    sent: Any
    cell: Any
    fate: Fate = "row"


@dataclass(frozen=True)
class Type:
    """A type of some format.

    Attributes:
        row: Content of the column `type` in the row of docs/types.md for the type.
        schema: The type in a schema of the format.
        column: Expected column.
        values: Values of the type.
        parts: Types nested in the type.
        refused: Expected part of the error message, if no table can have the type.
    """

    row: str
    schema: Any
    column: Column
    values: st.SearchStrategy[Value]
    parts: tuple[Type, ...] = ()
    refused: str = ""


@dataclass(frozen=True)
class Record:
    """One record of a case."""

    value: bytes
    cells: dict[str, Any]
    fate: Fate = "row"


@dataclass
class Case:
    """Versions of one schema, oldest first, and records with their expected results.

    Attributes:
        format: Name of the format in lakehouse.yaml.
        columns: Expected columns, or None if they are not predicted.
        refused: Expected part of the error message; None if the schema must be accepted, and "" if it may be accepted
            or refused.
        rows: Rows of docs/types.md that the case is an example of.
        record: Setting `record` of the topic.
        names: Names, of which an unpredicted error must contain one.
        settings: Further settings of the topic.
    """

    format: str
    versions: Sequence[RegisteredSchema]
    columns: dict[str, Column] | None
    records: Sequence[Record]
    refused: str | None = None
    rows: set[str] = field(default_factory=set)
    record: str = ""
    names: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)


def worst(values: Sequence[Value]) -> Fate:
    """Return the expected result of a record with these values."""
    return max((value.fate for value in values), key=FATES.index, default="row")


def rows_of(type_: Type) -> set[str]:
    """Return the rows of docs/types.md for a type and its nested types."""
    return {type_.row}.union(*map(rows_of, type_.parts))


def refusal_of(type_: Type) -> str:
    """Return the expected error of a type or its first refused nested type, or an empty text."""
    return type_.refused or next(filter(None, map(refusal_of, type_.parts)), "")


def refusal(top: Type) -> str | None:
    """Return the expected error of a schema; None if it must be accepted."""
    return next((name for name, _ in top.column[1] if name.lower() in METADATA_NAMES), refusal_of(top)) or None


HOSTILE = [
    "__check",
    "__op",
    "__deleted",
    "__v",
    "__value",
    "__key",
    "__reason",
    "__tombstone",
    "__filtered",
    "__timestamp_type",
    "__decoded",
    "__end",
    "__headers",
    "__corrupt",
    "v",
    "k",
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "headers",
    "after",
    "before",
    "op",
    "source",
    "member0",
    "element",
    "_row",
    "_internal",
    "select",
    "order",
    "Ünï",
]
"""Names with another meaning in the project, Spark or Iceberg."""
METADATA_NAMES = ("kafka_partition", "kafka_offset", "kafka_timestamp", "kafka_schema_id")


@dataclass
class Pair:
    """Two versions of a schema. `after` has both of them; `before` has the older one and the first records of `after`.

    The results of `before` are not predicted, but the columns of the table must have the same meaning with `after`.
    """

    before: Case
    after: Case
