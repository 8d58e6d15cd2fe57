"""Plan, create and delete the resources of one cloud. Those of the other clouds are read, and never changed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lakehouse.core.errors import LakehouseError
from lakehouse.deploy.planning import planner
from lakehouse.deploy.planning.planner import Change, Report
from lakehouse.deploy.resource import Outputs, Resource, Undeletable


@dataclass(frozen=True, repr=False)
class Foreign(Undeletable[Any]):
    """A resource of another cloud, which is read only."""

    original: Resource[Any]
    retained_because = "is in another cloud"

    @property
    def address(self) -> str:
        """The address of the resource, by which its dependents find its state."""
        return self.original.address

    @property
    def label(self) -> str:
        """The label of the resource."""
        return self.original.label

    @property
    def depends_on(self) -> tuple[Resource[Any], ...]:
        """The resources that it is read with."""
        return self.original.read_depends_on

    def read(self, outputs: Outputs) -> Any:
        """Read the resource."""
        return self.original.read(outputs)

    def create(self, outputs: Outputs) -> Any:
        """Fail, because the resource existed when it was read before."""
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
        """Plan what `apply` would do. What waits for another cloud is `unknown`, with the command that creates that.

        Raises:
            LakehouseError: A resource that another one depends on cannot be read.
        """
        changes = {change.resource.address: change for change in planner.plan_reachable(self._ready)}
        for resource in self._selected:
            missing = self._missing.get(resource.address)
            yield Change(resource, "unknown", self._explanation(missing)) if missing else changes[resource.address]

    def apply(self, report: Report) -> None:
        """Create and update what does not wait for another cloud.

        Raises:
            LakehouseError: Some resources wait, or one failed.
        """
        planner.apply(self._ready, lambda change: None if isinstance(change.resource, Foreign) else report(change))
        for resource in self._selected:
            if missing := self._missing.get(resource.address):
                raise LakehouseError(
                    f"{resource.label} {self._explanation(missing)}. Everything in {self.cloud} that does not wait for "
                    f"another cloud is as declared. Run the command again afterwards"
                )

    def plan_destroy(self, *, delete_data: bool) -> Iterator[Change]:
        """Plan what `destroy` would do, in its order.

        Raises:
            LakehouseError: Resources of other clouds need those that would be deleted.
        """
        changes = list(planner.plan_destroy(self.deployment, delete_data=delete_data))
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
        """Delete what exists, dependents first.

        Raises:
            LakehouseError: As `plan_destroy`, or a resource failed.
        """
        list(self.plan_destroy(delete_data=delete_data))
        resources = [resource if self._is_selected(resource) else Foreign(resource) for resource in self.deployment]
        planner.destroy(
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
        outputs = planner.read_all([resource for resource in self.deployment if resource.address in readable])
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
        return planner.read_with(self.deployment, addresses)

    def _explanation(self, missing: Resource[Any]) -> str:
        command = f"lakehouse deploy create --env {self.environment} --only {missing.cloud_name}"
        return f"needs {missing.label} in {missing.cloud_name}, which does not exist: run `{command}` first"
