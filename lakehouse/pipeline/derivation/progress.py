"""The progress of a derivation in one table: what a bookmark covers, what is pending, and the parts to produce."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from lakehouse.core.offsets.batch import Batch
from lakehouse.core.offsets.bookmark import Bookmark
from lakehouse.pipeline.engine_values import Rows
from resources.kafka.transactions import Outgoing


@dataclass(frozen=True)
class Progress:
    """The rows of a table that were derived."""

    bookmark: Bookmark | None
    """The bookmark up to which they were; None if all rows are derived, as if none had been."""
    rest: Batch
    """The offsets from the bookmark to the end of the table, which may be behind the bookmark after a rollback."""
    reached: Bookmark
    """The bookmark at the table's current snapshot, with the same offsets."""
    may_have_late_rows: bool
    """Whether rows behind the bookmark may have been added to the table since."""

    @property
    def is_complete(self) -> bool:
        """True if nothing is new, or nothing is derived until a table that was rolled back has caught up."""
        if self.bookmark is None:
            return False
        is_at_end = self.bookmark.offsets == self.rest.end and not self.may_have_late_rows
        return self.bookmark.is_past(self.rest.end) or is_at_end


@dataclass(frozen=True)
class Pending:
    """The rows that a derivation produces."""

    progress: Progress
    late: Sequence[Rows]
    """Rows that are derived besides those of the rest of the offsets."""
    reached: Bookmark
    """The bookmark after the late rows."""


@dataclass(frozen=True)
class Part:
    """Messages that are produced together, with the bookmark after them."""

    messages: pa.Table
    """Their keys and values."""
    reached: Bookmark
    """The bookmark that covers them."""
    begun: Bookmark | None = None
    """The bookmark before them; None to leave it as it is."""


class Strategy(Protocol):
    """The kind of result that a transform derives: messages of single rows, or of groups."""

    def bookmark(self, newest: Batch) -> Bookmark | None:
        """Return the bookmark from which the topic resumes; None if it must be derived from all rows.

        Args:
            newest: The batch with the newest rows of the table.

        Raises:
            UnclearState: The rows that were already derived are unknown, or are not rows of the current table.
        """

    def pending(self, progress: Progress) -> Pending:
        """Return the rows to derive.

        Raises:
            UnclearState: The rows that were already derived, or added late, are unknown.
        """

    def parts(self, pending: Pending) -> Iterator[Part]:
        """Yield the messages of the pending rows in parts.

        Raises:
            UnclearState: The rows of a group cannot be computed together.
        """

    def transactions(self, messages: Iterable[Outgoing]) -> Iterable[Iterable[Outgoing]]:
        """Divide the messages of a part, with its bookmarks, into transactions."""
