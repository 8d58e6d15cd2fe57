"""The topic of the guide in docs/topics.md becomes a table."""

from __future__ import annotations

import subprocess
import sys

import yaml

from lakehouse.config.model import Topic
from tests.support.documentation import block
from tests.support.topics import Stream


def test_ingest_topic_of_guide_keeps_newest_state(resources, tmp_path):
    (tmp_path / "produce.py").write_text(block("docs/topics.md", "python", "produce.py"))
    subprocess.run([sys.executable, "produce.py"], cwd=tmp_path, check=True, timeout=120)
    [(name, declared)] = yaml.safe_load(block("docs/topics.md", "yaml", "orders:")).items()
    stream = Stream(resources)
    stream.topic = Topic.model_validate({**declared, "name": name})

    stream.ingest()

    states = {row["order_id"]: row["state"] for row in stream.table().scan().to_arrow().to_pylist()}
    assert states == {number: "SENT" if number < 100 else "PAID" for number in range(900)}
