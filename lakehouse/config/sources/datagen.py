"""Topics of synthetic records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from lakehouse.config.sources.source import Fault, Source, file_faults
from lakehouse.formats.primitive import StringFormat

if TYPE_CHECKING:
    from lakehouse.config.loader import Config
    from lakehouse.config.topic import Topic


class Datagen(Source):
    """A source of synthetic records, as Confluent's Datagen connector makes them."""

    type: Literal["datagen"]
    producer = "lakehouse.pipeline.generated:register"
    schema_file: str = Field(
        description="Avro schema with the generator's hints (`arg.properties`), relative to lakehouse.yaml."
    )
    records_per_second: float = Field(50, gt=0, description="Rate after the initial records, in records a second.")
    initial_records: int = Field(0, ge=0, description="Records the topic holds before the steady rate begins.")

    @property
    def schema_files(self) -> tuple[str, ...]:
        """The generator's schema."""
        return (self.schema_file,)

    def faults(self, config: Config, topic: Topic) -> Iterator[Fault]:
        """Yield a key that the generator does not write, and what is wrong with the schema."""
        has_key = len(topic.key) == 1 and topic.key_format in (None, StringFormat.name)
        if not has_key:
            yield ("source",), "datagen writes one string key. Add 'key: <one column>'"
        yield from file_faults(config, ("source", "schema_file"), self.schema_file, topic.key if has_key else ())
