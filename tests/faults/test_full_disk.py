"""A full disk under the broker (F24): it stops, and it has its acknowledged records after a restart.

The disk belongs to the machine that runs the tests, so a limit of the broker's file sizes stands in for a full disk.
"""

import os
import resource
import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from lakehouse.local import stack as local_stack
from lakehouse.local.client_environment import environment
from lakehouse.local.home import Home
from lakehouse.local.processes import process

MESSAGE_BYTES = 900_000
LIMIT_BYTES = 12 * 1024**2
"""Enough for the indexes of a new topic, which are preallocated at full length, and for some messages."""


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path / "home")
    yield home
    local_stack.down(home)


def servers(home):
    return {"bootstrap.servers": environment(home)["KAFKA_BOOTSTRAP_SERVERS"], "log_level": 0}


def test_full_broker_disk_keeps_acknowledged_records(home):
    local_stack.up(home, ["kafka"])
    admin = AdminClient(servers(home))  # deleting the client would lose its pending responses
    admin.create_topics([NewTopic("t", 1)])["t"].result(20)
    broker = process.running(home)["kafka"].leader
    _, hard_limit = resource.prlimit(broker.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (LIMIT_BYTES, hard_limit))

    acknowledged, refused = {}, []
    producer = Producer({**servers(home), "delivery.timeout.ms": 5000})
    for number in range(20):
        value = bytes([number]) + os.urandom(MESSAGE_BYTES)
        producer.produce(
            "t",
            value,
            on_delivery=lambda error, message: (
                refused.append(error) if error else acknowledged.update({message.offset(): message.value()})
            ),
        )
    producer.flush(30)
    assert acknowledged and refused
    deadline = time.monotonic() + 30
    while process.is_alive(broker):
        assert time.monotonic() < deadline, "the broker still runs without a disk"
        time.sleep(0.1)

    local_stack.up(home, ["kafka"])
    consumer = Consumer({**servers(home), "group.id": "t", "enable.auto.commit": False})
    consumer.assign([TopicPartition("t", 0, 0)])
    consumed = {}
    while len(consumed) < len(acknowledged):
        message = consumer.poll(20)
        assert message and not message.error()
        consumed[message.offset()] = message.value()
    consumer.close()
    assert {offset: consumed[offset] for offset in acknowledged} == acknowledged
