"""Catalog integrations of a deployment: Snowflake's access to AWS Glue and to a REST catalog such as Polaris."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lakehouse.core.errors import ConfigError
from lakehouse.deploy.resource import Outputs, Resource, Updatable
from lakehouse.deploy.snowflake.access_verification import AccessVerification, Verification
from lakehouse.deploy.snowflake.administrator import Administrator
from lakehouse.deploy.snowflake.objects import (
    AwsAccess,
    Principal,
    SnowflakeResource,
    differing,
    left_as_it_is,
    namespace_of,
)
from resources.confluent.clusters import Cluster
from resources.iceberg.rest_catalog import RestCatalog
from resources.oauth import ClientCredentials
from resources.snowflake import snowflake_integrations as integrations
from resources.snowflake import snowflake_sql as sql
from resources.snowflake.snowflake_responses import Row, properties, text_of

KIND = "CATALOG INTEGRATION"
REFRESH = "REFRESH_INTERVAL_SECONDS"
POLARIS_SCOPE = "PRINCIPAL_ROLE:"
"""Scopes of Polaris are its roles (Apache Polaris, Access control); other catalogs have none of that form."""


@dataclass(frozen=True, kw_only=True, repr=False)
class GlueIntegration(AwsAccess):
    """A catalog integration with AWS Glue."""

    def read(self, outputs: Outputs) -> Principal | None:
        """Read the integration by name, and its settings by DESC CATALOG INTEGRATION."""
        if self.row() is None:
            return None
        return self.administrator.read(sql.describe(KIND, *self.identifier), _principal)

    def update(self, outputs: Outputs, current: Principal) -> Principal:
        """Set the refresh interval.

        Raises:
            LakehouseError: Anything else differs.
        """
        apply_settings(self.administrator, self.label, self.identifier[0], self.declared, current.settings)
        return self.read_existing(outputs)


@dataclass(frozen=True, kw_only=True, repr=False)
class RestIntegration(SnowflakeResource[Mapping[str, str]], Updatable[Mapping[str, str]]):
    """A catalog integration that enters a REST catalog as the client with which the lakehouse publishes.

    The client's secret is in no field: its statements are composed when they are sent.
    """

    integration: str
    rest_catalog: Callable[[], RestCatalog]
    """Returns the catalog, whose credentials are read then."""
    catalog_label: str
    """The catalog, as messages name it."""
    namespace: str | Resource[Cluster]
    """The catalog's namespace: a name, or the Kafka cluster whose id Tableflow uses as the name."""

    @property
    def label(self) -> str:
        """The integration with its name."""
        return f"Snowflake catalog integration '{self.integration}' with {self.catalog_label}"

    @property
    def read_depends_on(self) -> tuple[Resource[Any], ...]:
        """Nothing: it exists without the cluster whose id it names."""
        return ()

    def read(self, outputs: Outputs) -> Mapping[str, str] | None:
        """Read what DESC CATALOG INTEGRATION shows, which is everything but the client's secret."""
        if self.administrator.find(KIND, self.integration) is None:
            return None
        return self.administrator.read(sql.describe(KIND, self.integration), described_integration)

    def create(self, outputs: Outputs) -> Mapping[str, str]:
        """Create the integration."""
        rest, client = self.rest_catalog(), client_of(self.rest_catalog())
        self.administrator.change(
            integrations.create_rest_catalog_integration(
                self.integration,
                _source(client),
                uri=rest.uri,
                catalog=rest.warehouse,
                namespace=namespace_of(self.namespace, outputs),
                client_id=client.client_id,
                client_secret=client.client_secret,
                scopes=client.scope.split(),
                token_uri=rest.oauth2_server_uri,
                comment=self.administrator.comment,
            )
        )
        return self.read_existing(outputs)

    def diff(self, outputs: Outputs, current: Mapping[str, str]) -> list[str]:
        """Compare the settings. The secret cannot be read; the verification tries it."""
        return differing(self._declared(outputs), current)

    def update(self, outputs: Outputs, current: Mapping[str, str]) -> Mapping[str, str]:
        """Set the refresh interval.

        Raises:
            LakehouseError: Anything else differs.
        """
        apply_settings(self.administrator, self.label, self.integration, self._declared(outputs), current)
        return self.read_existing(outputs)

    def delete(self, outputs: Outputs, current: Mapping[str, str]) -> None:
        """Drop the integration."""
        self.administrator.change(sql.drop(KIND, self.integration))

    def _declared(self, outputs: Outputs) -> dict[str, str]:
        rest, client = self.rest_catalog(), client_of(self.rest_catalog())
        token = {"OAUTH_TOKEN_URI": rest.oauth2_server_uri} if rest.oauth2_server_uri else {}
        return token | {
            "CATALOG_SOURCE": _source(client),
            "CATALOG_URI": rest.uri,
            "CATALOG_NAME": rest.warehouse,
            "CATALOG_NAMESPACE": namespace_of(self.namespace, outputs),
            "OAUTH_CLIENT_ID": client.client_id,
            "OAUTH_ALLOWED_SCOPES": f"[{', '.join(client.scope.split())}]",
            REFRESH: str(integrations.REFRESH_SECONDS),
        }


@dataclass(frozen=True, kw_only=True, repr=False)
class RestAccessVerification(AccessVerification):
    """Snowflake's access to the REST catalog. If it is refused, the client's secret, which may be new, is set again."""

    integration: str
    rest_catalog: Callable[[], RestCatalog]

    def update(self, outputs: Outputs, current: Verification) -> Verification:
        """Set the secret."""
        secret = client_of(self.rest_catalog()).client_secret
        self.administrator.change(integrations.set_client_secret(self.integration, secret))
        return self.read(outputs)


def described_integration(rows: list[Row]) -> dict[str, str]:
    """Return what DESC shows of an integration, with what is inside of REST_CONFIG and REST_AUTHENTICATION.

    Snowflake writes these as `{KEY=value, KEY=[value, value]}` (as its Terraform provider reads them).

    Raises:
        UnknownForm: The rows have no properties.
    """
    settings = properties(rows)
    inner = [text_of(settings, group) for group in ("REST_CONFIG", "REST_AUTHENTICATION") if settings.get(group)]
    return settings | dict(pair for text in inner for pair in re.findall(r"(\w+)=(\[[^\]]*\]|[^,}]*)", text))


def _principal(rows: list[Row]) -> Principal:
    settings = described_integration(rows)
    return Principal(text_of(settings, "API_AWS_IAM_USER_ARN"), text_of(settings, "API_AWS_EXTERNAL_ID"), settings)


def apply_settings(
    administrator: Administrator, label: str, name: str, declared: Mapping[str, str], settings: Mapping[str, Any]
) -> None:
    """Set the refresh interval of an integration: besides secrets, the only setting that Snowflake lets anybody change.

    Raises:
        LakehouseError: Anything else differs.
    """
    others = {key: value for key, value in declared.items() if key != REFRESH}
    if differences := differing(others, settings):
        raise left_as_it_is(label, differences)
    administrator.change(integrations.set_refresh_interval(name))


def client_of(rest_catalog: RestCatalog) -> ClientCredentials:
    """Return the client that enters the catalog.

    Raises:
        ConfigError: There is none.
    """
    client = rest_catalog.client()
    if client is None:
        raise ConfigError(
            "lakehouse.yaml: rest_catalog: Snowflake logs in to a REST catalog with client credentials only, and none "
            "are declared. "
            "The catalog integration was left unchanged. Write `credential`, or `client_id` and `client_secret`"
        )
    return client


def _source(client: ClientCredentials) -> integrations.RestSource:
    is_polaris = client.scope.startswith(POLARIS_SCOPE)
    return integrations.RestSource.POLARIS if is_polaris else integrations.RestSource.ICEBERG_REST
