"""The base classes of checks: what each type of check defines."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field

from lakehouse.config.base import ConfigModel
from lakehouse.core.sql import nondeterminism

Severity = Literal["blocking", "warn", "quarantine"]


@dataclass(frozen=True)
class Scope:
    """The relations that a check reads, as SQL.

    Attributes:
        rows: The rows to be checked.
        table: All rows of one snapshot.
        others: The other tables, by name.
    """

    rows: str
    table: str
    others: Mapping[str, str]


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
        """The description, or else the condition, or else the summary of this type of check."""
        summary = (type(self).__doc__ or "").partition("\n")[0]
        summary = f"{', '.join(self.columns)}: {summary}" if self.columns else summary
        return self.description or getattr(self, "condition", "").replace("`", "") or summary

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables of other declared topics that the check reads."""
        return ()

    def faults(self, tables: Collection[str]) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yield problems of the settings, each as (keys below the check, message).

        Args:
            tables: The tables of declared topics.
        """
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
    def failure_condition(self) -> str:
        """The condition of the rows that fail, in Spark SQL."""
        return f"NOT COALESCE({self.condition}, TRUE)"

    def failing_rows(self, scope: Scope) -> str:
        """Return the query for the rows that fail."""
        return f"SELECT * FROM {scope.rows} WHERE {self.failure_condition}"

    def faults(self, tables: Collection[str]) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yield the reason why the check cannot quarantine, if there is one."""
        if self.severity == "quarantine" and (word := nondeterminism.first_nondeterministic(self.compared)):
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
