"""Checks of a table's rows as lakehouse.yaml declares them, and the SQL that finds the rows that fail.

The SQL is Spark's. It is what a check runs and what its result shows, so that anybody can run it again. As in a CHECK
constraint of SQL, a condition that is null does not fail: say `not_null` for that.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Annotated, Literal, get_args

from pydantic import Field

from lakehouse.config.base import Model
from lakehouse.core import inconstant
from lakehouse.core.batch import Positions
from lakehouse.core.sql import SPARK

Severity = Literal["blocking", "warn", "quarantine"]
Value = bool | int | float | str

_name, _literal = SPARK.identifier, SPARK.literal


class _Check(Model):
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


class NotNull(_Check):
    """A column has a value."""

    type: Literal["not_null"]
    column: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def holds(self) -> str:
        return f"{_name(self.column)} IS NOT NULL"


class AcceptedValues(_Check):
    """A column has one of these values."""

    type: Literal["accepted_values"]
    column: str
    values: tuple[Value, ...] = Field(min_length=1)

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def holds(self) -> str:
        return f"{_name(self.column)} IN ({', '.join(map(_literal, self.values))})"


class Range(_Check):
    """A column is between two values, both included. Dates and times are written as text: `'2026-01-31'`."""

    type: Literal["range"]
    column: str
    min: int | float | str | None = None
    max: int | float | str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def holds(self) -> str:
        bounds = ((">=", self.min), ("<=", self.max))
        return " AND ".join(f"{_name(self.column)} {sign} {_literal(v)}" for sign, v in bounds if v is not None)


class Regex(_Check):
    """A text is, from end to end, what a regular expression describes (Java, java.util.regex.Pattern)."""

    type: Literal["regex"]
    column: str
    pattern: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def holds(self) -> str:
        whole = rf"\A(?:{self.pattern})\z"
        return f"{_name(self.column)} RLIKE {_literal(whole)}"


class Expression(_Check):
    """A condition on one row, in Spark SQL."""

    type: Literal["expression"]
    sql: str = Field(min_length=1)

    @property
    def holds(self) -> str:
        return f"({self.sql})"


class Unique(_Check):
    """No other row of the table has the same values; nulls are never the same."""

    type: Literal["unique"]
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


class References(_Check):
    """A value is also in a column of another table, as it is published when the check runs."""

    type: Literal["references"]
    column: str
    table: str = Field(description="The other table, of a topic that is declared.")
    table_column: str = Field("", description="Its column there; by default of the same name.")

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def failing(self, scope: Scope) -> str:
        here, there = _name("r", self.column), _name("o", self.table_column or self.column)
        other = f"SELECT 1 FROM {scope.others[self.table]} o WHERE {there} = {here}"
        return f"SELECT r.* FROM {scope.rows} r WHERE {here} IS NOT NULL AND NOT EXISTS ({other})"


class Query(_Check):
    """A query of your own, in Spark SQL: each row it returns fails. `{rows}` are the new rows, `{table}` is all."""

    type: Literal["query"]
    sql: str = Field(pattern=r"\{(rows|table)\}")

    def failing(self, scope: Scope) -> str:
        return self.sql.replace("{rows}", scope.rows).replace("{table}", scope.table)


class RowCount(_Check):
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
        low, high = self.min or 0, float("inf") if self.max is None else self.max
        if self.sigmas is not None and len(before) >= SHORTEST_HISTORY:
            mean, off = fmean(before), self.sigmas * pstdev(before)
            low, high = max(low, mean - off), min(high, mean + off)
        return low, high


SHORTEST_HISTORY, LONGEST_HISTORY = 5, 30
"""Batches that an expectation is made from."""

RowCheck = NotNull | AcceptedValues | Range | Regex | Expression
"""Checks that look at one row: `holds` is a condition. Only these can quarantine."""

SetCheck = Unique | References | Query
"""Checks that compare rows: `failing` is a query."""

Check = Annotated[RowCheck | SetCheck | RowCount, Field(discriminator="type")]
CHECKS: tuple[type[_Check], ...] = (*get_args(RowCheck), *get_args(SetCheck), RowCount)

RESERVED = ("conservation", "key_not_null", "fresh", "ledger", "dead_letter_topic")
"""Names of checks that every table has, or every one whose dead letters go to a topic."""


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


def fails(check: RowCheck) -> str:
    """The condition of the rows that fail."""
    return f"NOT COALESCE({check.holds}, TRUE)"


def failing(check: RowCheck | SetCheck, scope: Scope) -> str:
    """The query for the rows that fail."""
    if isinstance(check, SetCheck):
        return check.failing(scope)
    return f"SELECT * FROM {scope.rows} WHERE {fails(check)}"


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
            yield (name, "severity"), f"{check.type} compares rows, so there is no one row to quarantine. Use another"
        if check.severity == "quarantine" and (found := inconstant.found(_texts(check))):
            said = f"'{found}' does not always give the same answer for a record, which would be neither row nor dead"
            yield (name,), f"{said} letter, or both. Compare with a column, or set 'severity: warn'"
        match check:
            case Range(min=None, max=None):
                yield (name,), "a range without ends. Add 'min' or 'max'"
            case RowCount(min=None, max=None, sigmas=None):
                yield (name,), "expects nothing. Add 'min', 'max' or 'sigmas'"
            case References(table=table) if table not in tables:
                yield (name, "table"), f"'{table}' is the table of no topic declared in this file. Correct it"


def _texts(check: Check) -> Iterator[str]:
    """What a check compares with, as SQL and as the texts of literals."""
    match check:
        case Expression(sql=sql):
            yield sql
        case Range(min=low, max=high):
            yield from (_literal(value) for value in (low, high) if isinstance(value, str))


def _before(since: Positions, partition: str, offset: str) -> str:
    return " OR ".join(f"({partition} = {p} AND {offset} < {o})" for p, o in sorted(since.items()))
