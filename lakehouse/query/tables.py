"""A table that a statement names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehouse.core.errors import LakehouseError

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from resources.catalog import Catalog


def load(catalog: Catalog, namespace: str, name: str) -> Table:
    """The table as the catalog has it now.

    Raises: LakehouseError when there is none; Unreachable.
    """
    table = catalog.load(namespace, name)
    if table is None:
        raise LakehouseError(
            f"The catalog has no table {namespace}.{name}. Nothing was run. `lakehouse status` shows the topics; each "
            f"is a table of the namespace in lakehouse.yaml"
        )
    return table
