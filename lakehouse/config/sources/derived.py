"""A published table as a source."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from lakehouse.config.sources.declarations import Declarations, TopicSettings
from lakehouse.config.sources.source import Fault, Source, file_faults
from lakehouse.core.text.phrases import did_you_mean
from lakehouse.formats.avro.avro_format import AvroFormat


class Derived(Source):
    """Records that Spark computes from the published table of another topic."""

    type: Literal["derived"]
    producer = "lakehouse.pipeline.derivation:derive"
    writes = True
    from_topic: str = Field(alias="from", description="The declared topic whose table is read.")
    transform: str = Field(
        pattern=r"^[\w.]+:\w+$", description="`module:function`: a function that takes and returns a DataFrame."
    )
    group_by: tuple[str, ...] = Field(
        (),
        description="Columns of the source table. `transform` gets all rows of every group that has new rows. "
        "Default: `transform` gets only the new rows, each once.",
    )
    key_schema_file: str = Field(
        "", description="Avro schema of the message key, relative to lakehouse.yaml. Default: derived from the rows."
    )
    value_schema_file: str = Field(
        "", description="Avro schema of the message value, relative to lakehouse.yaml. Default: derived from the rows."
    )

    @property
    def upstream(self) -> str:
        """The name of the topic whose table is read."""
        return self.from_topic

    @property
    def schema_files(self) -> tuple[str, ...]:
        """The schemas of value and key; empty if the value's columns follow from the rows."""
        files = (self.value_schema_file, self.key_schema_file)
        return tuple(filter(None, files)) if self.value_schema_file else ()

    def faults(self, config: Declarations, topic: TopicSettings) -> Iterator[Fault]:
        """Yield problems of the source table, of the schema files and of the key's settings."""
        source = config.topics.get(self.from_topic)
        if source and source.engine == "tableflow" and topic.continuous:
            problem = f"Tableflow writes the table of '{self.from_topic}', whose snapshots no stream observes"
            yield ("continuous",), f"{problem}. Remove 'continuous', or use 'engine: spark' there"
        for field, file, key in (
            ("key_schema_file", self.key_schema_file, topic.key),
            ("value_schema_file", self.value_schema_file, ()),
        ):
            if file:
                yield from file_faults(config, ("source", field), file, key)
        if source is None:
            hint = did_you_mean(self.from_topic, config.topics)
            problem = f"'{self.from_topic}' is not a topic declared in this file.{hint}"
            yield ("source", "from"), f"{problem} Correct the name, or declare the topic"
        elif source.mode != "append":
            problem = f"the table of '{self.from_topic}' has 'mode: {source.mode}', but its rows must never change"
            yield ("source", "from"), f"{problem}. Derive from a topic with 'mode: append'"
        elif source.deletes_rows:
            problem = f"the table of '{self.from_topic}' has 'retention.rows', which deletes rows before they are"
            yield ("source", "from"), f"{problem} derived, and from groups. Remove 'retention.rows' there"
        if self.group_by and (topic.mode != "upsert" or topic.key_format != AvroFormat.name):
            yield (), "'group_by' replaces the row of each group. Set 'mode: upsert' and 'key_format: avro'"
        if topic.key_format not in (None, AvroFormat.name):
            yield ("key_format",), "derived messages have Avro keys or none. Set 'key_format: avro' or remove it"
