"""Plan, apply and destroy a list of resources, of all clouds or of one, from the current state of their clouds."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from lakehouse.core.errors import LakehouseError, OutcomeUnknownError, UnclearState
from lakehouse.deploy.resource import Outputs, Resource, T, Undeletable, Updatable

Action = Literal["create", "update", "no-op", "delete", "retain", "absent", "unknown"]


@dataclass(frozen=True)
class Change:
    """A planned or completed change of a resource, with its reason."""

    resource: Resource[Any]
    action: Action
    reason: str
    seconds: float | None = None
    """The duration; None while nothing was done."""


Report = Callable[[Change], None]
"""Called before and after each change, the second time with its duration; once for what needs no change."""


def plan(resources: Sequence[Resource[Any]]) -> Iterator[Change]:
    """Plan what `apply` would do. Nothing is changed."""
    outputs = Outputs()
    for resource in _in_order(resources):
        yield _planned(resource, outputs)


def plan_reachable(resources: Sequence[Resource[Any]]) -> Iterator[Change]:
    """Plan as `plan` does, but report the other clouds if one cannot be read.

    From the first resource that fails on, the resources of its cloud are `unknown`, with the reason, and so are their
    dependents. The cloud is not called again: each call may last until its time-out, and repeating a refused login may
    lock an account.

    Raises:
        UnclearState: Something exists that does not belong to the deployment.
    """
    outputs = Outputs()
    failures: dict[str, str] = {}
    unknown: set[str] = set()
    for resource in _in_order(resources):
        cloud = resource.cloud_name
        before = [dependency.address for dependency in resource.depends_on if dependency.address in unknown]
        if cloud in failures or before:
            change = Change(resource, "unknown", failures.get(cloud) or f"waits for {', '.join(before)}")
        else:
            try:
                with naming_resource(resource):
                    change = _planned(resource, outputs)
            except UnclearState:
                raise
            except LakehouseError as error:
                failures[cloud] = f"as {resource.label}"
                change = Change(resource, "unknown", str(error))
        if change.action == "unknown":
            unknown.add(resource.address)
        yield change


def apply(resources: Sequence[Resource[Any]], report: Report) -> Outputs:
    """Create what is missing and update what differs, in order. After an interruption, calling it again continues.

    Returns:
        The outputs of all resources.
    """
    outputs = Outputs()
    for resource in _in_order(resources):
        with naming_resource(resource):
            _apply_one(resource, outputs, report)
    return outputs


def plan_destroy(resources: Sequence[Resource[Any]], *, delete_data: bool) -> Iterator[Change]:
    """Plan what `destroy` would do, in its order. Nothing is changed.

    Args:
        resources: The deployment, dependencies first.
        delete_data: Whether resources that hold data are deleted, too.
    """
    outputs, existing = _read_for_deletion(resources)
    for resource in reversed(resources):
        yield _planned_deletion(resource, outputs, existing, delete_data)


def destroy(resources: Sequence[Resource[Any]], report: Report, *, delete_data: bool) -> None:
    """Delete what exists, dependents first.

    Args:
        resources: The deployment, dependencies first.
        report: Called with each change.
        delete_data: Whether resources that hold data are deleted, too.
    """
    outputs, existing = _read_for_deletion(resources)
    for resource in reversed(resources):
        # Decided now and not before: what is in a resource may have been deleted with its dependents.
        change = _planned_deletion(resource, outputs, existing, delete_data)
        report(change)
        if change.action == "delete":
            began = time.monotonic()
            with naming_resource(resource):
                resource.delete(outputs, outputs[resource])
            report(Change(resource, "delete", change.reason, time.monotonic() - began))


def needed_by(resources: Sequence[Resource[Any]], kind: type[Any]) -> list[Resource[Any]]:
    """Return the resources of a kind and all that are needed to read them, in their order."""
    needed = read_with(resources, {resource.address for resource in resources if isinstance(resource, kind)})
    return [resource for resource in resources if resource.address in needed]


def read_with(resources: Sequence[Resource[Any]], addresses: set[str]) -> set[str]:
    """Return addresses of resources, and those of all with which these are read."""
    needed = set(addresses)
    for resource in reversed(resources):
        if resource.address in needed:
            needed |= {dependency.address for dependency in resource.read_depends_on}
    return needed


def read_all(resources: Sequence[Resource[Any]], known: Outputs | None = None) -> Outputs:
    """Read all resources but those that are known. A resource whose container does not exist does not exist either."""
    outputs = known or Outputs()
    for resource in resources:
        if resource not in outputs and all(dependency in outputs for dependency in resource.read_depends_on):
            with naming_resource(resource):
                _read(resource, outputs)
    return outputs


@contextmanager
def naming_resource(resource: Resource[Any]) -> Iterator[None]:
    """Add the resource to errors as a note."""
    try:
        yield
    except LakehouseError as error:
        error.add_note(f"Resource: {resource.address} ({resource.label})")
        raise


def _in_order(resources: Sequence[Resource[Any]]) -> Sequence[Resource[Any]]:
    """Return the resources."""
    before: set[str] = set()
    for resource in resources:
        dependencies = [dependency.address for dependency in resource.depends_on]
        if resource.address in before or not before.issuperset(dependencies):
            raise ValueError(f"{resource.address} is listed twice, or before one of {dependencies}")
        before.add(resource.address)
    return resources


def _read(resource: Resource[T], outputs: Outputs) -> T | None:
    current = resource.read(outputs)
    if current is not None:
        outputs[resource] = current
    return current


def _planned(resource: Resource[T], outputs: Outputs) -> Change:
    """Read a resource into `outputs` and decide what is to be done about it."""
    if missing := [dependency.address for dependency in resource.depends_on if dependency not in outputs]:
        resource.require_creatable(outputs)
        return Change(resource, "create", f"waits for {', '.join(missing)}")
    current = _read(resource, outputs)
    if current is None:
        resource.require_creatable(outputs)
        return Change(resource, "create", resource.absence(outputs))
    differences = resource.diff(outputs, current) if isinstance(resource, Updatable) else []
    warning = resource.warning(outputs, current)
    if differences:
        return Change(resource, "update", "; ".join([*differences, *([warning] if warning else ())]))
    return Change(resource, "no-op", warning or "is as it should be")


def _apply_one(resource: Resource[T], outputs: Outputs, report: Report) -> None:
    began, change = time.monotonic(), _planned(resource, outputs)
    report(change)
    if change.action == "create":
        current = _created(resource, outputs)
    elif change.action == "update" and isinstance(resource, Updatable):
        current = resource.update(outputs, outputs[resource])
    else:
        current = outputs[resource]
    outputs[resource] = resource.wait_until_ready(outputs, current)
    if change.action != "no-op":
        report(Change(resource, change.action, change.reason, time.monotonic() - began))


def _created(resource: Resource[T], outputs: Outputs) -> T:
    try:
        return resource.create(outputs)
    except OutcomeUnknownError:
        # The response was lost: creating it again without reading it first could create two.
        current = resource.read(outputs)
        if current is None:
            raise
        return current


def _read_for_deletion(resources: Sequence[Resource[Any]]) -> tuple[Outputs, set[str]]:
    """Read the resources that may be deleted, and those that they depend on.

    Any other resource is retained whatever its state. It is not read, because a failed read, such as that of a key
    whose secret is lost, would prevent the deletion of the others.

    Returns:
        The outputs of the resources that were read, and the addresses of all that exist. A resource that was not read
        is assumed to exist if its dependencies exist.
    """
    needed = read_with(resources, {resource.address for resource in resources if not resource.retained_because})
    outputs, existing = Outputs(), set[str]()
    for resource in resources:
        if existing.issuperset(dependency.address for dependency in resource.read_depends_on):
            with naming_resource(resource):
                if resource.address not in needed or _read(resource, outputs) is not None:
                    existing.add(resource.address)
    return outputs, existing


def _planned_deletion(resource: Resource[Any], outputs: Outputs, existing: set[str], delete_data: bool) -> Change:
    if resource.address not in existing:
        return Change(resource, "absent", "does not exist")
    if resource.retained_because:
        return Change(resource, "retain", resource.retained_because)
    if resource.holds_data and not delete_data:
        return Change(resource, "retain", "holds data (--delete-data deletes it, too)")
    if reason := resource.retained(outputs, outputs[resource]):
        return Change(resource, "retain", reason)
    return Change(resource, "delete", "belongs to the deployment")


@dataclass(frozen=True, repr=False)
class Foreign(Undeletable[Any]):
    """A resource of another cloud, which is read only."""

    original: Resource[Any]
    retained_because = "is in another cloud"

    @property
    def address(self) -> str:
        return self.original.address

    @property
    def label(self) -> str:
        return self.original.label

    @property
    def depends_on(self) -> tuple[Resource[Any], ...]:
        return self.original.read_depends_on

    def read(self, outputs: Outputs) -> Any:
        return self.original.read(outputs)

    def create(self, outputs: Outputs) -> Any:
        # It existed when it was read before.
        raise LakehouseError(f"{self.label} was deleted in the meantime. It was not created. Run the command again")


@dataclass(frozen=True)
class OneCloud:
    """The resources of one cloud in a deployment."""

    cloud: str
    """`confluent`, `aws` or `snowflake`: the first part of the addresses of its resources."""
    deployment: Sequence[Resource[Any]]
    """All resources, dependencies first."""
    environment: str
    """The name of the deployment's environment, for commands."""

    def plan(self) -> Iterator[Change]:
        """Plan what `apply` would do. What waits for another cloud is `unknown`, with the command that creates that."""
        changes = {change.resource.address: change for change in plan_reachable(self._ready)}
        for resource in self._selected:
            missing = self._missing.get(resource.address)
            yield Change(resource, "unknown", self._explanation(missing)) if missing else changes[resource.address]

    def apply(self, report: Report) -> None:
        """Create and update what does not wait for another cloud."""
        apply(self._ready, lambda change: None if isinstance(change.resource, Foreign) else report(change))
        for resource in self._selected:
            if missing := self._missing.get(resource.address):
                raise LakehouseError(
                    f"{resource.label} {self._explanation(missing)}. Everything in {self.cloud} that does not wait for "
                    f"another cloud is as declared. Run the command again afterwards"
                )

    def plan_destroy(self, *, delete_data: bool) -> Iterator[Change]:
        """Plan what `destroy` would do, in its order."""
        changes = list(plan_destroy(self.deployment, delete_data=delete_data))
        deleted = [change for change in changes if change.action == "delete"]
        needed = {change.resource.address for change in deleted if self._is_selected(change.resource)}
        for change in reversed(deleted):
            if not self._is_selected(change.resource) and needed & self._needs(change.resource):
                cloud = change.resource.cloud_name
                raise LakehouseError(
                    f"{change.resource.label} in {cloud} depends on resources that would be deleted in "
                    f"{self.cloud}. Nothing was deleted. Run `lakehouse deploy delete --env {self.environment} --only "
                    f"{cloud}` first"
                )
        return (change for change in changes if self._is_selected(change.resource))

    def destroy(self, report: Report, *, delete_data: bool) -> None:
        """Delete what exists, dependents first."""
        list(self.plan_destroy(delete_data=delete_data))
        resources = [resource if self._is_selected(resource) else Foreign(resource) for resource in self.deployment]
        destroy(
            resources,
            lambda change: None if isinstance(change.resource, Foreign) else report(change),
            delete_data=delete_data,
        )

    def _is_selected(self, resource: Resource[Any]) -> bool:
        return resource.cloud_name == self.cloud

    @cached_property
    def _selected(self) -> list[Resource[Any]]:
        return [resource for resource in self.deployment if self._is_selected(resource)]

    @cached_property
    def _foreign(self) -> list[Resource[Any]]:
        """Resources of other clouds that own ones depend on, and those with which these are read."""
        needed = self._read_with(
            {dependency.address for resource in self._selected for dependency in resource.depends_on}
        )
        return [
            resource for resource in self.deployment if resource.address in needed and not self._is_selected(resource)
        ]

    @cached_property
    def _missing(self) -> dict[str, Resource[Any]]:
        """The missing resource of another cloud, by address of each own resource that waits for it."""
        readable = self._read_with({resource.address for resource in self._foreign})
        outputs = read_all([resource for resource in self.deployment if resource.address in readable])
        missing = {resource.address: resource for resource in self._foreign if resource not in outputs}
        waiting: dict[str, Resource[Any]] = {}
        for resource in self._selected:
            for dependency in resource.depends_on:
                if cause := missing.get(dependency.address) or waiting.get(dependency.address):
                    waiting[resource.address] = cause
        return waiting

    @cached_property
    def _ready(self) -> list[Resource[Any]]:
        """Own resources that wait for no other cloud, and the resources of other clouds that they depend on."""
        waiting_for_none = [resource for resource in self._selected if resource.address not in self._missing]
        needed = self._read_with(
            {dependency.address for resource in waiting_for_none for dependency in resource.depends_on}
        )
        ready = {resource.address for resource in waiting_for_none}
        return [
            resource if resource.address in ready else Foreign(resource)
            for resource in self.deployment
            if resource.address in ready or (resource.address in needed and not self._is_selected(resource))
        ]

    def _needs(self, resource: Resource[Any]) -> set[str]:
        """Return the addresses without which a resource of another cloud could no longer be read or deleted.

        AWS has the secrets with the keys of all other resources.
        """
        if self.cloud == "aws":
            return {resource.address for resource in self._selected}
        return self._read_with({resource.address})

    def _read_with(self, addresses: set[str]) -> set[str]:
        return read_with(self.deployment, addresses)

    def _explanation(self, missing: Resource[Any]) -> str:
        command = f"lakehouse deploy create --env {self.environment} --only {missing.cloud_name}"
        return f"needs {missing.label} in {missing.cloud_name}, which does not exist: run `{command}` first"
