"""A deployment is a list of steps. A step is one thing in one cloud: how it is found, made, changed and taken away.

plan, create and delete all walk this list (lakehouse/deploy/planner.py). There is no state file: a step finds its thing
by name and tag, every time, so whoever was killed anywhere just begins again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

Found = Mapping[str, Any]
"""What is there, as `find` gave it, by the name of its step."""


class Step(ABC):
    """One thing of a deployment. A subclass is a frozen dataclass with the clients and names that it needs."""

    if TYPE_CHECKING:
        # Read only; a subclass has a field, a class variable or a property of the name.
        @property
        def name(self) -> str:
            """Unique in the deployment: `confluent/cluster`, or `confluent/topic/stock_trades`."""

        @property
        def what(self) -> str:
            """The thing as people call it: `Kafka cluster 'lakehouse-production'`."""

        @property
        def needs(self) -> tuple[str, ...]:
            """Names of the steps whose things must be there first. Only these are in `found`."""

        @property
        def holds_data(self) -> bool:
            """Whether deleting it deletes what cannot be made again; `delete` keeps it unless it is told otherwise."""
    else:
        needs = ()
        holds_data = False

    @property
    def lives_in(self) -> tuple[str, ...]:
        """Names of those of `needs` that its thing goes with, or cannot be asked for without. When others are gone it
        is still found and taken away: `find`, `kept` and `delete` use no others."""
        return self.needs

    @abstractmethod
    def find(self, found: Found) -> Any | None:
        """The thing, looked up by name; None when it is not there.

        Raises: UnclearState when there is one of that name that is not this deployment's; LakehouseError; Unreachable.
        """

    @abstractmethod
    def create(self, found: Found) -> Any:
        """Make it, and return it as `find` does. It need not be ready.

        Raises: LakehouseError when it is refused; OutcomeUnknownError when it may have been made; Unreachable.
        """

    def settle(self, found: Found, it: Any) -> Any:
        """Wait until others can use it, with a deadline; returns it as it is then. Also called for what was there."""
        return it

    def differences(self, found: Found, it: Any) -> list[str]:
        """What about it is not as it should be, a phrase each: `versioning is off`."""
        return []

    def change(self, found: Found, it: Any) -> Any:
        """Remove the differences, and return it as `find` does."""
        raise NotImplementedError(f"{self.name} has no differences")

    def remark(self, found: Found, it: Any) -> str:
        """What about it is not as declared, and may stay so. Empty when there is nothing to say."""
        return ""

    @abstractmethod
    def delete(self, found: Found, it: Any) -> None:
        """Take it away, and wait until it is gone. What is gone already is no error."""

    def kept(self, found: Found, it: Any) -> str:
        """Why `delete` must leave it, besides data: `cluster 'theirs' is in it`. Empty when it need not."""
        return ""


def beyond(permissions: Sequence[str]) -> str:
    """Say which permissions there are that the deployment did not give; empty when there are none.

    Args:
        permissions: A phrase each, with the command or statement that removes it: `the inline policy 'x' (`…`)`.
    """
    found = "; ".join(permissions)
    return f"has permissions that lakehouse did not give, and leaves alone: {found}" if found else ""
