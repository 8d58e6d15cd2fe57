"""The resources of a deployment, in Terraform's vocabulary but without a state file.

A resource is one object in one cloud. The planner (lakehouse/deploy/planner.py) plans, applies and destroys a
list of resources. It reads each of them from its cloud by name and tag every time, so an interrupted command is run
again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from lakehouse.core.errors import OutcomeUnknownError

T = TypeVar("T")

EXISTED = "existed before the deployment"
"""The reason why a resource is retained that lakehouse.yaml names: it is used, and never changed or deleted."""


@dataclass(frozen=True)
class Outputs:
    """The outputs of the resources that exist: `outputs[resource]` has the type that the resource declares."""

    _by_address: dict[str, object] = field(default_factory=dict)

    def __getitem__(self, resource: Resource[T]) -> T:
        """Return the output of a resource that exists."""
        # `__setitem__` is the only writer, and takes an output of the resource's type.
        return cast("T", self._by_address[resource.address])

    def __setitem__(self, resource: Resource[T], output: T) -> None:
        """Record the output of a resource."""
        self._by_address[resource.address] = output

    def __contains__(self, resource: Resource[Any]) -> bool:
        """Return whether the resource exists."""
        return resource.address in self._by_address


@dataclass(frozen=True, repr=False)
class Resource(ABC, Generic[T]):
    """One object in one cloud. `T` is its output: its current state, which resources that depend on it use.

    A subclass is a frozen dataclass of clients, names and settings. A field that holds another resource, or a tuple of
    resources, is a reference, and makes it a dependency. Subclasses set `repr=False`: a generated representation would
    repeat that of every reference.
    """

    if TYPE_CHECKING:
        # Read-only to callers; a subclass has a field, a class variable or a property of the name.
        @property
        def address(self) -> str:
            """Unique in the deployment: `confluent/cluster`, or `confluent/topic/stock_trades`."""

        @property
        def label(self) -> str:
            """The name shown to people: `Kafka cluster 'lakehouse-production'`."""

        @property
        def holds_data(self) -> bool:
            """True if deletion loses data that cannot be recreated; `destroy` retains the resource by default."""

        @property
        def retained_because(self) -> str:
            """The reason why it is never deleted by itself: `EXISTED`, or what it is deleted with; empty otherwise."""
    else:
        holds_data, retained_because = False, ""

    def __repr__(self) -> str:
        """Show the type and the address, and no field: some hold credentials."""
        return f"<{type(self).__name__} {self.address}>"

    @property
    def cloud_name(self) -> str:
        """The cloud that has it: the first part of the address."""
        return self.address.partition("/")[0]

    @property
    def depends_on(self) -> tuple[Resource[Any], ...]:
        """The resources that must exist first: all that the fields refer to."""
        values = [getattr(self, field.name) for field in fields(self)]
        nested = [value if isinstance(value, tuple) else (value,) for value in values]
        return tuple(value for group in nested for value in group if isinstance(value, Resource))

    @property
    def read_depends_on(self) -> tuple[Resource[Any], ...]:
        """Those of `depends_on` without which it cannot be read, or no longer exists.

        `read`, `retained` and `delete` use the outputs of no others, so `destroy` finds it after others were deleted.
        """
        return self.depends_on

    @abstractmethod
    def read(self, outputs: Outputs) -> T | None:
        """Look up the resource by name.

        Returns:
            Its current state, or None if it does not exist.

        Raises:
            UnclearState: One of that name exists that does not belong to the deployment.
        """

    def read_existing(self, outputs: Outputs) -> T:
        """Read the resource after it was created or updated."""
        current = self.read(outputs)
        if current is None:
            raise OutcomeUnknownError(
                f"{self.label} was created or changed, but is not listed. It was left unchanged. Run the command again"
            )
        return current

    def absence(self, outputs: Outputs) -> str:
        """Describe that the resource does not exist, and what its creation does besides creating the resource."""
        return "does not exist"

    def require_creatable(self, outputs: Outputs) -> None:
        """Refuse a creation that would damage an existing object. Called while planning, even without dependencies."""
        return

    @abstractmethod
    def create(self, outputs: Outputs) -> T:
        """Create the resource and return its state, which need not be ready.

        Raises:
            OutcomeUnknownError: It may have been created.
        """

    def wait_until_ready(self, outputs: Outputs, current: T) -> T:
        """Wait, with a deadline, until others can use it, and return its state then. Also called if it existed."""
        return current

    def warning(self, outputs: Outputs, current: T) -> str:
        """Return the differences that are left unchanged; empty if there are none."""
        return ""

    @abstractmethod
    def delete(self, outputs: Outputs, current: T) -> None:
        """Delete the resource and wait until it is deleted. It is no error if it does not exist."""

    def retained(self, outputs: Outputs, current: T) -> str:
        """Return why `destroy` must retain it, besides its data: `cluster 'theirs' is in it`; empty if it need not."""
        return ""


class Updatable(Resource[T]):
    """A resource that may differ from its declaration."""

    @abstractmethod
    def diff(self, outputs: Outputs, current: T) -> list[str]:
        """List what is not as declared, a phrase each: `versioning is off`."""

    @abstractmethod
    def update(self, outputs: Outputs, current: T) -> T:
        """Remove the differences and return the state afterwards."""


class Undeletable(Resource[T]):
    """A resource that is deleted with another one: a subclass sets `retained_because`."""

    def delete(self, outputs: Outputs, current: T) -> None:
        # The planner retains it.
        return


def undeclared_permissions(permissions: Sequence[str]) -> str:
    """Compose the warning about permissions that the deployment did not grant; empty if there are none.

    Args:
        permissions: A phrase each, with the command or statement that removes it: `the inline policy 'x' (`…`)`.
    """
    listed = "; ".join(permissions)
    return f"has permissions that lakehouse did not give, and leaves alone: {listed}" if listed else ""
