"""The permissions of the identities that replace keys: a service account in Confluent Cloud, a user in Snowflake."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from lakehouse.config.loader import Config
from lakehouse.core.errors import LakehouseError
from lakehouse.deploy.confluent.access.service_accounts import ServiceAccountResource
from lakehouse.deploy.confluent.keys.stored_api_keys import ApiKeyResource
from lakehouse.deploy.names import ROTATION
from lakehouse.deploy.planning.graph import deployment_resources
from lakehouse.deploy.resource import Outputs, Resource
from lakehouse.deploy.rotation import recorded_outputs
from lakehouse.deploy.rotation_credentials import RotationCredentials
from lakehouse.deploy.snowflake.service_user_key import ServiceUserKey
from lakehouse.deploy.verification.deployment_role import Step
from lakehouse.deploy.verification.permission_probe import Probe, Unchecked
from resources.confluent.api_errors import Forbidden

ROTATES = "it would replace a key. `lakehouse deploy rotate` makes the call"


@dataclass(frozen=True)
class RotationIdentities:
    """The identities, with the credentials that the rotation's IAM role reads."""

    config: Config
    credentials: RotationCredentials

    def steps(self) -> Iterator[Step]:
        """Yield the calls of `lakehouse deploy rotate` that change nothing: a step for each account and user."""
        names = self.credentials.names
        account, user = self._identities
        read: list[tuple[Sequence[Resource[Any]], Outputs]] = []

        def read_credentials() -> None:
            resources = deployment_resources(self.config, self.credentials)
            read.append((resources, recorded_outputs(resources)))

        action, resource = "secretsmanager:GetSecretValue", "the credentials of the rotation's identities"
        yield Probe(names.role(ROTATION), action, resource, read_credentials)
        if not read:
            yield from self.unchecked("its credentials could not be read")
            return
        [(resources, outputs)] = read
        keys = [resource for resource in resources if isinstance(resource, ApiKeyResource)]
        for owned in resources:
            if isinstance(owned, ServiceAccountResource):
                call = partial(_read_keys, owned, [key for key in keys if key.account == owned], outputs)
                yield Probe(account, "ResourceOwner", owned.label, call)
        yield Unchecked(account, "creation and deletion of API keys", ROTATES)
        for pair in resources:
            if isinstance(pair, ServiceUserKey):
                yield Probe(user, "OWNERSHIP", f"Snowflake user '{pair.name}'", partial(_read, pair, outputs))
        yield Unchecked(user, "ALTER USER … SET RSA_PUBLIC_KEY", ROTATES)

    def unchecked(self, reason: str) -> Iterator[Unchecked]:
        """Yield a step without a call for each identity.

        Args:
            reason: The reason why no call can be made.
        """
        for identity in self._identities:
            yield Unchecked(identity, "all its permissions", reason)

    @property
    def _identities(self) -> tuple[str, str]:
        """The names of the service account and the user."""
        names = self.credentials.names
        return names.service_account(ROTATION), names.snowflake("ROTATION_USER")


def _read_keys(account: ServiceAccountResource, keys: list[ApiKeyResource], outputs: Outputs) -> None:
    """Read a service account and its keys.

    Raises:
        Forbidden: The account is not visible.
        LakehouseError: A key does not exist, or a system refuses.
    """
    owner = account.read(outputs)
    if owner is None:
        raise Forbidden(
            f"Confluent Cloud shows no {account.label} to this key. It was left unchanged. Run `lakehouse deploy "
            f"create`, which grants the role"
        )
    outputs[account] = owner
    for key in keys:
        _read(key, outputs)


def _read(resource: Resource[Any], outputs: Outputs) -> None:
    if resource.read(outputs) is None:
        raise LakehouseError(
            f"{resource.label} does not exist. It was not created. Run `lakehouse deploy create`, which creates it"
        )
