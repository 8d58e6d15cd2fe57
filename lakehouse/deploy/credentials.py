"""How an administrator enters the three clouds to set a deployment up. Nothing connects before it is used."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from lakehouse.core.errors import ConfigError, LakehouseError, Unreachable
from lakehouse.deploy.names import Names
from resources.confluent import URL
from resources.secrets_manager import Secrets

if TYPE_CHECKING:
    import boto3
    from snowflake.connector import SnowflakeConnection
    from snowflake.connector.cursor import SnowflakeCursor

    from lakehouse.config.deployment import Deployment
    from resources.confluent_cloud import ConfluentCloud
    from resources.rest_catalog import RestCatalog

ADMIN_SECRET = "/snowflake_admin_credentials"  # noqa: S105 (a secret's name)

LOGIN_TIMEOUT_SECONDS = 15
NETWORK_TIMEOUT_SECONDS = 60
"""Without these the connector repeats a request for minutes."""


@dataclass(frozen=True)
class Access:
    """The credentials of an administrator, or where they are. Endpoints other than the clouds' own are for tests."""

    deployment: Deployment
    confluent_key: str = ""
    confluent_secret: str = field(default="", repr=False)
    admin_secret: str = ADMIN_SECRET
    """The secret of Snowflake's administrator: its root path in Secrets Manager."""
    warehouse: str | None = None
    """A Snowflake warehouse that is there; None has one made."""
    confluent_url: str = URL
    rest_catalog: Callable[[], RestCatalog] | None = field(default=None, repr=False)
    """Gives the environment's REST catalog; None where it has none."""

    @property
    def names(self) -> Names:
        """How the deployment's things are called."""
        return Names(self.deployment.name, self.deployment.account, self.deployment.region)

    @cached_property
    def session(self) -> boto3.Session:
        """boto3's session in the deployment's region, by the credentials that AWS's tools find.

        Raises: ConfigError when they are of a profile that is not there.
        """
        import boto3
        from botocore.exceptions import BotoCoreError

        try:
            return boto3.Session(region_name=self.deployment.region)
        except BotoCoreError as error:
            raise ConfigError(f"AWS cannot be entered: {error}. Correct --profile (AWS_PROFILE)") from error

    @cached_property
    def confluent(self) -> ConfluentCloud:
        """Confluent Cloud, by its Cloud API key."""
        from resources.confluent_cloud import ConfluentCloud

        return ConfluentCloud(api_key=self.confluent_key, api_secret=self.confluent_secret, url=self.confluent_url)

    @cached_property
    def secrets(self) -> Secrets:
        """The secrets of the deployment's account and region."""
        return Secrets(self.deployment.region, self.deployment.name)

    @cached_property
    def administrator(self) -> Administrator:
        """Snowflake's administrator."""
        return Administrator(self)

    @classmethod
    def from_environment(cls, deployment: Deployment, rest_catalog: Callable[[], RestCatalog] | None = None) -> Access:
        """The credentials that the command line takes as options, from the variables of the same meaning."""
        return cls(
            deployment,
            confluent_key=os.environ.get("CONFLUENT_CLOUD_API_KEY", ""),
            confluent_secret=os.environ.get("CONFLUENT_CLOUD_API_SECRET", ""),
            confluent_url=os.environ.get("CONFLUENT_CLOUD_URL") or URL,
            admin_secret=os.environ.get("LAKEHOUSE_ADMIN_SECRET") or ADMIN_SECRET,
            warehouse=os.environ.get("LAKEHOUSE_SNOWFLAKE_WAREHOUSE"),
            rest_catalog=rest_catalog,
        )

    def check_account(self) -> None:
        """Raises: ConfigError when AWS's credentials are of another account than the deployment's; Unreachable."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            account = self.session.client("sts").get_caller_identity()["Account"]
        except ClientError as error:
            raise LakehouseError(f"AWS refused its credentials: {error}. Nothing was changed. Log in again") from error
        except BotoCoreError as error:
            raise Unreachable("AWS", self.deployment.region, "credentials (--profile) and network", error) from error
        if account != self.deployment.account:
            raise ConfigError(
                f"The AWS credentials are of account {account}, and deployment '{self.deployment.name}' belongs into "
                f"{self.deployment.account}. Nothing was changed. Choose another --profile, or correct lakehouse.yaml"
            )


@dataclass(frozen=True)
class Administrator:
    """A session of Snowflake's administrator, opened when the first statement is run."""

    access: Access

    def cursor(self) -> SnowflakeCursor:
        """As the connection's own."""
        return self._connection.cursor()

    @property
    def account(self) -> str:
        """The identifier of the account, as the connection has it."""
        return self._connection.account

    def __getattr__(self, name: str) -> Any:
        """Where the connection goes: host, port."""
        return getattr(self._connection, name)

    def close(self) -> None:
        """End the session, if there is one."""
        if "_connection" in self.__dict__:
            self._connection.close()

    @cached_property
    def _connection(self) -> SnowflakeConnection:
        import snowflake.connector
        from snowflake.connector.errors import DatabaseError, OperationalError

        account, user, key = self._credentials()
        address = {name: os.environ.get(f"SNOWFLAKE_{name.upper()}") for name in ("host", "port", "protocol")}
        try:
            return snowflake.connector.connect(
                account=account,
                user=user,
                private_key=key,
                role="ACCOUNTADMIN",
                login_timeout=LOGIN_TIMEOUT_SECONDS,
                network_timeout=NETWORK_TIMEOUT_SECONDS,
                # Otherwise the connector asks the metadata services of three clouds where it runs.
                platform_detection_timeout_seconds=0,
                **{name: value for name, value in address.items() if value},
            )
        except OperationalError as error:
            raise Unreachable("Snowflake", account, "account and network", error.msg) from error
        except DatabaseError as error:
            raise LakehouseError(
                f"Snowflake refused administrator {user} of account {account}: {error.msg} Nothing was changed. Check "
                f"the key in the secret '{self.access.admin_secret}', and that the user has ACCOUNTADMIN"
            ) from error

    def _credentials(self) -> tuple[str, str, bytes]:
        """Account, user and private key (DER), from the administrator's secret in the kickstarter's layout."""
        from cryptography.hazmat.primitives import serialization

        name = self.access.admin_secret
        version = self.access.secrets.read(name)
        if version is None:
            raise ConfigError(
                f"There is no secret '{name}' in region {self.access.deployment.region}. Nothing was changed. Name the "
                f"secret of Snowflake's administrator with --admin-user-secrets-root-path"
            )
        values: dict[str, Any] = version.value.reveal()
        try:
            pem = base64.b64decode(values[f"snowflake_rsa_private_key_{values['active_key_number']}_pem"])
            key = serialization.load_pem_private_key(pem, password=None)
            return values["snowflake_account_identifier"], values["admin_service_user"], _der(key)
        except (KeyError, ValueError, TypeError) as error:
            told = f"{type(error).__name__}"
        raise ConfigError(
            f"The secret '{name}' cannot be used ({told}). Nothing was changed. It has to hold "
            f"snowflake_account_identifier, admin_service_user, active_key_number (1 or 2) and "
            f"snowflake_rsa_private_key_1_pem or _2_pem (base64 of a PEM)"
        )


def _der(key: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
