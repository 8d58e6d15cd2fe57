"""Tableflow's own REST catalog, the only one of tables in Confluent's storage. They are read and never written.

Sources: Confluent, "Storage with Tableflow", "Query Iceberg Tables with Trino and Tableflow". The catalog vends the
credentials for the files of a table with the table, so the lakehouse has none for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

import dagster as dg
from pydantic import Field, PrivateAttr
from requests import RequestException

from lakehouse.core.errors import RequestRejected, Unreachable
from lakehouse.core.tables import naming
from lakehouse.core.tables.naming import TableRef
from resources.aws.secret_reader import read_secret_fields
from resources.http_json import ClientCredentials
from resources.iceberg.catalog import spark_catalog
from resources.iceberg.table_chain import TableChain
from resources.masked_field import masked_field, secret_field

if TYPE_CHECKING:
    from pyiceberg.catalog.rest import RestCatalog
    from pyiceberg.table import Table

SYSTEM = "Tableflow's catalog"
URI, KEY, KEY_SECRET = "catalog.uri", "api.key", "api.key.secret"
"""Fields of a secret that contains an API key and the catalog's address."""
SCOPE = "catalog"
DELEGATION = {"header.X-Iceberg-Access-Delegation": "vended-credentials"}
"""Property of pyiceberg and Spark (Apache Iceberg, open-api/rest-catalog-open-api.yaml: data-access)."""


class TableflowCatalog(dg.ConfigurableResource):
    """The catalog of one environment in Confluent Cloud, with a Tableflow API key as its client."""

    spark_name: ClassVar = naming.TABLEFLOW_CATALOG
    """Its name in Spark."""

    ONE_OF: ClassVar = ("uri", "secret")
    """Settings of which one is required."""

    uri: str = masked_field(
        "",
        "Address, as `https://tableflow.us-east-1.aws.confluent.cloud/iceberg/catalog/organizations/<id>"
        "/environments/<id>`.",
    )
    api_key: str = Field("", description="Id of a Tableflow API key.")
    api_secret: str = secret_field("", "Its secret.")
    secret: str = Field(
        "",
        description="A secret in AWS Secrets Manager with catalog.uri, api.key and api.key.secret, in place of the "
        "settings above.",
    )
    role_arn: str = Field("", description="IAM role to assume to read secrets of AWS Secrets Manager.")
    region: str = Field(description="AWS region of the Kafka cluster, whose storage has the files.")

    _oauth: ClientCredentials | None = PrivateAttr(default=None)
    _opened: tuple[str, RestCatalog] | None = PrivateAttr(default=None)

    def load(self, ref: TableRef) -> Table | None:
        """Return the current state of a table with credentials for its files, or None if it does not exist."""
        from pyiceberg.exceptions import AuthorizationExpiredError, UnauthorizedError

        uri, client = self._client()
        token = client.token()
        with self._translate_errors():
            try:
                return self._load(uri, token, ref)
            except (AuthorizationExpiredError, UnauthorizedError):
                # The catalog may refuse a token before its expiry.
                return self._load(uri, client.token(refused=token), ref)

    def chain(self, first: TableRef) -> TableChain:
        """Return a table alone: Tableflow does not continue tables in others."""
        return TableChain((first, self.load(first)))

    def spark_settings(self) -> dict[str, str]:
        """Return the settings of a Spark session that reads the catalog.

        They contain a token instead of the API key: Spark masks settings of this name, and the token expires. A session
        keeps the catalogs that it has used, so one that outlives the token is refused.
        """
        uri, client = self._client()
        settings = {
            "type": "rest",
            "uri": uri,
            "token": client.token(),
            "token-refresh-enabled": "false",
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "client.region": self.region,
            "cache-enabled": "false",
        }
        return spark_catalog(self.spark_name, settings | DELEGATION)

    def _load(self, uri: str, token: str, ref: TableRef) -> Table | None:
        from pyiceberg.exceptions import NoSuchTableError

        if self._opened is None or self._opened[0] != token:
            self._opened = token, _open(uri, token, self.region)
        try:
            return self._opened[1].load_table(ref.identifier)
        except NoSuchTableError:
            return None

    def _client(self) -> tuple[str, ClientCredentials]:
        """Return the catalog's address, and the client, which is another one after the key was rotated."""
        uri, key, secret = self.uri, self.api_key, self.api_secret
        if self.secret:
            stored = read_secret_fields(self.secret, URI, KEY, KEY_SECRET, role_arn=self.role_arn)
            uri, key, secret = stored[URI], stored[KEY], stored[KEY_SECRET]
        uri = uri.rstrip("/")
        if self._oauth is None or (self._oauth.client_id, self._oauth.client_secret) != (key, secret):
            self._oauth = ClientCredentials(SYSTEM, f"{uri}/v1/oauth/tokens", key, secret, SCOPE)
        return uri, self._oauth

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        from pyiceberg.exceptions import RESTError, ServerError, ServiceUnavailableError

        where = self.secret or self.uri
        try:
            yield
        except (RequestException, ServerError, ServiceUnavailableError) as error:
            raise Unreachable(SYSTEM, where, "the address and the network", type(error).__name__) from error
        except RESTError as error:
            check = "the API key's role on the topic (DeveloperRead)"
            raise RequestRejected(SYSTEM, where, f"the table: {error}", check) from error


def _open(uri: str, token: str, region: str) -> RestCatalog:
    from resources.iceberg.rest_client import LimitedRestCatalog

    return LimitedRestCatalog(naming.TABLEFLOW_CATALOG, uri=uri, token=token, **{"s3.region": region}, **DELEGATION)
