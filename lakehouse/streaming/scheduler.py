"""Which topic of a stream is served next, and what the stream knows of each topic.

Pure: times are given, in seconds of one clock. Nothing here waits, asks a system or starts a thread; the lock of the
stream guards a scheduler.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakehouse.config.topic import Topic
from lakehouse.core.batch import Positions
from lakehouse.core.errors import Paused, is_transient
from lakehouse.core.pacing import EVERY_SECONDS, LEAST_RECORDS, Turns, next_bound, pause

if TYPE_CHECKING:
    from lakehouse.pipeline.ingestion import Published

POLL_SECONDS = 0.2
"""How old the topics' end offsets may be."""

MANY_FILES = 100
"""So many data files may come to a table before small ones are merged."""

PAUSED_SECONDS = 5.0
"""After so long it is looked whether a topic is still paused."""

ATTEMPTS = 5
"""How often a topic is tried in a stream that ends, where a system does not answer."""


@dataclass
class TopicState:
    """What a stream knows of one topic.

    Attributes:
        ends: The topic's end offsets (exclusive) by partition; None before they were read.
        fault: Why the topic cannot be read.
        position: Where its table is, as `ends`; None where a turn has to look.
        noticed_at: When the first record that the table lacks was noticed.
        batch_limit: The most records of the next batch.
        is_served: Whether a turn in this stream succeeded.
        is_mirrored: Whether its topic of dead letters has all of them.
        failures: Turns that failed in a row.
        is_paused: Whether its last turn found it paused.
        error: Why a stream that ends gives it up.
        data_files: Data files of its table when small ones were last merged.
        snapshot_id: What this stream last published.
        is_computed: Whether a derived topic was computed in this stream.
        computed_from: The snapshot of its source that a derived topic was computed from.
    """

    ends: Positions | None = None
    fault: Exception | None = None
    position: Positions | None = None
    noticed_at: float | None = None
    batch_limit: int = LEAST_RECORDS
    is_served: bool = False
    is_mirrored: bool = True
    failures: int = 0
    is_paused: bool = False
    error: Exception | None = None
    data_files: int = 0
    snapshot_id: int | None = None
    is_computed: bool = False
    computed_from: int | None = None

    @property
    def behind(self) -> int:
        """Records, or rather offsets, that the table lacks, as far as the ends and the position are known."""
        position = self.position or {}
        return sum(max(0, end - position.get(partition, 0)) for partition, end in (self.ends or {}).items())


@dataclass(frozen=True)
class TurnEnd:
    """How a turn ended.

    Attributes:
        behind: Offsets that the table still lacks.
        waited: Seconds since the first record of the batch was noticed.
        is_first: Whether it is the topic's first turn in this stream that succeeded.
        is_recovered: Whether the topic had failed, or was paused, before.
        failures: Turns that had failed in a row.
        not_before: When the topic's next turn may begin.
    """

    behind: int
    waited: float
    is_first: bool
    is_recovered: bool
    failures: int
    not_before: float


class Scheduler:
    """Gives turns to the topics that have, or may have, what their tables lack."""

    def __init__(self, topics: Mapping[str, Topic], *, once: bool, owns: Callable[[str, int], bool]):
        """
        Args:
            topics: The topics by the names of their entries.
            once: Whether the stream ends when each table has what its topic held at the beginning.
            owns: Whether a topic of Kafka, with so many partitions, falls to this stream of its group.
        """
        self.topics, self.once = topics, once
        self.states = {name: TopicState() for name in topics}
        self.polled_at: float | None = None
        self._owns = owns
        self._turns = Turns(topics)
        self._compactions: deque[str] = deque()

    def take(self, now: float) -> str | None:
        """Return the topic whose turn it is, which has no other before `give_back`; None when none can be served."""
        return self._turns.take(now, lambda name: self._is_ready(name) and not self._waits_for_compaction(name))

    def give_back(self, name: str, not_before: float) -> None:
        """End a topic's turn; the next one begins no earlier than that time."""
        self._turns.give_back(name, not_before)

    @property
    def is_idle(self) -> bool:
        """Whether no turn is in progress."""
        return len(self._turns.row) == len(self.topics)

    @property
    def is_done(self) -> bool:
        """Whether the end offsets were read, and every table has them."""
        waits = self.polled_at is None or self._compactions or not self.is_idle
        return not waits and not any(map(self._is_ready, self.topics))

    def is_poll_due(self, now: float) -> bool:
        """Whether to read the topics' end offsets; a stream that ends reads them once."""
        return self.polled_at is None or (not self.once and now - self.polled_at > POLL_SECONDS)

    def is_ours(self, name: str) -> bool:
        """Whether this stream serves a topic, and not another of its group.

        The owner of a topic that cannot be read is unknown, so each stream reports the fault.
        """
        state = self.states[name]
        return state.fault is not None or self._owns(self.topics[name].topic, len(state.ends or {}))

    def is_expected(self, name: str) -> bool:
        """Whether an entry's topic has to exist: others create it, it was there before, or the stream ends with it."""
        source = self.topics[name].source
        return source.is_external or self.states[name].ends is not None or (self.once and not source.upstream)

    def is_computable(self, name: str) -> bool:
        """Whether the source of a derived topic, if it is served here, has what the topic was not computed from."""
        state, source = self.states[name], self.topics[name].source.upstream
        if source not in self.topics or not self.is_ours(source):
            return False
        return not state.is_computed or state.computed_from != self.states[source].snapshot_id

    def note_ends(self, name: str, ends: Positions, now: float) -> None:
        """Note where a topic ends, by partition, exclusive."""
        state = self.states[name]
        if state.fault:
            state.fault = None
            # It can be read again, so nothing is waited for any more.
            self._turns.not_before.pop(name, None)
        before = state.ends or {}
        if any(end < before.get(partition, 0) for partition, end in ends.items()):
            # It is another topic by now, or lost records: a turn finds out which.
            state.position = None
        state.ends = ends
        if state.noticed_at is None and self._is_ready(name):
            state.noticed_at = now

    def note_fault(self, name: str, fault: Exception) -> None:
        """Note why a topic cannot be read: its turn fails with that, and keeps no other from being served."""
        state = self.states[name]
        state.fault, state.position = fault, None
        state.ends = {} if state.ends is None else state.ends

    def note_computed(self, name: str, source_snapshot_id: int | None) -> None:
        """Note which snapshot of its source a derived topic was computed from."""
        self.states[name].is_computed, self.states[name].computed_from = True, source_snapshot_id

    def batch_limit(self, name: str) -> int:
        """Return the most records of a topic's next batch."""
        return min(self.states[name].batch_limit, self.topics[name].max_records_per_batch)

    def note_batch(
        self, name: str, published: Published | None, ends: Positions, limit: int, began: float, now: float
    ) -> TurnEnd:
        """Note what a turn published; the turn goes on until `give_back`.

        Args:
            name: The topic.
            published: The batch; None where there was nothing new.
            ends: The topic's end offsets when the turn began: what the table has where nothing was new.
            limit: The most records that the batch could have.
            began: When the turn began.
            now: The time.
        """
        state = self.states[name]
        is_first, failures, was_paused = not state.is_served, state.failures, state.is_paused
        state.is_served, state.failures, state.is_paused = True, 0, False
        state.position = published.batch.end if published else ends
        behind = state.behind if ends else 0
        noticed = began if state.noticed_at is None else state.noticed_at
        state.noticed_at = now if behind else None
        if published:
            state.snapshot_id = published.snapshot_id
            most = self.topics[name].max_records_per_batch
            state.batch_limit = next_bound(limit, published.batch.offsets, now - began, most)
            if published.data_files - state.data_files >= MANY_FILES and name not in self._compactions:
                self._compactions.append(name)
        # A topic that is a whole batch behind waits for the other topics only.
        not_before = began + EVERY_SECONDS if behind < limit and not self.once else now
        return TurnEnd(behind, now - noticed, is_first, bool(failures or was_paused), failures, not_before)

    def end_computed(self, name: str, began: float) -> int:
        """End the turn of a derived topic that was only computed, since another stream ingests it.

        Returns:
            How many of its turns had failed in a row.
        """
        failures, self.states[name].failures = self.states[name].failures, 0
        self.give_back(name, began + EVERY_SECONDS)
        return failures

    def set_aside(self, name: str, error: Exception, now: float) -> float | None:
        """End a turn that failed, or that found its topic paused: the next one waits, longer each time.

        Returns:
            The seconds until then; None where it is known that the topic is paused.
        """
        state = self.states[name]
        is_known = isinstance(error, Paused) and state.is_paused
        if isinstance(error, Paused):
            state.is_paused, seconds = True, PAUSED_SECONDS
        else:
            state.failures += 1
            seconds = pause(state.failures, is_transient(error))
        if self.once and (not is_transient(error) or state.failures == ATTEMPTS):
            state.error = error
        self.give_back(name, now + seconds)
        return None if is_known else seconds

    def next_compaction(self) -> str | None:
        """Return the topic whose small files are merged now; None when there is none, or its turn is in progress.

        Where batches replace rows, the topic has no turn meanwhile, or one of both would fail. Others are served, and
        at most repeat the batch during which the merged files are committed.
        """
        if not self._compactions:
            return None
        name = self._compactions[0]
        return self._turns.take(math.inf, self._waits_for_compaction) if self.topics[name].replaces else name

    def end_compaction(self, name: str, data_files: int | None) -> None:
        """End merging the small files of a topic's table.

        Args:
            name: The topic.
            data_files: How many data files the table has now; None where merging them failed.
        """
        self._compactions.popleft()
        if data_files is not None:
            self.states[name].data_files = data_files
        if self.topics[name].replaces:
            self.give_back(name, 0.0)

    def _waits_for_compaction(self, name: str) -> bool:
        return bool(self._compactions) and name == self._compactions[0] and self.topics[name].replaces

    def _is_ready(self, name: str) -> bool:
        """Whether a topic has, or may have, what its table lacks."""
        state = self.states[name]
        if state.error:
            return False
        if self.is_computable(name):
            return True
        is_behind = state.ends is not None and (state.position is None or state.behind > 0)
        return is_behind and self.is_ours(name)
