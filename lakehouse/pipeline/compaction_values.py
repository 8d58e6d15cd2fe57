"""Compaction as an engine is asked for it, and its result."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class DataFiles:
    """The data files to rewrite to a target size: small ones, and those that have rows which a delete file hides."""

    target_bytes: int
    small_bytes: int
    """The size below which a data file is rewritten."""
    applies_deletes: bool = True
    """Whether data files of any size are rewritten without their deleted rows."""


Compactable = DataFiles | Literal["delete files", "manifests"]
"""Files that are rewritten into fewer ones: data files, position delete files, or manifests."""


@dataclass(frozen=True)
class Rewritten:
    """Result of a compaction."""

    before: int
    """The number of files that were rewritten."""
    after: int
    """The number of files that replace them."""
