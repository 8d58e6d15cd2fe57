"""The commands `lakehouse pause` and `lakehouse unpause`."""

import click

from lakehouse.cli.systems import open_clients
from lakehouse.config import loader
from lakehouse.core.errors import LakehouseError
from lakehouse.core.text.terminal import echo
from resources.iceberg import pauses


@click.command()
@click.argument("topic")
@click.option("--reason", default="", metavar="TEXT", help="Reason, shown by `lakehouse status` and the UI.")
def pause(topic: str, reason: str) -> None:
    """Pause TOPIC in the runs, streams and sensors of all processes. The pause survives restarts.

    A batch in progress is completed first. Other topics are not affected. No record is lost while Kafka retains it.
    """
    declared = loader.load()
    declared.topic_written_by_spark(topic)
    with open_clients(declared) as resources:
        echo(f"{topic}: {pauses.pause(resources.catalog, declared.namespace, topic, reason).describe()}")
    echo(f"Resume with `lakehouse unpause {topic}`")


@click.command()
@click.argument("topic")
def unpause(topic: str) -> None:
    """Resume TOPIC from the offsets in its table: streams within seconds, sensors with their next tick."""
    declared = loader.load()
    with open_clients(declared) as resources:
        # The pause is removed first, because lakehouse.yaml may no longer declare the topic.
        if not pauses.unpause(resources.catalog, declared.namespace, topic):
            declared.topic(topic)
            raise LakehouseError(f"Topic '{topic}' is not paused. Nothing was changed. See `lakehouse status`")
    echo(f"{topic}: resumed")
