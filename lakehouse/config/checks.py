"""Checks of a table's rows as lakehouse.yaml declares them, and the SQL that finds the rows that fail.

The SQL is Spark's. It is what a check runs and what its result shows, so that anybody can run it again. As in a CHECK
constraint of SQL, a condition that is null does not fail: say `not_null` for that.

To add a type of check, write a class and add it to CHECKS. A separate distribution names its class as an entry point of
the group `lakehouse.config.checks`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean, pstdev
from typing import ClassVar, Literal

from pydantic import Field

from lakehouse.config.base import Model, type_of
from lakehouse.core import inconstant
from lakehouse.core.batch import Positions
from lakehouse.core.registry import implementations
from lakehouse.core.sql import SPARK

Severity = Literal["blocking", "warn", "quarantine"]
Value = bool | int | float | str

_name, _literal = SPARK.identifier, SPARK.literal


class Check(Model):
    """A check of any type; a subclass has its name as `type: Literal[…]`."""

    keeps_columns: ClassVar[bool] = True
    """Whether failing rows have the table's columns under their own names, so that sensitive ones can be left out."""

    description: str = ""
    severity: Severity = Field(
        "blocking",
        description="When rows fail: `blocking` publishes none of the batch, `warn` only tells, `quarantine` sends "
        "those rows to the dead letters and publishes the rest.",
    )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it looks at; none where it does not say."""
        return ()

    @property
    def said(self) -> str:
        """What must hold: the description, else the condition itself, else what checks of this type are about."""
        about = (type(self).__doc__ or "").partition("\n")[0]
        named = f"{', '.join(self.columns)}: {about}" if self.columns else about
        return self.description or getattr(self, "holds", "").replace("`", "") or named

    @property
    def tables(self) -> tuple[str, ...]:
        """The other tables that it reads, of declared topics."""
        return ()

    def faults(self, tables: Collection[str]) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yield what is wrong with the settings, as (place, sentence).

        Args:
            tables: The tables of declared topics.
        """
        yield from ()


class RowCheck(Check, ABC):
    """A check that looks at one row. Only these can quarantine."""

    @property
    @abstractmethod
    def holds(self) -> str:
        """The condition of the rows that pass, in Spark SQL."""

    @property
    def compared(self) -> tuple[str, ...]:
        """The parts of the condition that may give another answer for the same row, in Spark SQL."""
        return (self.holds,)

    @property
    def fails(self) -> str:
        """The condition of the rows that fail."""
        return f"NOT COALESCE({self.holds}, TRUE)"

    def failing(self, scope: Scope) -> str:
        """Return the query for the rows that fail."""
        return f"SELECT * FROM {scope.rows} WHERE {self.fails}"

    def faults(self, tables: Collection[str]) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yield why the check cannot quarantine."""
        if self.severity == "quarantine" and (word := inconstant.found(self.compared)):
            problem = f"'{word}' does not always give the same answer for a record, which would be neither row nor dead"
            yield (), f"{problem} letter, or both. Compare with a column, or set 'severity: warn'"


class SetCheck(Check, ABC):
    """A check that compares rows."""

    keeps_columns = False

    @abstractmethod
    def failing(self, scope: Scope) -> str:
        """Return the query for the rows that fail."""


class ColumnCheck(Check):
    """A check of the values of one column."""

    column: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)


class NotNull(ColumnCheck, RowCheck):
    """A column has a value."""

    type: Literal["not_null"]
    compared: ClassVar[tuple[str, ...]] = ()

    @property
    def holds(self) -> str:
        return f"{_name(self.column)} IS NOT NULL"


class AcceptedValues(ColumnCheck, RowCheck):
    """A column has one of these values."""

    type: Literal["accepted_values"]
    compared: ClassVar[tuple[str, ...]] = ()
    values: tuple[Value, ...] = Field(min_length=1)

    @property
    def holds(self) -> str:
        return f"{_name(self.column)} IN ({', '.join(map(_literal, self.values))})"


class Range(ColumnCheck, RowCheck):
    """A column is between two values, both included. Dates and times are written as text: `'2026-01-31'`."""

    type: Literal["range"]
    min: int | float | str | None = None
    max: int | float | str | None = None

    @property
    def holds(self) -> str:
        bounds = ((">=", self.min), ("<=", self.max))
        return " AND ".join(f"{_name(self.column)} {sign} {_literal(v)}" for sign, v in bounds if v is not None)

    @property
    def compared(self) -> tuple[str, ...]:
        return tuple(_literal(value) for value in (self.min, self.max) if isinstance(value, str))

    def faults(self, tables: Collection[str]) -> Iterator[tuple[tuple[str, ...], str]]:
        yield from super().faults(tables)
        if self.min is None and self.max is None:
            yield (), "a range without ends. Add 'min' or 'max'"


class Regex(ColumnCheck, RowCheck):
    """A text is, from end to end, what a regular expression describes (Java, java.util.regex.Pattern)."""

    type: Literal["regex"]
    compared: ClassVar[tuple[str, ...]] = ()
    pattern: str

    @property
    def holds(self) -> str:
        whole = rf"\A(?:{self.pattern})\z"
        return f"{_name(self.column)} RLIKE {_literal(whole)}"


class Expression(RowCheck):
    """A condition on one row, in Spark SQL."""

    type: Literal["expression"]
    sql: str = Field(min_length=1)

    @property
    def holds(self) -> str:
        return f"({self.sql})"


class Unique(SetCheck):
    """No other row of the table has the same values; nulls are never the same."""

    type: Literal["unique"]
    keeps_columns = True
    unique: tuple[str, ...] = Field(alias="columns", min_length=1)

    @property
    def columns(self) -> tuple[str, ...]:
        return self.unique

    def failing(self, scope: Scope) -> str:
        names = ", ".join(map(_name, self.unique))
        touched = f"({names}) IN (SELECT {names} FROM {scope.rows})"
        return (
            f"SELECT * FROM {scope.rows} WHERE ({names}) IN "
            f"(SELECT {names} FROM {scope.table} WHERE {touched} GROUP BY {names} HAVING COUNT(*) > 1)"
        )


class References(ColumnCheck, SetCheck):
    """A value is also in a column of another table, as it is published when the check runs."""

    type: Literal["references"]
    keeps_columns = True
    table: str = Field(description="The other table, of a topic that is declared.")
    table_column: str = Field("", description="Its column there; by default of the same name.")

    @property
    def tables(self) -> tuple[str, ...]:
        return (self.table,)

    def faults(self, tables: Collection[str]) -> Iterator[tuple[tuple[str, ...], str]]:
        if self.table not in tables:
            yield ("table",), f"'{self.table}' is the table of no topic declared in this file. Correct it"

    def failing(self, scope: Scope) -> str:
        here, there = _name("r", self.column), _name("o", self.table_column or self.column)
        other = f"SELECT 1 FROM {scope.others[self.table]} o WHERE {there} = {here}"
        return f"SELECT r.* FROM {scope.rows} r WHERE {here} IS NOT NULL AND NOT EXISTS ({other})"


class Query(SetCheck):
    """A query of your own, in Spark SQL: each row it returns fails. `{rows}` are the new rows, `{table}` is all."""

    type: Literal["query"]
    sql: str = Field(pattern=r"\{(rows|table)\}")

    def failing(self, scope: Scope) -> str:
        return self.sql.replace("{rows}", scope.rows).replace("{table}", scope.table)


class RowCount(Check):
    """A batch has as many rows as one would expect."""

    type: Literal["row_count"]
    min: int | None = Field(None, ge=0)
    max: int | None = Field(None, ge=0)
    sigmas: float | None = Field(
        None, gt=0, description="Standard deviations that a batch may be off the mean of the 30 batches before it."
    )

    def expected(self, before: Sequence[int]) -> tuple[float, float]:
        """The fewest and the most rows a batch may have.

        Parameters: `before` are the rows of batches before it; with less than 5 of them nothing is unusual.
        """
        low: float = self.min or 0
        high = float("inf") if self.max is None else self.max
        if self.sigmas is not None and len(before) >= SHORTEST_HISTORY:
            mean, off = fmean(before), self.sigmas * pstdev(before)
            low, high = max(low, mean - off), min(high, mean + off)
        return low, high

    def faults(self, tables: Collection[str]) -> Iterator[tuple[tuple[str, ...], str]]:
        if self.min is None and self.max is None and self.sigmas is None:
            yield (), "expects nothing. Add 'min', 'max' or 'sigmas'"


SHORTEST_HISTORY, LONGEST_HISTORY = 5, 30
"""Batches that an expectation is made from."""

CHECKS: Sequence[type[Check]] = (
    NotNull,
    AcceptedValues,
    Range,
    Regex,
    Expression,
    Unique,
    References,
    Query,
    RowCount,
)
"""The types of this project."""

RESERVED = CONSERVATION, KEY_NOT_NULL, FRESH, LEDGER, MIRRORED, STREAMING = (
    "conservation",
    "key_not_null",
    "fresh",
    "ledger",
    "dead_letter_topic",
    "streaming",
)
"""Names of checks that a table has without a declaration."""


@cache
def registered() -> Mapping[str, type[Check]]:
    """Return all types of check by name: this project's and those of installed distributions.

    Raises:
        ConfigError: Two types have the same name.
    """
    return implementations(CHECKS, "lakehouse.checks", type_of)


@dataclass(frozen=True)
class Scope:
    """What a check looks at, as SQL: `rows` are those to be checked, `table` all of one snapshot, `others` the
    other tables by name."""

    rows: str
    table: str
    others: Mapping[str, str]


def scope(
    table: str,
    snapshot_id: int,
    since: Positions,
    names: Mapping[str, str],
    others: Mapping[str, str],
) -> Scope:
    """One snapshot's rows that are new.

    Parameters: `table` is quoted; `since` is the first new offset by partition, of partitions not named everything is
    new, and with no partition at all every row is checked; `names` are the table's names of metadata columns.
    """
    whole = f"{table} VERSION AS OF {snapshot_id}"
    partition, offset = (_name(names.get(name, name)) for name in ("kafka_partition", "kafka_offset"))
    old = _before(since, partition, offset)
    return Scope(f"(SELECT * FROM {whole} WHERE NOT ({old}))" if old else f"(SELECT * FROM {whole})", whole, others)


def in_quarantine(letters: str, name: str, since: Positions) -> str:
    """The query for the dead letters of a check, from first offsets by partition on.

    Parameters: `letters` is the quoted table.
    """
    old = _before(since, "source_record.partition", "source_record.offset")
    return f"SELECT * FROM {letters} WHERE error_details['check'] = {_literal(name)}" + (
        f" AND NOT ({old})" if old else ""
    )


def faults(checks: Mapping[str, Check], tables: Collection[str]) -> Iterator[tuple[tuple[str, ...], str]]:
    """What is wrong with declared checks, as (place, sentence).

    Parameters: `tables` are those of declared topics.
    """
    for name, check in checks.items():
        if not re.fullmatch(r"[A-Za-z0-9_]+", name):
            yield (name,), "not a name of a check. Use letters, digits and '_'"
        if name in RESERVED:
            yield (name,), "every table has a check of that name. Choose another"
        if check.severity == "quarantine" and not isinstance(check, RowCheck):
            yield (
                (name, "severity"),
                (f"{type_of(type(check))} compares rows, so there is no one row to quarantine. Use another"),
            )
        yield from (((name, *place), problem) for place, problem in check.faults(tables))


def _before(since: Positions, partition: str, offset: str) -> str:
    return " OR ".join(f"({partition} = {p} AND {offset} < {o})" for p, o in sorted(since.items()))
