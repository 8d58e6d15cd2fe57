"""Branches that hold rows between their write and their publication."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakehouse.core import naming
from lakehouse.core.errors import CommitConflict, LakehouseError
from resources.catalog import Catalog

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import SparkSession

RESERVED = ("main", naming.OFFSETS_TAG)


@dataclass(frozen=True)
class Staging:
    """Makes branches in the tables of a namespace, one at a time in each table."""

    catalog: Catalog
    spark: SparkSession
    namespace: str

    def branch(self, table: Table) -> str:
        """A new branch at main's head, in place of whatever an interrupted writer left; returns its name.

        Parameters: `table` as it was loaded just now.
        """
        from spark.write import create_branch

        self.catalog.drop_staging(table)
        branch = f"{naming.STAGING_PREFIX}{uuid.uuid4().hex[:12]}"
        create_branch(self.spark, self.namespace, table.name()[-1], branch)
        return branch

    def kept(self, table: Table, branch: str) -> str:
        """Return the name of a branch for somebody to look at, made at main's head where it is missing.

        Args:
            table: The table as it was loaded just now.
            branch: The name that was asked for.

        Raises:
            LakehouseError: Rows on a branch of this name would be published unaudited, or be dropped.
        """
        from spark.write import create_branch

        ref = table.metadata.refs.get(branch)
        is_tag = ref is not None and ref.snapshot_ref_type != "branch"
        if branch in RESERVED or branch.startswith(naming.STAGING_PREFIX) or is_tag:
            raise LakehouseError(
                f"'{branch}' cannot be the branch of a replay: main, tags and branches named {naming.STAGING_PREFIX}* "
                f"belong to ingestion. Nothing was written. Choose another name, or leave the branch out to publish "
                f"after an audit"
            )

        if branch not in table.metadata.refs:
            create_branch(self.spark, self.namespace, table.name()[-1], branch)
        return branch

    @contextmanager
    def undisturbed(self, name: str, branch: str) -> Iterator[None]:
        """Whatever fails because another writer dropped the branch is that writer's victory, not an error.

        Raises: CommitConflict then.
        """
        try:
            yield
        except Exception as error:
            table = self.catalog.load(self.namespace, name)
            if table is None or branch in table.metadata.refs:
                raise
            raise CommitConflict(
                f"Another writer took over {self.namespace}.{name} and dropped branch '{branch}' while this batch was "
                f"prepared. The batch was not published; run it again"
            ) from error
