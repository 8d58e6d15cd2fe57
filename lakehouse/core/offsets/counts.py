"""Outcome counts of the records of a batch, stored in the table and verified by the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from lakehouse.core.errors import NewerFormat


@dataclass(frozen=True)
class Counts:
    """Outcomes of the records of a batch: each has exactly one, so `consumed` is the sum of the rest.

    `superseded` records were followed by a newer one for the same key in the same batch; `deduplicated` ones repeat an
    earlier key; `filtered` ones have a type that is not this table's; `skipped` ones could not be decoded and are
    dropped.
    """

    consumed: int = 0
    rows: int = 0
    tombstones: int = 0
    superseded: int = 0
    deduplicated: int = 0
    filtered: int = 0
    dead_letters: int = 0
    skipped: int = 0

    @property
    def outcomes(self) -> dict[str, int]:
        """All counts but `consumed`."""
        return {name: n for name, n in vars(self).items() if name != "consumed"}

    @property
    def dropped(self) -> int:
        """Number of records that are deliberately in no table."""
        return self.filtered + self.deduplicated + self.skipped

    @property
    def is_balanced(self) -> bool:
        """True if the outcomes sum up to `consumed`."""
        outcomes = self.outcomes.values()
        return sum(outcomes) == self.consumed and min(outcomes) >= 0

    @staticmethod
    def from_json(stored: Mapping[str, int]) -> Counts:
        """Parse the counts that the table property has for one snapshot; absent ones are 0.

        Raises:
            NewerFormat: It has an outcome that a newer release added.
        """
        if unknown := set(stored) - {field.name for field in fields(Counts)}:
            raise NewerFormat(
                f"The counts of a commit contain {', '.join(sorted(unknown))}, which a newer release wrote. "
                f"Nothing was changed. Upgrade lakehouse"
            )
        return Counts(**stored)

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Counts)))


OUTCOMES = tuple(field.name for field in fields(Counts))
"""Names of all counts, `consumed` first."""


def describe_outcome(name: str, n: int) -> str:
    """Return a count with the name of its outcome: `2 rows`, `1 dead letter`, `3 superseded`."""
    words = name.replace("_", " ")
    return f"{n:,} {words.removesuffix('s') if n == 1 else words}"
