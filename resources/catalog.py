"""The Iceberg catalog, configured once for pyiceberg and for Spark; branches and their atomic publication."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import PrivateAttr

from lakehouse import naming
from lakehouse.batch import TOKEN, Batch
from lakehouse.errors import CommitConflict, ConfigError, LakehouseError, SchemaError, UnclearState, Unreachable

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog as IcebergCatalog
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

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


CREATE_ATTEMPTS = 3


class Catalog(dg.ConfigurableResource):
    """An Iceberg catalog: `sql` (a database, the embedded default) or `glue`."""

    type: str
    warehouse: str
    """Where tables are stored, as an S3 URI."""
    uri: str | None = None
    """For `sql`: the database as an SQLAlchemy URL."""
    s3_endpoint: str | None = None
    """Where S3 answers, when it is not AWS."""
    region: str | None = None

    _catalog: IcebergCatalog | None = PrivateAttr(default=None)

    def iceberg(self) -> IcebergCatalog:
        """The catalog for pyiceberg. S3 credentials come from the environment, as in every AWS client.

        Raises: ConfigError for a type this project does not know.
        """
        if self._catalog is None:
            from pyiceberg.catalog import load_catalog
            from sqlalchemy.exc import OperationalError

            kind = {"sql": {"type": "sql", "uri": self.uri or ""}, "glue": {"type": "glue"}}.get(self.type)
            if kind is None:
                raise ConfigError(f"Catalog type '{self.type}' is not known. Use 'sql' or 'glue' in lakehouse.yaml")
            settings = kind | {"warehouse": self.warehouse} | self.file_io()
            try:
                self._catalog = load_catalog(naming.CATALOG, **settings)
            except OperationalError:
                # Two processes that find an empty database both make its tables: the second finds them made.
                self._catalog = load_catalog(naming.CATALOG, **settings)
        return self._catalog

    def file_io(self) -> dict[str, str]:
        """How pyiceberg reaches the files, whatever the catalog (PyIceberg, FileIO)."""
        settings = {"s3.region": self.region, "s3.endpoint": self.s3_endpoint}
        return {key: value for key, value in settings.items() if value}

    def spark_settings(self) -> dict[str, str]:
        """The same catalog for a Spark session (Iceberg, Spark configuration: catalogs)."""
        if self.type == "glue":
            kind = {"type": "glue"}
        else:
            # SQLite needs a path where SQLAlchemy writes one more slash; pyiceberg's tables have the V1 columns.
            path = (self.uri or "").removeprefix("sqlite:///")
            kind = {"type": "jdbc", "uri": f"jdbc:sqlite:{path}", "jdbc.schema-version": "V1"}
        settings = kind | {
            "warehouse": self.warehouse,
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            # pyiceberg publishes: a table read from Spark's cache could be the one before.
            "cache-enabled": "false",
        }
        if self.s3_endpoint:
            settings |= {"s3.endpoint": self.s3_endpoint, "s3.path-style-access": "true"}
        if self.region:
            settings["client.region"] = self.region
        prefix = f"spark.sql.catalog.{naming.CATALOG}"
        return {prefix: "org.apache.iceberg.spark.SparkCatalog"} | {f"{prefix}.{k}": v for k, v in settings.items()}

    def load(self, namespace: str, table: str) -> Table | None:
        """The table as it is now, or None when there is none.

        Raises: Unreachable when the catalog does not answer.
        """
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return self.iceberg().load_table((namespace, table))
        except NoSuchTableError:
            return None
        except OSError as error:
            raise Unreachable("S3", self.s3_endpoint or "AWS", "the endpoint and the AWS credentials", error) from error

    def ensure_table(self, namespace: str, table: str, schema: Schema) -> Table:
        """Create the table, or widen it to `schema`: columns are added and types widened, never dropped or renamed.

        Raises: SchemaError when a column would have to change in a way Iceberg does not allow; nothing is changed.
        """
        from pyiceberg.exceptions import ValidationError

        catalog = self.iceberg()
        existing = self.load(namespace, table)
        for attempt in range(CREATE_ATTEMPTS):
            if existing is not None:
                break
            try:
                catalog.create_namespace_if_not_exists(namespace)
                return catalog.create_table((namespace, table), schema, properties=PROPERTIES)
            except Exception:
                # Another writer may have made either first; catalogs say so in different ways.
                existing = self.load(namespace, table)
                if existing is None and attempt == CREATE_ATTEMPTS - 1:
                    raise
        assert existing is not None
        try:
            with existing.update_schema() as update:
                update.union_by_name(schema)
        except (ValidationError, ValueError, TypeError) as error:
            raise SchemaError(
                f"The newest schema does not fit table {namespace}.{table}: {error}. The table was left as it is. "
                f"Register a compatible schema, or rename the topic's table to start a new one"
            ) from error
        return existing.refresh()

    def publish(self, table: Table, branch: str, base: int | None) -> Table:
        """Make the head of `branch` the head of main, move the offsets tag there and drop the branch, in one commit.

        Parameters: `table` as loaded when the branch was audited; `base` is main's snapshot id when the batch began.
        Raises: CommitConflict when main or the branch moved in between; main is as the other writer left it.
        """
        from pyiceberg.exceptions import CommitFailedException
        from pyiceberg.table.update import (
            AssertRefSnapshotId,
            AssertTableUUID,
            RemoveSnapshotRefUpdate,
            SetSnapshotRefUpdate,
        )

        audited = table.metadata.refs[branch].snapshot_id
        requirements = (
            AssertTableUUID(uuid=table.metadata.table_uuid),
            AssertRefSnapshotId(ref="main", snapshot_id=base),
            AssertRefSnapshotId(ref=branch, snapshot_id=audited),
        )
        updates = (
            SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=audited),
            SetSnapshotRefUpdate(ref_name=naming.OFFSETS_TAG, type="tag", snapshot_id=audited),
            RemoveSnapshotRefUpdate(ref_name=branch),
        )
        try:
            self.iceberg().commit_table(table, requirements, updates)
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
        return table.refresh()

    def drop_staging(self, table: Table) -> Table:
        """Drop branches that an interrupted or refused batch left; their data files become orphans.

        Raises: CommitConflict when another writer is at it.
        """
        from pyiceberg.exceptions import CommitFailedException

        stale = [ref for ref in table.metadata.refs if ref.startswith(naming.STAGING_PREFIX)]
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


def history(table: Table) -> Iterator[Snapshot]:
    """Main's snapshots, newest first, along parents."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot
        snapshot = table.snapshot_by_id(snapshot.parent_snapshot_id) if snapshot.parent_snapshot_id else None


def lineage(table: Table) -> Iterator[Snapshot]:
    """`history`, and where expiry cut it off from the snapshot that holds the position, that one too."""
    yield from history(table)
    yield from _behind_a_gap(table)


def last_batch(table: Table | None) -> Batch | None:
    """The newest batch that main holds: also past snapshots of other writers (compaction, a manual DELETE).

    Raises: UnclearState when the table has rows but no token: its position is unknown.
    """
    if table is None:
        return None
    for snapshot in lineage(table):
        if batch := batch_of(snapshot):
            return batch
    if rows := live_rows(table):
        raise UnclearState(
            f"Table {'.'.join(table.name())} has {rows:,} rows and no snapshot that says up to which offsets. "
            f"Nothing was changed. Choose another table name, or drop the table to ingest the topic from its start"
        )
    return None


def batch_of(snapshot: Snapshot) -> Batch | None:
    """The batch that a snapshot says it holds; None when another writer made it."""
    token = snapshot.summary.additional_properties.get(TOKEN) if snapshot.summary else None
    return Batch.from_json(token) if token else None


def _behind_a_gap(table: Table) -> Iterator[Snapshot]:
    """The snapshot that the offsets tag keeps where expiry removed those between it and main's history.

    Only where something is missing (a table that was replaced starts a history of its own), and not after a rollback
    to a snapshot older than the tag: main does not hold what the tag says then.
    """
    tag = table.metadata.refs.get(naming.OFFSETS_TAG)
    tagged = table.snapshot_by_id(tag.snapshot_id) if tag else None
    *_, oldest = None, *history(table)
    if (
        tagged
        and oldest
        and oldest.parent_snapshot_id
        and (tagged.sequence_number or 0) < (oldest.sequence_number or 0)
    ):
        yield tagged


def live_rows(table: Table) -> int:
    """Rows that a reader of main sees now."""
    snapshot = table.current_snapshot()
    return live_rows_at(table, snapshot.snapshot_id) if snapshot else 0


def live_rows_at(table: Table, snapshot_id: int) -> int:
    """Rows in one snapshot: what the data files hold less what position deletes hide."""
    snapshot = table.snapshot_by_id(snapshot_id)
    assert snapshot is not None and snapshot.summary is not None
    summary = snapshot.summary.additional_properties
    return int(summary.get("total-records", 0)) - int(summary.get("total-position-deletes", 0))


def commits(table: Table) -> list[tuple[int, int]]:
    """Main's (snapshot id, commit time in milliseconds), newest first."""
    return [(snapshot.snapshot_id, snapshot.timestamp_ms) for snapshot in history(table)]


def published_table(catalog: Catalog, namespace: str, table: str) -> Table:
    """A table that has a published snapshot.

    Raises: LakehouseError when there is none, so nothing can be registered or compared.
    """
    found = catalog.load(namespace, table)
    if found is None or found.current_snapshot() is None:
        raise LakehouseError(f"Table {namespace}.{table} has nothing published yet. Materialize iceberg/{table} first")
    return found


def snapshot_at(catalog: Catalog, metadata_location: str) -> int | None:
    """The current snapshot id in a metadata file, as a reader of that file sees it."""
    from pyiceberg.table import StaticTable

    return StaticTable.from_metadata(metadata_location, catalog.file_io()).metadata.current_snapshot_id
