"""Protocols of the resources: what callers use of them, so that other implementations can replace them.

The simulation implements the clients in memory. `Catalog` has no protocol: it is this project's own code on pyiceberg's
interface of catalogs, which is where another catalog takes its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, TypeVar

from lakehouse.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from datetime import timedelta

    from confluent_kafka import Consumer, Producer
    from pyiceberg.table import Table
    from pyspark.sql import SparkSession

    from lakehouse.core.errors import LakehouseError
    from lakehouse.core.tables.naming import TableRef
    from lakehouse.formats.schema import RegisteredSchema
    from resources.iceberg.catalog import Catalog
    from resources.iceberg.table_chain import TableChain
    from resources.kafka.kafka import Offsets, TopicDescription
    from resources.kafka.messages import Headers, Received


class KafkaClient(Protocol):
    """A Kafka cluster. `resources.kafka.kafka.Kafka` documents arguments and errors."""

    @property
    def servers(self) -> str:
        """Addresses of the brokers."""

    def cluster_id(self) -> str:
        """Return the cluster's id."""

    def describe(self, topics: Sequence[str]) -> dict[str, TopicDescription]:
        """Return the descriptions of those of the topics that exist."""

    def offsets(self, topics: Sequence[str], *, committed: bool = True) -> dict[str, dict[int, Offsets]]:
        """Return the offsets of each partition of each topic."""

    def offsets_at(self, topic: str, timestamp_ms: int) -> dict[int, int]:
        """Return the first offset by partition at or after a time, or the partition's end."""

    def oldest_timestamp(
        self, topic: str, positions: Mapping[int, int], ends: Mapping[int, int]
    ) -> dict[int, int | None]:
        """Return the timestamp of the first record at or after each position."""

    def missing_topic_error(self, topic: str) -> LakehouseError:
        """Return the error for a topic that does not exist."""

    def spark_options(self) -> dict[str, str]:
        """Return the connection settings of Spark's Kafka source."""

    def native_login(self) -> str:
        """Return the login of the compiled decoder as JSON text with secrets."""

    def ensure_topic(
        self,
        topic: str,
        partitions: int,
        retention: timedelta | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        min_partitions: int | None = None,
    ) -> None:
        """Create the topic if it does not exist."""

    def topic_setting(self, topic: str, name: str) -> str | None:
        """Return a setting of a topic."""

    def messages(self, topic: str, partition: int, start: int, end: int) -> Iterator[Received]:
        """Yield the committed messages of a range."""

    def wait_for_records(
        self, ends: Mapping[str, Mapping[int, int]], seconds: float, is_over: Callable[[], bool]
    ) -> bool:
        """Return whether a partition has a committed record at or after its end, after waiting for one."""

    def producer(self, **config: str | int) -> Producer:
        """Return a producer."""

    def enqueue(
        self, producer: Producer, topic: str, key: bytes | None, value: bytes | None, headers: Headers, partition: int
    ) -> None:
        """Add a message to the producer's queue."""

    def consumer(self, group: str, *, settings: Mapping[str, str | int]) -> Consumer:
        """Return a consumer for a group."""

    def renew_login(self, client: Consumer) -> None:
        """Give a client the login that is valid now."""

    def translate_errors(self) -> AbstractContextManager[None]:
        """Translate the errors of producers and consumers."""


class RegistryClient(Protocol):
    """A schema registry. `resources.schema_registry.SchemaRegistry` documents arguments and errors."""

    def versions(self, subject: str) -> list[RegisteredSchema]:
        """Return all schemas registered under a subject, oldest first."""

    def by_id(self, id_: int, deadline: float = ...) -> RegisteredSchema | None:
        """Return the schema with an id."""

    def id_of(self, guid: str, deadline: float = ...) -> int | None:
        """Return the id of the schema with a GUID."""

    def subjects(self, id_: int) -> frozenset[str]:
        """Return the subjects of a schema."""

    def not_found(self) -> frozenset[int]:
        """Return the ids that recently had no schema."""

    def register(self, subject: str, schema: str) -> int:
        """Register an Avro schema under a subject, and return its id."""


class SparkClient(Protocol):
    """A Spark server. `resources.spark.spark.Spark` documents arguments and errors."""

    engine: ClassVar[str]
    """The engine on this server: `module:function` that returns a lakehouse.pipeline.engine.EngineClient for it. It is
    not imported here, because PySpark takes seconds to load."""
    native: Literal["auto", "off", "require"]
    """Whether executors use the compiled decoder."""

    def on_progress(self, report: Callable[[str], None]) -> None:
        """Report the progress of long operations of the next session."""

    def session(self, settings: Mapping[str, str]) -> SparkSession:
        """Return the session with these settings applied."""

    def with_own_session(self) -> SparkClient:
        """Return a client with its own session, for another thread."""

    def close(self) -> None:
        """End the session."""


class ReadableCatalog(Protocol):
    """A catalog whose tables are read."""

    spark_name: ClassVar[str]
    """Its name in Spark."""

    def load(self, ref: TableRef) -> Table | None:
        """Return the current state of a table, or None if it does not exist."""

    def chain(self, first: TableRef) -> TableChain:
        """Return the tables of a topic, of which `first` is the first."""

    def spark_settings(self) -> dict[str, str]:
        """Return the settings of a Spark session that reads the catalog."""


Resource = TypeVar("Resource")


class Resources(Protocol):
    """The resources that an asset, check, sensor or command requires, such as Dagster's `context.resources`.

    Those of the pipeline are declared here. `resource_of` returns any other by its key.
    """

    @property
    def kafka(self) -> KafkaClient:
        """The Kafka cluster."""

    @property
    def schema_registry(self) -> RegistryClient:
        """The schema registry."""

    @property
    def spark(self) -> SparkClient:
        """The Spark server."""

    @property
    def catalog(self) -> Catalog:
        """The Iceberg catalog."""


def resource_of(resources: object, key: str, type_: type[Resource]) -> Resource:
    """Return the resource with a key, which is of a class.

    Raises:
        ConfigError: The environment has no such system.
        TypeError: It is of another class.
    """
    if (resource := find_resource(resources, key, type_)) is None:
        fields = getattr(type_, "model_fields", {})
        required = ", ".join(name for name, field in fields.items() if field.is_required())
        raise ConfigError(
            f"The environment has no `{key}`. Nothing was changed. Add it to the environment in lakehouse.yaml "
            f"(required keys: {required}), or set LAKEHOUSE_ENV to an environment that has it"
        )
    return resource


def find_resource(resources: object, key: str, type_: type[Resource]) -> Resource | None:
    """Return the resource with a key, which is of a class; None if the environment has none.

    Raises:
        TypeError: It is of another class.
    """
    resource = getattr(resources, key, None)
    if resource is not None and not isinstance(resource, type_):
        raise TypeError(f"resource '{key}' is a {type(resource).__qualname__}, not a {type_.__qualname__}")
    return resource
