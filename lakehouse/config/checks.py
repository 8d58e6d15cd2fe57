"""Checks that lakehouse.yaml declares for the rows of a table, and the Spark SQL that selects failing rows.

The result of a check shows its SQL, so that anybody can run it again. As in a CHECK constraint of SQL, a condition that
is null does not fail; `not_null` checks for null. If a condition raises an error for a row, such as an overflow, that
row fails.

To add a type of check, write a class and add it to CHECKS. A separate distribution names its class as an entry point of
the group `lakehouse.checks`.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from statistics import fmean, pstdev
from typing import ClassVar, Literal

from pydantic import Field

from lakehouse.config.base import ConfigModel, Fault, type_of
from lakehouse.core import sql
from lakehouse.core.offsets.batch import Positions
from lakehouse.core.patterns import Matches
from lakehouse.core.registry import implementations
from lakehouse.core.sql import SPARK
from lakehouse.core.tables import letter_columns
from lakehouse.core.text import did_you_mean

Severity = Literal["blocking", "warn", "quarantine"]


@dataclass(frozen=True)
class Scope:
    """The relations that a check reads, as SQL."""

    rows: str
    """The rows to be checked."""
    table: str
    """All rows of one snapshot."""
    others: Mapping[str, str]
    """The other tables, by name."""
    earlier: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    """Queries for the values of columns in the tables that the topic had before it rolled over, by columns."""
    has_floats: bool = False
    """Whether a column of the table contains floating-point numbers."""


class Check(ConfigModel):
    """A check of any type. A subclass declares its name as `type: Literal[…]`."""

    keeps_columns: ClassVar[bool] = True
    """True if failing rows have the table's columns under their own names, so that sensitive columns can be removed."""

    description: str = Field("", description="Description of the check. Default: its condition.")
    severity: Severity = Field(
        "blocking",
        description="Effect of failing rows: `blocking` publishes nothing of the batch, `warn` only reports, "
        "`quarantine` moves those rows to the dead letters and publishes the rest.",
    )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the check names; empty if it names none."""
        return ()

    @property
    def statement(self) -> str:
        """The description, or else the condition, or else the summary of this type of check, without Markdown."""
        summary = (type(self).__doc__ or "").partition("\n")[0]
        summary = f"{', '.join(self.columns)}: {summary}" if self.columns else summary
        return (self.description or getattr(self, "condition", "") or summary).replace("`", "")

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables of other declared topics that the check reads."""
        return ()

    def faults(self, tables: Collection[str]) -> Iterator[Fault]:
        """Yield problems of the settings, each as (keys below the check, message)."""
        yield from ()


class RowCheck(Check, ABC):
    """A check of each row by itself. Only these checks can quarantine."""

    @property
    @abstractmethod
    def condition(self) -> str:
        """The condition of the rows that pass, in Spark SQL."""

    @property
    def compared(self) -> tuple[str, ...]:
        """The parts of the condition that may be nondeterministic, in Spark SQL."""
        return (self.condition,)

    @property
    def test(self) -> str | Matches:
        """The test of a row: Spark SQL that is null if the condition raises an error, or a pattern."""
        return sql.tried(self.condition)

    @property
    def failure_condition(self) -> str:
        """The condition of the rows that fail, in Spark SQL for readers of the result."""
        return f"NOT COALESCE({sql.tried(self.condition)}, FALSE)"

    def failing_rows(self, scope: Scope) -> str:
        """Return the query for the rows that fail."""
        return f"SELECT * FROM {scope.rows} WHERE {self.failure_condition}"

    def faults(self, tables: Collection[str]) -> Iterator[Fault]:
        if self.severity == "quarantine" and (word := sql.first_nondeterministic(self.compared)):
            word = word.strip("'\"")
            problem = f"'{word}' does not always give the same result for a record, so a row could be lost or stored"
            yield (), f"{problem} twice. Compare with a column, or set 'severity: warn'"


class SetCheck(Check, ABC):
    """A check that compares rows with each other or with other tables."""

    keeps_columns = False

    @abstractmethod
    def failing_rows(self, scope: Scope) -> str:
        """Return the query for the rows that fail."""


class ColumnCheck(Check):
    """A check of the values of one column."""

    column: str = Field(description="Name of the column.")

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)


Value = bool | int | float | str

_name, _literal = SPARK.identifier, SPARK.literal


class NotNull(ColumnCheck, RowCheck):
    """The column is not null."""

    type: Literal["not_null"]
    compared: ClassVar[tuple[str, ...]] = ()

    @property
    def condition(self) -> str:
        return f"{_name(self.column)} IS NOT NULL"


class AcceptedValues(ColumnCheck, RowCheck):
    """The column has one of the listed values."""

    type: Literal["accepted_values"]
    compared: ClassVar[tuple[str, ...]] = ()
    values: tuple[Value, ...] = Field(min_length=1, description="The allowed values. Null passes.")

    @property
    def condition(self) -> str:
        return f"{_name(self.column)} IN ({', '.join(map(_literal, self.values))})"

    def faults(self, tables: Collection[str]) -> Iterator[Fault]:
        yield from super().faults(tables)
        if len({isinstance(value, bool) for value in self.values}) > 1:
            problem = "YAML reads yes, no, on and off as true or false, which no column has beside other values"
            yield ("values",), f"{problem}. Write them in quotes"


class Range(ColumnCheck, RowCheck):
    """The column is between two values, both included. Dates and times are written as text: `'2026-01-31'`."""

    type: Literal["range"]
    min: int | float | str | None = Field(None, description="Smallest allowed value. Default: no limit.")
    max: int | float | str | None = Field(None, description="Largest allowed value. Default: no limit.")

    @property
    def condition(self) -> str:
        bounds = ((">=", self.min), ("<=", self.max))
        return " AND ".join(f"{_name(self.column)} {sign} {_literal(v)}" for sign, v in bounds if v is not None)

    @property
    def compared(self) -> tuple[str, ...]:
        return tuple(_literal(value) for value in (self.min, self.max) if isinstance(value, str))

    def faults(self, tables: Collection[str]) -> Iterator[Fault]:
        yield from super().faults(tables)
        if self.min is None and self.max is None:
            yield (), "the range has no bounds, so nothing would be checked. Add 'min' or 'max'"
        yield from _empty_range(self.min, self.max)


class Regex(ColumnCheck, RowCheck):
    """The whole text of the column matches a regular expression in the syntax of RE2, and has at most 1 MiB."""

    type: Literal["regex"]
    compared: ClassVar[tuple[str, ...]] = ()
    pattern: str = Field(description="The regular expression (RE2, Syntax).")

    @property
    def test(self) -> Matches:
        return Matches(self.column, self.pattern)

    @property
    def condition(self) -> str:
        return f"{_name(self.column)} RLIKE {_literal(self.test.whole)}"

    @property
    def failure_condition(self) -> str:
        return f"NOT COALESCE({self.condition}, TRUE)"


class Expression(RowCheck):
    """A condition on each row, in Spark SQL."""

    type: Literal["expression"]
    sql: str = Field(
        min_length=1,
        description="The condition that each row fulfils. A null result passes, and a row for which it raises an error "
        "fails.",
    )

    @property
    def condition(self) -> str:
        return f"({self.sql})"

    def faults(self, tables: Collection[str]) -> Iterator[Fault]:
        yield from super().faults(tables)
        yield from _java_patterns(self.sql)


class Unique(SetCheck):
    """No other row of the table has the same values. Null equals nothing."""

    type: Literal["unique"]
    keeps_columns = True
    unique: tuple[str, ...] = Field(alias="columns", min_length=1, description="Columns that identify a row.")

    @property
    def columns(self) -> tuple[str, ...]:
        return self.unique

    def failing_rows(self, scope: Scope) -> str:
        names = ", ".join(map(_name, self.unique))
        touched = f"({names}) IN (SELECT {names} FROM {scope.rows})"
        repeated = f"SELECT {names} FROM {scope.table} WHERE {touched} GROUP BY {names} HAVING COUNT(*) > 1"
        earlier = f" OR ({names}) IN ({scope.earlier[self.unique]})" if self.unique in scope.earlier else ""
        return f"SELECT * FROM {scope.rows} WHERE ({names}) IN ({repeated}){earlier}"


class References(ColumnCheck, SetCheck):
    """Each value of the column exists in a column of another table, as published when the check runs."""

    type: Literal["references"]
    keeps_columns = True
    table: str = Field(description="The other table, which belongs to a declared topic.")
    table_column: str = Field("", description="The column of the other table. Default: the same name.")

    @property
    def tables(self) -> tuple[str, ...]:
        return (self.table,)

    def faults(self, tables: Collection[str]) -> Iterator[Fault]:
        if self.table not in tables:
            hint = did_you_mean(self.table, tables)
            yield ("table",), f"no declared topic has the table '{self.table}'.{hint} Correct the name"

    def failing_rows(self, scope: Scope) -> str:
        column, other_column = _name("r", self.column), _name("o", self.table_column or self.column)
        matches = f"SELECT 1 FROM {scope.others[self.table]} o WHERE {other_column} = {column}"
        return f"SELECT r.* FROM {scope.rows} r WHERE {column} IS NOT NULL AND NOT EXISTS ({matches})"


class Query(SetCheck):
    """A query in Spark SQL that returns the failing rows. `{rows}` is the new rows, `{table}` all rows."""

    type: Literal["query"]
    sql: str = Field(pattern=r"\{(rows|table)\}", description="The query, with `{rows}` or `{table}` in FROM.")

    def faults(self, tables: Collection[str]) -> Iterator[Fault]:
        yield from super().faults(tables)
        yield from _java_patterns(self.sql)

    def failing_rows(self, scope: Scope) -> str:
        rows, table = (_unpruned(of) if scope.has_floats else of for of in (scope.rows, scope.table))
        return self.sql.replace("{rows}", rows).replace("{table}", table)


class RowCount(Check):
    """The number of rows in a batch is in the expected range."""

    type: Literal["row_count"]
    min: int | None = Field(None, ge=0, description="Minimum number of rows of a batch.")
    max: int | None = Field(None, ge=0, description="Maximum number of rows of a batch.")
    sigmas: float | None = Field(
        None, gt=0, description="Standard deviations by which a batch may differ from the mean of the last 30."
    )

    def expected(self, previous: Sequence[int]) -> tuple[float, float]:
        """Return the minimum and the maximum number of rows of a batch.

        Args:
            previous: Row counts of the batches before it. Fewer than 5 do not limit the range.
        """
        low: float = self.min or 0
        high = float("inf") if self.max is None else self.max
        if self.sigmas is not None and len(previous) >= MIN_HISTORY:
            mean, off = fmean(previous), self.sigmas * pstdev(previous)
            low, high = max(low, mean - off), min(high, mean + off)
        return low, high

    def faults(self, tables: Collection[str]) -> Iterator[Fault]:
        if self.min is None and self.max is None and self.sigmas is None:
            yield (), "the check has no limits, so nothing would be checked. Add 'min', 'max' or 'sigmas'"
        yield from _empty_range(self.min, self.max)


MIN_HISTORY, MAX_HISTORY = 5, 30
"""Minimum and maximum number of earlier batches that `row_count` compares with."""

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
"""The types of check of this project."""

RESERVED = RECORD_COUNT, KEY_NOT_NULL, FRESH, LEDGER, DEAD_LETTER_TOPIC, STREAMING, TABLEFLOW, SOURCE_SNAPSHOT = (
    "record_count",
    "key_not_null",
    "fresh",
    "ledger",
    "dead_letter_topic",
    "streaming",
    "tableflow",
    "source_snapshot",
)
"""Names of the checks that tables have without a declaration."""


@cache
def registered() -> Mapping[str, type[Check]]:
    """Return all types of check by name, those of installed distributions included."""
    return implementations(CHECKS, "lakehouse.checks", type_of)


def scope(
    table: str,
    snapshot_id: int,
    since: Positions,
    names: Mapping[str, str],
    others: Mapping[str, str],
    files: Sequence[str] | None = None,
) -> Scope:
    """Return the scope of the new rows of a snapshot.

    Args:
        since: First new offset by partition. All rows of other partitions are new; an empty mapping selects all rows.
        files: The data files with new rows; None if offsets alone distinguish them. A recreated topic has the offsets
            of the previous one, whose rows the table has.
    """
    whole = f"{table} VERSION AS OF {snapshot_id}"
    partition, offset = (_name(names.get(name, name)) for name in ("kafka_partition", "kafka_offset"))
    old = _before(since, partition, offset)
    conditions = [f"NOT ({old})"] if old else []
    if files is not None:
        conditions.append(f"_file IN ({', '.join(map(_literal, files))})" if files else "FALSE")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return Scope(f"(SELECT * FROM {whole}{where})", whole, others)


def quarantined_rows(dead_letters: str, name: str, since: Positions) -> str:
    """Return the query for the dead letters that a check quarantined.

    Args:
        since: First offset by partition; an empty mapping selects all dead letters of the check.
    """
    old = _before(since, *letter_columns.PLACE)
    return f"SELECT * FROM {dead_letters} WHERE error_details['check'] = {_literal(name)}" + (
        f" AND NOT ({old})" if old else ""
    )


def faults(checks: Mapping[str, Check], tables: Collection[str]) -> Iterator[Fault]:
    """Yield problems of declared checks, each as (keys below `checks`, message)."""
    for name, check in checks.items():
        if not re.fullmatch(r"[A-Za-z0-9_]+", name):
            yield (name,), "not a valid name of a check. Use letters, digits and '_'"
        if name in RESERVED:
            yield (name,), "every table already has a check of that name. Choose another name"
        if check.severity == "quarantine" and not isinstance(check, RowCheck):
            yield (
                (name, "severity"),
                (f"{type_of(type(check))} compares rows, so no single row can be quarantined. Use another severity"),
            )
        yield from (((name, *place), problem) for place, problem in check.faults(tables))


def _empty_range(low: Value | None, high: Value | None) -> Iterator[Fault]:
    """Yield a fault if no number is between two others. The order of texts depends on the column's type."""
    if isinstance(low, int | float) and isinstance(high, int | float) and low > high:
        yield ("min",), f"it is greater than 'max' ({low} > {high}), so every row would fail. Exchange the two"


def _java_patterns(statement: str) -> Iterator[Fault]:
    """Yield the use of Java's regular expressions in a statement (lakehouse.core.patterns has the reason)."""
    if word := sql.first_java_pattern(statement):
        problem = (
            f"'{word}' uses Java's regular expressions, by which a long value can end the Spark server of all topics"
        )
        yield ("sql",), f"{problem}. Use LIKE, or a check of type regex"
    elif sql.has_slow_like(statement):
        problem = (
            "LIKE with more than one '%' before the end of its pattern, or with a pattern that is no literal, can take "
            "hours for a long value"
        )
        yield ("sql",), f"{problem}. Use contains, startswith and endswith, or a check of type regex"


def _unpruned(relation: str) -> str:
    """Return a relation into which Spark pushes no filter of a query.

    Iceberg skips files by their bounds, which ignore NaN and order -0.0 below 0.0 (Iceberg specification, Appendix D).
    A row would then fail or pass by what else is in its file.
    """
    return f"(SELECT * FROM {relation} WHERE monotonically_increasing_id() >= 0)"


def _before(since: Positions, partition: str, offset: str) -> str:
    return " OR ".join(f"({partition} = {p} AND {offset} < {o})" for p, o in sorted(since.items()))
