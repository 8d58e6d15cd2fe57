"""Branches that hold rows between their write and their publication."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakehouse import naming
from lakehouse.errors import CommitConflict
from resources.catalog import Catalog

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import SparkSession


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
        """A branch for somebody to look at: made at main's head where it is missing; returns its name.

        Parameters: `table` as it was loaded just now.
        """
        from spark.write import create_branch

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
