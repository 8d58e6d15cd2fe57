"""Another environment on the same Kafka cluster: the same entries, and a catalog of its own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from lakehouse.config.model import Topic
from lakehouse.core.errors import LakehouseError, UnclearState
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.ingestion import ingest
from tests.simulation.engine.memory_engine import MemoryEngine
from tests.simulation.oracles.oracle import Violation
from tests.simulation.schedules.schedule import NAMESPACE, Schedule, exhaust
from tests.simulation.systems.catalog import MemoryIcebergCatalog, SimulatedCatalog


class Elsewhere:
    """Another environment.

    Attributes:
        clients: Its clients; Kafka and the registry are those of the schedule.
    """

    def __init__(self, schedule: Schedule):
        iceberg = MemoryIcebergCatalog(schedule.world)
        engine = MemoryEngine(schedule.world, schedule.kafka, iceberg)
        self.clients = Clients(schedule.kafka, schedule.registry, engine, SimulatedCatalog.on(iceberg))

    def ingest(self, topic: Topic) -> None:
        """Ingest what the topic has."""
        exhaust(ingest(NAMESPACE, topic, self.clients))

    def judge_stopped(self, topic: Topic, produce: Callable[[], object]) -> None:
        """Ingest a topic, and judge that nothing is produced to a topic that has messages of the first environment.

        Raises:
            Violation: Something may have been produced.
        """
        # It may not be able to ingest what the first one has.
        with suppress(LakehouseError):
            self.ingest(topic)
        try:
            produced = produce()
        except LakehouseError as error:
            if isinstance(error, UnclearState) or "was aborted" not in str(error):
                return
            raise Violation(f"another environment fails to produce: {error}") from error
        if produced:
            raise Violation("another environment produced to a topic that has messages of the first one")
