"""The protocol of a source: how records come into a topic."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, ClassVar

from lakehouse.config.base import Model
from lakehouse.config.yaml_locations import Location
from lakehouse.core.errors import SchemaError
from lakehouse.core.words import did_you_mean
from lakehouse.formats import avro

if TYPE_CHECKING:
    from lakehouse.config.loader import Config
    from lakehouse.config.topic import Topic

Fault = tuple[Location, str]
"""Where in a topic's entry something is wrong, and what."""


class Source(Model):
    """How records come into a topic; a subclass has its name as `type: Literal[…]`."""

    is_external: ClassVar[bool] = False
    """Whether somebody else creates the topic, so that it is read and never changed."""

    writes: ClassVar[bool] = False
    """Whether `producer` writes records, and so needs the right to, and stops where the topic is paused."""

    producer: ClassVar[str] = ""
    """`module:function` of what is called with the configuration, the topic and the clients whenever the asset of the
    topic is materialized, once the topic exists. It is named, not imported: loading definitions needs none of it. It
    returns lakehouse.pipeline.derivation.Produced, or None."""

    @property
    def upstream(self) -> str:
        """The declared topic from whose table this one is computed; empty where there is none."""
        return ""

    @property
    def schema_files(self) -> tuple[str, ...]:
        """The Avro schemas that have all columns of the topic, relative to lakehouse.yaml; none where they are not
        known from files."""
        return ()

    def faults(self, config: Config, topic: Topic) -> Iterator[Fault]:
        """Yield what is wrong with the settings of a topic of this source.

        Args:
            config: The configuration, whose files may be read.
            topic: The topic.
        """
        yield from ()


def file_faults(config: Config, at: Location, file: str, key: Collection[str] = ()) -> Iterator[Fault]:
    """Yield what is wrong with an Avro schema that is named at a place: it must be a record with a key's columns."""
    if not (config.root / file).is_file():
        yield at, f"file '{file}' does not exist in {config.root}. Correct the path"
        return
    try:
        fields = avro.field_names(config.text(file))
    except (ValueError, SchemaError) as error:
        yield at, f"'{file}' is not an Avro record schema: {error}. Correct the file"
        return
    for column in key:
        if column not in fields:
            yield at, f"'{file}' has no field '{column}', which 'key' names.{did_you_mean(column, fields)}"
