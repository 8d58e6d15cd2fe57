"""Sources of records, one module per type.

To add one, write a module with a subclass of Source and add it to SOURCES. A separate distribution names its class as
an entry point of the group `lakehouse.sources`.
"""

from collections.abc import Mapping, Sequence
from functools import cache

from lakehouse.config.base import type_of
from lakehouse.config.sources.datagen import Datagen
from lakehouse.config.sources.derived import Derived
from lakehouse.config.sources.existing import Existing
from lakehouse.config.sources.source import Source
from lakehouse.core.registry import implementations

SOURCES: Sequence[type[Source]] = (Datagen, Derived, Existing)
"""The sources of this project."""


@cache
def registered() -> Mapping[str, type[Source]]:
    """Return all sources by type, those of installed distributions included.

    Raises:
        ConfigError: Two sources have the same type.
    """
    return implementations(SOURCES, "lakehouse.sources", type_of)
