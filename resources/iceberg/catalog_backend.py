"""The protocol of a type of Iceberg catalog, which translates a catalog's settings for pyiceberg and Spark alike."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self
from urllib.parse import urlsplit

import dagster as dg
from pydantic import Field, field_validator, model_validator

from lakehouse.core.errors import ConfigError, LakehouseError, RequestRejected, Unreachable, redact_credentials
from lakehouse.core.tables import naming
from lakehouse.core.tables.naming import TableRef
from resources.aws.clients import SESSION_NAME
from resources.forms import Form, url
from resources.iceberg.rest_settings import catalog_faults
from resources.masked_field import masked_field, secret_field

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog as IcebergCatalog
    from pyiceberg.table import Table


REFUSED = re.compile(
    r"ACCESS_DENIED|INVALID_ACCESS_KEY_ID|INVALID_SIGNATURE|SIGNATURE_DOES_NOT_MATCH|HTTP status 40[13]"
)
"""The words in Arrow's errors for a request that S3 refused (AWS SDK for C++, S3Errors)."""


class CatalogSettings(dg.ConfigurableResource):
    """Address and IAM roles of an Iceberg catalog."""

    TYPES: ClassVar = "resources.iceberg.catalog_types:registered"
    """The function that returns the types, by name. It loads pyiceberg, which most processes need only later."""
    FORMS: ClassVar = {"s3_endpoint": url("http://minio:9000")}

    FAULTS: ClassVar = staticmethod(catalog_faults)
    """Yields the faults of settings that depend on each other, each with its key."""

    type: str = Field(description="`sql` (a database), `glue`, `rest`, or a type of another distribution.")
    warehouse: str = Field(
        description="Folder of the tables, as an S3 URI. For `rest`: the name of the catalog on the server."
    )
    uri: str | None = masked_field(
        None,
        "For `sql`: the database as an SQLAlchemy URL. For `rest`: the address, as `https://host/api/catalog`.",
    )
    credential: str | None = secret_field(
        None,
        "For `rest`: `client id:client secret` of an OAuth client. Spark's driver needs the same in its environment "
        "variable ICEBERG_CATALOG_CREDENTIAL.",
    )
    token: str | None = secret_field(
        None,
        "For `rest`, in place of `credential`: a token that does not expire. Spark's driver needs the same in its "
        "environment variable ICEBERG_CATALOG_TOKEN.",
    )
    oauth2_server_uri: str | None = masked_field(
        None, "For `rest`: the token endpoint, if it is not the catalog's own `/v1/oauth/tokens`."
    )
    scope: str | None = Field(
        None, description="For `rest`: the OAuth scope, such as `PRINCIPAL_ROLE:ALL` for Polaris. Default: `catalog`."
    )
    sigv4: str | None = Field(
        None,
        description="For `rest`, in place of `credential`: the name for which requests are signed with AWS Signature "
        "Version 4, in `region`: `glue`, `s3tables`, or `execute-api` (API Gateway).",
    )
    prefix: str | None = Field(
        None, description="For `rest`: the part of paths after `/v1`, if the server's configuration does not name it."
    )
    headers: str | None = Field(
        None, description="For `rest`: headers of each request, as `NAME=VALUE, NAME=VALUE`. They are not secret."
    )
    access_delegation: Literal["none", "vended-credentials"] = Field(
        "none",
        description="For `rest`: `vended-credentials` if the catalog issues credentials for the files of each table, "
        "which the clients renew, or `none`: the credentials of the environment apply.",
    )
    s3_endpoint: str | None = masked_field(None, "Address of S3, if it is not AWS.")
    region: str | None = Field(None, description="AWS region of S3 and Glue.")
    role_arn: str = Field(
        default="", description="IAM role to assume; if empty, the credentials of the environment apply."
    )
    maintenance_role_arn: str = Field(default="", description="IAM role of maintenance, which deletes files.")
    reader_role_arn: str = Field(default="", description="IAM role of queries with DuckDB.")

    @field_validator("warehouse")
    @classmethod
    def _without_slash(cls, warehouse: str) -> str:
        """Return the folder without slashes at its end; a reference to a variable is not a folder yet."""
        return warehouse if isinstance(warehouse, dg.EnvVar) else re.sub(r"(?<=[^:/])/+$", "", warehouse)

    @model_validator(mode="after")
    def _require_region(self) -> Self:
        """Require the region in which roles are assumed: Spark's client of STS has no default."""
        roles = [name for name in ("role_arn", "maintenance_role_arn", "reader_role_arn") if getattr(self, name)]
        if roles and not self.region:
            raise ConfigError(
                f"The catalog in lakehouse.yaml has `{roles[0]}`, and no `region` to assume the role in. Nothing was "
                f"changed. Set `region`"
            )
        return self


class CatalogBackend(ABC):
    """A type of Iceberg catalog. Files of its tables are in S3 unless a type overrides this."""

    name: ClassVar[str]
    """The catalog's `type` in lakehouse.yaml."""

    forms: ClassVar[Mapping[str, Form]] = {}
    """Forms of settings that this type requires. A type that derives from another one does not inherit them."""

    namespace_suffix: ClassVar[str] = ""
    """Suffix of the folder of a namespace without a location."""

    cleaning: ClassVar[Mapping[str, str]] = {}
    """Properties of the Spark catalog that may delete files which differ from the one for commits; empty if none do."""

    @abstractmethod
    def pyiceberg_properties(self, catalog: CatalogSettings) -> dict[str, Any]:
        """Return the properties of pyiceberg's catalog, except warehouse and files."""

    @abstractmethod
    def spark_properties(self, catalog: CatalogSettings) -> dict[str, str]:
        """Return the properties of Spark's catalog, except warehouse and files."""

    def file_io(self, catalog: CatalogSettings) -> dict[str, str]:
        """Return pyiceberg's file properties (PyIceberg, FileIO)."""
        settings = {"s3.region": catalog.region, "s3.endpoint": catalog.s3_endpoint}
        if catalog.role_arn:
            settings |= {"s3.role-arn": catalog.role_arn, "s3.role-session-name": SESSION_NAME}
        return {key: value for key, value in settings.items() if value}

    def spark_file_io(self, catalog: CatalogSettings) -> dict[str, str]:
        """Return Spark's file properties (Iceberg, AWS integration)."""
        settings = {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO"}
        if catalog.s3_endpoint:
            settings |= {"s3.endpoint": catalog.s3_endpoint, "s3.path-style-access": "true"}
        if catalog.role_arn:
            settings |= {
                "client.factory": "org.apache.iceberg.aws.AssumeRoleAwsClientFactory",
                "client.assume-role.arn": catalog.role_arn,
                "client.assume-role.region": catalog.region or "",
                "client.assume-role.session-name": SESSION_NAME,
            }
        return settings | ({"client.region": catalog.region} if catalog.region else {})

    def address(self, catalog: CatalogSettings) -> str:
        """Return where the catalog is, for messages, without a login."""
        return redact_credentials(catalog.uri or catalog.warehouse)

    def load(self, properties: Mapping[str, Any]) -> IcebergCatalog:
        """Return pyiceberg's catalog with these properties."""
        from pyiceberg.catalog import load_catalog

        return load_catalog(naming.CATALOG, **properties)

    def issues_credentials(self, catalog: CatalogSettings) -> bool:
        """Return whether a table's files are read with credentials that the catalog issues with the table."""
        return False

    def metadata_limit(self, catalog: CatalogSettings) -> int | None:
        """Return the size in bytes of a metadata file beyond which the catalog refuses a table; None if unlimited."""
        return None

    def folder(self, catalog: CatalogSettings, table: Table) -> str:
        """Return a folder that contains the table and all others of the catalog."""
        return catalog.warehouse

    def dataset(self, catalog: CatalogSettings, ref: TableRef) -> tuple[str, str]:
        """Return the namespace and name of a table in OpenLineage: the bucket, and the path of the table's name."""
        warehouse = urlsplit(catalog.warehouse)
        path = "/".join(part for part in (warehouse.path.strip("/"), *ref.identifier) if part)
        return f"{warehouse.scheme}://{warehouse.netloc}", path

    def new_location(self, iceberg: IcebergCatalog, ref: TableRef) -> str | None:
        """Return a location for a new table, which no other table ever has. None if the server chooses it.

        A renamed table keeps its location. If the next table of its name had the same one, removing the orphans there
        would delete the files of the renamed table.
        """
        default = f"{iceberg.properties['warehouse'].rstrip('/')}/{ref.namespace}{self.namespace_suffix}"
        folder = iceberg.load_namespace_properties(ref.namespace).get("location") or default
        return f"{folder.rstrip('/')}/{naming.new_folder(ref.name)}"

    def metadata_files(self, iceberg: IcebergCatalog, namespace: str) -> dict[str, str]:
        """Return the metadata file of each table in a namespace by the table's full name.

        Types whose catalogs list the files do not load each table. A table that is dropped meanwhile is left out.
        """
        from pyiceberg.exceptions import NoSuchTableError

        files = {}
        for name in iceberg.list_tables(namespace):
            with suppress(NoSuchTableError):
                files[".".join(name)] = iceberg.load_table(name).metadata_location
        return files

    def to_error(self, error: Exception, catalog: CatalogSettings) -> LakehouseError | None:
        """Translate an error of a client; None if it is not an error of the system."""
        if not isinstance(error, OSError):
            return None
        where, check = catalog.s3_endpoint or "AWS", "the endpoint and the AWS credentials"
        cause = str(error).rstrip(".")
        if REFUSED.search(cause):
            return RequestRejected("S3", where, f"the request: {cause}", check)
        return Unreachable("S3", where, check, cause)


class PointerBackend(CatalogBackend):
    """A type of catalog that has a pointer to the metadata file of each table, which the clients write."""

    @abstractmethod
    def point(self, iceberg: IcebergCatalog, ref: TableRef, expected: str, replacement: Table) -> bool:
        """Let a name refer to another metadata file, if it still refers to the expected one, in one step.

        Args:
            iceberg: pyiceberg's catalog.
            ref: The name.
            expected: The metadata file that it refers to.
            replacement: The table of the other metadata file.

        Returns:
            Whether it was changed.
        """
