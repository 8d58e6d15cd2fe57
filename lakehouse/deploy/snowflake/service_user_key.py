"""The first key pair of the service user, as a resource."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lakehouse.deploy.resource import Outputs, Resource, Undeletable
from lakehouse.deploy.snowflake import key_pair_rotation
from lakehouse.deploy.snowflake.key_pair_rotation import Keys, ServiceUser


@dataclass(frozen=True, kw_only=True, repr=False)
class ServiceUserKey(Undeletable[Keys]):
    """The key pair of a service user, in AWS Secrets Manager."""

    address: str
    retained_because = "is deleted with the user; its secret is deleted with the deployment's secrets"
    name: str
    """Of the user."""
    user: Callable[[], ServiceUser]
    """Returns the account of the administrator's session, which it opens."""
    after: tuple[Resource[Any], ...]
    """The user, and the grants with which it logs in."""

    @property
    def label(self) -> str:
        """The key pair with the user's name."""
        return f"key pair of Snowflake user '{self.name}'"

    def read(self, outputs: Outputs) -> Keys | None:
        """Read the keys; None while no slot of the user has one."""
        return key_pair_rotation.installed(self.user())

    def create(self, outputs: Outputs) -> Keys:
        """Create the first key pair and wait until it logs in."""
        return key_pair_rotation.install(self.user())
