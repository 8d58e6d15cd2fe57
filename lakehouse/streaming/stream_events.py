"""Events of a stream, for its log and for Dagster."""

from dataclasses import dataclass

from lakehouse.config.model import Topic
from lakehouse.core.offsets.batch import Batch
from lakehouse.pipeline.ingestion import Published
from lakehouse.pipeline.maintenance import Maintained
from resources.kafka.stream_group import GroupUnavailable


@dataclass(frozen=True)
class Commit:
    """A published batch."""

    topic: Topic
    published: Published
    behind: int
    """The number of offsets that the table still lacks."""
    waited: float
    """Seconds since the first record of the batch was noticed."""


@dataclass(frozen=True)
class TopicBackedOff:
    """A failed turn, after which the topic is retried later."""

    topic: str
    """The name of the topic; empty if Kafka itself failed."""
    error: Exception
    seconds: float
    """Time until the next attempt."""
    is_compaction: bool = False
    """Whether merging the table's small files failed; the topic is still served then."""
    batch: Batch | None = None
    """The batch that failed; None if the turn failed before its batch was chosen."""
    phase: str = ""
    """The phase of the batch that began last."""


@dataclass(frozen=True)
class TopicServed:
    """A turn of a topic succeeded which is its first in this stream, or found no new records."""

    topic: str


@dataclass(frozen=True)
class TopicRecovered:
    """A topic is served again after failures or a pause."""

    topic: str
    """The name of the topic; empty if Kafka itself had failed."""
    failures: int
    """The number of consecutive failures before; 0 after a pause."""


@dataclass(frozen=True)
class TableCompacted:
    """The small files of a table were merged."""

    topic: str
    maintained: Maintained


Event = Commit | TopicBackedOff | TopicServed | TopicRecovered | TableCompacted | GroupUnavailable
