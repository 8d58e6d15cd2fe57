"""The part of `lakehouse doctor --env` that logs in to Kafka and the schema registry, with each client."""

import json
import re
from collections.abc import Callable, Iterator, Sequence

from pyspark.errors import PySparkException
from pyspark.sql import Row

from lakehouse.config.model import Config
from lakehouse.core.errors import Diagnostic, LakehouseError, redact_credentials
from lakehouse.core.text import pluralize
from resources.kafka.kafka import Kafka
from resources.protocols import Resources, resource_of
from resources.schema_registry import SchemaRegistry

LOGIN = "Correct the login of `{system}` in the environment (docs/logins.md)"
ABSENT = "UnknownTopicOrPartition"
"""Word of Kafka's error for a topic that does not exist."""
CAUSE = re.compile(r"^(?:Caused by: )?(?:[\w.]+\.)?(\w+(?:Exception|Error)): (.+)$", re.MULTILINE)
"""A line of a Java stack trace that has a message."""


def examine_logins(config: Config, resources: Resources) -> Iterator[Diagnostic]:
    """Yield a diagnostic of the login of each client. Nothing is changed, and at most one record is read.

    Args:
        config: lakehouse.yaml.
        resources: Those of the environment; `kafka`, `schema_registry` and `spark` at least.
    """
    kafka = resource_of(resources, "kafka", Kafka)
    registry = resource_of(resources, "schema_registry", SchemaRegistry)
    topics = [topic.topic for topic in config.topics.values()]
    subject = f"{topics[0]}-value" if topics else "lakehouse"

    def librdkafka() -> str:
        return f"logged in at {kafka.servers}, which lists {pluralize(len(kafka.topics()), 'topic')}"

    def of_registry() -> str:
        versions = pluralize(len(registry.versions(subject)), "version")
        return f"logged in at {redact_credentials(registry.address)}, which has {versions} of {subject}"

    yield _diagnostic("Kafka login", librdkafka, "kafka")
    yield _diagnostic("Registry login", of_registry, "schema_registry")
    topic = _existing_topic(kafka, topics)
    if topic is None:
        yield Diagnostic("Driver login", True, "not checked: no declared topic exists. Create one, and repeat this")
    else:
        yield from _of_spark(kafka, resources, topic)


def _existing_topic(kafka: Kafka, topics: Sequence[str]) -> str | None:
    """Return a topic that exists, or any one if librdkafka cannot log in, which has a diagnostic of its own."""
    try:
        described = kafka.describe(topics) if topics else {}
    except LakehouseError:
        return next(iter(topics), None)
    return next((topic for topic in topics if topic in described), None)


def _of_spark(kafka: Kafka, resources: Resources, topic: str) -> Iterator[Diagnostic]:
    absent = f"not checked: topic '{topic}' does not exist"

    def read(**offsets: str) -> Sequence[Row] | None:
        """Return at most one record; None if the topic does not exist."""
        session = resources.spark.session({})
        reader = session.read.format("kafka").options(**kafka.spark_options(), **offsets)
        try:
            return reader.option("kafka.isolation.level", "read_committed").load().select("offset").limit(1).collect()
        except PySparkException as error:
            if ABSENT in str(error):
                return None
            raise

    def driver() -> str:
        nowhere = json.dumps({topic: {"0": 0}})
        rows = read(assign=json.dumps({topic: [0]}), startingOffsets=nowhere, endingOffsets=nowhere)
        return absent if rows is None else f"Spark's driver logged in, and looked up topic '{topic}'"

    def executors() -> str:
        rows = read(subscribe=topic)
        if rows:
            return f"Spark's executors logged in, and read topic '{topic}'"
        return absent if rows is None else f"not checked: topic '{topic}' has no record"

    of_driver = _diagnostic("Driver login", driver, "kafka")
    yield of_driver
    name, remedy = "Executor login", "Correct the login of Spark's driver first"
    yield _diagnostic(name, executors, "kafka") if of_driver.ok else Diagnostic(name, False, "not checked", remedy)


def _diagnostic(subject: str, log_in: Callable[[], str], system: str) -> Diagnostic:
    try:
        return Diagnostic(subject, True, log_in())
    except LakehouseError as error:
        return Diagnostic(subject, False, error.problem, error.remedy or LOGIN.format(system=system))
    except PySparkException as error:
        causes = CAUSE.findall(str(error))
        reason = ": ".join(causes[-1]) if causes else str(error).partition("\n")[0]
        return Diagnostic(subject, False, reason, LOGIN.format(system=system))
