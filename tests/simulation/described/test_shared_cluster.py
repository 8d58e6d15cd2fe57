"""Two environments, or two projects, on one Kafka cluster: neither changes what the other one has produced."""

from __future__ import annotations

import re
from contextlib import contextmanager

import pytest

from lakehouse.config.model import Config
from lakehouse.core.errors import UnclearState
from lakehouse.pipeline.bookmark_owners import examine_bookmarks
from lakehouse.pipeline.bookmarks import set_dead_letter_bookmark, set_derived_bookmark
from lakehouse.pipeline.dead_letters.dead_letter_topic import publish_dead_letters
from lakehouse.pipeline.derivation.derivation import derive
from lakehouse.readers.reader_lag import measure_lag
from tests.simulation.choices import Choices
from tests.simulation.described.steps import Derivation, Steps, record
from tests.simulation.schedules.derivation import TARGET
from tests.simulation.schedules.elsewhere import Elsewhere
from tests.simulation.schedules.messages import MessageSchedule
from tests.simulation.schedules.schedule import NAME, NAMESPACE, simulation
from tests.simulation.systems.memory_files import empty_store
from tests.simulation.world import simulated_time


class Letters(Steps, MessageSchedule):
    """A schedule without faults, whose dead letters are produced to a topic."""

    def __init__(self):
        super().__init__(Choices(None))

    @contextmanager
    def begun(self):
        """Provide the systems, and judge at the end that no dead letter was produced twice."""
        with simulation(), empty_store(), simulated_time(self.world):
            yield
            self.judge_messages()
            self.oracle.raise_violations()

    def letters(self, topic):
        """Return the dead letters in a topic, by the offset of their record."""
        if topic not in self.kafka.topics:
            return []
        partitions = range(len(self.kafka.topics[topic].partitions))
        messages = [message for p in partitions for message in self.kafka.committed(topic, p)]
        return sorted(int(dict(message.headers)["lakehouse.offset"]) for message in messages)

    def ingest_bad(self, number):
        self.kafka.produce(0, [record(1, is_garbage=True) for _ in range(number)])
        self.complete("ingest")

    def publish(self, **changes):
        """Publish the dead letters of the entry with other settings."""
        return publish_dead_letters(NAMESPACE, self.topic.model_copy(update=changes), self.clients)


@pytest.fixture
def letters():
    schedule = Letters()
    with schedule.begun():
        schedule.ingest_bad(2)
        yield schedule


def identity_of(clients):
    """Return the UUID of the table of an environment."""
    return str(clients.catalog.iceberg().load_table((NAMESPACE, NAME)).metadata.table_uuid)


@pytest.mark.parametrize("is_grouped", [True, False], ids=["groups", "rows"])
def test_derive_in_second_environment_stops_and_is_adopted(is_grouped):
    schedule = Derivation(is_grouped=is_grouped)
    with schedule.begun():
        schedule.ingest(record(1), record(1))
        # Retention has removed the first records before the second environment begins.
        schedule.kafka.log[0].start = 1
        del schedule.kafka.log[0].records[0]
        elsewhere = Elsewhere(schedule)
        elsewhere.ingest(schedule.topic)
        before = schedule.produced()
        for _ in range(2):
            with pytest.raises(UnclearState) as stopped:
                derive(schedule.config, schedule.derived, elsewhere.clients)
            assert schedule.produced() == before
        assert identity_of(schedule.clients) in str(stopped.value)
        assert identity_of(elsewhere.clients) in str(stopped.value)
        lag = measure_lag("kafka", schedule.config, schedule.derived, elsewhere.clients)
        assert "messages of another table" in lag.failure
        of_foreign, of_own = (
            [*examine_bookmarks(schedule.config, clients)] for clients in (elsewhere.clients, schedule.clients)
        )
        assert [(one.subject, one.ok) for one in (*of_foreign, *of_own)] == [
            (f"bookmark of {TARGET}", False),
            (f"bookmark of {TARGET}", True),
        ]
        # The first environment was not disturbed.
        schedule.ingest(record(1))

        remedy = re.search(r"lakehouse bookmark (\S+) --at (\S+)", str(stopped.value))
        assert remedy[1] == TARGET
        position = "earliest" if is_grouped else "0:3"
        assert remedy[2] == ("earliest" if is_grouped else "POSITION")
        elsewhere.ingest(schedule.topic)
        set_derived_bookmark(schedule.config, schedule.derived, elsewhere.clients, position, "test")
        derive(schedule.config, schedule.derived, elsewhere.clients)
        assert "messages of another table" in str(schedule.finish("derive"))
        if is_grouped:
            assert dict(schedule.produced()) == {b"1": [("id1", 0, 1), ("id1", 0, 2)]}
            # The judgement at the end is of the first environment.
            set_derived_bookmark(schedule.config, schedule.derived, schedule.clients, "earliest", "test")
            schedule.complete("derive")


def test_second_environment_without_table_fences_nothing_off():
    schedule = Derivation()
    elsewhere = Elsewhere(schedule)
    with schedule.begun():
        schedule.ingest(record(1))
        schedule.kafka.produce(0, [record(2)])
        schedule.complete("ingest")
        beside = lambda: derive(schedule.config, schedule.derived, elsewhere.clients)  # noqa: E731
        assert schedule.interrupt("derive", 12, beside) is None


def test_dead_letters_of_projects_with_one_entry_name_reach_own_topics(letters):
    assert letters.publish() == 2
    project = Elsewhere(letters)
    project.ingest(letters.topic)
    other = letters.topic.model_copy(update={"dead_letter_topic": "other-letters"})
    assert publish_dead_letters(NAMESPACE, other, project.clients) == 2
    letters.ingest_bad(1)
    project.ingest(other)
    assert letters.publish() == publish_dead_letters(NAMESPACE, other, project.clients) == 1
    assert letters.letters("letters") == letters.letters("other-letters") == [0, 1, 2]


def test_dead_letters_of_second_environment_stop_until_adopted(letters):
    assert letters.publish() == 2
    elsewhere = Elsewhere(letters)
    elsewhere.ingest(letters.topic)
    with pytest.raises(UnclearState, match="messages of another table") as stopped:
        publish_dead_letters(NAMESPACE, letters.topic, elsewhere.clients)
    assert identity_of(letters.clients) in str(stopped.value) and identity_of(elsewhere.clients) in str(stopped.value)
    assert f"lakehouse bookmark {NAME} --dead-letters --at" in str(stopped.value)
    letters.ingest_bad(1)
    assert letters.publish() == 1
    config = Config(namespace=NAMESPACE, topics={NAME: letters.topic}, environments={})
    set_dead_letter_bookmark(config, letters.topic, elsewhere.clients, "latest", "test")
    letters.ingest_bad(1)
    elsewhere.ingest(letters.topic)
    assert publish_dead_letters(NAMESPACE, letters.topic, elsewhere.clients) == 1
    with pytest.raises(UnclearState, match="messages of another table"):
        letters.publish()
    assert letters.letters("letters") == [0, 1, 2, 3]


def test_dead_letters_reach_changed_topic_from_the_first_on(letters):
    assert letters.publish() == 2
    letters.ingest_bad(1)
    assert letters.publish(dead_letter_topic="next-letters") == 3
    assert letters.letters("next-letters") == [0, 1, 2]
    assert letters.publish() == 1
    assert letters.letters("letters") == [0, 1, 2]


@pytest.mark.parametrize("number", range(32))
def test_dead_letters_into_topic_that_is_recreated_are_produced_once(letters, number):
    assert letters.publish() == 2
    letters.ingest_bad(1)
    letters.interrupt("produce letters", number, lambda: letters.kafka.create("letters", 1))
    letters.complete("produce letters")
    assert letters.letters("letters") == [0, 1, 2]


def test_dead_letters_of_renamed_entry_are_not_repeated(letters):
    renamed = {"name": "renamed", "kafka_topic": NAME, "table_name": NAME}
    assert letters.publish() == 2
    assert letters.publish(**renamed) == 0
    letters.ingest_bad(1)
    assert letters.publish(**renamed) == 1
    letters.ingest_bad(1)
    assert letters.publish() == 1
    assert letters.letters("letters") == [0, 1, 2, 3]


def test_dead_letters_of_renamed_entry_without_bookmark_stop(letters):
    assert letters.publish() == 2
    letters.kafka.topics.pop("lakehouse.bookmarks")
    with pytest.raises(UnclearState, match="no bookmark records which"):
        letters.publish(name="renamed", kafka_topic=NAME, table_name=NAME)
    assert letters.letters("letters") == [0, 1]
