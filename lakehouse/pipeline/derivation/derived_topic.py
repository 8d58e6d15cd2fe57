"""A derived topic, its bookmark, and its messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pyarrow as pa

from lakehouse.config.model import Config, Topic
from lakehouse.config.sources import Derived
from lakehouse.core.errors import LakehouseError, UnclearState
from lakehouse.core.offsets.bookmark import Bookmark
from lakehouse.pipeline.bookmark_owners import require_own
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.derivation.derivation_settings import DerivationSettings
from lakehouse.pipeline.derivation.transforms import transform_errors
from lakehouse.pipeline.engine import DerivedRows
from lakehouse.pipeline.table_location import catalog_of, table_of
from resources.iceberg.table_chain import TableChain
from resources.kafka import bookmark_topic
from resources.kafka.bookmark_topic import derived_bookmark_name
from resources.kafka.transactions import Outgoing
from resources.protocols import KafkaClient


@dataclass(frozen=True)
class DerivedTopic:
    """A derived topic as it was when a derivation began."""

    config: Config
    topic: Topic
    clients: Clients
    id: str
    """Its id, read once: if the topic is recreated meanwhile, nothing is produced to the new one."""

    @property
    def derived(self) -> Derived:
        """The settings of the derivation."""
        assert isinstance(self.topic.source, Derived)
        return self.topic.source

    @property
    def source(self) -> Topic:
        """The topic that it is derived from."""
        return self.config.topic(self.derived.from_topic)

    def chain(self) -> TableChain:
        """Return the tables of its source as they are now."""
        source, clients = self.source, self.clients
        return catalog_of(source, clients).chain(table_of(self.config, source, clients))

    def has_rows(self, chain: TableChain) -> bool:
        """Return whether rows may have been published in the tables of its source.

        Raises:
            UnclearState: A table has rows, and its position is unknown.
        """
        return bool(chain.published and (not self.source.is_ingested or chain.last_batch))

    @property
    def remedy(self) -> str:
        """The command with which an operator decides which rows are derived, if that is unknown."""
        position = "earliest" if self.derived.group_by else "POSITION"
        return (
            f"Set the position to resume from with `lakehouse bookmark {self.topic.name} --at {position} --reason …`, "
            f"or delete topic '{self.topic.topic}' and its table to derive everything again"
        )

    def require_own(self, chain: TableChain, *, settled: bool = False) -> Bookmark | None:
        """Return the newest bookmark of its name, which may be of a topic that it replaced; None if there is none.

        Args:
            chain: The tables of its source.
            settled: Wait for transactions that are open now.

        Raises:
            IncompatibleSettings: It has messages that were derived with other settings.
            UnclearState: It has messages of another table.
        """
        bookmark = bookmark_topic.read(self.clients.kafka, derived_bookmark_name(self.topic), settled=settled)
        if bookmark:
            require_own(bookmark, self.topic, self.topic.topic, self.id, chain)
        return bookmark

    def read_bookmark(self, chain: TableChain) -> Bookmark | None:
        """Return its newest bookmark; None if it has no messages. No other process may produce to it.

        Args:
            chain: The tables of its source.

        Raises:
            IncompatibleSettings: It has messages that were derived with other settings.
            UnclearState: It has messages of another table, or no bookmark is of its messages.
        """
        bookmark = self.require_own(chain, settled=True)
        if bookmark and bookmark.target_id == self.id:
            return bookmark
        if _has_messages(self.clients.kafka, self.topic.topic):
            known = "its bookmark is of the topic that it replaced" if bookmark else "it has no bookmark"
            raise UnclearState(
                f"Topic '{self.topic.topic}' has messages, but {known}, so it is unknown which rows of "
                f"'{self.source.name}' they were derived from. Nothing was produced. {self.remedy}"
            )
        return None

    def bookmark_message(self, bookmark: Bookmark) -> Outgoing:
        """Return the message that sets its bookmark, with its settings."""
        recorded = replace(bookmark, settings=DerivationSettings.of(self.topic).values())
        return bookmark_topic.message(self.clients.kafka, derived_bookmark_name(self.topic), recorded)

    def encode(self, derived: DerivedRows) -> pa.Table:
        """Return the keys and values of the messages of a transform's result, after their schemas are registered."""
        with transform_errors(self.config, self.topic):
            value = self._registered("value", self.derived.value_schema_file, derived)
            keyed = DerivationSettings.of(self.topic).key
            key = self._registered("key", self.derived.key_schema_file, derived, keyed) if keyed else None
            return derived.messages(key, value)

    def _registered(
        self, side: Literal["key", "value"], file: str, derived: DerivedRows, columns: Sequence[str] | None = None
    ) -> tuple[int, str]:
        """Return the id and the text of the schema of a key or value: the file's, or one derived from the rows."""
        schema = self.config.text(file) if file else derived.avro_schema(f"{self.topic.name}_{side}", columns)
        return self.clients.schema_registry.register(self.topic.subject(side), schema), schema

    def messages(self, encoded: pa.Table, limit: int) -> Iterator[Outgoing]:
        """Yield the messages; one record batch at a time exists as Python objects.

        Args:
            encoded: Their keys and values.
            limit: The maximum bytes of a message in the topic.

        Raises:
            LakehouseError: A message exceeds the limit.
        """
        for batch in encoded.to_batches():
            for key, value in zip(*(batch.column(name).to_pylist() for name in ("key", "value")), strict=True):
                message = Outgoing(self.topic.topic, key, value)
                if message.size > limit:
                    raise LakehouseError(
                        f"A message of '{self.topic.name}' has {message.size:,} bytes, but topic '{self.topic.topic}' "
                        f"accepts at most {limit:,} (max.message.bytes). Its transaction was aborted. Raise that "
                        f"setting with kafka-configs, or return smaller rows from the transform"
                    )
                yield message


def _has_messages(kafka: KafkaClient, topic: str) -> bool:
    """Return whether a topic has committed messages now or had some before retention deleted them."""
    return any(
        offsets.start > 0 or any(True for _ in kafka.messages(topic, partition, offsets.start, offsets.end))
        for partition, offsets in kafka.offsets([topic])[topic].items()
    )
