"""The protocol of a source of records."""

from collections.abc import Collection, Iterator
from typing import ClassVar

from lakehouse.config.base import ConfigModel
from lakehouse.config.sources.declarations import Declarations, TopicSettings
from lakehouse.config.yaml_locations import Location
from lakehouse.core.errors import SchemaError
from lakehouse.core.text.phrases import did_you_mean
from lakehouse.formats.avro import avro_format

Fault = tuple[Location, str]
"""A location in a topic's entry, and the problem there."""


class Source(ConfigModel):
    """A source of the records of a topic. A subclass declares its name as `type: Literal[…]`."""

    is_external: ClassVar[bool] = False
    """True if others create the topic, so that it is only read and never changed."""

    writes: ClassVar[bool] = False
    """True if `producer` writes records, which requires write access and stops while the topic is paused."""

    producer: ClassVar[str] = ""
    """The function that is called when the topic's asset is materialized, after the topic exists: `module:function`.

    Its arguments are the configuration, the topic and the clients; it returns lakehouse.pipeline.derivation.Produced or
    None. It is a name and not an import, so that loading the definitions does not load its dependencies.
    """

    @property
    def upstream(self) -> str:
        """The declared topic from whose table this topic is computed; empty if there is none."""
        return ""

    @property
    def schema_files(self) -> tuple[str, ...]:
        """The Avro schemas that together have all columns of the topic, relative to lakehouse.yaml.

        Empty if the columns are not known from files.
        """
        return ()

    def connector(self, entry: str) -> str:
        """Return the name of the managed connector in Confluent Cloud that fills the topic of an entry, or ''."""
        return ""

    def faults(self, config: Declarations, topic: TopicSettings) -> Iterator[Fault]:
        """Yield problems of the settings of a topic with this source.

        Args:
            config: The configuration, whose files may be read.
            topic: The topic.
        """
        yield from ()


def is_file(config: Declarations, file: str) -> bool:
    """Return whether a file exists in the folder of the configuration; a schema in place of its path is none."""
    try:
        return (config.root / file).is_file()
    except OSError:
        return False


def file_faults(config: Declarations, at: Location, file: str, key: Collection[str] = ()) -> Iterator[Fault]:
    """Yield problems of an Avro schema file: it must be a record that has the columns of the key.

    Args:
        config: The configuration, whose folder contains the file.
        at: The location of the file name in the topic's entry.
        file: The path relative to lakehouse.yaml.
        key: The columns of the key.
    """
    if not is_file(config, file):
        yield at, f"file '{file}' does not exist in {config.root}. Correct the path"
        return
    try:
        fields = avro_format.field_names(config.text(file))
    except (ValueError, SchemaError) as error:
        yield at, f"'{file}' is not an Avro record schema: {error}. Correct the file"
        return
    for column in key:
        if column not in fields:
            yield at, f"'{file}' has no field '{column}', which is part of 'key'.{did_you_mean(column, fields)}"
