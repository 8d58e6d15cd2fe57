"""The protocol of a reader: a system that exposes published tables to those who query them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from lakehouse.config.topic import Topic
from lakehouse.core.errors import LakehouseError

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from lakehouse.readers.truth import Answer


@dataclass(frozen=True)
class Registration:
    """The state of a table that a reader exposes.

    Attributes:
        metadata_location: The location of the table's metadata file.
        snapshot_id: The current snapshot in that file; None where it has none.
        rows: The number of rows that the reader counts; None where it was not asked to count.
    """

    metadata_location: str
    snapshot_id: int | None
    rows: int | None = None


Publish = Callable[[Topic, "Table"], Registration]
"""Expose a table, as it was loaded, of the topic whose records go to it."""


class Reader(ABC):
    """A system that exposes published tables.

    Implement it in a module of `lakehouse.readers` and add it to READERS. A separate distribution names the class as an
    entry point of the group `lakehouse.readers`, and the class of its Dagster resource as one of the group
    `lakehouse.resources`, by the resource's key. Everything else follows: the asset of each topic with its checks,
    freshness, `lakehouse status`, publication by streams, lineage.

    Every method takes `clients`, which has the Dagster resources of an environment as attributes, by their keys: at
    least `catalog` and the reader's own.

    Attributes:
        name: The first part of its assets' keys.
        label: How people call it.
        resource: The key of its Dagster resource, which is also the system's key in lakehouse.yaml.
        upstream: The first part of the key of the asset that it follows: `iceberg`, or the name of another reader.
        is_optional: Whether it is used only in environments that configure its resource.
        kinds: Tags of its assets that Dagster shows as icons.
        description: What its asset is, as a sentence.
        check: The name of the check that compares it with the published table.
        check_description: What that check proves, as a sentence.
        is_blocking: Whether assets downstream wait while the check fails.
        engine: The engine that answers queries through the reader, as people call it.
        min_interval_seconds: The time between two publications of one table by a stream, for readers that charge for
            each.
    """

    name: ClassVar[str]
    label: ClassVar[str]
    resource: ClassVar[str]
    upstream: ClassVar[str] = "iceberg"
    is_optional: ClassVar[bool] = True
    kinds: ClassVar[frozenset[str]] = frozenset({"iceberg"})
    description: ClassVar[str]
    check: ClassVar[str] = "points_at_published_snapshot"
    check_description: ClassVar[str]
    is_blocking: ClassVar[bool] = True
    engine: ClassVar[str]
    min_interval_seconds: ClassVar[float] = 0.0

    @abstractmethod
    def publish(self, namespace: str, topic: Topic, table: Table, clients: Any) -> Registration:
        """Expose a table as it was loaded, unless the reader exposes that state or a later one already.

        Args:
            namespace: The namespace of the table.
            topic: The topic whose records go to the table.
            table: The table as loaded. Another process may have published since.
            clients: See the class.

        Raises:
            CommitConflict: Another process changed the reader's state at the same time.
            UnclearState: The reader exposes what this table never was.
            LakehouseError: The reader refuses.
            Unreachable: The reader does not answer.
        """

    @abstractmethod
    def current(self, namespace: str, topic: Topic, clients: Any) -> Registration | None:
        """Return what the reader exposes, without rows; None where it has no such table.

        It is called every minute for each topic, and so must not cost compute.

        Raises:
            LakehouseError: The reader refuses.
            Unreachable: The reader does not answer.
        """

    @abstractmethod
    def dataset(self, namespace: str, topic: Topic, clients: Any) -> tuple[str, str]:
        """Return the table's namespace and name in OpenLineage (https://openlineage.io/docs/spec/naming)."""

    def counted(self, namespace: str, topic: Topic, clients: Any) -> Registration | None:
        """Return what `current` does, with the number of rows where the reader can count them."""
        return self.current(namespace, topic, clients)

    def table_name(self, namespace: str, table: str) -> str:
        """Return the name of a table as one queries it in this system."""
        return f"{namespace}.{table}"

    @contextmanager
    def session(self, namespace: str, clients: Any) -> Iterator[Publish]:
        """Publish many tables, for as long as the context is open; an error of one of them ends it."""
        yield lambda topic, table: self.publish(namespace, topic, table, clients)

    def answer(self, namespace: str, topic: Topic, clients: Any) -> Answer:
        """Count and sum the rows of the table as this system exposes them (see lakehouse.readers.truth).

        Raises:
            LakehouseError: There is no such table.
        """
        from lakehouse.readers.metadata_file import answer

        return answer(self.engine, namespace, topic, self.require(namespace, topic, clients).metadata_location, clients)

    def require(self, namespace: str, topic: Topic, clients: Any, *, count: bool = False) -> Registration:
        """Return what the reader exposes.

        Raises:
            LakehouseError: It has no such table.
        """
        found = (self.counted if count else self.current)(namespace, topic, clients)
        if found is None:
            name = self.table_name(namespace, topic.table)
            raise LakehouseError(f"{self.label} has no table {name}. Materialize {self.name}/{topic.name}")
        return found
