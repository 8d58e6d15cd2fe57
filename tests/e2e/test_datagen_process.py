"""The producer that emulates Datagen: the initial records, then a constant rate, until a signal stops it."""

import json
import os
import signal
import subprocess
import sys
import uuid

import yaml

from lakehouse.core.polling import poll
from tests.support.topics import TRADES, consume
from tools.repository import PROJECT

DEADLINE_SECONDS = 60


def wait_for(resources, topic, count):
    """Wait until the topic has `count` offsets, and return their number."""

    def offset_count():
        if topic not in resources.kafka.describe([topic]):
            return 0
        return sum(offsets.end - offsets.start for offsets in resources.kafka.offsets([topic])[topic].values())

    reached = poll(offset_count, until=lambda number: number >= count, pause=0.1, deadline_seconds=DEADLINE_SECONDS)
    assert reached >= count, f"{topic} has {reached} records after {DEADLINE_SECONDS} s, not {count}"
    return reached


def test_datagen_produces_initial_records_then_constant_rate(resources, tmp_path):
    topic = f"made-{uuid.uuid4().hex[:8]}"
    source = {
        "type": "datagen",
        "quickstart": "STOCK_TRADES",
        "schema_file": "trades.avsc",
        "initial_records": 2_000,
        "records_per_second": 100,
    }
    (tmp_path / "trades.avsc").write_text(TRADES)
    environments = yaml.safe_load((PROJECT / "lakehouse.yaml").read_text())["environments"]
    declared = {topic: {"partitions": 2, "source": source}}
    file = tmp_path / "lakehouse.yaml"
    file.write_text(yaml.safe_dump({"namespace": "made", "topics": declared, "environments": environments}))

    def run(count):
        command = [sys.executable, "-m", "lakehouse.local.servers.datagen_process"]
        process = subprocess.Popen(command, env=os.environ | {"LAKEHOUSE_CONFIG": str(file)}, cwd=PROJECT)
        try:
            offset_count = wait_for(resources, topic, count)
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        finally:
            process.kill()
        return offset_count

    # More than the initial records: the constant rate has started.
    run(2_050)
    messages = consume(topic, 2)
    assert len(messages) >= 2_050
    options = {f["name"]: f["type"].get("arg.properties", {}).get("options") for f in json.loads(TRADES)["fields"]}
    assert {message.key.decode() for message in messages} == set(options["symbol"])
    assert {dict(message.headers)["task.generation"] for message in messages} == {b"0"}
    iterations = {int(dict(message.headers)["current.iteration"]) for message in messages}
    assert iterations == set(range(len(messages)))

    # A second start finds the initial records, and continues at the rate instead of producing 2,000 more at once.
    second_count = run(len(messages) + 10)
    assert second_count < len(messages) + 1_000
