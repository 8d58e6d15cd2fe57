"""The stand-in for Datagen: the initial records, then a steady rate, until it is told to stop."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid

import yaml
from support import TRADES, consume

from lakehouse.config.loader import PROJECT

DEADLINE_SECONDS = 60


def wait_for(resources, topic, count):
    """Until the topic holds so many offsets."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        if topic in resources.kafka.describe([topic]):
            held = sum(o.end - o.start for o in resources.kafka.offsets([topic])[topic].values())
            if held >= count:
                return held
        time.sleep(0.1)
    raise AssertionError(f"{topic} held fewer than {count} records after {DEADLINE_SECONDS} s")


def test_initial_records_then_a_rate_and_a_clean_end(resources, tmp_path):
    topic = f"made-{uuid.uuid4().hex[:8]}"
    source = {"type": "datagen", "schema_file": "trades.avsc", "initial_records": 2_000, "records_per_second": 100}
    (tmp_path / "trades.avsc").write_text(TRADES)
    environments = yaml.safe_load((PROJECT / "lakehouse.yaml").read_text())["environments"]
    declared = {topic: {"key": "symbol", "partitions": 2, "source": source}}
    file = tmp_path / "lakehouse.yaml"
    file.write_text(yaml.safe_dump({"namespace": "made", "topics": declared, "environments": environments}))

    def run(count):
        command = [sys.executable, "-m", "lakehouse.local.datagen"]
        process = subprocess.Popen(command, env=os.environ | {"LAKEHOUSE_CONFIG": str(file)}, cwd=PROJECT)
        try:
            held = wait_for(resources, topic, count)
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        finally:
            process.kill()
        return held

    # More than the initial records: the rate has begun.
    run(2_050)
    messages = consume(topic, 2)
    assert len(messages) >= 2_050
    options = {f["name"]: f["type"].get("arg.properties", {}).get("options") for f in json.loads(TRADES)["fields"]}
    assert {message.key.decode() for message in messages} == set(options["symbol"])

    # A second start finds the initial records there and goes on at the rate: not 2,000 more at once.
    again = run(len(messages) + 10)
    assert again < len(messages) + 1_000
