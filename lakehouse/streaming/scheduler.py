"""Select the topic that a stream serves next, and keep the stream's state of each topic.

The module has no I/O, does not wait and starts no threads. Times are passed in, in seconds of one monotonic clock. The
stream's lock guards the scheduler.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakehouse.config.model import Topic
from lakehouse.core.errors import Paused, Yielded, is_transient
from lakehouse.core.offsets.batch import Positions
from lakehouse.streaming.pacing import EVERY_SECONDS, MIN_RECORDS, RoundRobin, backoff_seconds, next_bound

if TYPE_CHECKING:
    from lakehouse.pipeline.ingestion import Published

POLL_SECONDS = 0.2
"""Maximum age of the topics' end offsets, unless all tables have them."""

WATCH_SECONDS = 5.0
"""Maximum age of the end offsets while the stream waits for new records. A topic that was created, deleted or recreated
is noticed then, and so are records without a message, such as those of aborted transactions."""

FILES_PER_COMPACTION = 100
"""Number of data files added to a table after which small files are merged."""

PAUSED_SECONDS = 5.0
"""Interval at which a topic that is paused or waits for a command is checked."""

REVIEW_SECONDS = 60.0
"""Maximum time between two derivations of a topic: a redrive or replay may have ended before it derived its rows."""

ATTEMPTS = 5
"""Number of attempts at Kafka, or at a topic, in a stream with `once` if a system does not answer."""


@dataclass
class TopicState:
    """State of one topic in a stream."""

    topic_id: str = ""
    """The id of the topic whose end offsets were read; empty before."""
    ends: Positions | None = None
    """The topic's end offsets (exclusive) by partition; None before they were read."""
    is_replaced: bool = False
    """Whether the topic was recreated or lost records after its present turn began."""
    fault: Exception | None = None
    """Why the topic cannot be read."""
    position: Positions | None = None
    """The table's offsets (exclusive) by partition; None if the next turn must read them."""
    noticed_at: float | None = None
    """When the first record that the table lacks was noticed."""
    batch_limit: int = MIN_RECORDS
    """The maximum number of records of the next batch."""
    is_served: bool = False
    """Whether a turn in this stream succeeded."""
    has_published_dead_letters: bool = True
    """Whether all dead letters were produced to the topic of dead letters."""
    failures: int = 0
    """The number of consecutive failed turns."""
    is_paused: bool = False
    """Whether the topic was paused, or waited for a command, in its last turn."""
    was_unreadable: bool = False
    """Whether its last turn failed because it could not be read."""
    error: Exception | None = None
    """Why a stream with `once` gave up on the topic."""
    data_files: int = 0
    """The number of data files of its table when small ones were last merged."""
    turns: int = 0
    """The number of turns that published a batch or found the table complete, perhaps by another writer."""
    computed_at: int | None = None
    """The turns of its source when a derived topic was last derived; None before, and if it is due again."""
    review_at: float = math.inf
    """When a derived topic is derived again, even if its source has no turn until then."""

    @property
    def behind(self) -> int:
        """Number of offsets that the table lacks, as far as the ends and the position are known."""
        position = self.position or {}
        return sum(max(0, end - position.get(partition, 0)) for partition, end in (self.ends or {}).items())


@dataclass(frozen=True)
class Backlog:
    """Records that a topic's table lacks, and whether the stream fills it."""

    records: int
    """The number of offsets that the table lacks."""
    seconds: float
    """The time since the first of them was noticed; 0 if the table lacks none."""
    failures: int
    """The number of consecutive failed turns."""
    is_paused: bool
    """Whether the topic was paused, or waited for a command, in its last turn."""
    is_assigned: bool
    """Whether this stream, and no other of its group, serves the topic."""


@dataclass(frozen=True)
class TurnEnd:
    """Result of a turn."""

    behind: int
    """The number of offsets that the table still lacks."""
    waited: float
    """Seconds since the first record of the batch was noticed."""
    is_first: bool
    """Whether it is the topic's first successful turn in this stream."""
    is_recovered: bool
    """Whether the topic had failed or was paused before."""
    failures: int
    """The number of consecutive failed turns before."""
    not_before: float
    """The earliest time at which the topic's next turn may begin."""


class Scheduler:
    """Assigns turns to the topics whose tables lack records or may lack some."""

    def __init__(self, topics: Mapping[str, Topic], *, once: bool, owns: Callable[[str, int], bool]):
        """Create a scheduler in which no topic has been read.

        Args:
            topics: The topics by the names of their entries in lakehouse.yaml.
            once: Whether the stream ends when each table has what its topic had at the beginning.
            owns: Returns whether a Kafka topic with a number of partitions is assigned to this stream of its group.
        """
        self.topics, self.once = topics, once
        self.states = {name: TopicState() for name in topics}
        self.polled_at: float | None = None
        self.error: Exception | None = None
        """Why a stream with `once` gave up on Kafka."""
        self._is_watched = False
        self._owns = owns
        self._turns = RoundRobin(topics)
        self._compactions: deque[str] = deque()

    def acquire(self, now: float) -> str | None:
        """Return the next topic to serve; None if none is ready. The topic has no other turn before `release`."""
        name = self._turns.acquire(now, lambda name: self._is_ready(name) and not self._waits_for_compaction(name))
        if name is not None:
            self.states[name].is_replaced = False
        return name

    def release(self, name: str, not_before: float) -> None:
        """End a topic's turn; the next one begins no earlier than `not_before`."""
        self._turns.release(name, not_before)

    @property
    def is_idle(self) -> bool:
        """True if no turn is in progress."""
        return len(self._turns.queue) == len(self.topics)

    @property
    def is_done(self) -> bool:
        """True if the end offsets were read and every table has them."""
        waits = self.polled_at is None or self._compactions or not self.is_idle
        return not waits and not any(map(self._is_ready, self.topics))

    def backlogs(self, now: float) -> dict[str, Backlog]:
        """Return what each table lacks. Without the stream's lock, topics may be of different moments."""
        return {
            name: Backlog(
                state.behind,
                now - noticed if (noticed := state.noticed_at) is not None else 0.0,
                state.failures,
                state.is_paused,
                self.is_assigned(name),
            )
            for name, state in self.states.items()
        }

    def is_poll_due(self, now: float) -> bool:
        """Return whether to read the topics' end offsets; a stream with `once` reads them once."""
        if self.polled_at is None:
            return True
        return not (self.once or self._is_watched) and now - self.polled_at > POLL_SECONDS

    @property
    def is_quiet(self) -> bool:
        """True if no topic has a turn, needs one, or has a fault."""
        return self.is_idle and not any(self.states[name].fault or self._is_ready(name) for name in self.topics)

    def begin_watch(self, now: float) -> dict[str, Positions] | None:
        """Return the end offsets behind which the stream may wait for records, by topic in Kafka; they are read again
        after `end_watch`. Return None if another thread waits, the offsets are outdated, or a topic needs a turn."""
        if self.once or self._is_watched or self.is_poll_due(now) or not self.is_quiet:
            return None
        self._is_watched = True
        return {
            self.topics[name].topic: state.ends or {} for name, state in self.states.items() if self.is_assigned(name)
        }

    def end_watch(self, *, has_records: bool) -> None:
        """End the wait for records; if there are some, the end offsets are outdated."""
        self._is_watched = False
        if has_records:
            self.polled_at = -math.inf

    def is_assigned(self, name: str) -> bool:
        """Return whether this stream, and no other of its group, serves a topic.

        The owner of a topic that cannot be read is unknown, so every stream reports the fault.
        """
        state = self.states[name]
        return state.fault is not None or self._owns(self.topics[name].topic, len(state.ends or {}))

    def is_behind(self, name: str) -> bool:
        """Return whether a table that this stream, and no other of its group, fills lacks records or may lack some."""
        state = self.states[name]
        lacks_records = state.ends is not None and (state.position is None or state.behind > 0)
        return lacks_records and self.is_assigned(name)

    def is_expected(self, name: str) -> bool:
        """Return whether the topic must exist in Kafka, because no turn of a stream creates it.

        It must exist if others create it, and if it existed before or the stream runs `once`, unless it is derived.
        """
        source = self.topics[name].source
        return source.is_external or (not source.upstream and (self.once or self.states[name].ends is not None))

    def is_computable(self, name: str) -> bool:
        """Return whether this stream serves the source of a derived topic, whose table may have new rows."""
        state, source = self.states[name], self.topics[name].source.upstream
        if source not in self.topics or not self.is_assigned(source):
            return False
        return state.computed_at != self.states[source].turns

    def set_ends(self, name: str, topic_id: str, ends: Positions, now: float) -> None:
        """Store a topic's id, and its end offsets (exclusive) by partition."""
        state = self.states[name]
        if state.fault:
            state.fault = None
            # The topic can be read again, so its back-off ends.
            self._turns.not_before.pop(name, None)
        previous = state.ends or {}
        has_lost_records = any(end < previous.get(partition, 0) for partition, end in ends.items())
        if has_lost_records or state.topic_id not in ("", topic_id):
            # The position is that of another log; the next turn determines which.
            state.position, state.is_replaced, state.computed_at = None, True, None
        if now >= state.review_at:
            state.computed_at = None
        state.topic_id, state.ends = topic_id, ends
        if state.noticed_at is None and self._is_ready(name):
            state.noticed_at = now

    def set_fault(self, name: str, fault: Exception) -> None:
        """Store why a topic cannot be read. Its turns fail with that error; other topics are not affected."""
        state = self.states[name]
        state.fault, state.position = fault, None
        state.ends = {} if state.ends is None else state.ends

    def set_missing(self, name: str) -> None:
        """Forget a topic that does not exist. If it was derived, it is created and derived again."""
        state = self.states[name]
        state.topic_id, state.fault = "", None
        state.ends = state.position = state.computed_at = None

    def set_computed(self, name: str, turns: int, now: float) -> None:
        """Store that a derived topic was derived after this number of turns of its source had ended."""
        state = self.states[name]
        state.computed_at, state.review_at = None if state.is_replaced else turns, now + REVIEW_SECONDS

    def batch_limit(self, name: str) -> int:
        """Return the maximum number of records of a topic's next batch."""
        return min(self.states[name].batch_limit, self.topics[name].max_records_per_batch)

    def finish_batch(
        self, name: str, published: Published | None, ends: Positions, limit: int, began: float, now: float
    ) -> TurnEnd:
        """Store what a turn published. The turn continues until `release`.

        Args:
            published: The batch; None if there was nothing new.
            ends: The topic's end offsets when the turn began: the table's offsets if there was nothing new.
            limit: The maximum number of records that the batch could have.
            began: When the turn began.
        """
        state = self.states[name]
        is_first, (failures, was_paused) = not state.is_served, self._end_failures(name)
        state.is_served, state.turns = True, state.turns + 1
        position = published.batch.end if published else ends
        state.position = None if state.is_replaced else position
        behind = state.behind if ends else 0
        noticed = began if state.noticed_at is None else state.noticed_at
        state.noticed_at = now if behind else None
        if published:
            most = self.topics[name].max_records_per_batch
            state.batch_limit = next_bound(limit, published.batch.offsets, now - began, most)
            # Maintenance, or a table that was created again, leaves fewer files.
            state.data_files = min(state.data_files, published.data_files)
            is_due = published.data_files - state.data_files >= FILES_PER_COMPACTION
            if is_due and name not in self._compactions and self.topics[name].maintenance == "lakehouse":
                self._compactions.append(name)
        # A topic that is at least one full batch behind only waits for its next turn, without a minimum interval.
        not_before = began + EVERY_SECONDS if behind < limit and not self.once else now
        return TurnEnd(behind, now - noticed, is_first, bool(failures or was_paused), failures, not_before)

    def end_idle(self, name: str, began: float) -> int | None:
        """End the turn of a topic that another stream ingests, or whose table lacks nothing.

        Returns:
            The number of consecutive failed turns before; None if the topic had neither failed nor was paused.
        """
        failures, was_paused = self._end_failures(name)
        self.states[name].noticed_at = None
        self.release(name, began + EVERY_SECONDS)
        return failures if failures or was_paused else None

    def _end_failures(self, name: str) -> tuple[int, bool]:
        """Return the number of consecutive failed turns and whether the topic was paused, and reset both."""
        state = self.states[name]
        before = state.failures, state.is_paused
        state.failures, state.is_paused, state.was_unreadable = 0, False, False
        return before

    def gives_up(self, error: Exception, failures: int) -> bool:
        """Return whether a stream with `once` does not try again after this number of consecutive failures."""
        return self.once and (not is_transient(error) or failures >= ATTEMPTS) and not isinstance(error, Yielded)

    def back_off(self, name: str, error: Exception, now: float) -> float | None:
        """End a turn that failed, or whose topic is paused or waits for a command; back off longer after each
        consecutive failure.

        Returns:
            The seconds until the next turn; None if the topic was already known to be paused or to wait.
        """
        state = self.states[name]
        is_waiting = isinstance(error, Paused | Yielded)
        is_known = is_waiting and state.is_paused
        if is_waiting:
            state.is_paused, seconds = True, PAUSED_SECONDS
        else:
            state.failures, state.was_unreadable = state.failures + 1, state.fault is not None
            seconds = backoff_seconds(state.failures, is_transient(error))
        if self.gives_up(error, state.failures):
            state.error = error
        self.release(name, now + seconds)
        return None if is_known else seconds

    def next_compaction(self) -> str | None:
        """Return the topic whose small files to merge now; None if there is none or its turn is in progress.

        If batches replace rows, the topic has no turn meanwhile, because either commit would fail. Other topics are
        served, and at most repeat the batch during which the merged files are committed.
        """
        if not self._compactions:
            return None
        name = self._compactions[0]
        return self._turns.acquire(math.inf, self._waits_for_compaction) if self.topics[name].replaces_rows else name

    def end_compaction(self, name: str, data_files: int | None) -> None:
        """End merging the small files of a topic's table.

        Args:
            data_files: The number of data files that the table has now; None if merging them failed.
        """
        self._compactions.popleft()
        if data_files is not None:
            self.states[name].data_files = data_files
        if self.topics[name].replaces_rows:
            self.release(name, 0.0)

    def _waits_for_compaction(self, name: str) -> bool:
        return bool(self._compactions) and name == self._compactions[0] and self.topics[name].replaces_rows

    def _is_ready(self, name: str) -> bool:
        """Return whether a topic's table lacks records or may lack some."""
        state = self.states[name]
        if state.error:
            return False
        if self.is_computable(name):
            return True
        if state.was_unreadable and not state.fault:
            # Each stream reports that the topic can be read again, as each has reported that it cannot.
            return True
        return self.is_behind(name)
