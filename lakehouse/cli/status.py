"""Offsets and lag of each topic: topic → Iceberg → readers."""

from dataclasses import dataclass

from lakehouse.config.model import Config, Topic
from lakehouse.core.errors import logged_reason
from lakehouse.readers.freshness import StageLag
from lakehouse.readers.reader_lag import measure_lag, stages_of
from resources.kafka.kafka import Kafka
from resources.protocols import Resources, resource_of


@dataclass(frozen=True)
class TopicStatus:
    """The status of one topic. Offsets are sums over partitions, or None before the topic or table exists.

    Attributes:
        topic: The name of the topic's entry.
        end_offset: The end of the topic in Kafka.
        ingested_offset: The next offset to be ingested; None if Tableflow ingests, which does not report it.
        stages: The lag of each stage.
        failure: The reason why the offsets are unknown, or ''.
    """

    topic: str
    end_offset: int | None = None
    ingested_offset: int | None = None
    stages: tuple[StageLag, ...] = ()
    failure: str = ""


def status(config: Config, resources: Resources) -> list[TopicStatus]:
    """Return the status of every declared topic, and of every topic in Kafka that matches a route.

    A topic that cannot be read has a status with a failure.

    Raises:
        Unreachable: Kafka does not answer.
    """
    # One request covers all topics; otherwise each topic would wait for the timeout of a Kafka that does not answer.
    names = resource_of(resources, "kafka", Kafka).topics()
    statuses = [_of(config, topic, resources) for topic in [*config.topics.values(), *config.routed_topics(names)]]
    errors = ((name, error) for _, name, error in config.match_routes(names) if not isinstance(error, Topic))
    return [*statuses, *(TopicStatus(name, failure=str(error)) for name, error in errors)]


def _of(config: Config, topic: Topic, resources: Resources) -> TopicStatus:
    def stages() -> tuple[StageLag, ...]:
        return tuple(measure_lag(stage, config, topic, resources) for stage in stages_of(config, topic))

    try:
        by_spark = topic.engine == "spark"
        last = resources.catalog.chain(topic.table_in(config.namespace)).last_batch if by_spark else None
        is_created_here = not topic.source.is_external
        if last is None and is_created_here and topic.topic not in resources.kafka.describe([topic.topic]):
            return TopicStatus(topic.name)
        end_offset = sum(offsets.end for offsets in resources.kafka.offsets([topic.topic])[topic.topic].values())
    except Exception as error:
        failure = logged_reason(f"The status of {topic.name} is unknown", error)
        return TopicStatus(topic.name, stages=stages(), failure=failure)
    ingested_offset = sum(last.end.values()) if last else 0
    return TopicStatus(topic.name, end_offset, ingested_offset if by_spark else None, stages())
