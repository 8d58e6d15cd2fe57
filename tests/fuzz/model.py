"""What a generated case is made of: types with the column each must become, and values with the cell each must fill.

Nothing here asks the project's code: the rules are those of docs/types.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from cells import Column
from hypothesis import strategies as st

from lakehouse.formats.schema import RegisteredSchema

Fate = Literal["row", "either", "letter"]
"""What a record must become: a row with exactly the expected cells, a dead letter, or either of them."""

FATES: tuple[Fate, ...] = ("row", "either", "letter")


@dataclass(frozen=True)
class Value:
    """A value as its encoder takes it, and the cell that it must fill."""

    sent: Any
    cell: Any
    fate: Fate = "row"


@dataclass(frozen=True)
class Type:
    """A type of some format.

    Attributes:
        row: The row of docs/types.md that it is an example of: what stands in its column `type`.
        schema: The type in a schema of the format.
        column: What it becomes.
        values: Values of the type.
        parts: Types within it.
        refused: What the message of the refusal must say, where no table can have the type.
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
    """Versions of one schema, oldest first, and records with what must become of them.

    Attributes:
        format: As lakehouse.yaml calls it.
        columns: The columns, or None where they are not foreseen.
        refused: A part of the message by which the schema must be refused; None where it must be accepted, and "" where
            both are right.
        rows: The rows of docs/types.md that it is an example of.
        record: The record type that the topic names, if it names one.
        names: Names of which a refusal that is not foreseen must give one.
        settings: What lakehouse.yaml says of the topic besides.
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
    """What becomes of a record with these values in it."""
    return max((value.fate for value in values), key=FATES.index, default="row")


def rows_of(type_: Type) -> set[str]:
    """The rows of docs/types.md that a type and the types in it are examples of."""
    return {type_.row}.union(*map(rows_of, type_.parts))


def refusal_of(type_: Type) -> str:
    """Why a type is refused, or the first type in it that is; empty where all are accepted."""
    return type_.refused or next(filter(None, map(refusal_of, type_.parts)), "")


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
"""Names that the project, Spark or Iceberg may use for something else."""
METADATA_NAMES = ("kafka_partition", "kafka_offset", "kafka_timestamp", "kafka_schema_id")


@dataclass
class Pair:
    """Two versions of a schema: `before` has the first of them, and the first records of `after`, which has both.

    What `before` makes of its records is not foreseen, but that the table's columns must mean the same afterwards.
    """

    before: Case
    after: Case
