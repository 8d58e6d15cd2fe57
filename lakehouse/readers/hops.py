"""How far each hop of a topic's way is behind, as the systems say now. lakehouse/readers/freshness.py judges it."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Any

from lakehouse.config.loader import Config
from lakehouse.config.topic import Topic
from lakehouse.core.batch import next_batch
from lakehouse.core.errors import LakehouseError, reason, trace
from lakehouse.core.lag import Behind, Lag, lag, pending, snapshots_behind
from lakehouse.pipeline.ingestion import read_log, stored
from lakehouse.readers import configured, reader_of
from lakehouse.readers.freshness import Hop
from lakehouse.readers.reader import Reader
from resources import bookmarks
from resources.pauses import pauses
from resources.readable import without_leader
from resources.snapshots import commits

_LOG = logging.getLogger(__name__)


def needs(hop: str) -> frozenset[str]:
    """Return the keys of the resources that measuring a hop takes."""
    reader = reader_of(hop)
    return frozenset({"catalog", reader.resource} if reader else {"catalog", "kafka"})


def hops_of(config: Config, topic: Topic) -> list[str]:
    """Return the hops of a topic, by the first part of their assets' keys, in order.

    A topic that is not derived begins at Kafka. A topic of Tableflow has none: its tables are Tableflow's own.
    """
    if topic.engine == "tableflow":
        return []
    first = ["kafka"] if topic.source.upstream else []
    return [*first, "iceberg", *(reader.name for reader in configured(config))]


def measure(hop: str, config: Config, topic: Topic, systems: Any) -> Hop:
    """Measure one hop of one topic. Never raises: a failure is part of the measurement, so that one broken topic keeps
    no other from being measured.

    Parameters: `systems` has the resources that the hop needs as attributes.
    """
    reader = reader_of(hop)
    made = Hop(topic.name, hop, topic.max_lag_seconds)
    try:
        # Readers show what is published, paused or not.
        if reader is None and (held := pauses(systems.catalog, config.namespace).get(topic.name)):
            made = replace(made, paused=held.describe())
        now_ms = int(time.time() * 1000)
        behind: Lag | Behind | None
        if reader:
            behind, shows = _in_reader(reader, config, topic, systems, now_ms)
        elif hop == "kafka":
            behind, shows = _derived(config, topic, systems, now_ms)
        else:
            behind, shows = _iceberg(config, topic, systems, now_ms)
    except Exception as error:
        if found := trace(error):
            _LOG.error("%s/%s could not be measured. %s", hop, topic.name, found)
        return replace(made, failure=reason(error))
    return replace(made, behind=behind, shows=shows)


def _derived(config: Config, topic: Topic, systems: Any, now_ms: int) -> tuple[Lag, None]:
    """Rows of the source's table that the derived topic was not computed from yet.

    Raises: LakehouseError when nothing says since when they wait.
    """
    from lakehouse.pipeline.bookmarks import of_derived

    source, _, last = stored(systems.catalog, config.namespace, config.topic(topic.source.upstream))
    if last is None:
        return Lag(0, 0.0), None
    log = read_log(systems.kafka, source.topic)
    made = systems.kafka.describe([topic.topic]).get(topic.topic)
    known = bookmarks.read(systems.kafka, of_derived(topic), settled=False) if made else None
    is_of_both = known and made and known.is_of(last.cluster_id, last.topic_id) and known.target_id == made.topic_id
    since = known.offsets if known and is_of_both else {}
    waiting = pending({p: since.get(p, 0) for p in last.end}, last.end)
    for partition, position in waiting.items():
        if position < log.start.get(partition, 0):
            raise LakehouseError(
                f"'{topic.name}' was not computed from rows of '{source.name}' (partition {partition}, offset "
                f"{position} on) whose records Kafka no longer has. How long they have waited is unknown. "
                f"Materialize kafka/{topic.name}"
            )
    oldest = systems.kafka.oldest_timestamp(source.topic, waiting, last.end) if waiting else {}
    return lag(waiting, last.end, oldest, now_ms), None


def _iceberg(config: Config, topic: Topic, systems: Any, now_ms: int) -> tuple[Lag, int | None]:
    """Records that are not in the table yet, by the decision that ingestion takes.

    Raises: UnclearState when ingestion would stop; LakehouseError when the topic does not exist, unless this project
    makes it and did not yet.
    """
    current, table, last = stored(systems.catalog, config.namespace, topic)
    shows = table.metadata.current_snapshot_id if table else None
    found = systems.kafka.describe([topic.topic]).get(topic.topic)
    if found is None:
        if last is None and not topic.source.is_external:
            return Lag(0, 0.0, nothing=True), shows
        raise systems.kafka.missing(topic.topic)
    if found.leaderless:
        raise without_leader(systems.kafka, topic.topic, found.leaderless)
    # What an open transaction holds back waits, too: a transaction that hangs must be seen.
    rest = next_batch(last, read_log(systems.kafka, topic.topic, committed=False), current.table)
    waiting = pending(rest.start, rest.end)
    oldest = systems.kafka.oldest_timestamp(topic.topic, waiting, rest.end) if waiting else {}
    return lag(waiting, rest.end, oldest, now_ms), shows


def _in_reader(
    reader: Reader, config: Config, topic: Topic, systems: Any, now_ms: int
) -> tuple[Behind | None, int | None]:
    current, _ = systems.catalog.resolve_table(config.namespace, topic)
    found = reader.current(config.namespace, current, systems)
    shows = found.snapshot_id if found else None
    table = systems.catalog.load(config.namespace, current.table)
    return snapshots_behind(commits(table) if table else [], shows, now_ms), shows
