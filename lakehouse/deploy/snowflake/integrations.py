"""Catalog integrations of a deployment: Snowflake's ways to AWS Glue and to a REST catalog such as Polaris."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from lakehouse.core.errors import ConfigError
from lakehouse.deploy.snowflake.objects import Entrance, Principal, described, differing, left_as_it_is
from lakehouse.deploy.snowflake.session import Administrator
from lakehouse.deploy.snowflake.verification import Verification, Verified
from lakehouse.deploy.step import Found, Step
from resources import snowflake_integrations as integrations
from resources import snowflake_sql as sql
from resources.oauth import ClientCredentials
from resources.rest_catalog import RestCatalog

KIND = "CATALOG INTEGRATION"
REFRESH = "REFRESH_INTERVAL_SECONDS"
POLARIS_SCOPE = "PRINCIPAL_ROLE:"
"""Scopes of Polaris are its roles (Apache Polaris, Access control); other catalogs have none of that form."""


@dataclass(frozen=True)
class Integration(Entrance):
    """A catalog integration that signs its requests."""

    def find(self, found: Found) -> Principal | None:
        """What DESC CATALOG INTEGRATION says."""
        if super().find(found) is None:
            return None
        settings = described_integration(self.administrator, self.identifier[0])
        return Principal(settings["API_AWS_IAM_USER_ARN"], settings["API_AWS_EXTERNAL_ID"], settings)

    def change(self, found: Found, it: Principal) -> Principal | None:
        """Set the refresh interval.

        Raises: LakehouseError when anything else differs.
        """
        set_right(self.administrator, self.what, self.identifier[0], self.wanted, it.settings)
        return self.find(found)


@dataclass(frozen=True)
class RestIntegration(Step):
    """A catalog integration that enters a REST catalog as the client that the lakehouse publishes as.

    The client's secret is in no field: its statements are made when they are sent.
    """

    name: str
    administrator: Administrator
    integration: str
    rest_catalog: Callable[[], RestCatalog]
    """The environment's, its variables read when it is called."""
    namespace: str
    needs: tuple[str, ...] = ()

    @property
    def what(self) -> str:
        """With its name."""
        return f"Snowflake catalog integration '{self.integration}' with the REST catalog"

    def find(self, found: Found) -> Mapping[str, str] | None:
        """What DESC CATALOG INTEGRATION says; the client's secret is not in it."""
        if self.administrator.find(KIND, self.integration) is None:
            return None
        return described_integration(self.administrator, self.integration)

    def create(self, found: Found) -> Mapping[str, str] | None:
        """Make it."""
        rest, client = self.rest_catalog(), client_of(self.rest_catalog())
        self.administrator.change(
            integrations.create_rest_catalog_integration(
                self.integration,
                _source(client),
                uri=rest.uri,
                catalog=rest.warehouse,
                namespace=self.namespace,
                client_id=client.client_id,
                client_secret=client.client_secret,
                scopes=client.scope.split(),
                token_uri=rest.oauth2_server_uri,
                comment=self.administrator.comment,
            )
        )
        return self.find(found)

    def differences(self, found: Found, it: Mapping[str, str]) -> list[str]:
        """Settings that are others than they should be. Nobody can see the secret; the verification tries it."""
        return differing(self._wanted(), it)

    def change(self, found: Found, it: Mapping[str, str]) -> Mapping[str, str] | None:
        """As `Integration.change`."""
        set_right(self.administrator, self.what, self.integration, self._wanted(), it)
        return self.find(found)

    def delete(self, found: Found, it: Mapping[str, str]) -> None:
        """Drop it."""
        self.administrator.change(sql.drop(KIND, self.integration))

    def _wanted(self) -> dict[str, str]:
        rest, client = self.rest_catalog(), client_of(self.rest_catalog())
        told = {"OAUTH_TOKEN_URI": rest.oauth2_server_uri} if rest.oauth2_server_uri else {}
        return told | {
            "CATALOG_SOURCE": _source(client),
            "CATALOG_URI": rest.uri,
            "CATALOG_NAME": rest.warehouse,
            "CATALOG_NAMESPACE": self.namespace,
            "OAUTH_CLIENT_ID": client.client_id,
            "OAUTH_ALLOWED_SCOPES": f"[{', '.join(client.scope.split())}]",
            REFRESH: str(integrations.REFRESH_SECONDS),
        }


@dataclass(frozen=True, kw_only=True)
class RestVerified(Verified):
    """The REST catalog lets Snowflake in. Where it does not, it is told the client's secret again, which may be new."""

    integration: str
    rest_catalog: Callable[[], RestCatalog] = field(repr=False)

    def change(self, found: Found, it: Verification) -> Verification:
        """Set the secret."""
        secret = client_of(self.rest_catalog()).client_secret
        self.administrator.change(integrations.set_client_secret(self.integration, secret))
        return self.find(found)


def described_integration(administrator: Administrator, name: str) -> dict[str, str]:
    """What DESC says of an integration, with what is inside of REST_CONFIG and REST_AUTHENTICATION.

    Snowflake writes these as `{KEY=value, KEY=[value, value]}` (as its Terraform provider reads them).
    """
    settings = described(administrator, KIND, (name,))
    inner = (settings.get(group, "") for group in ("REST_CONFIG", "REST_AUTHENTICATION"))
    return settings | dict(found for text in inner for found in re.findall(r"(\w+)=(\[[^\]]*\]|[^,}]*)", text))


def set_right(
    administrator: Administrator, what: str, name: str, wanted: Mapping[str, str], settings: Mapping[str, str]
) -> None:
    """Set the refresh interval of an integration: with secrets, all that Snowflake lets anybody change.

    Raises: LakehouseError when anything else differs.
    """
    others = {key: value for key, value in wanted.items() if key != REFRESH}
    if differences := differing(others, settings):
        raise left_as_it_is(what, differences)
    administrator.change(integrations.set_refresh_interval(name))


def client_of(rest_catalog: RestCatalog) -> ClientCredentials:
    """The client that enters the catalog.

    Raises: ConfigError when it has none.
    """
    client = rest_catalog.client()
    if client is None:
        raise ConfigError(
            "lakehouse.yaml: rest_catalog: Snowflake enters a REST catalog as a client only, and there is none. "
            "Nothing was changed. Write `credential`, or `client_id` and `client_secret`"
        )
    return client


def _source(client: ClientCredentials) -> integrations.RestSource:
    is_polaris = client.scope.startswith(POLARIS_SCOPE)
    return integrations.RestSource.POLARIS if is_polaris else integrations.RestSource.ICEBERG_REST
