"""Events of a stream, for its log and for Dagster."""

from dataclasses import dataclass

from lakehouse.config.model import Topic
from lakehouse.pipeline.ingestion import Published
from lakehouse.pipeline.maintenance import Maintained
from resources.kafka.stream_group import GroupUnavailable


@dataclass(frozen=True)
class Commit:
    """A published batch.

    Attributes:
        topic: The topic.
        published: The batch.
        behind: The number of offsets that the table still lacks.
        waited: Seconds since the first record of the batch was noticed.
    """

    topic: Topic
    published: Published
    behind: int
    waited: float


@dataclass(frozen=True)
class TopicBackedOff:
    """A failed turn, after which the topic is retried later.

    Attributes:
        topic: The name of the topic; empty if Kafka itself failed.
        error: The error.
        seconds: Time until the next attempt.
        is_compaction: Whether merging the table's small files failed; the topic is still served then.
    """

    topic: str
    error: Exception
    seconds: float
    is_compaction: bool = False


@dataclass(frozen=True)
class TopicServed:
    """A turn of a topic succeeded which is its first in this stream, or found no new records."""

    topic: str


@dataclass(frozen=True)
class TopicRecovered:
    """A topic is served again after failures or a pause.

    Attributes:
        topic: The name of the topic; empty if Kafka itself had failed.
        failures: The number of consecutive failures before; 0 after a pause.
    """

    topic: str
    failures: int


@dataclass(frozen=True)
class TableCompacted:
    """The small files of a table were merged."""

    topic: str
    maintained: Maintained


Event = Commit | TopicBackedOff | TopicServed | TopicRecovered | TableCompacted | GroupUnavailable
