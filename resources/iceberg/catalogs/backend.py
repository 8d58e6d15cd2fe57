"""The protocol of a type of Iceberg catalog, which configures pyiceberg and Spark alike."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from pyiceberg.catalog import Catalog as IcebergCatalog
from pyiceberg.catalog import load_catalog

from lakehouse.core.errors import LakehouseError, Unreachable
from lakehouse.core.tables import naming
from lakehouse.core.tables.table_ref import TableRef
from resources.aws.assumed_role import SESSION_NAME
from resources.iceberg.catalog_settings import CatalogSettings


class CatalogBackend(ABC):
    """A type of Iceberg catalog. Files of its tables are in S3 unless a type overrides this."""

    name: ClassVar[str]
    """The catalog's `type` in lakehouse.yaml."""

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

    def load(self, properties: Mapping[str, Any]) -> IcebergCatalog:
        """Return pyiceberg's catalog with these properties."""
        return load_catalog(naming.CATALOG, **properties)

    def new_location(self, iceberg: IcebergCatalog, ref: TableRef) -> str:
        """Return a location for a new table, which no other table ever has.

        A renamed table keeps its location. If the next table of its name had the same one, removing the orphans there
        would delete the files of the renamed table.
        """
        default = f"{iceberg.properties['warehouse'].rstrip('/')}/{ref.namespace}{self.namespace_suffix}"
        folder = iceberg.load_namespace_properties(ref.namespace).get("location") or default
        return f"{folder.rstrip('/')}/{naming.new_folder(ref.name)}"

    def metadata_files(self, iceberg: IcebergCatalog, namespace: str) -> dict[str, str]:
        """Return the metadata file of each table in a namespace by the table's full name.

        Types whose catalogs list the files do not load each table.
        """
        return {".".join(name): iceberg.load_table(name).metadata_location for name in iceberg.list_tables(namespace)}

    def to_error(self, error: Exception, catalog: CatalogSettings) -> LakehouseError | None:
        """Translate an error of a client; None if it is not an error of the system."""
        if not isinstance(error, OSError):
            return None
        return Unreachable("S3", catalog.s3_endpoint or "AWS", "the endpoint and the AWS credentials", error)
