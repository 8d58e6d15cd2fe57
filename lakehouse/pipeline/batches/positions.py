"""The two positions between which a batch is: the newest one in the table, and the end of the topic's log."""

from lakehouse.core.errors import UnclearState
from lakehouse.core.offsets.batch import Batch, Log
from resources.protocols import KafkaClient


def read_log(kafka: KafkaClient, topic: str, *, committed: bool = True) -> Log:
    """Return the topic's identity, and its offsets immediately after.

    Args:
        kafka: The cluster.
        topic: The name of the topic.
        committed: Whether to exclude records of open transactions; see `Kafka.offsets`.

    Raises:
        LakehouseError: The topic does not exist.
        Unreachable: Kafka does not answer.
    """
    # Read the id first: if the topic is recreated before its offsets are read, the caller finds later that it is old.
    id_ = topic_id(kafka, topic)
    offsets = kafka.offsets([topic], committed=committed)[topic]
    return Log(
        cluster_id=kafka.cluster_id(),
        topic=topic,
        topic_id=id_,
        start={partition: bounds.start for partition, bounds in offsets.items()},
        end={partition: bounds.end for partition, bounds in offsets.items()},
    )


def topic_id(kafka: KafkaClient, topic: str) -> str:
    """Return the id of a topic.

    Raises:
        LakehouseError: The topic does not exist.
        Unreachable: Kafka does not answer.
    """
    if (described := kafka.describe([topic]).get(topic)) is None:
        raise kafka.missing_topic_error(topic)
    return described.topic_id


def within(batch: Batch, log: Log) -> Batch:
    """Return the range, after checking that the log still has all of it.

    Raises:
        UnclearState: It does not.
    """
    for partition, offset in batch.start.items():
        if offset < min(log.start[partition], batch.end[partition]):
            raise UnclearState(
                f"Topic '{batch.topic}' partition {partition} no longer has offsets {offset} to "
                f"{log.start[partition] - 1}. Nothing was changed. Begin at `earliest`, the first offset that remains"
            )
    return batch
