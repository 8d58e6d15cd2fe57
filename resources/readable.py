"""The offsets of many topics, of which some may not be readable."""

from __future__ import annotations

from collections.abc import Sequence

from lakehouse.core.errors import Unreachable
from resources.kafka import Kafka, Offsets


def readable(kafka: Kafka, topics: Sequence[str]) -> tuple[dict[str, dict[int, Offsets]], dict[str, Exception]]:
    """Read the offsets of the topics that exist; one that cannot be read keeps no other from being read.

    Returns:
        As `Kafka.offsets`; and by topic, why it could not be read.

    Raises:
        Unreachable: Kafka does not answer.
    """
    if not topics:
        return {}, {}
    try:
        described = kafka.describe(topics)
        faults: dict[str, Exception] = {
            topic: without_leader(kafka, topic, found.leaderless)
            for topic, found in described.items()
            if found.leaderless
        }
        return kafka.offsets([topic for topic in described if topic not in faults]), faults
    except Unreachable:
        raise
    except Exception as error:
        if len(topics) == 1:
            return {}, {topics[0]: error}
    # One bad topic among many costs a few requests more, and not one a topic.
    half = len(topics) // 2
    found, faults = readable(kafka, topics[:half])
    more_found, more_faults = readable(kafka, topics[half:])
    return found | more_found, faults | more_faults


def without_leader(kafka: Kafka, topic: str, partitions: Sequence[int]) -> Unreachable:
    """Of such a partition nobody answers: the request for its offsets would hold up those for all others."""
    check = f"the brokers that hold partition {', '.join(map(str, partitions))} of topic '{topic}': it has no leader"
    return Unreachable("Kafka", kafka.servers, check)
