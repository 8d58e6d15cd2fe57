"""Freshness is never called good without evidence: whatever else was found, it is unknown, and why is said."""

import time
import uuid
from collections import deque
from types import SimpleNamespace
from typing import Any, ClassVar

import dagster as dg
import pyarrow as pa
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE, KafkaError

from assets.standing import Standing, standing_checks
from lakehouse.cli import console
from lakehouse.cli.status import status
from lakehouse.config.loader import Config
from lakehouse.config.topic import Topic
from lakehouse.core.batch import TOKEN, Batch
from lakehouse.core.bookmark import TOPIC, Bookmark
from lakehouse.readers.hops import measure
from resources.catalog import Catalog
from resources.kafka import Kafka, Offsets, TopicDescription
from resources.kafka import Received as Message

NAME = "orders"
END = 1_000
"""Up to here the table holds the topic."""
HOURS_MS = 3_600_000


class Received:
    """A message, or an error, as a consumer hands it out; `ago_ms` is how long ago it was produced."""

    def __init__(self, offset=END, error=None, ago_ms=0, kind=TIMESTAMP_CREATE_TIME):
        self._offset, self._error = offset, error
        self._timestamp = kind, int(time.time() * 1000) - ago_ms

    def offset(self):
        return self._offset

    def partition(self):
        return 0

    def error(self):
        return self._error

    def timestamp(self):
        return self._timestamp


class Consumer:
    """A consumer that hands out what is there."""

    def __init__(self, there):
        self.there = deque(there)

    def poll(self, seconds):
        return self.there.popleft() if self.there else None

    def assign(self, partitions):
        pass

    pause = assign

    def close(self):
        pass


class Broker(Kafka):
    """Kafka with one topic, and what its consumers receive."""

    log: ClassVar[dict[str, Any]] = {}

    def cluster_id(self):
        return "cluster"

    def topics(self):
        return []

    def describe(self, topics):
        ids = {TOPIC: self.log["bookmarks"], "flagged": "flagged"}
        found = {topic: ids.get(topic, self.log["id"]) for topic in topics if topic not in self.log["gone"]}
        return {topic: TopicDescription(id_, 1, self.log["leaderless"]) for topic, id_ in found.items()}

    def offsets(self, topics, *, committed=True):
        return {topic: {0: Offsets(0, 1) if topic == TOPIC else self.log["offsets"]} for topic in topics}

    def messages(self, topic, partition, start, end):
        bookmark = Bookmark("cluster", "first", self.log["derived"], "table", 1, 0, self.log["bookmark"])
        yield Message(b"lakehouse.flagged", bookmark.to_json().encode(), [])

    def _consumer(self, *settings, **more):
        return Consumer(self.log["receives"])


@pytest.fixture
def systems(tmp_path):
    """A table that holds the topic's first thousand offsets, in a catalog of its own."""
    waiting = Received(ago_ms=1_000)
    whole = {"id": "first", "gone": (), "leaderless": (), "bookmark": {0: END}, "derived": "flagged"}
    Broker.log.clear()
    Broker.log.update(whole, bookmarks=str(uuid.uuid4()), offsets=Offsets(0, END + 5), receives=[waiting])
    catalog = Catalog(type="sql", warehouse=f"file://{tmp_path}", uri=f"sqlite:///{tmp_path}/catalog.db")
    iceberg = catalog.iceberg()
    iceberg.create_namespace("shop")
    rows = pa.table({"id": pa.array([1], pa.int64())})
    token = Batch("cluster", NAME, "first", {0: 0}, {0: END}).to_json()
    iceberg.create_table(("shop", NAME), rows.schema).append(rows, snapshot_properties={TOKEN: token})
    return SimpleNamespace(kafka=Broker(bootstrap_servers="127.0.0.1:1"), catalog=catalog)


def config_of(**topics):
    declared = {name: Topic.model_validate({"name": name, "key": "id", **more}) for name, more in topics.items()}
    return Config(namespace="shop", topics=declared, environments={})


def hop_of(systems, hop="iceberg", name=NAME, **topics):
    config = config_of(**(topics or {NAME: {}}))
    return measure(hop, config, config.topic(name), systems)


def eof(offset):
    return Received(offset, KafkaError(KafkaError._PARTITION_EOF))


UNKNOWN = {
    "deleted": ({"gone": (NAME,)}, "Topic 'orders' does not exist"),
    "recreated": ({"id": "second", "offsets": Offsets(0, 900)}, "is not the one table orders was filled from"),
    "recreated, and longer": ({"id": "second"}, "is not the one table orders was filled from"),
    "truncated": ({"offsets": Offsets(0, 10)}, "ends at 10, but table orders was filled up to offset 1000"),
    "expired": ({"offsets": Offsets(1_500, 1_500)}, "lost offsets 1000 to 1499 to retention"),
    "without a leader": ({"leaderless": (0,)}, "it has no leader"),
    "unreadable": ({"receives": [Received(error=KafkaError(KafkaError._BAD_MSG))]}, "could not be read"),
    "ends early": ({"receives": [eof(END + 1), Received(error=KafkaError(KafkaError._BAD_MSG))]}, "could not be read"),
    "from the future": ({"receives": [Received(ago_ms=-3 * HOURS_MS)]}, "s in the future"),
    "without a timestamp": ({"receives": [Received(kind=TIMESTAMP_NOT_AVAILABLE)]}, "has no timestamp"),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_without_evidence_it_is_unknown(systems, case):
    found, why = UNKNOWN[case]
    Broker.log.update(found)
    hop = hop_of(systems)
    assert not hop.fresh and hop.said.startswith("topic → Iceberg: unknown: ") and why in hop.said


def test_a_broker_that_stays_silent_is_no_evidence(systems, monkeypatch):
    monkeypatch.setattr("resources.oldest_records.TIMEOUT_SECONDS", 0.01)
    Broker.log["receives"] = []
    hop = hop_of(systems)
    assert not hop.fresh and "Kafka sent nothing within" in hop.said


def test_a_record_and_the_end_of_the_log_are_evidence(systems):
    hop = hop_of(systems)
    assert hop.fresh and hop.said.startswith("topic → Iceberg: 5 records behind, for 1 s")
    Broker.log["receives"] = [eof(END + 5)]
    assert hop_of(systems).fresh
    Broker.log.update(offsets=Offsets(0, END), receives=[])
    assert hop_of(systems).said == "topic → Iceberg: has every record"
    Broker.log.update(offsets=Offsets(0, END + 5), receives=[Received(ago_ms=HOURS_MS)])
    assert not hop_of(systems).fresh


def test_a_topic_that_others_make_is_missed_and_one_made_here_is_not(systems):
    Broker.log["gone"] = ("carts", "trades")
    made = {"source": {"type": "datagen", "schema_file": "x.avsc"}}
    assert not hop_of(systems, name="carts", carts={}).fresh
    assert hop_of(systems, name="trades", trades=made).said == "topic → Iceberg: the topic does not exist yet"


@pytest.mark.parametrize(
    ("log", "fresh", "why"),
    [
        ({}, True, "has every record"),
        ({"gone": ("flagged",)}, False, "1,000 records behind, for 3,600 s"),
        ({"derived": "one before"}, False, "1,000 records behind, for 3,600 s"),
        ({"bookmark": {0: 10}, "offsets": Offsets(END, END)}, False, "unknown: 'flagged' was not computed from rows"),
        ({"gone": (NAME,)}, False, "unknown: Topic 'orders' does not exist"),
    ],
)
def test_a_derived_topic_is_as_fresh_as_is_known(systems, log, fresh, why):
    Broker.log.update({"offsets": Offsets(0, END), "receives": [Received(0, ago_ms=HOURS_MS)], **log})
    source = {"source": {"type": "derived", "from": NAME, "transform": "spark.flags:flagged"}}
    hop = hop_of(systems, "kafka", "flagged", **{NAME: {}, "flagged": source})
    assert hop.fresh is fresh and why in hop.said


def test_status_shows_what_is_unknown_and_why(systems, monkeypatch):
    monkeypatch.setattr(console.console, "width", 2_000)
    Broker.log["id"] = "second"
    config = config_of(**{NAME: {}})
    with console.console.capture() as shown:
        console.console.print(console.topics(status(config, systems)))
    assert "unknown: Topic 'orders' is not the one table orders was filled from" in shown.get()


def test_a_check_that_breaks_keeps_no_other_of_its_asset_from_reporting():
    def breaks(context):
        raise KeyError("nobody foresaw it")

    def holds(context):
        return dg.AssetCheckResult(check_name="holds", asset_key=["iceberg", NAME], passed=True)

    checks = [Standing(name, "", frozenset(), run) for name, run in (("breaks", breaks), ("holds", holds))]
    made = standing_checks(Topic(name=NAME), "iceberg", checks)
    job = dg.define_asset_job("checks", dg.AssetSelection.checks(made))
    definitions = dg.Definitions(assets=[dg.AssetSpec(["iceberg", NAME])], asset_checks=[made], jobs=[job])
    done = definitions.resolve_job_def("checks").execute_in_process(raise_on_error=False)
    assert not done.success
    assert [(one.check_name, one.passed) for one in done.get_asset_check_evaluations()] == [("holds", True)]
