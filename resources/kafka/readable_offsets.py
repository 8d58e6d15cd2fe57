"""Offsets of many topics, some of which may be unreadable."""

from __future__ import annotations

from collections.abc import Sequence

from lakehouse.core.errors import Unreachable
from resources.kafka.kafka import Kafka, Offsets


def readable_offsets(kafka: Kafka, topics: Sequence[str]) -> tuple[dict[str, dict[int, Offsets]], dict[str, Exception]]:
    """Return the offsets of the topics that exist; an unreadable topic does not affect the others.

    Returns:
        The offsets as of `Kafka.offsets`, and the errors of unreadable topics by topic.

    Raises:
        Unreachable: Kafka does not respond.
    """
    if not topics:
        return {}, {}
    try:
        described = kafka.describe(topics)
        errors: dict[str, Exception] = {
            topic: leaderless_error(kafka, topic, description.leaderless)
            for topic, description in described.items()
            if description.leaderless
        }
        return kafka.offsets([topic for topic in described if topic not in errors]), errors
    except Unreachable:
        raise
    except Exception as error:
        if len(topics) == 1:
            return {}, {topics[0]: error}
    # Bisection: one unreadable topic among many costs a few more requests, not one request per topic.
    half = len(topics) // 2
    offsets, errors = readable_offsets(kafka, topics[:half])
    more_offsets, more_errors = readable_offsets(kafka, topics[half:])
    return offsets | more_offsets, errors | more_errors


def leaderless_error(kafka: Kafka, topic: str, partitions: Sequence[int]) -> Unreachable:
    """Return the error for partitions without a leader, whose offsets would delay a request for all topics."""
    check = f"the brokers of partition {', '.join(map(str, partitions))} of topic '{topic}': it has no leader"
    return Unreachable("Kafka", kafka.servers, check)
