"""Freshness without evidence: it is reported as unknown with a reason, never as good."""

import time
import uuid
from collections import deque
from types import SimpleNamespace
from typing import Any, ClassVar

import dagster as dg
import pyarrow as pa
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE, KafkaError

from assets.factories import CheckDefinition, asset_checks
from lakehouse.cli import console
from lakehouse.cli.status import status
from lakehouse.config.model import Config, Topic
from lakehouse.core.offsets.batch import Batch
from lakehouse.core.offsets.bookmark import Bookmark
from lakehouse.core.table_protocol import BOOKMARKS, TOKEN
from lakehouse.pipeline.derivation.derivation_settings import DerivationSettings
from lakehouse.readers.reader_lag import measure_lag
from resources.iceberg.catalog import Catalog
from resources.kafka.kafka import Kafka, Offsets, TopicDescription
from resources.kafka.messages import Received as Message

NAME = "orders"
END = 1_000
"""The offset up to which the table contains the topic."""
HOURS_MS = 3_600_000


class Received:
    """A message, or an error, from a consumer; `ago_ms` is the time since it was produced."""

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
    """A consumer that returns the given messages."""

    def __init__(self, messages):
        self.messages = deque(messages)

    def poll(self, seconds):
        return self.messages.popleft() if self.messages else None

    def assign(self, partitions):
        pass

    pause = assign

    def close(self):
        pass


class Broker(Kafka):
    """Kafka with one topic and configurable contents."""

    log: ClassVar[dict[str, Any]] = {}

    def cluster_id(self):
        return "cluster"

    def topics(self):
        return []

    def describe(self, topics):
        ids = {BOOKMARKS: self.log["bookmarks"], "flagged": "flagged"}
        current = {topic: ids.get(topic, self.log["id"]) for topic in topics if topic not in self.log["gone"]}
        return {topic: TopicDescription(id_, 1, self.log["leaderless"]) for topic, id_ in current.items()}

    def offsets(self, topics, *, committed=True):
        return {topic: {0: Offsets(0, 1) if topic == BOOKMARKS else self.log["offsets"]} for topic in topics}

    def messages(self, topic, partition, start, end):
        position, uuid_ = self.log["bookmark"], self.log["identity"]
        identity = "cluster", "first", self.log["derived"], uuid_, "shop.t", "flagged", uuid_
        settings = DerivationSettings("spark.flags:flagged", (), None, ()).values()
        bookmark = Bookmark(*identity, 1, 0, position, settings=settings)
        yield Message(b"lakehouse.derived/flagged", bookmark.to_json().encode(), [])

    def consumer(self, *arguments, **keywords):
        return Consumer(self.log["receives"])


@pytest.fixture
def systems(tmp_path, monkeypatch):
    """A catalog whose table contains the topic's first thousand offsets. The clock does not advance."""
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    pending = Received(ago_ms=1_000)
    normal = {"id": "first", "gone": (), "leaderless": (), "bookmark": {0: END}, "derived": "flagged"}
    Broker.log.clear()
    Broker.log.update(normal, bookmarks=str(uuid.uuid4()), offsets=Offsets(0, END + 5), receives=[pending])
    catalog = Catalog(type="sql", warehouse=f"file://{tmp_path}", uri=f"sqlite:///{tmp_path}/catalog.db")
    iceberg = catalog.iceberg()
    iceberg.create_namespace("shop")
    rows = pa.table({"id": pa.array([1], pa.int64())})
    token = Batch("cluster", NAME, "first", {0: 0}, {0: END}).to_json()
    table = iceberg.create_table(("shop", NAME), rows.schema)
    table.append(rows, snapshot_properties={TOKEN: token})
    Broker.log["identity"] = str(table.metadata.table_uuid)
    return SimpleNamespace(kafka=Broker(bootstrap_servers="127.0.0.1:1"), catalog=catalog)


def config_of(**topics):
    declared = {
        name: Topic.model_validate({"name": name, "key": "id", **settings}) for name, settings in topics.items()
    }
    return Config(namespace="shop", topics=declared, environments={})


def lag_of(systems, stage="iceberg", name=NAME, **topics):
    config = config_of(**(topics or {NAME: {}}))
    return measure_lag(stage, config, config.topic(name), systems)


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
def test_lag_without_evidence_is_unknown(systems, case):
    state, reason = UNKNOWN[case]
    Broker.log.update(state)
    lag = lag_of(systems)
    assert not lag.is_fresh and lag.description.startswith("topic → Iceberg: unknown: ") and reason in lag.description


def test_lag_silent_broker_is_unknown(systems, monkeypatch):
    monkeypatch.setattr("resources.kafka.messages.TIMEOUT_SECONDS", 0.01)
    Broker.log["receives"] = []
    lag = lag_of(systems)
    assert not lag.is_fresh and "Kafka sent nothing within" in lag.description


def test_lag_record_or_end_of_log_is_evidence(systems):
    lag = lag_of(systems)
    assert lag.is_fresh and lag.description.startswith("topic → Iceberg: 5 records behind, for 1 s")
    Broker.log["receives"] = [eof(END + 5)]
    assert lag_of(systems).is_fresh
    Broker.log.update(offsets=Offsets(0, END), receives=[])
    assert lag_of(systems).description == "topic → Iceberg: up to date"
    Broker.log.update(offsets=Offsets(0, END + 5), receives=[Received(ago_ms=HOURS_MS)])
    assert not lag_of(systems).is_fresh


def test_lag_missing_topic_is_unknown_unless_created_here(systems):
    Broker.log["gone"] = ("carts", "trades")
    datagen = {"source": {"type": "datagen", "schema_file": "x.avsc"}}
    assert not lag_of(systems, name="carts", carts={}).is_fresh
    assert lag_of(systems, name="trades", trades=datagen).description == "topic → Iceberg: the topic does not exist yet"


@pytest.mark.parametrize(
    ("log", "fresh", "reason"),
    [
        ({}, True, "up to date"),
        ({"gone": ("flagged",)}, False, "1,000 records behind, for 3,600 s"),
        ({"derived": "one before"}, False, "1,000 records behind, for 3,600 s"),
        ({"bookmark": {0: 10}, "offsets": Offsets(END, END)}, False, "unknown: 'flagged' is not yet derived from rows"),
        ({"gone": (NAME,)}, False, "unknown: Topic 'orders' does not exist"),
    ],
)
def test_lag_of_derived_topic_uses_bookmark(systems, log, fresh, reason):
    Broker.log.update({"offsets": Offsets(0, END), "receives": [Received(0, ago_ms=HOURS_MS)], **log})
    source = {"source": {"type": "derived", "from": NAME, "transform": "spark.flags:flagged"}}
    lag = lag_of(systems, "kafka", "flagged", **{NAME: {}, "flagged": source})
    assert lag.is_fresh is fresh and reason in lag.description


def test_status_shows_unknown_lag_and_reason(systems, monkeypatch):
    monkeypatch.setattr(console.console, "width", 2_000)
    Broker.log["id"] = "second"
    config = config_of(**{NAME: {}})
    with console.console.capture() as output:
        console.console.print(console.topics(status(config, systems)))
    assert "unknown: Topic 'orders' is not the one table orders was filled from" in output.get()


def test_standing_check_that_raises_does_not_block_others():
    def breaks(context):
        raise KeyError("unexpected")

    def passes(context):
        return dg.AssetCheckResult(check_name="passes", asset_key=[NAME, "iceberg"], passed=True)

    checks = [CheckDefinition(name, "", frozenset(), run) for name, run in (("breaks", breaks), ("passes", passes))]
    definition = asset_checks(Topic(name=NAME), "iceberg", checks)
    job = dg.define_asset_job("checks", dg.AssetSelection.checks(definition))
    definitions = dg.Definitions(assets=[dg.AssetSpec([NAME, "iceberg"])], asset_checks=[definition], jobs=[job])
    result = definitions.resolve_job_def("checks").execute_in_process(raise_on_error=False)
    assert not result.success
    assert [(check.check_name, check.passed) for check in result.get_asset_check_evaluations()] == [("passes", True)]
