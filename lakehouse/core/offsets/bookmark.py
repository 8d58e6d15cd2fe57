"""Bookmarks: the position up to which a derived topic, or a topic of dead letters, was produced from its source."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from lakehouse.core.errors import NewerFormat
from lakehouse.core.offsets.batch import Batch, Positions

VERSION = 4
"""Version of the format. Bookmarks before version 3, which had no identity, have other names and are never read."""


@dataclass(frozen=True)
class Bookmark:
    """A position in a source, committed in one transaction with the messages produced from the records before it."""

    cluster_id: str
    """Cluster of the source topic."""
    topic_id: str
    """Id of the source topic; offsets are only valid for it."""
    target_id: str
    """Id of the topic that contains the messages; a recreated one has none of them."""
    identity: str
    """Identity of the source's table: the UUID of the first one of its tables."""
    table: str
    """Name of the source's table when the bookmark was written; only messages name it."""
    entry: str
    """The entry of lakehouse.yaml that produced the messages."""
    table_uuid: str
    """The source's table."""
    snapshot_id: int
    """The snapshot that was read."""
    replays: int
    """Number of replays up to that snapshot; each may have added rows behind the position."""
    offsets: Positions
    """Next offset to read, by partition."""
    reason: str = ""
    """Why an operator set the position; empty if it was computed."""
    further: Mapping[int, Positions] = field(default_factory=dict)
    """Other snapshots of which rows were derived, with the offsets before which they were: those from which the
    table was rolled back and whose rows it lacks, and that of late rows of which only a part was derived."""
    settings: Mapping[str, str | Sequence[str] | None] = field(default_factory=dict)
    """Settings that decide what derived messages mean; empty for dead letters, and before version 4."""

    def to_json(self) -> str:
        """Return the value of the bookmark's message."""
        fields = asdict(self) | {"offsets": dict(sorted(self.offsets.items()))}
        return json.dumps({"version": VERSION, **fields})

    @staticmethod
    def from_json(value: str | bytes) -> Bookmark:
        """Parse the value of a bookmark's message.

        Raises:
            NewerFormat: A newer release wrote it in another format.
        """
        fields = json.loads(value)
        if fields.pop("version") not in (3, VERSION):
            raise NewerFormat(f"A newer release wrote the bookmark {value!r}. Nothing was changed. Upgrade lakehouse")
        fields["offsets"] = _positions(fields["offsets"])
        fields["further"] = {int(id_): _positions(offsets) for id_, offsets in fields["further"].items()}
        return Bookmark(**fields)

    def is_of(self, source: Batch) -> bool:
        """Return whether the offsets are of the topic of a batch."""
        return (self.cluster_id, self.topic_id) == source.identity

    def is_like(self, other: Bookmark) -> bool:
        """Return whether the positions of both are of the same topics."""
        topics = (self.cluster_id, self.topic_id, self.target_id)
        return topics == (other.cluster_id, other.topic_id, other.target_id)

    def snapshots_of(self, table_uuid: str) -> Mapping[int, Positions]:
        """Return the snapshots of which rows were derived, with the offsets before which they were.

        Args:
            table_uuid: A table. The snapshot that was read of the table before it is left out, because it has no rows
                of this one.
        """
        return ({self.snapshot_id: self.offsets} if self.table_uuid == table_uuid else {}) | dict(self.further)

    def replays_of(self, table_uuid: str) -> int:
        """Return the number of replays that it covers of a table: none if it is of the table before."""
        return self.replays if self.table_uuid == table_uuid else 0

    def with_further(self, snapshot_id: int, end: Positions) -> Bookmark:
        """Return it with one more snapshot of which rows were derived, and the offsets before which they were."""
        return replace(self, further={**self.further, snapshot_id: end})

    def is_past(self, position: Positions) -> bool:
        """Return whether `position` is behind this one in any partition, as after a rollback of the source's table."""
        return any(position.get(partition, 0) < offset for partition, offset in self.offsets.items())


def _positions(offsets: Mapping[str, int]) -> Positions:
    return {int(partition): offset for partition, offset in offsets.items()}
