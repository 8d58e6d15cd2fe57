"""The types of Iceberg catalog, one module each.

To add one, write a module with a CatalogBackend and add it to CATALOGS. A separate distribution names its class as an
entry point of the group `lakehouse.catalogs`.
"""

from collections.abc import Mapping, Sequence
from functools import cache

from lakehouse.core.registry import by_name, implementations
from resources.iceberg.catalogs.backend import CatalogBackend
from resources.iceberg.catalogs.glue_catalog import GlueBackend
from resources.iceberg.catalogs.sql_catalog import SqlBackend

CATALOGS: Sequence[type[CatalogBackend]] = (SqlBackend, GlueBackend)
"""The types of this project."""


@cache
def registered() -> Mapping[str, CatalogBackend]:
    """Return all types by name: this project's and those of installed distributions.

    Raises:
        ConfigError: Two types have the same name.
    """
    return {name: backend() for name, backend in implementations(CATALOGS, "lakehouse.catalogs").items()}


def backend_of(type_: str) -> CatalogBackend:
    """Return the backend of a type.

    Raises:
        ConfigError: No backend has the name.
    """
    return by_name(registered(), type_, f"Catalog type '{type_}' is not known.")
