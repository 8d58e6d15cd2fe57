"""Producers that write continuously while faults are injected."""

from __future__ import annotations

import os
import random
import threading
import time

from confluent_kafka import KafkaException, Producer

from tests.support.topics import TRADES, Stream, framed, trade


class Producers(threading.Thread):
    """Continuous records for one topic: plain and transactional ones, with aborted transactions and invalid records.

    Keys keep their partition as long as the topic keeps its partitions.
    """

    def __init__(self, stream: Stream, seed: int):
        super().__init__(daemon=True)
        self.stream, self.chance = stream, random.Random(seed)
        self.schema_id = stream.schema()
        self.settings = {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"], "linger.ms": 5, "log_level": 0}
        self.number, self.aborted, self.restarts = 0, 0, 0
        self.stopping = threading.Event()
        self.failed: BaseException | None = None

    def run(self) -> None:
        try:
            plain = Producer(self.settings)
            transactional = self._transactional()
            while not self.stopping.wait(0.1):
                self._send(plain, self.chance.randint(1, 60))
                plain.flush(0)
                try:
                    self._transaction(transactional)
                except KafkaException:
                    # The broker was killed: a new producer with the same id aborts the open transaction.
                    self.restarts += 1
                    transactional = self._transactional()
            self._transactional()
            assert plain.flush(60) == 0
        except BaseException as error:
            self.failed = error

    def stop(self) -> None:
        """Stop, with no open transaction.

        Raises:
            BaseException: The error that ended the thread before.
        """
        self.stopping.set()
        self.join(120)
        if self.failed:
            raise self.failed

    def _transactional(self) -> Producer:
        deadline = time.monotonic() + 60
        while True:
            try:
                producer = Producer({**self.settings, "transactional.id": f"chaos-{self.stream.name}"})
                producer.init_transactions(20)
                return producer
            except KafkaException:
                if time.monotonic() > deadline:
                    raise

    def _transaction(self, producer: Producer) -> None:
        producer.begin_transaction()
        self._send(producer, self.chance.randint(0, 30))
        if self.chance.random() < 0.4:
            self.aborted += 1
            producer.flush(10)
            producer.abort_transaction(20)
        else:
            producer.commit_transaction(20)

    def _send(self, producer: Producer, count: int) -> None:
        for _ in range(count):
            self.number += 1
            user = f"User_{self.chance.randint(1, 200)}"
            value = framed(self.schema_id, TRADES, trade(self.number, userid=user))
            kind = self.chance.random()
            if kind < 0.02:
                value = value[: self.chance.randint(0, len(value) - 1)]
            elif kind < 0.10 and self.stream.topic.mode == "upsert":
                value = None
            headers = [("number", str(self.number).encode())]
            producer.produce(self.stream.name, key=user.encode(), value=value, headers=headers)
        producer.poll(0)
