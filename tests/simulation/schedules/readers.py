"""Schedules with readers: Glue, Snowflake over Glue, and a REST catalog, which several processes publish at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import requests
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataV2
from pyiceberg.table.snapshots import Snapshot

from lakehouse.config.discovery import environment_name
from lakehouse.config.model import Config
from lakehouse.core.errors import TransientError, UnclearState
from lakehouse.core.offsets.lag import Lag
from lakehouse.pipeline import maintenance
from lakehouse.readers import publish, reader_of
from lakehouse.readers.reader_lag import measure_lag
from tests.simulation.choices import Choices
from tests.simulation.engine.tables import data_files
from tests.simulation.oracles.oracle import Violation
from tests.simulation.oracles.readers import ReaderOracle
from tests.simulation.schedules.roll_overs import SuccessiveOracle
from tests.simulation.schedules.schedule import ACTIONS, NAME, NAMESPACE, RECOVERIES, TURNS, Schedule
from tests.simulation.systems.memory_files import exists
from tests.simulation.systems.readers import (
    MemoryGlueClient,
    MemoryRestServer,
    MemorySnowflakeServer,
    SimulatedGlue,
    SimulatedSnowflake,
    simulated_rest_catalog,
)
from tests.simulation.world import replaced

READERS = ("glue", "snowflake", "rest")
OF_READERS = "commit through Glue", "drop from Glue", "time passes"
WITHOUT_FILES = "memory://none"
"""The list of manifests of snapshots that another writer commits through Glue."""

PUBLICATIONS = {"FORGOTTEN_AT_ONCE": 1, "MAX_PUBLICATIONS": 2}
"""The numbers of snapshots that streams expire and keep: a schedule has few."""


class ReaderSchedule(Schedule):
    """A schedule in which processes publish the table in readers, and the tables that continue it.

    Attributes:
        rolls_over: Whether the type of a field may change, so that ingestion continues in a new table. Other writers
            commit through Glue in other schedules.
        shows: Judges what readers show.
        published_at: When the heads of main of each table were published, in seconds.
        has_expired: Whether snapshots of a table were expired.
        foreign: The metadata file that another writer committed through Glue; None if there is none.
        focus: The readers that programs publish and measure. With one of them, more programs update it at a time.
    """

    oracle: SuccessiveOracle
    oracle_type = SuccessiveOracle
    recovering = ("ingest",)

    def __init__(self, choices: Choices):
        super().__init__(choices)
        world, iceberg = self.world, self.iceberg
        self.rolls_over = self.topic.mode == "append" and bool(choices.below(2))
        self.topic = self.topic.model_copy(update={"on_incompatible": "new_table" if self.rolls_over else "stop"})
        self.shows = ReaderOracle(iceberg.metadata_at, self.oracle.violations)
        self.published_at: dict[str, list[float]] = {}
        self.has_expired = False
        self.foreign: str | None = None
        self.focus = choices.of((READERS, ("glue",)))
        self.turns = TURNS if self.focus == READERS else 2 * TURNS
        self.glue = MemoryGlueClient(world, self.on_shown)
        self.rest = MemoryRestServer(world, iceberg, self.on_shown)
        self.snowflake = MemorySnowflakeServer(world, iceberg, self.glue, self.on_shown)
        settings: dict[str, dict[str, object]] = {"glue": {}, "snowflake": {}, "rest_catalog": {}}
        self.config = Config(
            namespace=NAMESPACE,
            topics={NAME: self.topic},
            environments={environment_name(): settings},
        )
        self.readers = SimpleNamespace(
            catalog=self.clients.catalog,
            kafka=self.kafka,
            glue=SimulatedGlue.on(self.glue),
            snowflake=SimulatedSnowflake.on(self.snowflake),
            rest_catalog=simulated_rest_catalog(choices.of(("overwrite", "notify", "replace"))),
        )
        judge_table = iceberg.on_commit

        def on_commit(name: str, before: TableMetadata | None, after: TableMetadata) -> None:
            if self.shows.committed(name, before, after):
                self.published_at.setdefault(name, []).append(world.monotonic())
            self.has_expired |= before is not None and len(after.snapshots) < len(before.snapshots)
            judge_table(name, before, after)

        iceberg.on_commit = on_commit

    # The oracle

    def on_shown(self, reader: str, table: str, location: str | None) -> None:
        """Judge what a reader shows from now on."""
        if location is None or location == self.foreign:
            return
        if reader == "glue" and self.foreign is not None:
            self.oracle.violations.append("Glue no longer shows what another writer committed through it")
            self.foreign = None
        self.shows.on_shown(reader, table, location)

    def locations(self, table: str) -> dict[str, str | None]:
        """Return the metadata file that each reader shows of a table."""
        return {
            "glue": self.glue.location(NAMESPACE, table),
            "snowflake": self.snowflake.location("DB", NAMESPACE.upper(), table.upper()),
            "rest": self.rest.location(NAMESPACE, table),
        }

    # Actions

    @property
    def actions(self) -> tuple[str, ...]:
        """The actions of ingestion, fewer rare ones, and those of readers."""
        common = tuple(name for name in ACTIONS if name not in ("replay", "redrive", "recreate", "resume", "transact"))
        if self.focus != READERS:
            common = ("produce", "ingest", "maintain", "compact")
        publishing, measuring = ([f"{what} {reader}" for reader in self.focus] for what in ("publish", "measure"))
        special = ("change type", "time passes") if self.rolls_over else OF_READERS
        return (*common, *publishing, *publishing, "publish", "publish", *measuring, *special, "produce", "ingest")

    def programs(self) -> dict[str, Callable[[], object]]:
        """Return the programs of ingestion, and those of readers."""
        publishing = {f"publish {reader}": partial(self.publish, reader) for reader in READERS}
        measuring = {f"measure {reader}": partial(self.measure_reader, reader) for reader in READERS}
        whole = {"publish": lambda: publish(self.config, self.topic, self.readers)}
        return super().programs() | publishing | measuring | whole

    def events(self) -> dict[str, Callable[[], object]]:
        """Return the events of ingestion, and commits of other writers."""
        of_readers = {
            "commit through Glue": self.commit_through_glue,
            "drop from Glue": self.drop_from_glue,
            "time passes": self.pass_time,
        }
        return super().events() | of_readers

    def pass_time(self) -> None:
        """Let more time pass than a stream keeps snapshots for readers; the table keeps few of its metadata files."""
        self.world.advance(self.topic.min_snapshot_age.total_seconds() + 1)
        if table := self.iceberg.find(NAME):
            with table.transaction() as change:
                change.set_properties({"write.metadata.previous-versions-max": "1"})

    def act(self) -> None:
        """Perform one action, and judge whether readers still have the files that they show."""
        super().act()
        if self.has_expired:
            for reader in self.focus:
                for table in self.shows.published:
                    self.judge_files(reader, table)

    def publish(self, name: str) -> None:
        """Publish the table in one reader, as its asset does."""
        reader = reader_of(name)
        assert reader is not None
        ref, table = self.readers.catalog.chain(self.topic.table_in(NAMESPACE)).require_published()
        reader.publish_tables(self.topic, ref, table, self.readers)

    def measure_reader(self, name: str) -> None:
        """Compare the verdict about a reader's freshness with the truth."""
        newest_table = max(self.shows.published, default=NAME)
        newest = len(self.shows.published.get(newest_table, ())) - 1
        lag = measure_lag(name, self.config, self.topic, self.readers)
        self.judge_files(name, newest_table)
        if not lag.is_fresh or not isinstance(lag.behind, Lag) or lag.behind.missing:
            return
        if (
            newest >= 0
            and (lag.behind.absent or self.shows.shown.get((name, newest_table), -1) < newest)
            and name != "rest"
        ):
            self.oracle.violations.append(f"{name} is called fresh, and is behind: {lag.description}")

    def judge_files(self, name: str, table: str) -> None:
        """Judge that the snapshot of a reader which is not long behind has its files. A clock that is wrong expires it.

        Args:
            name: The reader.
            table: The table.
        """
        shown, times = self.shows.shown.get((name, table)), self.published_at.get(table, [])
        location = self.locations(table)[name]
        if shown is None or location is None or any(fault == "clock" for _, fault in self.world.covered):
            return
        behind = self.world.monotonic() - times[shown + 1] if shown + 1 < len(times) else 0.0
        if behind < self.topic.min_snapshot_age.total_seconds() and self.lacks_files(location):
            self.oracle.violations.append(
                f"{name} shows snapshot {shown} of {table}, which is behind since {behind:.0f} s, and lacks files"
            )

    def lacks_files(self, location: str) -> bool:
        """Return whether data files of the snapshot in a metadata file were deleted."""
        metadata = self.iceberg.metadata_at(location)
        table = Table((), metadata, location, self.iceberg.loaded(NAME).io, self.iceberg)
        snapshot = metadata.current_snapshot()
        if snapshot is None or snapshot.manifest_list == WITHOUT_FILES:
            return False
        return not all(exists(file.file_path) for file in data_files(table, snapshot.snapshot_id))

    def commit_through_glue(self) -> None:
        """Commit a snapshot through Glue, as another writer that uses it as its catalog."""
        location = self.glue.location(NAMESPACE, NAME)
        if location is None or self.foreign is not None:
            return
        metadata = self.iceberg.metadata_at(location)
        assert isinstance(metadata, TableMetadataV2)
        sequence_number = metadata.last_sequence_number + 1
        snapshot = Snapshot(
            snapshot_id=metadata.new_snapshot_id(),
            parent_snapshot_id=metadata.current_snapshot_id,
            sequence_number=sequence_number,
            timestamp_ms=int(self.world.now() * 1000),
            manifest_list=WITHOUT_FILES,
        )
        changed = {
            "snapshots": [*metadata.snapshots, snapshot],
            "current_snapshot_id": snapshot.snapshot_id,
            "last_sequence_number": sequence_number,
        }
        self.foreign = f"{location}-foreign.metadata.json"
        self.iceberg.add_metadata(self.foreign, metadata.model_copy(update=changed))
        table = self.glue.get_table(DatabaseName=NAMESPACE, Name=NAME)["Table"]
        parameters = table["Parameters"] | {"metadata_location": self.foreign}
        self.glue.update_table(DatabaseName=NAMESPACE, TableInput={**table, "Parameters": parameters})
        self.world.record("another writer: committed through Glue")

    def drop_from_glue(self) -> None:
        """Drop the table from Glue as an operator, if another writer committed through it."""
        if self.foreign is None:
            return
        self.glue.delete_table(DatabaseName=NAMESPACE, Name=NAME)
        self.foreign = None
        # A process that loaded the table before may create it again, which Snowflake shows.
        self.shows.may_move_back |= {"glue", "snowflake"}
        self.world.record("operator: dropped the table from Glue")

    # The schedule

    def run(self) -> None:
        """Run the schedule while the server in memory handles requests."""
        with replaced({requests: {"request": self.rest.request}, maintenance: PUBLICATIONS}):
            super().run()

    def recover(self) -> None:
        """Recover the table, and then publish it in each reader."""
        super().recover()
        if not self.shows.published:
            return
        for _ in range(RECOVERIES):
            error = self.finish("publish")
            self.oracle.raise_violations()
            match error:
                case None:
                    break
                case UnclearState() if self.foreign is not None and "without its files" in str(error):
                    self.drop_from_glue()
                case TransientError():
                    self.world.advance(60)
                case _:
                    raise Violation(f"`publish` fails without faults: {type(error).__name__} {error}") from error
        else:
            raise Violation(f"`publish` does not end: {error}")
        self.judge_readers()

    def judge_readers(self) -> None:
        """Judge the readers after everything has recovered.

        Raises:
            Violation: A reader does not show the newest snapshot, or is not called fresh.
        """
        for table, published in self.shows.published.items():
            for name, location in self.locations(table).items():
                if location is None or self.iceberg.metadata_at(location).current_snapshot_id != published[-1]:
                    raise Violation(f"{name} does not show the newest snapshot {published[-1]} of {table}: {location}")
        for name in READERS:
            lag = measure_lag(name, self.config, self.topic, self.readers)
            if not lag.is_fresh:
                raise Violation(f"{name} shows the newest snapshot, and is not called fresh: {lag.description}")
