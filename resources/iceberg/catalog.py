"""The Iceberg catalog, configured once for pyiceberg and Spark, and the atomic publication of branches."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, ClassVar

from pydantic import PrivateAttr

from lakehouse.core.errors import CommitConflict, ConfigError, RequestRejected, SchemaError, UnclearState, Unreachable
from lakehouse.core.table_protocol import (
    COUNTS,
    FIRST_TABLE,
    IDENTITY,
    MAX_PROPERTY,
    NAMESPACE_IDENTITY,
    PREVIOUS_NAMES,
    STAGING_PREFIX,
    SUCCESSOR,
)
from lakehouse.core.tables import layout, naming
from lakehouse.core.tables.naming import TableRef
from lakehouse.core.waiting import waiting_for
from lakehouse.formats import evolution
from lakehouse.formats.schema import Shape
from resources.iceberg.bookmarked_table import identity_of
from resources.iceberg.catalog_backend import CatalogSettings
from resources.iceberg.commits import (
    add_files,
    detect_conflict,
    dropped_error,
    layout_error,
    not_iceberg_error,
    publication,
    require_format,
    unknown_outcome,
)
from resources.iceberg.moved_table import require_not_moved
from resources.iceberg.snapshots import history, with_counts
from resources.iceberg.table_chain import TableChain, successor

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog as IcebergCatalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

    from resources.iceberg.catalog_backend import CatalogBackend

PROPERTIES = {
    # Snowflake supports position deletes, which format version 2 has, but no equality deletes.
    "format-version": "2",
    "write.parquet.compression-codec": "zstd",
    # Each Kafka partition is written where it was read, without a shuffle.
    "write.distribution-mode": "none",
    "write.merge.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.delete.mode": "merge-on-read",
    # Glue and Snowflake refer to a metadata file, which must not be deleted.
    "write.metadata.delete-after-commit.enabled": "false",
}
"""Properties of every table (Iceberg, Configuration: write properties)."""

CREATE_ATTEMPTS = 3
ALTER_ATTEMPTS = 5


class Catalog(CatalogSettings):
    """An Iceberg catalog."""

    spark_name: ClassVar = naming.CATALOG
    """Its name in Spark."""

    _catalog: IcebergCatalog | None = PrivateAttr(default=None)

    @property
    def backend(self) -> CatalogBackend:
        """The type of catalog.

        Raises:
            ConfigError: The type is unknown, or settings contradict it. Those of variables are known only now.
        """
        from resources.iceberg.catalog_types import backend_of

        for key, fault in self.FAULTS({name: getattr(self, name) for name in type(self).model_fields}):
            raise ConfigError(f"The catalog in lakehouse.yaml: {key}: {fault}")
        return backend_of(self.type)

    @property
    def address(self) -> str:
        """The address of the catalog without a login, for messages."""
        return self.backend.address(self)

    def iceberg(self) -> IcebergCatalog:
        """Return the catalog for pyiceberg. S3 credentials come from the environment, as in every AWS client."""
        if self._catalog is None:
            properties = self.backend.pyiceberg_properties(self) | {"warehouse": self.warehouse} | self.file_io()
            self._catalog = self.backend.load(properties)
        return self._catalog

    def for_maintenance(self) -> Catalog:
        """Return this catalog with the IAM role of maintenance."""
        return self._with_role(self.maintenance_role_arn)

    def for_readers(self) -> Catalog:
        """Return this catalog with the IAM role of readers."""
        return self._with_role(self.reader_role_arn)

    def _with_role(self, role_arn: str) -> Catalog:
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self)(**{**fields, "role_arn": role_arn}) if role_arn else self

    def file_io(self) -> dict[str, str]:
        """Return pyiceberg's file properties."""
        return self.backend.file_io(self)

    @property
    def metadata_limit(self) -> int | None:
        """The size in bytes of a metadata file beyond which the catalog refuses a table; None if unlimited."""
        return self.backend.metadata_limit(self)

    def folder(self, table: Table) -> str:
        """Return a folder that contains a table and all others of the catalog."""
        return self.backend.folder(self, table)

    def dataset(self, ref: TableRef) -> tuple[str, str]:
        """Return the namespace and name of a table in OpenLineage (https://openlineage.io/docs/spec/naming)."""
        return self.backend.dataset(self, ref)

    def spark_settings(self) -> dict[str, str]:
        """Return the settings of a Spark session that uses this catalog (Iceberg, Spark configuration: catalogs)."""
        settings = {
            **self.backend.spark_properties(self),
            **self.backend.spark_file_io(self),
            "warehouse": self.warehouse,
            # pyiceberg publishes, so a table in Spark's cache could be outdated.
            "cache-enabled": "false",
        }
        catalogs = {self.cleaning: {**settings, **self.backend.cleaning}, naming.CATALOG: settings}
        if not self.backend.issues_credentials(self):
            in_memory = {
                "type": "jdbc",
                "uri": IN_MEMORY,
                "clients": "1",
                "warehouse": self.warehouse,
                "cache-enabled": "false",
            }
            catalogs[naming.PRIVATE_CATALOG] = {**self.backend.spark_file_io(self), **in_memory}
        return {key: value for name, its in catalogs.items() for key, value in spark_catalog(name, its).items()}

    @property
    def cleaning(self) -> str:
        """Name of the Spark catalog that may delete files: for orphan removal only, never for commits."""
        return f"{naming.CATALOG}_cleaning" if self.backend.cleaning else naming.CATALOG

    def load(self, ref: TableRef) -> Table | None:
        """Return the current state of a table, or None if it does not exist.

        Raises:
            UnclearState: The table was moved to another catalog, or Glue has an object of that name that is not an
                Iceberg table.
        """
        if table := self.entry(ref):
            require_not_moved(table, self.address)
        return table

    def entry(self, ref: TableRef) -> Table | None:
        """Return what the catalog has under a name: a table, or the marker of one that was moved. None if nothing.

        Raises:
            UnclearState: Glue has an object of that name that is not an Iceberg table.
        """
        from pyiceberg.exceptions import NoSuchTableError

        with self.translate_errors():
            try:
                return self.iceberg().load_table(ref.identifier)
            except NoSuchTableError:
                return None

    def table_at(self, metadata_location: str, ref: TableRef) -> Table | None:
        """Return a table as a metadata file describes it; None if the file was deleted, as maintenance does, or if the
        table was dropped and the catalog issues no credentials for its files any more.

        Args:
            metadata_location: The file.
            ref: The name of the table in this catalog.
        """
        from pyiceberg.catalog.noop import NoopCatalog
        from pyiceberg.exceptions import NoSuchTableError
        from pyiceberg.serializers import FromInputFile
        from pyiceberg.table import StaticTable

        with self.translate_errors(), suppress(FileNotFoundError, NoSuchTableError):
            if not self.backend.issues_credentials(self):
                return StaticTable.from_metadata(metadata_location, self.file_io())
            io = self.iceberg().load_table(ref.identifier).io
            metadata = FromInputFile.table_metadata(io.new_input(metadata_location))
            return StaticTable(ref.identifier, metadata, metadata_location, io, NoopCatalog(naming.CATALOG))
        return None

    def refreshed(self, table: Table) -> Table:
        """Return the current state of a table.

        Raises:
            CommitConflict: It was dropped, or another table has its name now.
            UnclearState: It was moved to another catalog.
        """
        with self.translate_errors(), detect_conflict(table):
            current = self.iceberg().load_table(table.name())
        require_not_moved(current, self.address)
        if current.metadata.table_uuid != table.metadata.table_uuid:
            raise dropped_error(".".join(table.name()))
        return current

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Translate errors of the catalog's clients, such as connection errors to Unreachable."""
        try:
            with waiting_for("the catalog"):
                yield
        except Exception as error:
            if translated := self.backend.to_error(error, self):
                raise translated from error
            raise

    def ensure_table(
        self,
        ref: TableRef,
        schema: Schema,
        previous_names: Mapping[str, tuple[str, ...]] | None = None,
        existing: Table | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Table:
        """Create the table, or change its columns to `schema`: they are added, renamed or widened, never dropped.

        Args:
            ref: The table.
            schema: The required columns.
            previous_names: Former names of fields, by dotted path in `schema`.
            existing: The table as loaded before `schema` was read; None if it did not exist.
            properties: Table properties of a table that is created.

        Returns:
            The table with the required columns.

        Raises:
            IncompatibleSchema: A column would change incompatibly; nothing was changed.
            CommitConflict: Another writer changed the columns, perhaps to a newer schema, or keeps changing the table.
        """
        from pyiceberg.exceptions import CommitFailedException, NoSuchTableError

        table, columns = existing, existing.schema() if existing else None
        for _ in range(ALTER_ATTEMPTS):
            table = table or self.load(ref) or self._create(ref, schema, previous_names, properties or {})
            require_format(table)
            shape = Shape(schema.as_struct(), previous_names or {})
            changes = evolution.changes(table.schema(), shape, table.specs().values())
            evolution.require_accepted(changes, str(ref))
            if not any(change.ddl for change in changes):
                return table
            if columns != table.schema():
                # What this schema lacks, or names differently, may be from a newer one.
                break
            try:
                with self.translate_errors(), table.update_schema() as update:
                    evolution.apply(update, changes)
                return self.refreshed(table)
            except (CommitFailedException, NoSuchTableError):
                # Another writer committed first, perhaps the same changes.
                table = None
        raise CommitConflict(f"Another writer changed {ref}. Nothing was changed. Retry the run or command")

    def _create(
        self,
        ref: TableRef,
        schema: Schema,
        previous_names: Mapping[str, tuple[str, ...]] | None,
        properties: Mapping[str, str],
    ) -> Table:
        from pyiceberg.exceptions import TableAlreadyExistsError

        properties = {**PROPERTIES, **properties}
        properties |= {PREVIOUS_NAMES: json.dumps(previous_names)} if previous_names else {}
        properties |= self._properties_of_chain(ref) if ref.first else {}
        if len(properties.get(PREVIOUS_NAMES, "")) > MAX_PROPERTY:
            raise SchemaError(
                f"The schema of {ref} gives its fields former names (aliases) of more than "
                f"{MAX_PROPERTY:,} characters. No table was created. Remove aliases from the schema"
            )
        for attempt in range(CREATE_ATTEMPTS):
            try:
                self.ensure_namespace(ref.namespace)
                location = self.backend.new_location(self.iceberg(), ref)
                return self.iceberg().create_table(ref.identifier, schema, location, properties=properties)
            except Exception as error:
                # Another writer may have created either first; the error for this depends on the catalog.
                existing = self.load(ref)
                if existing is not None:
                    return existing
                if attempt == CREATE_ATTEMPTS - 1 and isinstance(error, TableAlreadyExistsError):
                    raise not_iceberg_error("The catalog", str(ref)) from error
                if attempt == CREATE_ATTEMPTS - 1 or isinstance(error, RequestRejected):
                    with self.translate_errors():
                        raise
        raise AssertionError("unreachable")

    def ensure_namespace(self, namespace: str) -> None:
        """Create a namespace with an identity if it does not exist. Only this requires the right to create namespaces.

        Creation is the only change of a namespace that catalogs make for one of several callers only.
        """
        from pyiceberg.exceptions import NoSuchNamespaceError

        try:
            self.iceberg().load_namespace_properties(namespace)
        except NoSuchNamespaceError:
            try:
                identity = {NAMESPACE_IDENTITY: str(uuid.uuid4())}
                self.iceberg().create_namespace_if_not_exists(namespace, identity)
            except Exception:
                # Another process may have been first, which some catalogs report by an error of their database.
                if not self.iceberg().namespace_exists(namespace):
                    raise

    def _properties_of_chain(self, ref: TableRef) -> dict[str, str]:
        """Return the properties of a new table that continues others.

        Raises:
            CommitConflict: The first of them was dropped.
        """
        first = self.load(ref.first_table)
        if first is None:
            raise dropped_error(str(ref.first_table))
        return {FIRST_TABLE: ref.first, IDENTITY: identity_of(first)}

    def apply_layout(self, table: Table, partition_by: tuple[str, ...], sort_by: tuple[str, ...]) -> None:
        """Change the table's partition spec and sort order to these, if they differ.

        Raises:
            SchemaError: A column does not exist, or does not support the transform.
            CommitConflict: Another writer changed the table.
        """
        with self.translate_errors(), detect_conflict(table):
            layout.apply_layout(table, partition_by, sort_by)

    def chain(self, first: TableRef) -> TableChain:
        """Return the tables of a topic, of which `first` is the first.

        Raises:
            UnclearState: An earlier release created a successor, which has dead letters of its own; or the last table
                names one before it.
        """
        closed: list[tuple[TableRef, Table]] = []
        ref, table = first, self.load(first)
        while table and (following := successor(first, table)):
            closed.append((ref, table))
            if following in [earlier for earlier, _ in closed]:
                raise UnclearState(
                    f"Table {ref} names {following}, which comes before it or is the same, as the one that continues "
                    f"it. Nothing was changed. If it was copied or renamed, remove its property '{SUCCESSOR}'"
                )
            ref, table = following, self.load(following)
        return TableChain((ref, table), tuple(closed))

    def require_no_successor(self, ref: TableRef) -> None:
        """Require that no table continues one that does not exist.

        Raises:
            UnclearState: One does, so the missing table was dropped, and the records of both would be ingested again.
        """
        following = ref.next_version
        while (table := self.load(following)) is not None:
            if table.properties.get(FIRST_TABLE) == (ref.first or ref.name):
                raise UnclearState(
                    f"Table {ref} does not exist, but {following}, which continues it, does. Nothing was changed. "
                    f"Restore {ref.name}, continue in the other one with `table: {following.name}`, or drop that one "
                    f"as well to ingest the records of both again"
                )
            following = following.next_version

    def append_files(self, ref: TableRef, branch: str, files: Sequence[DataFile], summary: Mapping[str, str]) -> None:
        """Add data files to a branch in one commit; see `add_files`.

        Args:
            ref: The table.
            branch: The branch, which exists.
            files: The files, which no snapshot has.
            summary: Properties for the summary of the snapshot.

        Raises:
            CommitConflict: Another writer changed or dropped the branch or the table, or changed its partitions.
        """
        from pyiceberg.exceptions import CommitFailedException

        table = self.load(ref)
        if table is None or branch not in table.metadata.refs:
            raise dropped_error(str(ref))
        # pyiceberg would add them with the partitions of the newest spec, whatever they were written for.
        if any(file.spec_id != table.metadata.default_spec_id for file in files):
            raise layout_error(str(ref))
        with detect_conflict(table), self.translate_errors():
            try:
                add_files(table, branch, files, summary)
            except ValueError as error:
                # pyiceberg checks the order of snapshots after the requirements of the commit, and without their error.
                raise CommitFailedException(str(error)) from error

    def publish(
        self,
        table: Table,
        branch: str,
        base: int | None,
        counts: Mapping[str, int] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Table:
        """Make the head of `branch` the head of main and drop the branch, in one commit.

        See `publication` for the tags and properties that change with main.

        Args:
            table: The table as loaded when the branch was audited.
            branch: The staging branch.
            base: Snapshot id of main when the batch started.
            counts: Outcome counts of the batch, which the table stores with those of its newest snapshots.
            properties: Table properties to set in the same commit.

        Raises:
            CommitConflict: Main or the branch has moved since; main is as the other writer left it.
        """
        from pyiceberg.exceptions import CommitFailedException

        name, audited = ".".join(table.name()), table.metadata.refs[branch].snapshot_id
        if counts is not None:
            properties = {COUNTS: with_counts(table, audited, counts)} | dict(properties or {})
        requirements, updates = publication(table, branch, base, properties or {})
        try:
            committed = self.iceberg().commit_table(table, requirements, updates)
        except Exception as error:
            # The commit may be applied and its response lost: only the catalog's state is conclusive.
            try:
                current = self.refreshed(table)
            except Unreachable as unreachable:
                raise unknown_outcome(name, unreachable) from error
            if any(snapshot.snapshot_id == audited for snapshot in history(current)):
                return current
            if isinstance(error, CommitFailedException):
                raise CommitConflict(
                    f"Another writer changed {name} while this batch was prepared ({error}). "
                    f"The batch was not published. Retry the run or command"
                ) from error
            with self.translate_errors():
                raise
        table.metadata, table.metadata_location = committed.metadata, committed.metadata_location
        return table

    def metadata_files(self, namespace: str) -> dict[str, str]:
        """Return the metadata file of each table in a namespace, or in more of them, by the table's full name."""
        with self.translate_errors():
            return self.backend.metadata_files(self.iceberg(), namespace)

    def drop_abandoned_tables(self, namespace: str) -> None:
        """Drop the tables of killed dry runs, with their files."""
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        with self.translate_errors(), suppress(NoSuchNamespaceError):
            for identifier in self.iceberg().list_tables(namespace):
                if naming.is_abandoned(identifier[-1], time.time()):
                    # Another maintenance may have dropped it.
                    with suppress(NoSuchTableError):
                        self.iceberg().purge_table(identifier)

    def drop_staging(self, table: Table, kept: str = "") -> Table:
        """Drop the branches of interrupted or refused batches but one; their data files become orphans.

        Raises:
            CommitConflict: Another writer changed the table.
        """
        staged = [ref for ref in table.metadata.refs if ref.startswith(STAGING_PREFIX) and ref != kept]
        return self.drop_abandoned(table, *staged)

    def drop_abandoned(self, table: Table, *branches: str) -> Table:
        """Drop these branches, and those of killed dry runs, which would keep their files from expiry forever.

        Raises:
            CommitConflict: Another writer changed the table.
        """
        abandoned = (ref for ref in table.metadata.refs if naming.is_abandoned(ref, time.time()))
        dropped = [*branches, *abandoned]
        if not dropped:
            return table
        with self.translate_errors(), detect_conflict(table), table.manage_snapshots() as manage:
            for branch in dropped:
                manage.remove_branch(branch)
        return self.refreshed(table)


IN_MEMORY = "jdbc:sqlite::memory:"
"""The catalog of tables that only a session has: a database with one connection. Iceberg's own catalog in memory keeps
files in memory as well, whatever `io-impl` is (org.apache.iceberg.inmemory.InMemoryCatalog)."""


def spark_catalog(name: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a Spark session for a catalog of this name."""
    prefix = f"spark.sql.catalog.{name}"
    return {prefix: "org.apache.iceberg.spark.SparkCatalog"} | {f"{prefix}.{k}": v for k, v in settings.items()}


def published_table(catalog: Catalog, ref: TableRef) -> Table:
    """Return a table that has a published snapshot."""
    return TableChain((ref, catalog.load(ref))).require_published()[1]
