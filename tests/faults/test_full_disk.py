"""The disk is full under the broker (F24): it stops, and what it acknowledged is there when it starts again.

The disk is that of whoever runs the tests. So it is the broker that may not make its files any longer.
"""

import os
import resource
import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from lakehouse.local import process
from lakehouse.local import stack as local_stack
from lakehouse.local.environment import environment
from lakehouse.local.home import Home

MESSAGE_BYTES = 900_000
ROOM_BYTES = 12 * 1024**2
"""Enough for the indexes of a new topic, which are as long as they can become, and for some messages."""


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path / "home")
    yield home
    local_stack.down(home)


def servers(home):
    return {"bootstrap.servers": environment(home)["KAFKA_BOOTSTRAP_SERVERS"], "log_level": 0}


def test_what_a_broker_acknowledged_before_its_disk_was_full_is_kept(home):
    local_stack.up(home, ["kafka"])
    admin = AdminClient(servers(home))  # its answers are lost with it
    admin.create_topics([NewTopic("t", 1)])["t"].result(20)
    broker = process.running(home)["kafka"].leader
    _, most = resource.prlimit(broker.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (ROOM_BYTES, most))

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
        assert time.monotonic() < deadline, "the broker goes on without a disk"
        time.sleep(0.1)

    local_stack.up(home, ["kafka"])
    consumer = Consumer({**servers(home), "group.id": "t", "enable.auto.commit": False})
    consumer.assign([TopicPartition("t", 0, 0)])
    found = {}
    while len(found) < len(acknowledged):
        message = consumer.poll(20)
        assert message and not message.error()
        found[message.offset()] = message.value()
    consumer.close()
    assert {offset: found[offset] for offset in acknowledged} == acknowledged
