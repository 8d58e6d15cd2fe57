"""The credentials of the job that replaces keys. `lakehouse deploy create` makes them and stores them in AWS.

The job needs neither the administrator of Snowflake nor the one of Confluent Cloud: its IAM role reads the secrets of
two identities that may change the deployment's keys and nothing else (docs/cloud.md, "Key rotation").
"""

from dataclasses import dataclass
from functools import cached_property

from lakehouse.core.errors import UnclearState
from lakehouse.deploy.cloud_credentials import CloudCredentials
from lakehouse.deploy.names import ROTATION
from lakehouse.deploy.snowflake.key_pair import KeyPair
from lakehouse.deploy.snowflake.lazy_session import Login
from resources.aws.secrets_manager import SecretJson, Secrets
from resources.confluent.api_client import DEADLINE_SECONDS
from resources.confluent.confluent_cloud import KEY, KEY_SECRET, ConfluentCloud


@dataclass(frozen=True)
class RotationCredentials(CloudCredentials):
    """The credentials of the rotation's service account in Confluent Cloud and user in Snowflake."""

    @cached_property
    def secrets(self) -> Secrets:
        """The secrets of the deployment, with the IAM role for their replacement if the deployment has one."""
        role_arn = self.names.role_arn(ROTATION) if self.deployment.rotation_principals else ""
        return Secrets(self.deployment.region, self.deployment.name, role_arn)

    @cached_property
    def confluent(self) -> ConfluentCloud:
        """Confluent Cloud, with the key of the account that owns the deployment's service accounts.

        Raises:
            UnclearState: The secret does not exist or has no key.
            LakehouseError: AWS refuses.
            Unreachable: AWS does not answer.
        """
        secret = self.names.confluent_secret(ROTATION, "cloud")
        values = self._stored(secret).reveal()
        if missing := [name for name in (KEY, KEY_SECRET) if not values.get(name)]:
            raise UnclearState(
                f"The secret '{secret}' has no field {', '.join(missing)}. Keys of Confluent were left "
                f"unchanged. Run `lakehouse deploy create`, which reports what is wrong with it"
            )
        return ConfluentCloud(
            api_key=values[KEY],
            api_secret=values[KEY_SECRET],
            url=self.confluent_url,
            deadline_seconds=DEADLINE_SECONDS,
        )

    def snowflake_login(self) -> Login:
        """Return the credentials of the user whose role owns the deployment's users.

        Raises:
            UnclearState: The secret does not exist or has another layout.
            LakehouseError: AWS refuses.
            Unreachable: AWS does not answer.
        """
        secret = self.names.snowflake_rotation_secret
        try:
            pair = KeyPair.read(self._stored(secret))
        except ValueError as error:
            raise UnclearState(
                f"The secret '{secret}' cannot be used: {error}. Keys in Snowflake were left unchanged. Run `lakehouse "
                f"deploy create`, which reports what is wrong with it"
            ) from None
        remedy = f"Run `lakehouse deploy create`, which compares the user's keys with the secret '{secret}'"
        return Login(pair.account, pair.user, pair.role, pair.private_key, remedy)

    def _stored(self, name: str) -> SecretJson:
        version = self.secrets.read(name)
        if version is None:
            raise UnclearState(
                f"There is no secret '{name}' in region {self.deployment.region}, with which keys are replaced. "
                f"The keys that it replaces were left unchanged. Run `lakehouse deploy create`, which makes it"
            )
        return version.value
