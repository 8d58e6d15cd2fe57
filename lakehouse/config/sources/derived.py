"""Topics that are computed from tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from lakehouse.config.sources.source import Fault, Source, file_faults
from lakehouse.core.words import did_you_mean
from lakehouse.formats.avro import AvroFormat

if TYPE_CHECKING:
    from lakehouse.config.loader import Config
    from lakehouse.config.topic import Topic


class Derived(Source):
    """A topic that Spark computes from another topic's published table."""

    type: Literal["derived"]
    producer = "lakehouse.pipeline.derivation:derive"
    writes = True
    from_topic: str = Field(alias="from", description="The declared topic whose table is read.")
    transform: str = Field(
        pattern=r"^[\w.]+:\w+$", description="`module:function`, a plain function DataFrame → DataFrame."
    )
    group_by: tuple[str, ...] = Field(
        (),
        description="Columns of the source table. All rows of each group that new rows touch are given to `transform`. "
        "Without, only the new rows are, each once.",
    )
    key_schema_file: str = Field(
        "", description="Avro schema of the message key, relative to lakehouse.yaml. Without, it is made from the rows."
    )
    value_schema_file: str = Field(
        "", description="Avro schema of the message value, likewise. Without, it is made from the rows."
    )

    @property
    def upstream(self) -> str:
        """The topic whose table is read."""
        return self.from_topic

    @property
    def schema_files(self) -> tuple[str, ...]:
        """The schemas of value and key; a value without one has its columns from the rows."""
        files = (self.value_schema_file, self.key_schema_file)
        return tuple(filter(None, files)) if self.value_schema_file else ()

    def faults(self, config: Config, topic: Topic) -> Iterator[Fault]:
        """Yield a table that cannot be read, schemas that are none, and settings that no message fits."""
        read = config.topics.get(self.from_topic)
        if read and read.engine == "tableflow":
            problem = f"'{self.from_topic}' is made a table by Tableflow; Spark derives from its own. Change one"
            yield ("source", "from"), problem
        for field, file, key in (
            ("key_schema_file", self.key_schema_file, topic.key),
            ("value_schema_file", self.value_schema_file, ()),
        ):
            if file:
                yield from file_faults(config, ("source", field), file, key)
        if read is None:
            hint = did_you_mean(self.from_topic, config.topics)
            yield ("source", "from"), f"'{self.from_topic}' is not a topic declared in this file.{hint}"
        elif read.mode != "append":
            yield ("source", "from"), f"'{self.from_topic}' is not an append table. Derive from one that is"
        if self.group_by and (topic.mode != "upsert" or topic.key_format != AvroFormat.name):
            yield (), "a group replaces its row. Set 'mode: upsert' and 'key_format: avro'"
        if topic.key_format not in (None, AvroFormat.name):
            yield ("key_format",), "derived messages have Avro keys or none. Write avro"
