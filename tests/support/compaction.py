"""Topics that the broker compacts within seconds."""

import time
from collections.abc import Callable
from typing import Any

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
    trade_of_user = {"key": user.encode(), "value": framed(stream.schema(), TRADES, trade(0, userid=user))}
    compact_with(stream, trade_of_user, is_compacted)


def compact_with(stream: Stream, message: dict[str, Any], is_compacted: Callable[[], bool]) -> None:
    """Produce a message until the broker has rolled a segment and compacted the segments before it."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        stream.produce([message])
        if is_compacted():
            return
        time.sleep(0.5)
    raise AssertionError(f"{stream.name} was not compacted within 90 s")
