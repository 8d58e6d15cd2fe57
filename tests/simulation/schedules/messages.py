"""Schedules in which several processes produce dead letters to a topic, in transactions with a bookmark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

import resources.kafka.transactions
import spark.tables.dead_letters
from lakehouse.core.errors import TransientError
from lakehouse.core.offsets.batch import Positions
from lakehouse.core.polling import Clock, poll
from lakehouse.pipeline.dead_letters.dead_letter_topic import publish_dead_letters
from tests.simulation.choices import Choices
from tests.simulation.engine.decoding_jobs import is_of
from tests.simulation.engine.memory_spark import Letter, Rows
from tests.simulation.oracles.oracle import Violation, place_of
from tests.simulation.schedules.schedule import ACTIONS, NAME, NAMESPACE, RECOVERIES, Schedule
from tests.simulation.systems.messages import MessageKafka
from tests.simulation.world import replaced

TARGET = "letters"
RECORD = pa.struct(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)
LETTERS = pa.schema([("error_reason", pa.string()), ("error_message", pa.string()), ("source_record", RECORD)])


@dataclass(frozen=True)
class Selected:
    """A lazy DataFrame of dead letters in order."""

    letters: Rows
    includes: Callable[[Letter], bool]

    def toArrow(self) -> pa.Table:  # noqa: N802
        """Read the letters."""
        letters = sorted(filter(self.includes, self.letters.collect()), key=lambda letter: place_of(letter.record))
        return pa.Table.from_pylist([_row(letter) for letter in letters], schema=LETTERS)


def _row(letter: Letter) -> dict[str, Any]:
    record = letter.record
    identity = ":".join(map(str, place_of(record))).encode()
    source = {"topic": NAME, "partition": record.partition, "offset": record.offset, "headers": [], "value": identity}
    return {"error_reason": letter.reason, "error_message": letter.reason, "source_record": {**source, "key": b"k"}}


def between(letters: Rows, topic_id: str, since: Positions, upto: Positions) -> Selected:
    """Return the dead letters of a range of offsets."""
    return Selected(letters, lambda letter: is_of(letter.record, topic_id, since, upto))


class MessageSchedule(Schedule):
    """A schedule in which processes produce the dead letters of the table to a topic."""

    kafka: MessageKafka

    def __init__(self, choices: Choices):
        super().__init__(choices, MessageKafka)
        self.topic = self.topic.model_copy(update={"dead_letter_topic": TARGET})

    @property
    def actions(self) -> tuple[str, ...]:
        """The actions of ingestion in which no operator decides about positions, and the production of letters."""
        common = tuple(name for name in ACTIONS if name not in ("replay", "resume", "recreate", "retain"))
        return (*common, *("produce letters",) * 5)

    def programs(self) -> dict[str, Callable[[], object]]:
        """Return the programs of ingestion, and the one that produces dead letters."""
        program = partial(publish_dead_letters, NAMESPACE, self.topic, self.clients)
        return super().programs() | {"produce letters": program}

    def act(self) -> None:
        """Perform one action, and judge the messages."""
        super().act()
        self.judge_messages()

    def produced(self) -> Counter[str]:
        """Return how often each record is a committed message."""
        if TARGET not in self.kafka.topics:
            return Counter()
        partitions = range(len(self.kafka.topics[TARGET].partitions))
        messages = (message for p in partitions for message in self.kafka.committed(TARGET, p))
        return Counter((message.value or b"").decode() for message in messages)

    def judge_messages(self) -> None:
        """Judge that no dead letter was produced twice."""
        if twice := [place for place, count in self.produced().items() if count > 1]:
            self.oracle.violations.append(f"dead letters were produced twice: {twice}")

    def run(self) -> None:
        """Run the schedule, in which polling takes simulated time."""
        clock = Clock(self.world.now, self.world.advance)
        with replaced(
            {
                spark.tables.dead_letters: {"between": between},
                resources.kafka.transactions: {"poll": partial(poll, clock=clock)},
            }
        ):
            super().run()

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
        expected = {":".join(map(str, place_of(letter.record))) for letter in self.oracle.letters()}
        if expected != set(self.produced()):
            raise Violation(f"the letters {sorted(expected)} were produced as {sorted(self.produced())}")
