"""What happens in a stream, as it tells those who log it and report it."""

from __future__ import annotations

from dataclasses import dataclass

from lakehouse.config.topic import Topic
from lakehouse.pipeline.ingestion import Published
from lakehouse.pipeline.maintenance import Maintained
from resources.stream_group import Undivided


@dataclass(frozen=True)
class Commit:
    """A batch that readers can see now. Of the topic, `behind` records are left; `waited` is how many seconds passed
    since the first of the batch was noticed."""

    topic: Topic
    published: Published
    behind: int
    waited: float


@dataclass(frozen=True)
class SetAside:
    """A topic whose turn failed, or Kafka itself (`topic` is empty), and in how many seconds it is tried again.

    Where `tidying`, it is not set aside: what failed is merging its table's small files.
    """

    topic: str
    error: Exception
    seconds: float
    tidying: bool = False


@dataclass(frozen=True)
class Served:
    """A topic whose first turn in this stream did not fail, whether or not there was anything to take."""

    topic: str


@dataclass(frozen=True)
class Healed:
    """A topic that is served again, after so many failures or after a pause; or Kafka itself (`topic` is empty)."""

    topic: str
    failures: int


@dataclass(frozen=True)
class Tidied:
    """A table whose small files were merged."""

    topic: str
    maintained: Maintained


Event = Commit | SetAside | Served | Healed | Tidied | Undivided
