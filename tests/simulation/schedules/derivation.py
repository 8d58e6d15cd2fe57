"""Schedules in which several processes derive a topic from the table: from single rows, or from groups of rows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import resources.kafka.transactions
from lakehouse.config.discovery import environment_name
from lakehouse.config.model import Config, Topic
from lakehouse.core.errors import LakehouseError, TransientError, UnclearState
from lakehouse.core.offsets.bookmark import Bookmark
from lakehouse.core.table_protocol import BOOKMARKS
from lakehouse.pipeline.bookmarks import set_derived_bookmark
from lakehouse.pipeline.derivation.derivation import derive
from lakehouse.readers.reader_lag import measure_lag
from resources.kafka.bookmark_topic import derived_bookmark_name
from tests.simulation.choices import Choices
from tests.simulation.engine.derived_rows import parsed
from tests.simulation.oracles.oracle import Place, Violation, place_of
from tests.simulation.schedules.elsewhere import Elsewhere
from tests.simulation.schedules.schedule import ACTIONS, NAME, NAMESPACE, RECOVERIES, UNLIMITED, Schedule
from tests.simulation.schedules.source_topic import GOOD
from tests.simulation.schedules.table_events import roll_back
from tests.simulation.systems.messages import MessageKafka

TARGET = "derived"


def derived_topic(*, is_grouped: bool) -> Topic:
    """Return a topic that is derived from single rows, or from groups of rows."""
    source = {"type": "derived", "from": NAME, "transform": "tests.simulation.engine.derived_rows:transform"}
    grouped = {"mode": "upsert", "key": ("id",), "key_format": "avro"} if is_grouped else {}
    groups = {"group_by": ("id",)} if is_grouped else {}
    return Topic(name=TARGET, partitions=1, source=source | groups, max_records_per_batch=4, **grouped)


class DerivationSchedule(Schedule):
    """A schedule with a derived topic.

    Attributes:
        skipped: The offsets by topic id and partition before which an operator has decided which rows are derived.
        position: The position that the operator sets.
        setting: The number of commands that are setting it: the bookmark may have it, and `skipped` not yet.
        omitted: The places whose rows are never derived, because the table had them or had not reached them when an
            operator set the present position after them; with the systems that the position is about.
        repeatable: The places whose rows were derived from a table that was dropped, and that the next table did not
            have when the operator set a position. Nothing tells later that they were derived.
    """

    kafka: MessageKafka

    def __init__(self, choices: Choices):
        super().__init__(choices, MessageKafka, modes=("append",))
        self.is_grouped, self.position, self.setting = bool(choices.below(2)), "latest", 0
        self.skipped: dict[str, dict[int, int]] = {}
        self.omitted: tuple[object, set[Place]] = None, set()
        self.repeatable: set[Place] = set()
        self.kafka.message_seconds = choices.of((0.0, 100.0))
        self.derived = derived_topic(is_grouped=self.is_grouped)
        self.elsewhere = Elsewhere(self)

    @property
    def config(self) -> Config:
        """The configuration."""
        topics = {NAME: self.topic, TARGET: self.derived}
        return Config(namespace=NAMESPACE, topics=topics, environments={environment_name(): {}})

    @property
    def actions(self) -> tuple[str, ...]:
        """The actions of ingestion, derivations, rollbacks, and the deletion of the derived topic."""
        of_table = "roll back", "roll back", "delete derived", "drop table", "bookmark", "derive elsewhere"
        return (*ACTIONS, *("derive",) * 6, *of_table)

    def programs(self) -> dict[str, Callable[[], object]]:
        """Return the programs of ingestion, the derivation, and the command that sets its position."""
        return super().programs() | {"derive": self.derive, "bookmark": self.set_bookmark}

    def events(self) -> dict[str, Callable[[], object]]:
        """Return the events of ingestion, rollbacks, and the deletion of the derived topic."""
        rolling_back = partial(roll_back, self.world, self.iceberg, self.oracle, NAME)
        of_derived = {"delete derived": self.delete, "derive elsewhere": self.derive_elsewhere}
        return super().events() | {"roll back": rolling_back} | of_derived

    def derive(self) -> None:
        """Derive the topic, which is created first, as its asset does."""
        self.kafka.ensure_topic(TARGET, self.derived.partitions)
        derive(self.config, self.derived, self.clients)

    def derive_elsewhere(self) -> None:
        """Let another environment derive the topic, if it has messages."""
        if self.produced():
            self.world.record("another environment: derives")
            produce = partial(derive, self.config, self.derived, self.elsewhere.clients)
            self.elsewhere.judge_stopped(self.topic, lambda: produce().messages)

    def set_bookmark(self) -> None:
        """Skip all rows of the table, or those up to where the error tells to continue."""
        setting = self.config, self.derived, self.clients, self.position, "simulated"
        topic_id, offsets = self.kafka.topic_id, None
        systems, before = self.systems(), self.passed()
        self.setting += 1
        try:
            offsets = set_derived_bookmark(*setting)
        finally:
            self.setting -= 1
            # A command that fails may have set it, and records that the table has skipped since are then new ones.
            self.omitted = None, set()
            known = offsets or {p: part.end for p, part in self.kafka.log.items()}
            if self.position == "latest":
                # Rows that the table never had are not skipped.
                furthest = self.oracle.furthest.get(topic_id, {})
                known = {p: min(offset, furthest.get(p, 0)) for p, offset in known.items()}
            self.skipped[topic_id] = {p: max(o, self.skipped.get(topic_id, {}).get(p, 0)) for p, o in known.items()}
        derived = {place for _, places in self.produced() for place in places}
        if self.oracle.has_dropped:
            self.repeatable |= derived - before
        if systems == self.systems() and not self.is_grouped:
            passed = (before & self.passed()) - derived
            self.omitted = systems, {place for place in passed if place[2] < offsets.get(place[1], 0)}

    def measure(self) -> None:
        """Judge also that the derived topic is never called up to date while it lacks rows."""
        super().measure()
        self.measure_derived()

    def measure_derived(self) -> None:
        """Judge that the derived topic is not called up to date if it lacks rows.

        Raises:
            Violation: It is.
        """
        resources: Any = self.clients
        lag = measure_lag("kafka", self.config, self.derived, resources)
        if "unexpected" in lag.failure:
            raise Violation(f"the freshness of the derived topic could not be measured: {lag.failure}")
        if lag.is_fresh and lag.behind and not lag.behind.missing and not self.setting:
            try:
                self.judge_derived()
            except Violation as lacking:
                raise Violation(f"the derived topic is called up to date, and {lacking}") from lacking

    def systems(self) -> tuple[object, ...]:
        """Return what a position is about: the derived topic, the source topic, and the table."""
        table = self.iceberg.find(NAME)
        target = self.kafka.topics.get(TARGET)
        return target and target.topic_id, self.kafka.topic_id, table and table.metadata.table_uuid

    def passed(self) -> set[Place]:
        """Return the places of the rows, and of all records that the table has not reached."""
        topic_id, position = self.oracle.position
        reached = position if topic_id == self.kafka.topic_id else {}
        ends = {p: part.end for p, part in self.kafka.log.items()}
        ahead = {(self.kafka.topic_id, p, o) for p, end in ends.items() for o in range(reached.get(p, 0), end)}
        return ahead | {place_of(row.record) for row in self.oracle.rows()}

    def is_skipped(self, place: Place) -> bool:
        """Return whether the row of a record need not be derived, because an operator set a later position."""
        topic_id, partition, offset = place
        is_older = any(self.kafka.age(topic_id) < self.kafka.age(other) for other in self.skipped)
        return is_older or offset < self.skipped.get(topic_id, {}).get(partition, 0)

    def delete(self) -> None:
        """Delete the derived topic, so that everything is derived again."""
        self.kafka.topics.pop(TARGET, None)
        self.world.record("operator: deleted the derived topic")

    def finish(self, name: str) -> BaseException | None:
        """Run a program to its end, and return its error; judge a derivation during which nothing else happened."""
        error = super().finish(name)
        if name in ("redrive", "replay"):
            self.measure_derived()
        is_alone = not self.world.processes and not self.world.interrupt_percent
        if name == "derive" and error is None and is_alone and self.has_whole_log():
            self.judge_derived()
        return error

    def has_whole_log(self) -> bool:
        """Return whether the table has the end of the log. After a rollback, nothing is derived until it caught up."""
        topic_id, position = self.oracle.position
        ends = {p: part.end for p, part in self.kafka.log.items()}
        return topic_id == self.kafka.topic_id and all(position.get(p, 0) >= end for p, end in ends.items())

    def act(self) -> None:
        """Perform one action, and judge the messages."""
        super().act()
        self.judge_messages()

    def produced(self) -> list[tuple[bytes, list[Place]]]:
        """Return the key and the rows of each message, in order."""
        if TARGET not in self.kafka.topics:
            return []
        committed = self.kafka.committed(TARGET, 0)
        return [(m.key or b"", parsed(m.value)[1]) for m in committed]

    def bookmark(self) -> Bookmark | None:
        """Return the newest bookmark of the derived topic."""
        stored = self.kafka.topics.get(BOOKMARKS)
        partitions = range(len(stored.partitions) if stored else 0)
        name = derived_bookmark_name(self.derived).encode()
        values = [m.value for p in partitions for m in self.kafka.committed(BOOKMARKS, p) if m.key == name]
        return Bookmark.from_json(values[-1]) if values and values[-1] else None

    def judge_messages(self) -> None:
        """Judge that no row was derived twice, unless its group was derived again, and that the bookmark fits."""
        if self.produced():
            bookmark = self.bookmark()
            if bookmark is None or bookmark.target_id != self.kafka.topics[TARGET].topic_id:
                self.oracle.violations.append("the derived topic has messages, and its bookmark is of another one")
        if self.is_grouped:
            return
        counts = Counter(place for _, places in self.produced() for place in places)
        if twice := [place for place, count in counts.items() if count > 1 and place not in self.repeatable]:
            self.oracle.violations.append(f"rows were derived twice: {twice}")
        systems, omitted = self.omitted
        if omitted and systems == self.systems():
            # What became a dead letter since, or what `resume` skipped, is a new row if something adds it later.
            omitted &= self.passed() - self.oracle.every_letter
        if systems == self.systems() and (against := omitted & counts.keys()):
            self.oracle.violations.append(f"rows were derived that an operator skipped: {sorted(against)}")

    def recover(self) -> None:
        """Recover the table, derive from it, and derive from records that follow.

        Raises:
            Violation: The derivation fails without faults, or a row is missing.
        """
        super().recover()
        self.recover_derivation()
        # Small batches, and records that do not decode, would take a fifth of the time.
        self.source.kinds, self.topic = GOOD, self.topic.model_copy(update=UNLIMITED)
        for _ in range(3):
            self.source.produce()
        if error := self.finish("ingest"):
            raise Violation(f"`ingest` fails without faults: {type(error).__name__} {error}") from error
        self.recover_derivation()

    def recover_derivation(self) -> None:
        """Run commands until the derivation has every row.

        Raises:
            Violation: The derivation fails without faults, or a row is missing.
        """
        commands = ["derive"]
        for _ in range(RECOVERIES):
            error = self.finish(commands[0])
            match error:
                case None:
                    commands.pop(0)
                case TransientError():
                    self.world.advance(resources.kafka.transactions.TIMEOUT_SECONDS)
                case LakehouseError() if "lower 'max_records_per_batch'" in str(error) and self.may_last():
                    if self.derived.max_records_per_batch == 1:
                        self.kafka.message_seconds = 0.0
                    self.derived = self.derived.model_copy(update={"max_records_per_batch": 1})
                case UnclearState() if "lakehouse bookmark" in str(error):
                    if position := re.search(r"--at (earliest|[\d:,]+)", str(error)):
                        self.position = position[1]
                    commands = ["bookmark", "derive"]
                case UnclearState() if "lakehouse resume" in str(error):
                    # A replay made so many snapshots that the metadata file with the position is no longer named.
                    commands = ["resume", "derive"]
                case _:
                    raise Violation(f"`{commands[0]}` fails without faults: {type(error).__name__} {error}") from error
            if not commands:
                break
        else:
            raise Violation(f"{commands} do not end: {error}")
        self.judge_messages()
        self.judge_derived()

    def may_last(self) -> bool:
        """Return whether a transaction may last too long.

        Groups are produced in as many transactions as they need, and so are single rows, with a limit of one record,
        unless topics that were recreated have rows at the same offset.
        """
        offsets = [place[1:] for place in {place_of(row.record) for row in self.oracle.rows()}]
        is_divisible = self.derived.max_records_per_batch == 1 and len(offsets) == len({*offsets})
        return not self.is_grouped and not is_divisible

    def may_be(self, rows: Iterable[Place], derived: Iterable[Place]) -> bool:
        """Return whether the newest message of a group may be derived from these of its rows."""
        required = {row for row in rows if not self.is_skipped(row)}
        return not required or required <= {*derived} <= {*rows}

    def judge_derived(self) -> None:
        """Judge that each row was derived.

        Raises:
            Violation: A row is missing, or was never in the table.
        """
        topic_id, position = self.oracle.position
        if any(position.get(p, 0) < offset for p, offset in self.skipped.get(topic_id, {}).items()):
            # Until the table has the operator's position in every partition, nothing is derived.
            return
        rows = {place_of(row.record): str(row.record.key).encode() for row in self.oracle.rows()}
        if self.is_grouped:
            newest = dict(self.produced())
            groups = {key: sorted(place for place in rows if rows[place] == key) for key in {*rows.values()}}
            if wrong := {key for key, places in groups.items() if not self.may_be(places, newest.get(key, ()))}:
                raise Violation(f"groups {wrong} were derived as {newest}, and their rows are {groups}")
            return
        derived = {place for _, places in self.produced() for place in places}
        if lost := {row for row in rows.keys() - derived if not self.is_skipped(row)}:
            raise Violation(f"rows were not derived: {sorted(lost)}")
