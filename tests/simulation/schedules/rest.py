"""Schedules with the tables in a REST catalog, whose commits may have an unknown outcome, and which may maintain the
tables itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from uuid import UUID

from pyiceberg.exceptions import RESTError
from pyiceberg.table.metadata import TableMetadata
from requests import RequestException

from lakehouse.config.model import Topic
from lakehouse.core.errors import ClockSkew, RequestRejected
from lakehouse.core.tables.naming import TableRef
from lakehouse.pipeline.compaction_values import DataFiles
from lakehouse.pipeline.engine_values import JobFailed
from lakehouse.pipeline.ingestion import ingest
from tests.simulation.choices import Choices
from tests.simulation.engine.maintenance import MemoryMaintenance
from tests.simulation.oracles.oracle import Violation
from tests.simulation.schedules.interruptions import Interruptions
from tests.simulation.schedules.readers import ReaderSchedule
from tests.simulation.schedules.schedule import NAME, NAMESPACE, Schedule
from tests.simulation.systems.rest import HISTORY, MemoryRestCatalog
from tests.simulation.world import Process

OF_SERVICE = "compact elsewhere", "expire elsewhere"


class InRestCatalog(Schedule):
    """A schedule with the tables in a REST catalog. A kind of schedule inherits from this class first."""

    catalog_type = MemoryRestCatalog
    iceberg: MemoryRestCatalog

    def __init__(self, choices: Choices):
        super().__init__(choices)
        self.iceberg.repeat_percent = choices.of((0, 3, 10))

    def catalog_settings(self) -> dict[str, str]:
        """Return the settings of a REST catalog, which may issue the credentials of files."""
        return {"type": "rest", "access_delegation": self.choices.of(("none", "vended-credentials"))}

    def judge_error(self, error: BaseException | None) -> None:
        """Judge that a program translates each error of the catalog, which refuses no login.

        Raises:
            Violation: It ends with an error of a client, or says that its login may lack a right.
        """
        super().judge_error(error)
        is_raw = isinstance(error, RESTError | RequestException | RequestRejected)
        refusal = error if isinstance(error, JobFailed) else error and error.__cause__
        if is_raw or (HISTORY in str(refusal) and not isinstance(error, ClockSkew)):
            raise Violation(f"an error of the catalog is not translated: {type(error).__name__} {error}")

    def end_faults(self) -> None:
        """End all faults; no request is repeated any more."""
        self.iceberg.repeat_percent = 0
        super().end_faults()


class _Ingestion(InRestCatalog):
    def __init__(self, choices: Choices):
        super().__init__(choices)
        self.engine.is_compiled = bool(choices.below(2))
        self.topic = self.topic.model_copy(update={"maintenance": choices.of(("lakehouse", "external"))})


class RestSchedule(Interruptions, _Ingestion):
    """A schedule of ingestion with interruptions, half of them with a service that compacts and expires the tables.

    In half of those whose rows are appended, the engine writes files of rows, which pyiceberg commits.
    """

    def __init__(self, choices: Choices):
        super().__init__(choices)
        self._published: dict[Process | None, set[tuple[UUID, int | None]]] = defaultdict(set)
        judge = self.iceberg.on_commit

        def on_commit(name: str, before: TableMetadata | None, after: TableMetadata) -> None:
            if name == NAME and before and before.current_snapshot_id != after.current_snapshot_id:
                self._published[self.world.current].add((after.table_uuid, after.current_snapshot_id))
            judge(name, before, after)

        self.iceberg.on_commit = on_commit

    def programs(self) -> dict[str, Callable[[], object]]:
        """Return the programs of ingestion, whose reports of batches are compared with what they published."""
        topic = self.topic
        return super().programs() | {"ingest": lambda: self.ingest(topic)}

    def ingest(self, topic: Topic) -> None:
        """Ingest the topic, and judge that each batch is reported which was published, whatever the catalog responds.

        The outcome of a commit to a table that was dropped meanwhile cannot be found, and has no rows.

        Raises:
            Violation: One is not.
        """
        reported = {published.snapshot_id for published in ingest(NAMESPACE, topic, self.clients)}
        table = self.iceberg.find(NAME)
        of_table = {
            id_ for uuid, id_ in self._published[self.world.current] if table and uuid == table.metadata.table_uuid
        }
        if missing := of_table - reported:
            raise Violation(f"batches are published and not reported: {missing}")

    @property
    def actions(self) -> tuple[str, ...]:
        """The actions of ingestion, and those of a service that maintains the tables."""
        of_service = OF_SERVICE * 3 if self.topic.maintenance == "external" else ()
        return (*super().actions, *of_service)

    def events(self) -> dict[str, Callable[[], object]]:
        """Return the events of ingestion, and of the service."""
        return super().events() | dict(zip(OF_SERVICE, (self.compact, self.expire), strict=True))

    def replacing(self, process: Process) -> Sequence[str]:
        """Return the actions that replace what programs read, and those of the service."""
        return *super().replacing(process), *OF_SERVICE

    def compact(self) -> None:
        """Rewrite the data files of a table into one."""
        self.maintain("compacted", lambda work, ref: work.compact(ref, DataFiles(1, 1)))

    def expire(self) -> None:
        """Expire all snapshots of a table that no branch or tag names."""
        now = datetime.fromtimestamp(self.world.now(), UTC)
        self.maintain("expired", lambda work, ref: work.expire(ref, now, 1))

    def maintain(self, done: str, step: Callable[[MemoryMaintenance, TableRef], object]) -> None:
        """Maintain the table or its dead letters as the service does."""
        ref = TableRef(NAMESPACE, self.choices.of((NAME, f"{NAME}__dead_letters")))
        table = self.iceberg.find(ref.name)
        if table and table.current_snapshot():
            step(MemoryMaintenance(self.engine), ref)
            self.world.record(f"service: {done} {ref.name}")


class RestReaderSchedule(InRestCatalog, ReaderSchedule):
    """A schedule of readers of a table in a REST catalog."""
