"""The address of a table in the Iceberg catalog."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from lakehouse.core.sql.quoting import SPARK
from lakehouse.core.tables import naming


@dataclass(frozen=True)
class TableRef:
    """Namespace and name of a table that may not exist yet."""

    namespace: str
    name: str
    in_catalog: tuple[str, str] | None = field(default=None, kw_only=True)
    """Namespace and name in the catalog if Tableflow chose them; readers show the table under its own name."""
    first: str = field(default="", kw_only=True, compare=False)
    """Name of the table that this one continues after roll-overs; empty if it continues none."""
    spark_catalog: str = field(default=naming.CATALOG, kw_only=True)
    """Name of the catalog in Spark."""

    def __str__(self) -> str:
        return f"{self.namespace}.{self.name}"

    @property
    def identifier(self) -> tuple[str, str]:
        """The table's identifier in pyiceberg."""
        return self.in_catalog or (self.namespace, self.name)

    @property
    def shown(self) -> tuple[str, str]:
        """Namespace and name in readers that have names of their own."""
        return self.namespace, self.name

    @property
    def dead_letters(self) -> TableRef:
        """The table of records that could not be decoded; tables that continue each other have one together."""
        return replace(self, name=(self.first or self.name) + naming.DEAD_LETTERS, first="")

    @property
    def next_version(self) -> TableRef:
        """The table that continues this one after an incompatible schema change: `t` → `t__v2` → `t__v3`."""
        name, version = naming.family(self.name)
        return replace(self, name=f"{name}__v{version + 1}", first=self.first or self.name)

    def spark_path(self, branch: str | None = None) -> str:
        """Return the table's, or a branch's, name in Spark (Iceberg, Branching and tagging: `branch_<name>`)."""
        parts = [self.spark_catalog, *self.identifier] + ([f"branch_{branch}"] if branch else [])
        return SPARK.identifier(*parts)
