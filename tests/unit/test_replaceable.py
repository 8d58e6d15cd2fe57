"""The rule that no test replaces a function or class of the project, which tests/conftest.py enforces."""

from functools import partial
from types import SimpleNamespace

import pytest

from lakehouse.config import loader
from resources.kafka import kafka
from resources.kafka.kafka import Kafka
from tests.simulation.world import replaced


class Cluster(Kafka):
    """A class of tests."""

    def topics(self):
        return []


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (loader, "load"),
        ("lakehouse.config.loader", "load"),
        (kafka, "Kafka"),
        (Kafka, "topics"),
        (Kafka, "servers"),
        (Cluster, "offsets"),
        (Kafka(bootstrap_servers="none:1"), "topics"),
        (SimpleNamespace(read=partial(loader.load, None)), "read"),
    ],
)
def test_replacing_code_of_the_project_is_refused(monkeypatch, owner, name):
    target = (f"{owner}.{name}",) if isinstance(owner, str) else (owner, name)
    with pytest.raises(AssertionError, match="code of the project"):
        monkeypatch.setattr(*target, None)


def test_simulation_replacing_code_of_the_project_is_refused():
    with pytest.raises(AssertionError, match="code of the project"), replaced({Kafka: {"topics": None}}):
        pass


def test_replacing_limits_libraries_and_code_of_tests_is_allowed(monkeypatch):
    monkeypatch.setattr(kafka, "TIMEOUT_SECONDS", 1)
    monkeypatch.setattr("resources.kafka.kafka.TIMEOUT_SECONDS", 2)
    monkeypatch.setattr("json.dumps", repr)
    monkeypatch.setattr(loader, "yaml", None)
    monkeypatch.setattr(Cluster, "topics", lambda self: ["orders"])
    assert (kafka.TIMEOUT_SECONDS, Cluster(bootstrap_servers="none:1").topics()) == (2, ["orders"])
