"""The work of an asset in a separate process, which SIGKILL ends at a named point."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import confluent_kafka
import dagster as dg

from lakehouse.config.loader import load
from lakehouse.config.sources import Derived
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.commits.staged_commit import OnPhase, Phase
from lakehouse.pipeline.derivation.derivation import derive
from lakehouse.pipeline.ingestion import ingest
from resources.build import build_resources


def die(*_: object) -> None:
    """End the process as kill -9 does: nothing is flushed, closed or aborted."""
    os.kill(os.getpid(), signal.SIGKILL)


PHASES: dict[str, Phase] = {
    "during cleanup": "branch",
    "during stage": "write",
    "after stage": "audit",
    "after dead letters": "publish",
    "before publish": "publish",
}
"""The phase of a batch that begins at, or shortly before, each point."""


def at(point: str) -> OnPhase:
    """Return a callback that ends the process in the phase of a point."""

    def on_phase(phase: Phase) -> None:
        if phase == PHASES.get(point):
            threading.Timer(0.3, die).start() if point.startswith("during") else die()

    return on_phase


class Producer(confluent_kafka.Producer):
    """A producer that ends the process when all messages are in an open transaction."""

    def commit_transaction(self, *args):
        self.flush()
        die()


def main(point: str, config_file: str, name: str) -> None:
    """Run the topic of a lakehouse.yaml, and end the process at the point."""
    config = load(Path(config_file))
    topic = config.topic(name)
    if point == "before commit":
        confluent_kafka.Producer = Producer
    with dg.build_resources(build_resources(config, "local")) as r:
        systems = Clients.of(r)
        if isinstance(topic.source, Derived):
            derive(config, topic, systems)
        else:
            list(ingest(config.namespace, topic, systems, on_phase=at(point)))
