"""The Iceberg catalog, configured once for pyiceberg and for Spark; branches and their atomic publication."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import PrivateAttr

from lakehouse.config import sensitive
from lakehouse.config.topic import Topic
from lakehouse.core import layout, naming
from lakehouse.core.batch import COUNTS, MAX_PROPERTY
from lakehouse.core.errors import (
    CommitConflict,
    LakehouseError,
    Refused,
    SchemaError,
    UnclearState,
)
from lakehouse.formats import evolution
from lakehouse.formats.schema import Shape
from resources.catalogs import backend_of
from resources.catalogs.backend import CatalogBackend
from resources.hidden import hidden
from resources.snapshots import batch_of, history, with_counts

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog as IcebergCatalog
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

PROPERTIES = {
    # Snowflake reads position deletes and no equality deletes; version 2 has the former.
    "format-version": "2",
    "write.parquet.compression-codec": "zstd",
    # A batch is written where its Kafka partition was read: no shuffle.
    "write.distribution-mode": "none",
    "write.merge.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.delete.mode": "merge-on-read",
    # Glue and Snowflake hold a pointer to a metadata file; it must not be deleted under them.
    "write.metadata.delete-after-commit.enabled": "false",
}
"""Properties of every table (Iceberg, Configuration: write properties)."""


RECREATED = "lakehouse.recreated"
"""The table property that says: there are rows of a topic that was recreated since, with the same offsets."""

CONTINUED = "lakehouse.continued-in"
"""The table property that names the table that goes on where this one's schema could not."""

NEWEST_FORMAT = 2
CREATE_ATTEMPTS = 3
ALTER_ATTEMPTS = 5


class Catalog(dg.ConfigurableResource):
    """An Iceberg catalog."""

    type: str
    """One of resources/catalogs: `sql` (a database, the embedded default) or `glue`."""
    warehouse: str
    """Where tables are stored, as an S3 URI."""
    uri: str | None = hidden(None, "For `sql`: the database as an SQLAlchemy URL.")
    s3_endpoint: str | None = hidden(None, "Where S3 answers, when it is not AWS.")
    region: str | None = None

    _catalog: IcebergCatalog | None = PrivateAttr(default=None)

    @property
    def backend(self) -> CatalogBackend:
        """The type of catalog.

        Raises: ConfigError for an unknown one.
        """
        return backend_of(self.type)

    def iceberg(self) -> IcebergCatalog:
        """The catalog for pyiceberg. S3 credentials come from the environment, as in every AWS client.

        Raises: ConfigError for an unknown type.
        """
        if self._catalog is None:
            properties = self.backend.pyiceberg_properties(self) | {"warehouse": self.warehouse} | self.file_io()
            self._catalog = self.backend.load(properties)
        return self._catalog

    def file_io(self) -> dict[str, str]:
        """How pyiceberg reaches the files."""
        return self.backend.file_io(self)

    def spark_settings(self) -> dict[str, str]:
        """The same catalog for a Spark session (Iceberg, Spark configuration: catalogs)."""
        settings = {
            **self.backend.spark_properties(self),
            **self.backend.spark_file_io(self),
            "warehouse": self.warehouse,
            # pyiceberg publishes: a table read from Spark's cache could be the one before.
            "cache-enabled": "false",
        }
        catalogs = {self.cleaning: {**settings, **self.backend.cleaning}, naming.CATALOG: settings}
        return {key: value for name, its in catalogs.items() for key, value in _spark_catalog(name, its).items()}

    @property
    def cleaning(self) -> str:
        """Name of the Spark catalog that may delete files: orphans only, where no commit is made."""
        return f"{naming.CATALOG}_cleaning" if self.backend.cleaning else naming.CATALOG

    def load(self, namespace: str, table: str) -> Table | None:
        """The table as it is now, or None when there is none.

        Raises: Unreachable when the catalog does not answer.
        """
        from pyiceberg.exceptions import NoSuchTableError

        with self.explained():
            try:
                return self.iceberg().load_table((namespace, table))
            except NoSuchTableError:
                return None

    @contextmanager
    def explained(self) -> Iterator[None]:
        """What the clients raise when nobody answers, as Unreachable."""
        try:
            yield
        except Exception as error:
            if meaning := self.backend.explained(error, self):
                raise meaning from error
            raise

    def ensure_table(
        self,
        namespace: str,
        table: str,
        schema: Schema,
        former: Mapping[str, tuple[str, ...]] | None = None,
        existing: Table | None = None,
    ) -> Table:
        """Create the table, or bring its columns to `schema`: added, renamed, widened, never dropped.

        Parameters: `former` are names that a field had before, by its dotted path in `schema`; `existing` is the table,
        where it was loaded just now.
        Raises: DoesNotFit when a column would have to change in a way that its rows or readers cannot take; nothing is
        changed. CommitConflict when another writer changes the table at the same time.
        """
        from pyiceberg.exceptions import CommitFailedException

        for attempt in range(1, ALTER_ATTEMPTS + 1):
            existing = existing or self.load(namespace, table) or self._create(namespace, table, schema, former)
            _require_format(existing)
            found = evolution.changes(existing.schema(), Shape(schema.as_struct(), former or {}))
            evolution.refusals(found, f"{namespace}.{table}")
            if not any(change.ddl for change in found):
                return existing
            try:
                with existing.update_schema() as update:
                    evolution.apply(update, found)
                return existing.refresh()
            except CommitFailedException as error:
                # Another writer was first, and may have made the same changes.
                if attempt == ALTER_ATTEMPTS:
                    name = f"{namespace}.{table}"
                    raise CommitConflict(f"Another writer keeps changing {name} ({error}); run it again") from error
                existing = None
        raise AssertionError("the last attempt returns or raises")

    def _create(
        self, namespace: str, table: str, schema: Schema, former: Mapping[str, tuple[str, ...]] | None
    ) -> Table:
        properties = PROPERTIES | ({sensitive.FORMER: json.dumps(former)} if former else {})
        if len(properties.get(sensitive.FORMER, "")) > MAX_PROPERTY:
            raise SchemaError(
                f"The schema of {namespace}.{table} gives its fields former names (aliases) of more than "
                f"{MAX_PROPERTY:,} characters. No table was made. Remove aliases from the schema"
            )
        for attempt in range(CREATE_ATTEMPTS):
            try:
                self.iceberg().create_namespace_if_not_exists(namespace)
                return self.iceberg().create_table((namespace, table), schema, properties=properties)
            except Exception as error:
                # Another writer may have made either first; catalogs say so in different ways.
                existing = self.load(namespace, table)
                if existing is not None:
                    return existing
                if attempt == CREATE_ATTEMPTS - 1 or isinstance(error, Refused):
                    raise
        raise AssertionError("unreachable")

    def arrange(self, table: Table, partition_by: tuple[str, ...], sort_by: tuple[str, ...]) -> None:
        """Give the table this partitioning and sort order, where it has others.

        Raises: SchemaError when a column is not there or cannot be used so; CommitConflict.
        """
        from pyiceberg.exceptions import CommitFailedException

        try:
            layout.arrange(table, partition_by, sort_by)
        except CommitFailedException as error:
            raise CommitConflict(f"Another writer changed {'.'.join(table.name())} ({error}); run it again") from error

    def resolve_table(self, namespace: str, topic: Topic) -> tuple[Topic, Table | None]:
        """Return the topic with the table that its records go to now, and that table; None where it is not made yet.

        Raises: Unreachable.
        """
        *_, (name, table) = self.successive_tables(namespace, topic.table)
        return in_table(topic, name), table

    def successive_tables(self, namespace: str, name: str) -> Iterator[tuple[str, Table | None]]:
        """Load a table and the ones that continue it, in order, each with its name; the last may not be made yet.

        Raises: Unreachable.
        """
        following: str | None = name
        while following is not None:
            table = self.load(namespace, following)
            yield following, table
            following = table.properties.get(CONTINUED) if table else None

    def published(self, namespace: str, topic: Topic) -> tuple[Topic, Table]:
        """As `resolve_table`, of a table that has a published snapshot.

        Raises: LakehouseError when it has none, so nothing can be registered or compared; Unreachable.
        """
        topic, table = self.resolve_table(namespace, topic)
        return topic, _with_snapshot(table, namespace, topic.table)

    def publish(
        self,
        table: Table,
        branch: str,
        base: int | None,
        counts: Mapping[str, int] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Table:
        """Make the head of `branch` the head of main and drop the branch, in one commit.

        Where the branch moves the position, the offsets tag moves too.

        Parameters: `table` as loaded when the branch was audited; `base` is main's snapshot id when the batch began;
        `counts` are the batch's numbers, which the table keeps as long as the snapshot, if it is among the newest;
        `properties` are set with it.
        Raises: CommitConflict when main or the branch moved in between; main is as the other writer left it.
        """
        from pyiceberg.exceptions import CommitFailedException
        from pyiceberg.table.update import (
            AssertRefSnapshotId,
            AssertTableUUID,
            RemoveSnapshotRefUpdate,
            SetPropertiesUpdate,
            SetSnapshotRefUpdate,
            TableUpdate,
        )

        audited = table.metadata.refs[branch].snapshot_id
        requirements = (
            AssertTableUUID(uuid=table.metadata.table_uuid),
            AssertRefSnapshotId(ref="main", snapshot_id=base),
            AssertRefSnapshotId(ref=branch, snapshot_id=audited),
        )
        reference = partial(
            SetSnapshotRefUpdate, max_ref_age_ms=None, max_snapshot_age_ms=None, min_snapshots_to_keep=None
        )
        updates: tuple[TableUpdate, ...] = (
            reference(ref_name="main", type="branch", snapshot_id=audited),
            RemoveSnapshotRefUpdate(ref_name=branch),
        )
        snapshot = table.snapshot_by_id(audited)
        if snapshot and batch_of(snapshot):
            updates += (reference(ref_name=naming.OFFSETS_TAG, type="tag", snapshot_id=audited),)
        if counts is not None:
            properties = {COUNTS: with_counts(table, audited, counts)} | dict(properties or {})
        if properties:
            updates += (SetPropertiesUpdate(updates=dict(properties)),)
        try:
            committed = self.iceberg().commit_table(table, requirements, updates)
        except Exception as error:
            # Whatever the client says, the catalog decides: a commit may be applied and its answer lost.
            if any(snapshot.snapshot_id == audited for snapshot in history(table.refresh())):
                return table
            if isinstance(error, CommitFailedException):
                raise CommitConflict(
                    f"Another writer changed {'.'.join(table.name())} while this batch was prepared ({error}). "
                    f"The batch was not published; run it again"
                ) from error
            raise
        table.metadata, table.metadata_location = committed.metadata, committed.metadata_location
        return table

    def drop_staging(self, table: Table) -> Table:
        """Drop branches that an interrupted or refused batch left; their data files become orphans.

        Raises: CommitConflict when another writer is at it.
        """
        staged = [ref for ref in table.metadata.refs if ref.startswith(naming.STAGING_PREFIX)]
        return self.drop_abandoned(table, *staged)

    def drop_abandoned(self, table: Table, *branches: str) -> Table:
        """Drop these branches, and those of rehearsals that were killed; they would keep their files for ever.

        Raises: CommitConflict when another writer is at it.
        """
        from pyiceberg.exceptions import CommitFailedException

        abandoned = (ref for ref in table.metadata.refs if naming.is_abandoned(ref, time.time()))
        stale = [*branches, *abandoned]
        if stale:
            try:
                with table.manage_snapshots() as manage:
                    for branch in stale:
                        manage.remove_branch(branch)
            except CommitFailedException as error:
                name = ".".join(table.name())
                raise CommitConflict(
                    f"Another writer changed {name} ({error}). Nothing was published; run it again"
                ) from error
        return table.refresh() if stale else table


def _require_format(table: Table) -> None:
    """Compare a table's format version with what this release can commit to.

    Raises:
        UnclearState: Somebody upgraded the table. PyIceberg cannot publish there, nor are deletion vectors audited.
    """
    if table.format_version > NEWEST_FORMAT:
        raise UnclearState(
            f"Table {'.'.join(table.name())} has Iceberg format version {table.format_version}, and this release "
            f"writes versions up to {NEWEST_FORMAT}. Nothing was changed. Iceberg cannot take an upgrade back: drop "
            f"the table and ingest the topic again, or choose another `table`"
        )


def _spark_catalog(name: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Settings of a Spark session that has a catalog of this name."""
    prefix = f"spark.sql.catalog.{name}"
    return {prefix: "org.apache.iceberg.spark.SparkCatalog"} | {f"{prefix}.{k}": v for k, v in settings.items()}


def in_table(topic: Topic, name: str) -> Topic:
    """Return the topic with the table of that name."""
    return topic if topic.table == name else topic.model_copy(update={"table_name": name})


def published_table(catalog: Catalog, namespace: str, table: str) -> Table:
    """A table that has a published snapshot.

    Raises: LakehouseError when there is none, so nothing can be registered or compared.
    """
    return _with_snapshot(catalog.load(namespace, table), namespace, table)


def _with_snapshot(found: Table | None, namespace: str, table: str) -> Table:
    if found is None or found.current_snapshot() is None:
        raise LakehouseError(f"Table {namespace}.{table} has nothing published yet. Materialize iceberg/{table} first")
    return found


def snapshot_at(catalog: Catalog, metadata_location: str) -> int | None:
    """The current snapshot id in a metadata file, as a reader of that file sees it."""
    from pyiceberg.table import StaticTable

    return StaticTable.from_metadata(metadata_location, catalog.file_io()).metadata.current_snapshot_id
