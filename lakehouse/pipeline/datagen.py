"""Topics whose records are generated: by a connector in Confluent Cloud, or by a process of the embedded stack."""

from lakehouse.config.model import Config, Topic
from lakehouse.config.sources import Datagen
from lakehouse.pipeline.clients import Clients


def register(config: Config, topic: Topic, clients: Clients) -> None:
    """Register the schema of a generated topic's records.

    Raises:
        LakehouseError: The registry refuses the schema.
        Unreachable: The registry does not answer.
    """
    assert isinstance(topic.source, Datagen), "this is the producer of that source"
    clients.schema_registry.register(topic.subject("value"), config.text(topic.source.schema_file))
