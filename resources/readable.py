"""The offsets of many topics, of which some may not be readable."""

from __future__ import annotations

from collections.abc import Sequence

from lakehouse.errors import Unreachable
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
        return kafka.offsets(list(kafka.describe(topics))), {}
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
