"""The parts of lakehouse.yaml that sources read to validate their settings."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol


class TopicSettings(Protocol):
    """Settings of a topic, implemented by `topic.Topic`."""

    @property
    def engine(self) -> str:
        """The writer of the table."""

    @property
    def mode(self) -> str:
        """The way in which records become rows."""

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row."""

    @property
    def key_format(self) -> str | None:
        """The declared format of the message key."""

    @property
    def effective_key_format(self) -> str | None:
        """The format with which the message key is decoded."""

    @property
    def deletes_rows(self) -> bool:
        """True if rows are deleted at some age."""

    @property
    def continuous(self) -> bool:
        """True if a stream ingests the topic."""


class Declarations(Protocol):
    """The configuration, implemented by `loader.Config`."""

    @property
    def topics(self) -> Mapping[str, TopicSettings]:
        """The declared topics by name."""

    @property
    def root(self) -> Path:
        """The folder of lakehouse.yaml."""

    def text(self, file: str) -> str:
        """Return the content of a file that the configuration names."""
