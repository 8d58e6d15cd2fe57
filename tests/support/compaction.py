"""Topics that the broker compacts within seconds."""

import time
from collections.abc import Callable

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from tests.support.topics import TRADES, Stream, admin, framed, trade

SETTINGS = {"cleanup.policy": "compact", "segment.ms": "50", "min.cleanable.dirty.ratio": "0.001"}


def set_compaction(stream: Stream) -> None:
    """Let the broker compact a topic."""
    operation = AlterConfigOpType.SET
    entries = [ConfigEntry(name, value, incremental_operation=operation) for name, value in SETTINGS.items()]
    altered = admin().incremental_alter_configs([ConfigResource("TOPIC", stream.name, incremental_configs=entries)])
    for change in altered.values():
        change.result()


def compact(stream: Stream, is_compacted: Callable[[], bool], user: str = "User_1") -> None:
    """Produce trades of a user until the broker has rolled a segment and compacted the segments before it."""
    schema_id = stream.schema()
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        value = framed(schema_id, TRADES, trade(0, userid=user))
        stream.produce([{"key": user.encode(), "value": value}])
        if is_compacted():
            return
        time.sleep(0.5)
    raise AssertionError(f"{stream.name} was not compacted within 90 s")
