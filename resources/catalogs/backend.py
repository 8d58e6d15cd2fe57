"""The protocol of a type of Iceberg catalog: one set of settings for pyiceberg and for Spark."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from lakehouse.core import naming
from lakehouse.core.errors import LakehouseError, Unreachable

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog as IcebergCatalog

    from resources.catalog import Catalog


class CatalogBackend(ABC):
    """How a catalog of one type is reached, and the files of its tables; these are in S3 unless a type overrides it."""

    name: ClassVar[str]
    """The catalog's `type` in lakehouse.yaml."""

    cleaning: ClassVar[Mapping[str, str]] = {}
    """What differs in the Spark catalog that may delete files; nothing where that is the one of commits."""

    @abstractmethod
    def pyiceberg_properties(self, catalog: Catalog) -> dict[str, Any]:
        """Return the properties of pyiceberg's catalog, apart from warehouse and files."""

    @abstractmethod
    def spark_properties(self, catalog: Catalog) -> dict[str, str]:
        """Return the properties of Spark's catalog, apart from warehouse and files."""

    def file_io(self, catalog: Catalog) -> dict[str, str]:
        """Return how pyiceberg reaches the files (PyIceberg, FileIO)."""
        settings = {"s3.region": catalog.region, "s3.endpoint": catalog.s3_endpoint}
        return {key: value for key, value in settings.items() if value}

    def spark_file_io(self, catalog: Catalog) -> dict[str, str]:
        """Return how Spark reaches the files (Iceberg, AWS integration)."""
        settings = {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO"}
        if catalog.s3_endpoint:
            settings |= {"s3.endpoint": catalog.s3_endpoint, "s3.path-style-access": "true"}
        return settings | ({"client.region": catalog.region} if catalog.region else {})

    def load(self, properties: Mapping[str, Any]) -> IcebergCatalog:
        """Return pyiceberg's catalog of these properties."""
        from pyiceberg.catalog import load_catalog

        return load_catalog(naming.CATALOG, **properties)

    def explained(self, error: Exception, catalog: Catalog) -> LakehouseError | None:
        """Return what an error of a client means for the caller; None where it is not the system's."""
        if not isinstance(error, OSError):
            return None
        return Unreachable("S3", catalog.s3_endpoint or "AWS", "the endpoint and the AWS credentials", error)
