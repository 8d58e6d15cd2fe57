"""The base of AWS resources: ownership by tags, creation whose response may be lost, and deletion that takes time."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lakehouse.config.deployment import DEPLOYMENT_TAG
from lakehouse.core.errors import OutcomeUnknownError, UnclearState
from lakehouse.core.polling import SYSTEM_CLOCK, Clock
from lakehouse.deploy.aws.aws_service import Aws, AwsError, Service
from lakehouse.deploy.names import Names
from lakehouse.deploy.resource import Outputs, Resource, T
from lakehouse.deploy.waiting import wait_until_deleted

DELETION_SECONDS, EVERY_SECONDS = 120.0, 2.0
"""Time limit of a deletion, and the pause between two requests for its state."""


@dataclass(frozen=True, repr=False)
class AwsResource(Resource[T]):
    """A resource in one account and region."""

    aws: Aws
    names: Names
    clock: Clock = SYSTEM_CLOCK

    def service(self, name: str) -> Service:
        """Return a service in the deployment's region."""
        return self.aws.service(name)

    @property
    def tags(self) -> list[dict[str, str]]:
        """The tags that mark ownership, as most services take them."""
        return [{"Key": DEPLOYMENT_TAG, "Value": self.names.deployment}]

    def require_ownership(
        self, label: str, tags: Iterable[Mapping[str, str]] | Mapping[str, str], command: str
    ) -> None:
        """Require that the object belongs to the deployment.

        Args:
            label: The object, as messages name it.
            tags: The tags that it has.
            command: What gives the object the deployment's tag.
        """
        has = tags if isinstance(tags, Mapping) else {tag["Key"]: tag["Value"] for tag in tags}
        for key, value in ((tag["Key"], tag["Value"]) for tag in self.tags):
            if has.get(key) != value:
                tag = f"the tag {key} = {has[key]}" if key in has else f"no tag {key}"
                raise UnclearState(
                    f"There is {label}, with {tag}: it does not belong to deployment '{self.names.deployment}' in "
                    f"{self.names.region}. It was left unchanged. Remove it or choose another name; only if it is the "
                    f"deployment's, run `{command}`"
                )

    def create_and_read(self, create: Callable[[], object], outputs: Outputs) -> T:
        """Call `create` and read the resource, also after a refusal.

        botocore repeats a call whose response was lost, and is then refused because of what it created itself.
        """
        try:
            create()
        except (AwsError, OutcomeUnknownError):
            current = self.read(outputs)
            if current is None:
                raise
            return current
        return self.read_existing(outputs)

    def wait_until_gone(self, label: str, look: Callable[[], Any]) -> None:
        """Wait until `look` returns None."""
        wait_until_deleted(
            label, look, deadline_seconds=DELETION_SECONDS, every_seconds=EVERY_SECONDS, clock=self.clock
        )
