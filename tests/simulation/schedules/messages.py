"""Schedules in which several processes produce dead letters to a topic, in transactions with a bookmark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

import resources.kafka.transactions
from lakehouse.core.errors import TransientError
from lakehouse.core.table_protocol import ENTRY
from lakehouse.pipeline.dead_letters.dead_letter_topic import publish_dead_letters
from tests.simulation.choices import Choices
from tests.simulation.oracles.oracle import Violation, place_of
from tests.simulation.schedules.elsewhere import Elsewhere
from tests.simulation.schedules.schedule import ACTIONS, NAME, NAMESPACE, RECOVERIES, Schedule
from tests.simulation.systems.messages import MessageKafka, Received

TARGET = "letters"


def named(entry: str) -> dict[str, str]:
    """Return the settings of an entry of this name, with the same topic and table."""
    return {"name": entry, "kafka_topic": NAME, "table_name": NAME}


class MessageSchedule(Schedule):
    """A schedule in which processes produce the dead letters of the table to a topic."""

    kafka: MessageKafka

    def __init__(self, choices: Choices):
        super().__init__(choices, MessageKafka)
        self.topic = self.topic.model_copy(update={"dead_letter_topic": TARGET})
        # Some letters fit only without a header of theirs.
        self.kafka.max_message_bytes = 1_500
        self.elsewhere = Elsewhere(self)

    @property
    def actions(self) -> tuple[str, ...]:
        """The actions of ingestion in which no operator decides about positions, and the production of letters."""
        common = tuple(name for name in ACTIONS if name not in ("replay", "resume", "recreate", "retain"))
        return (*common, *("produce letters",) * 5, "produce elsewhere", "rename entry")

    def programs(self) -> dict[str, Callable[[], object]]:
        """Return the programs of ingestion, and the one that produces dead letters."""
        program = partial(publish_dead_letters, NAMESPACE, self.topic, self.clients)
        return super().programs() | {"produce letters": program}

    def events(self) -> dict[str, Callable[[], object]]:
        """Return the events of ingestion, another environment, and a changed name of the entry."""
        return super().events() | {"produce elsewhere": self.produce_elsewhere, "rename entry": self.rename}

    def produce_elsewhere(self) -> None:
        """Let another environment produce its letters of the entry whose letters the topic has."""
        if messages := self.messages():
            entry = (dict(messages[-1].headers)[ENTRY] or b"").decode()
            topic = self.topic.model_copy(update=named(entry))
            self.world.record(f"another environment: produces letters of {entry}")
            produce = partial(publish_dead_letters, NAMESPACE, topic, self.elsewhere.clients)
            self.elsewhere.judge_stopped(topic, produce)

    def rename(self) -> None:
        """Rename the entry, which keeps its topic and its table."""
        self.topic = self.topic.model_copy(update=named("renamed" if self.topic.name == NAME else NAME))
        self.world.record(f"operator: renamed the entry to {self.topic.name}")

    def act(self) -> None:
        """Perform one action, and judge the messages."""
        super().act()
        self.judge_messages()

    def messages(self) -> list[Received]:
        """Return the committed messages."""
        if TARGET not in self.kafka.topics:
            return []
        partitions = range(len(self.kafka.topics[TARGET].partitions))
        return [message for p in partitions for message in self.kafka.committed(TARGET, p)]

    def produced(self) -> Counter[str]:
        """Return how often each record is a committed message, by partition and offset."""
        headers = (dict(message.headers) for message in self.messages())
        return Counter(
            ":".join((of[f"lakehouse.{name}"] or b"").decode() for name in ("partition", "offset")) for of in headers
        )

    def judge_messages(self) -> None:
        """Judge that no dead letter was produced twice."""
        if twice := [place for place, count in self.produced().items() if count > 1]:
            self.oracle.violations.append(f"dead letters were produced twice: {twice}")

    def recover(self) -> None:
        """Recover the table, and then produce its dead letters.

        Raises:
            Violation: Producing fails without faults, or a letter is missing.
        """
        super().recover()
        for _ in range(RECOVERIES):
            error = self.finish("produce letters")
            match error:
                case None:
                    break
                case TransientError():
                    self.world.advance(resources.kafka.transactions.TIMEOUT_SECONDS)
                case _:
                    raise Violation(
                        f"producing letters fails without faults: {type(error).__name__} {error}"
                    ) from error
        else:
            raise Violation(f"producing letters does not end: {error}")
        self.judge_messages()
        expected = {":".join(map(str, place_of(letter.record)[1:])) for letter in self.oracle.letters()}
        if expected != set(self.produced()):
            raise Violation(f"the letters {sorted(expected)} were produced as {sorted(self.produced())}")
