"""The Cloud API key of the account that replaces keys, and what that account may not read itself.

The account is ResourceOwner of the deployment's service accounts and has no other role. It may list, create and delete
the API keys of these accounts, and may not see the environment, its clusters or Flink. The secret of its key therefore
also holds what an administrator read of them, which `lakehouse deploy create` keeps up to date.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

from lakehouse.core.errors import UnclearState
from lakehouse.deploy.confluent.compute_pool import FlinkCompute
from lakehouse.deploy.confluent.keys.account_key import AccountKey, Layout
from lakehouse.deploy.confluent.keys.stored_api_keys import ApiKeyResource
from lakehouse.deploy.resource import Outputs, Resource
from resources.aws.secrets_manager import CURRENT
from resources.confluent.api_client import Key
from resources.confluent.api_keys import ApiKeys, Scope
from resources.confluent.clusters import Cluster, SchemaRegistryCluster
from resources.confluent.confluent_cloud import KEY, KEY_SECRET
from resources.confluent.organization import Environment

STATES = "lakehouse.states"
"""The field with the recorded states: a JSON object, by address of the resource."""
STATE_TYPES: dict[str, type[Any]] = {
    "confluent/environment": Environment,
    "confluent/cluster": Cluster,
    "confluent/schema_registry": SchemaRegistryCluster,
    "confluent/compute_pool": FlinkCompute,
}
"""The type of each recorded state, by address."""


@dataclass(frozen=True, kw_only=True, repr=False)
class RotationKeyResource(ApiKeyResource):
    """The account's key for the API that manages the organization."""

    api: ClassVar[str] = "cloud"
    recorded: tuple[Resource[Any], ...]
    """The resources whose states the secret holds."""

    def account_key(self, outputs: Outputs) -> AccountKey:
        """Return the key, which lists the account's own keys."""
        states = {resource.address: asdict(outputs[resource]) for resource in self.recorded}
        layout = Layout(KEY, KEY_SECRET, {STATES: json.dumps(states, sort_keys=True)})
        owner_id = outputs[self.account].id

        def use(key: Key) -> None:
            ApiKeys(replace(self.cloud.client(), key=key)).list(owner_id)

        return self._account_key(outputs, Scope.cloud(), layout, use)

    def recorded_outputs(self) -> Outputs:
        """Read the recorded states.

        Raises:
            UnclearState: The secret does not exist, or has the states of another set of resources.
            LakehouseError: AWS refuses.
            Unreachable: AWS does not answer.
        """
        version = self.account.secrets.read(self.secret, CURRENT)
        outputs = Outputs()
        try:
            states = json.loads(version.value.reveal()[STATES]) if version else {}
            for resource in self.recorded:
                outputs[resource] = STATE_TYPES[resource.address](**states[resource.address])
        except (KeyError, TypeError, ValueError) as error:
            raise UnclearState(
                f"The secret '{self.secret}' does not have the state of all of {_addresses(self.recorded)} "
                f"({type(error).__name__}). Nothing was rotated. Run `lakehouse deploy create`, which writes it"
            ) from None
        return outputs


def _addresses(resources: Sequence[Resource[Any]]) -> str:
    return ", ".join(resource.address for resource in resources)
