"""Offsets of many topics, some of which may be unreadable."""

from collections.abc import Sequence
from dataclasses import dataclass

from lakehouse.core.errors import Unreachable
from resources.kafka.kafka import Offsets
from resources.protocols import KafkaClient


@dataclass(frozen=True)
class TopicOffsets:
    """The offsets of a topic."""

    topic_id: str
    """The id that the topic had immediately before its offsets were read."""
    partitions: dict[int, Offsets]
    """The offsets by partition."""


def readable_offsets(kafka: KafkaClient, topics: Sequence[str]) -> tuple[dict[str, TopicOffsets], dict[str, Exception]]:
    """Return the offsets of the topics that exist; an unreadable topic does not affect the others.

    Returns:
        The offsets, and the errors of unreadable topics, by topic.
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
        offsets = kafka.offsets([topic for topic in described if topic not in errors])
        return {topic: TopicOffsets(described[topic].topic_id, offsets[topic]) for topic in offsets}, errors
    except Unreachable:
        raise
    except Exception as error:
        if len(topics) == 1:
            return {}, {topics[0]: error}
    # Bisection: one unreadable topic among many costs a few more requests, not one request per topic.
    half = len(topics) // 2
    readable, errors = readable_offsets(kafka, topics[:half])
    more_readable, more_errors = readable_offsets(kafka, topics[half:])
    return readable | more_readable, errors | more_errors


def leaderless_error(kafka: KafkaClient, topic: str, partitions: Sequence[int]) -> Unreachable:
    """Return the error for partitions without a leader, whose offsets would delay a request for all topics."""
    check = f"the brokers of partition {', '.join(map(str, partitions))} of topic '{topic}': it has no leader"
    return Unreachable("Kafka", kafka.servers, check)
