"""How far one topic was made from another: the bookmark of a derived topic, or of a topic of dead letters."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from lakehouse.core.batch import Positions
from lakehouse.core.errors import UnclearState

TOPIC = "lakehouse.bookmarks"
"""The compacted topic that holds them."""


@dataclass(frozen=True)
class Bookmark:
    """A position in a source, committed in one transaction with the messages that were made of what is before it.

    Attributes:
        cluster_id: the source topic's cluster.
        topic_id: the source topic's id there; offsets of another one mean something else.
        target_id: the id of the topic that the messages are in; another one has none of them.
        table_uuid: the source's table.
        snapshot_id: its snapshot that was read.
        replays: how often rows had come behind the position, in that snapshot.
        offsets: first offset by partition of what is to be read next.
        reason: why somebody decided on the position; empty where it was computed.
    """

    cluster_id: str
    topic_id: str
    target_id: str
    table_uuid: str
    snapshot_id: int
    replays: int
    offsets: Positions
    reason: str = ""

    def to_json(self) -> str:
        """The value of the bookmark's message."""
        return json.dumps({"version": 1, **asdict(self), "offsets": dict(sorted(self.offsets.items()))})

    @staticmethod
    def from_json(value: str | bytes) -> Bookmark:
        """Read the value of a bookmark's message.

        Raises: UnclearState when a newer release wrote it in a form this one does not know.
        """
        fields = json.loads(value)
        if fields.pop("version") != 1:
            raise UnclearState(f"A newer release wrote the bookmark {value!r}. Nothing was changed. Upgrade lakehouse")
        fields["offsets"] = {int(partition): offset for partition, offset in fields["offsets"].items()}
        return Bookmark(**fields)

    def is_of(self, cluster_id: str, topic_id: str) -> bool:
        """Whether the offsets are those of a topic."""
        return (self.cluster_id, self.topic_id) == (cluster_id, topic_id)

    def is_past(self, position: Positions) -> bool:
        """Whether a position is behind this one in any partition, as after a rollback of the source's table."""
        return any(position.get(partition, 0) < offset for partition, offset in self.offsets.items())
