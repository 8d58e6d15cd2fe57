"""What the README tells a newcomer to do, done as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys

import yaml
from support import Stream

from lakehouse.config.loader import PROJECT
from lakehouse.config.topic import Topic


def block(language: str, holding: str) -> str:
    """The README's first block of code in that language that holds a text."""
    blocks = re.findall(rf"```{language}\n(.*?)```", (PROJECT / "README.md").read_text(), re.DOTALL)
    return next(text for text in blocks if holding in text)


def test_the_topic_that_it_adds_becomes_a_table(resources, tmp_path):
    (tmp_path / "produce.py").write_text(block("python", "produce.py"))
    subprocess.run([sys.executable, "produce.py"], cwd=tmp_path, check=True, timeout=120)
    [(name, declared)] = yaml.safe_load(block("yaml", "orders:")).items()
    stream = Stream(resources)
    stream.topic = Topic.model_validate({**declared, "name": name})

    stream.ingest()

    states = {row["order_id"]: row["state"] for row in stream.table().scan().to_arrow().to_pylist()}
    assert states == {number: "SENT" if number < 100 else "PAID" for number in range(900)}
