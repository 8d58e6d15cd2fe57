"""Snowflake's access to AWS Glue and to a REST catalog such as Polaris, and Iceberg tables over theirs."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lakehouse.core.errors import ConfigError, UnclearState
from lakehouse.deploy.resource import Outputs, Resource, Updatable
from lakehouse.deploy.snowflake.administrator import Administrator
from lakehouse.deploy.snowflake.objects import (
    AccessState,
    AccessVerification,
    AwsAccess,
    Container,
    ExternalVolume,
    SnowflakePrincipal,
    SnowflakeResource,
    differing,
    left_as_it_is,
    namespace_of,
)
from resources.confluent.clusters import Cluster
from resources.http_json import ClientCredentials
from resources.iceberg.rest_catalog import RestCatalog
from resources.snowflake import sql
from resources.snowflake.session import Row, properties, text_of, value_of

KIND = "CATALOG INTEGRATION"
REFRESH = "REFRESH_INTERVAL_SECONDS"
POLARIS_SCOPE = "PRINCIPAL_ROLE:"
"""Scopes of Polaris are its roles (Apache Polaris, Access control); other catalogs have none of that form."""


@dataclass(frozen=True, kw_only=True, repr=False)
class GlueIntegration(AwsAccess):
    """A catalog integration with AWS Glue."""

    def read(self, outputs: Outputs) -> SnowflakePrincipal | None:
        if self.row() is None:
            return None
        return self.administrator.read(sql.describe(KIND, *self.identifier), _principal)

    def update(self, outputs: Outputs, current: SnowflakePrincipal) -> SnowflakePrincipal:
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
        return f"Snowflake catalog integration '{self.integration}' with {self.catalog_label}"

    @property
    def read_depends_on(self) -> tuple[Resource[Any], ...]:
        # It exists without the cluster whose id it names.
        return ()

    def read(self, outputs: Outputs) -> Mapping[str, str] | None:
        if self.administrator.find(KIND, self.integration) is None:
            return None
        return self.administrator.read(sql.describe(KIND, self.integration), described_integration)

    def create(self, outputs: Outputs) -> Mapping[str, str]:
        rest, client = self.rest_catalog(), client_of(self.rest_catalog())
        self.administrator.change(
            sql.create_rest_catalog_integration(
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
        # The secret cannot be read; the verification tries it.
        return differing(self._declared(outputs), current)

    def update(self, outputs: Outputs, current: Mapping[str, str]) -> Mapping[str, str]:
        apply_settings(self.administrator, self.label, self.integration, self._declared(outputs), current)
        return self.read_existing(outputs)

    def delete(self, outputs: Outputs, current: Mapping[str, str]) -> None:
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
            REFRESH: str(sql.REFRESH_SECONDS),
        }


@dataclass(frozen=True, kw_only=True, repr=False)
class RestAccessVerification(AccessVerification):
    """Snowflake's access to the REST catalog. If it is refused, the client's secret, which may be new, is set again."""

    integration: str
    rest_catalog: Callable[[], RestCatalog]

    def update(self, outputs: Outputs, current: AccessState) -> AccessState:
        secret = client_of(self.rest_catalog()).client_secret
        self.administrator.change(sql.set_client_secret(self.integration, secret))
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


def _principal(rows: list[Row]) -> SnowflakePrincipal:
    settings = described_integration(rows)
    return SnowflakePrincipal(
        text_of(settings, "API_AWS_IAM_USER_ARN"), text_of(settings, "API_AWS_EXTERNAL_ID"), settings
    )


def apply_settings(
    administrator: Administrator, label: str, name: str, declared: Mapping[str, str], settings: Mapping[str, Any]
) -> None:
    """Set the refresh interval of an integration: besides secrets, the only setting that Snowflake lets anybody set."""
    others = {key: value for key, value in declared.items() if key != REFRESH}
    if differences := differing(others, settings):
        raise left_as_it_is(label, differences)
    administrator.change(sql.set_refresh_interval(name))


def client_of(rest_catalog: RestCatalog) -> ClientCredentials:
    """Return the client that enters the catalog."""
    client = rest_catalog.client()
    if client is None:
        raise ConfigError(
            "lakehouse.yaml: rest_catalog: Snowflake logs in to a REST catalog with client credentials only, and none "
            "are declared. "
            "The catalog integration was left unchanged. Write `credential`, or `client_id` and `client_secret`"
        )
    return client


def _source(client: ClientCredentials) -> sql.RestSource:
    is_polaris = client.scope.startswith(POLARIS_SCOPE)
    return sql.RestSource.POLARIS if is_polaris else sql.RestSource.ICEBERG_REST


@dataclass(frozen=True)
class CatalogTable:
    """A table in the catalog, and its name in Snowflake."""

    name: str
    catalog_table: str


TableNames = tuple[tuple[str, str, str], ...]
"""Full names of the deployment's tables in Snowflake."""


@dataclass(frozen=True, kw_only=True, repr=False)
class IcebergTables(SnowflakeResource[TableNames], Updatable[TableNames]):
    """A table for each declared topic that the catalog has by now. The others are created later, by `create` or by the
    running lakehouse.

    The deployment's tables are those on its external volume, also those that the lakehouse created: a volume cannot be
    dropped while it has a table.
    """

    is_registered: Callable[[str, str], bool]
    """Returns whether the catalog has a table, by its namespace and name."""
    namespace: str | Resource[Cluster]
    """The catalog's namespace: a name, or the Kafka cluster whose id Tableflow uses as the name."""
    sources: tuple[CatalogTable, ...]
    schema: Container
    role: str
    """Owns the tables, as it must to refresh them (Snowflake, ALTER ICEBERG TABLE ... REFRESH)."""
    warehouse: str
    volume: ExternalVolume
    integration: str
    after: tuple[Resource[Any], ...]
    """The integration."""

    @property
    def label(self) -> str:
        return f"Snowflake Iceberg tables in {'.'.join(self.schema.identifier)}"

    def read(self, outputs: Outputs) -> TableNames:
        # Never None: some alone are not all.
        [database, schema], [volume] = self.schema.identifier, self.volume.identifier
        volumes = self.administrator.read(sql.show_iceberg_tables(database), _volumes)
        on_volume = {name: used == volume for name, used in volumes.items()}
        for source in self.sources:
            if on_volume.get((database, schema, source.name)) is False:
                raise UnclearState(
                    f"Snowflake has an Iceberg table {database}.{schema}.{source.name} that is not on the external "
                    f"volume {volume}. It was left unchanged. Rename or drop it"
                )
        return tuple(sorted(name for name, is_on_volume in on_volume.items() if is_on_volume))

    def create(self, outputs: Outputs) -> TableNames:
        return self.update(outputs, self.read(outputs))

    def diff(self, outputs: Outputs, current: TableNames) -> list[str]:
        return [f"{source.name} is missing" for source in self._missing(outputs, current)]

    def update(self, outputs: Outputs, current: TableNames) -> TableNames:
        missing = self._missing(outputs, current)
        database, schema = self.schema.identifier
        with self.administrator.acting_as(self.role, self.warehouse):
            for source in missing:
                self.administrator.change(
                    sql.create_iceberg_table(
                        database,
                        schema,
                        source.name,
                        volume=self.volume.identifier[0],
                        integration=self.integration,
                        namespace=namespace_of(self.namespace, outputs),
                        catalog_table=source.catalog_table,
                        auto_refresh=True,
                        comment=self.administrator.comment,
                    )
                )
        return self.read(outputs)

    def delete(self, outputs: Outputs, current: TableNames) -> None:
        for name in current:
            self.administrator.change(sql.drop("ICEBERG TABLE", *name))

    def retained(self, outputs: Outputs, current: TableNames) -> str:
        return "" if current else "there are none"

    def _missing(self, outputs: Outputs, current: TableNames) -> list[CatalogTable]:
        # Not part of `read`: a catalog that does not answer must not keep a deletion from finding the tables.
        namespace = namespace_of(self.namespace, outputs)
        return [
            source
            for source in self.sources
            if (*self.schema.identifier, source.name) not in current
            and self.is_registered(namespace, source.catalog_table)
        ]


def _volumes(rows: list[Row]) -> dict[tuple[str, str, str], str | None]:
    """Return the external volume of each table, by the table's full name."""

    def name(row: Row) -> tuple[str, str, str]:
        return text_of(row, "database_name"), text_of(row, "schema_name"), text_of(row, "name")

    return {name(row): value_of(row, "external_volume_name") for row in rows}
