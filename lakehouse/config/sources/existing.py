"""Topics of other owners as a source."""

from typing import Literal

from lakehouse.config.sources.source import Source


class Existing(Source):
    """A topic that others create and produce to. It is only read, never changed."""

    type: Literal["existing"] = "existing"
    is_external = True
