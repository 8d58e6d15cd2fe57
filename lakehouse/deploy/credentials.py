"""The credentials of an administrator who sets up the three clouds, and of the job that replaces keys.

Nothing connects before it is used. `lakehouse deploy create` makes the job's credentials and stores them in AWS. The
job needs neither the administrator of Snowflake nor the one of Confluent Cloud: its IAM role reads the secrets of two
identities that may change the deployment's keys and nothing else (docs/cloud.md, "Key rotation").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import boto3
from botocore.exceptions import BotoCoreError

from lakehouse.core.errors import ConfigError, LakehouseError, UnclearState, translate
from lakehouse.deploy.aws.aws_service import Aws
from lakehouse.deploy.names import ROTATION, Names
from lakehouse.deploy.snowflake.administrator import LazySession, UserLogin
from lakehouse.deploy.snowflake.key_pair import KeyPair
from resources.aws.secrets_manager import SecretJson, Secrets
from resources.confluent import URL
from resources.confluent.api_client import DEADLINE_SECONDS
from resources.confluent.confluent_cloud import KEY, KEY_SECRET, ConfluentCloud
from resources.snowflake.session import private_key

if TYPE_CHECKING:
    from lakehouse.config.deployment import Deployment
    from resources.iceberg.rest_catalog import RestCatalog


ADMIN_SECRET = "/snowflake_admin_credentials"  # noqa: S105 (a secret's name)


@dataclass(frozen=True)
class CloudCredentials:
    """The credentials of an administrator, or where they are. Endpoints other than the clouds' own are for tests."""

    deployment: Deployment
    confluent_key: str = ""
    confluent_secret: str = field(default="", repr=False)
    admin_secret: str = ADMIN_SECRET
    """Name of the secret of Snowflake's administrator, in Secrets Manager."""
    warehouse: str | None = None
    """An existing Snowflake warehouse; None creates one."""
    confluent_url: str = URL
    environment: str = ""
    """The environment of lakehouse.yaml whose deployment it is."""
    rest_catalog: Callable[[], RestCatalog] | None = field(default=None, repr=False)
    """Returns the environment's REST catalog; None if it has none."""

    @property
    def names(self) -> Names:
        """The names of the deployment's resources."""
        existing = self.deployment.existing
        if self.warehouse:
            existing = existing.model_copy(update={"snowflake_warehouse": self.warehouse})
        return Names(self.deployment.name, self.deployment.account, self.deployment.region, existing)

    @cached_property
    def session(self) -> boto3.Session:
        """A boto3 session in the deployment's region, with the credentials that AWS's tools find."""

        def unusable(error: BotoCoreError) -> LakehouseError:
            return ConfigError(
                f"The AWS profile cannot be used: {error}. Nothing was changed. Correct --profile (AWS_PROFILE)"
            )

        with translate({BotoCoreError: unusable}):
            return boto3.Session(region_name=self.deployment.region)

    @cached_property
    def confluent(self) -> ConfluentCloud:
        """Confluent Cloud, with its Cloud API key."""
        return ConfluentCloud(
            api_key=self.confluent_key,
            api_secret=self.confluent_secret,
            url=self.confluent_url,
            deadline_seconds=DEADLINE_SECONDS,
        )

    @cached_property
    def secrets(self) -> Secrets:
        """The secrets of the deployment's account and region."""
        return Secrets(self.deployment.region, self.deployment.name)

    @cached_property
    def snowflake(self) -> LazySession:
        """A session in Snowflake."""
        return LazySession(self.snowflake_login)

    def check_account(self) -> None:
        """Refuse AWS credentials of another account than the deployment's."""
        account = Aws(self.session, self.deployment.region).service("sts").call("get_caller_identity")["Account"]
        if account != self.deployment.account:
            raise ConfigError(
                f"The AWS credentials are of account {account}, and deployment '{self.deployment.name}' is of account "
                f"{self.deployment.account}. Nothing was changed. Choose another --profile, or correct lakehouse.yaml"
            )

    def snowflake_login(self) -> UserLogin:
        """Return the administrator's credentials, from the secret in the kickstarter's layout."""
        name = self.admin_secret
        version = self.secrets.read(name)
        if version is None:
            raise ConfigError(
                f"There is no secret '{name}' in region {self.deployment.region}. Nothing was changed. Name the "
                f"secret of Snowflake's administrator with --admin-user-secrets-root-path"
            )
        values: dict[str, Any] = version.value.reveal()
        try:
            key = private_key(values[f"snowflake_rsa_private_key_{values['active_key_number']}_pem"].encode())
            remedy = f"Check the key in the secret '{name}', and that the user has ACCOUNTADMIN"
            return UserLogin(
                values["snowflake_account_identifier"], values["admin_service_user"], "ACCOUNTADMIN", key, remedy
            )
        except (KeyError, ValueError, TypeError) as error:
            kind = type(error).__name__
        # Raised here, where it has no context: the error above may quote the secret.
        raise ConfigError(
            f"The secret '{name}' cannot be used ({kind}). Nothing was changed. It has to hold "
            f"snowflake_account_identifier, admin_service_user, active_key_number (1 or 2) and "
            f"snowflake_rsa_private_key_1_pem or _2_pem (base64 of a PEM)"
        )


@dataclass(frozen=True)
class RotationCredentials(CloudCredentials):
    """The credentials of the rotation's service account in Confluent Cloud and user in Snowflake."""

    @cached_property
    def secrets(self) -> Secrets:
        role_arn = self.names.role_arn(ROTATION) if self.deployment.rotation_principals else ""
        return Secrets(self.deployment.region, self.deployment.name, role_arn=role_arn)

    @cached_property
    def confluent(self) -> ConfluentCloud:
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

    def snowflake_login(self) -> UserLogin:
        secret = self.names.snowflake_rotation_secret
        try:
            pair = KeyPair.read(self._stored(secret))
        except ValueError as error:
            raise UnclearState(
                f"The secret '{secret}' cannot be used: {error}. Keys in Snowflake were left unchanged. Run `lakehouse "
                f"deploy create`, which reports what is wrong with it"
            ) from None
        remedy = f"Run `lakehouse deploy create`, which compares the user's keys with the secret '{secret}'"
        return UserLogin(pair.account, pair.user, pair.role, pair.private_key, remedy)

    def _stored(self, name: str) -> SecretJson:
        version = self.secrets.read(name)
        if version is None:
            raise UnclearState(
                f"There is no secret '{name}' in region {self.deployment.region}, with which keys are replaced. "
                f"The keys that it replaces were left unchanged. Run `lakehouse deploy create`, which makes it"
            )
        return version.value
