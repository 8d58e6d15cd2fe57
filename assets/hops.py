"""How far each hop of a topic's way is behind, as the systems say now. lakehouse/freshness.py judges it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from assets.ingestion import read_log, stored
from assets.rest import SYSTEM as REST_CATALOG
from lakehouse.batch import next_batch
from lakehouse.config import Config
from lakehouse.errors import LakehouseError, reason, trace
from lakehouse.freshness import Hop
from lakehouse.lag import Behind, Lag, lag, pending, snapshots_behind
from lakehouse.topic import Derived, Existing, Topic
from resources import bookmarks
from resources.build import is_configured
from resources.catalog import snapshot_at
from resources.pauses import pauses
from resources.readable import without_leader
from resources.snapshots import commits

_LOG = logging.getLogger(__name__)

NEEDS = {
    "kafka": {"kafka", "catalog"},
    "iceberg": {"kafka", "catalog"},
    "glue": {"catalog", "glue"},
    "snowflake": {"catalog", "snowflake"},
    "rest": {"catalog", REST_CATALOG},
}
"""The resources that measuring a hop takes."""


def hops_of(config: Config, topic: Topic) -> list[str]:
    """The hops of a topic, by the first part of their assets' keys; a topic that is not derived begins at Kafka, and
    only an environment that names a REST catalog has that. Those that Tableflow makes are its own."""
    if topic.engine == "tableflow":
        return []
    there = {"kafka": isinstance(topic.source, Derived), "rest": is_configured(config, REST_CATALOG)}
    return [hop for hop in NEEDS if there.get(hop, True)]


def measure(hop: str, config: Config, topic: Topic, systems: Any) -> Hop:
    """Measure one hop of one topic. Never raises: a failure is part of the measurement, so that one broken topic keeps
    no other from being measured.

    Parameters: `systems` has the resources that the hop needs as attributes.
    """
    measures: dict[str, Callable[[Config, Topic, Any, int], tuple[Lag | Behind | None, int | None]]] = {
        "kafka": _derived,
        "iceberg": _iceberg,
        "glue": _glue,
        "snowflake": _snowflake,
        "rest": _rest,
    }
    made = Hop(topic.name, hop, topic.max_lag_seconds)
    try:
        # Glue and Snowflake show what is published, paused or not.
        if hop in ("kafka", "iceberg") and (held := pauses(systems.catalog, config.namespace).get(topic.name)):
            made = replace(made, paused=held.describe())
        behind, shows = measures[hop](config, topic, systems, int(time.time() * 1000))
    except Exception as error:
        if found := trace(error):
            _LOG.error("%s/%s could not be measured. %s", hop, topic.name, found)
        return replace(made, failure=reason(error))
    return replace(made, behind=behind, shows=shows)


def _derived(config: Config, topic: Topic, systems: Any, now_ms: int) -> tuple[Lag, None]:
    """Rows of the source's table that the derived topic was not computed from yet.

    Raises: LakehouseError when nothing says since when they wait.
    """
    from assets.bookmarks import of_derived

    assert isinstance(topic.source, Derived)
    source, _, last = stored(systems.catalog, config.namespace, config.topic(topic.source.from_topic))
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
        if last is None and not isinstance(topic.source, Existing):
            return Lag(0, 0.0, nothing=True), shows
        raise systems.kafka.missing(topic.topic)
    if found.leaderless:
        raise without_leader(systems.kafka, topic.topic, found.leaderless)
    # What an open transaction holds back waits, too: a transaction that hangs must be seen.
    rest = next_batch(last, read_log(systems.kafka, topic.topic, committed=False), current.table)
    waiting = pending(rest.start, rest.end)
    oldest = systems.kafka.oldest_timestamp(topic.topic, waiting, rest.end) if waiting else {}
    return lag(waiting, rest.end, oldest, now_ms), shows


def _glue(config: Config, topic: Topic, systems: Any, now_ms: int) -> tuple[Behind | None, int | None]:
    name = systems.catalog.current(config.namespace, topic).table
    found = systems.glue.registration(config.namespace, name)
    return _shown(config, name, systems, found.metadata_location if found else None, now_ms)


def _snowflake(config: Config, topic: Topic, systems: Any, now_ms: int) -> tuple[Behind | None, int | None]:
    name = systems.catalog.current(config.namespace, topic).table
    return _shown(config, name, systems, systems.snowflake.metadata_location(config.namespace, name), now_ms)


def _rest(config: Config, topic: Topic, systems: Any, now_ms: int) -> tuple[Behind | None, int | None]:
    name = systems.catalog.current(config.namespace, topic).table
    found = systems.rest_catalog.registered(config.namespace, name)
    return _shown(config, name, systems, found.metadata_location if found else None, now_ms)


def _shown(
    config: Config, name: str, systems: Any, metadata_location: str | None, now_ms: int
) -> tuple[Behind | None, int | None]:
    shows = snapshot_at(systems.catalog, metadata_location) if metadata_location else None
    table = systems.catalog.load(config.namespace, name)
    return snapshots_behind(commits(table) if table else [], shows, now_ms), shows
