"""What the steps of AWS have in common: a session, the names, and whose a thing is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lakehouse.core.errors import OutcomeUnknownError, UnclearState
from lakehouse.core.polling import REAL, Clock
from lakehouse.deploy.aws.service import Aws, AwsError, Service
from lakehouse.deploy.names import Names
from lakehouse.deploy.step import Found, Step
from resources.secrets_manager import TAG

GONE_SECONDS, EVERY_SECONDS = 120.0, 2.0
"""How long a deletion is waited for, and between looks."""


@dataclass(frozen=True)
class AwsStep(Step):
    """A step in one account and region."""

    aws: Aws
    names: Names
    clock: Clock = REAL

    def service(self, name: str) -> Service:
        """A service in the deployment's region."""
        return self.aws.service(name)

    @property
    def tags(self) -> list[dict[str, str]]:
        """The deployment's tag, as most services take it."""
        return [{"Key": TAG, "Value": self.names.deployment}]

    def claim(self, what: str, tags: Iterable[Mapping[str, str]] | Mapping[str, str], command: str) -> None:
        """Go on only with what is the deployment's own.

        Parameters: the thing and the tags that it has; `command` gives the thing the deployment's tag.
        Raises: UnclearState when the tag is not among them.
        """
        has = tags if isinstance(tags, Mapping) else {tag["Key"]: tag["Value"] for tag in tags}
        if has.get(TAG) != self.names.deployment:
            theirs = f"the tag {TAG} = {has[TAG]}" if TAG in has else f"no tag {TAG}"
            raise UnclearState(
                f"There is {what}, with {theirs}: it is not of deployment '{self.names.deployment}'. It was left "
                f"untouched. Remove it or choose another name; only if it is the deployment's, run `{command}`"
            )

    def made(self, make: Callable[[], Any], found: Found) -> Any:
        """Make the thing, and find it. Whatever is answered, it is looked whether it is there: botocore repeats a call
        whose answer was lost, and is then refused for what it made."""
        try:
            make()
        except (AwsError, OutcomeUnknownError):
            it = self.find(found)
            if it is None:
                raise
            return it
        return self.find(found)
