"""Topics of others."""

from __future__ import annotations

from typing import Literal

from lakehouse.config.sources.source import Source


class Existing(Source):
    """A topic that somebody else creates and fills: it is read, never changed."""

    type: Literal["existing"] = "existing"
    is_external = True
