"""What became of the records of a batch, as it is counted, noted in the table and proven by the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

from lakehouse.core.errors import UnclearState


@dataclass(frozen=True)
class Counts:
    """What became of the records of a batch: each is counted once, so `consumed` is the sum of the rest.

    `superseded` records were followed by a newer one for the same key in the same batch; `deduplicated` ones have the
    key of an earlier one; `filtered` ones are of a type that is not this table's; `skipped` ones could not be decoded
    and are not kept.
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
        """Everything but `consumed`."""
        return {name: n for name, n in asdict(self).items() if name != "consumed"}

    @property
    def nowhere(self) -> int:
        """Records that were left out on purpose: they are in no table."""
        return self.filtered + self.deduplicated + self.skipped

    @property
    def adds_up(self) -> bool:
        """Whether every consumed record has one outcome."""
        return sum(self.outcomes.values()) == self.consumed and min(self.outcomes.values()) >= 0

    @staticmethod
    def from_json(noted: Mapping[str, int]) -> Counts:
        """Read what the table property holds of one snapshot; what is not there is 0.

        Raises: UnclearState when it has an outcome this release does not know.
        """
        if unknown := set(noted) - {field.name for field in fields(Counts)}:
            raise UnclearState(
                f"The counts of a commit name {', '.join(sorted(unknown))}, which a newer release wrote. "
                f"Nothing was changed. Upgrade lakehouse"
            )
        return Counts(**noted)

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Counts)))


OUTCOMES = tuple(field.name for field in fields(Counts))
"""Names of all counts, `consumed` first."""
