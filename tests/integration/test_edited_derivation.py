"""Settings of a derived entry that are edited between two derivations, and would mix messages of different meaning."""

import json
import os
import re
from collections import Counter

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.schema_registry import topic_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from lakehouse.cli.main import main
from lakehouse.core.errors import IncompatibleSettings, UnclearState
from lakehouse.core.table_protocol import BOOKMARKS
from lakehouse.pipeline.bookmarks import set_derived_bookmark
from lakehouse.pipeline.derivation.derivation import derive
from lakehouse.pipeline.ingestion import ingest
from resources.kafka.bookmark_topic import derived_bookmark_name
from tests.support.topics import Stream, admin, consume, registry, trade

BY_USER = "tests.support.counts:by_user"


class Counts:
    """A topic of trades, and the topic of each user's number of trades, whose settings are edited."""

    def __init__(self, resources):
        self.trades = Stream(resources, partitions=1)
        source = {"type": "derived", "from": self.trades.name, "transform": BY_USER, "group_by": ["userid"]}
        self.counts = Stream(
            resources,
            partitions=1,
            settings={"mode": "upsert", "key": ["userid"], "key_format": "avro", "source": source, "partitions": 1},
        )
        self.counts.namespace = self.trades.namespace
        self.original, self.sent = self.counts.settings, 0

    @property
    def config(self):
        topics = {self.trades.name: self.trades.topic, self.counts.name: self.counts.topic}
        return self.trades.config.model_copy(update={"topics": topics})

    def edit(self, source=None, **settings):
        """Declare the original settings but these."""
        declared = self.original | settings | {"source": self.original["source"] | (source or {})}
        self.counts.settings = {name: value for name, value in declared.items() if value is not None}
        self.counts.topic = type(self.counts.topic).model_validate(self.counts.settings | {"name": self.counts.name})

    def ingest(self, trades):
        self.trades.produce_trades(range(self.sent, self.sent + trades))
        self.sent += trades
        self.trades.ingest()

    def derive(self):
        return derive(self.config, self.counts.topic, self.counts.systems).messages

    def messages(self, topic=None):
        """Return the newest value of each key of the derived topic."""
        decode = AvroDeserializer(registry(), conf={"subject.name.strategy": topic_subject_name_strategy})
        name = topic or self.counts.name
        context = SerializationContext(name, MessageField.VALUE)
        return {m.key: decode(m.value, context)["trades"] for m in consume(name, 1)}

    def expected(self):
        """Return the number of trades of each user."""
        return Counter(trade(n)["userid"] for n in range(self.sent))

    def run(self, tmp_path, monkeypatch, *command):
        """Run a command with the declared settings, and return its result."""
        extra = {self.counts.name: self.counts.settings}
        monkeypatch.setenv("LAKEHOUSE_CONFIG", str(self.trades.declare(tmp_path, extra)))
        return CliRunner().invoke(main, [*command])


@pytest.fixture
def counts(resources):
    counts = Counts(resources)
    counts.ingest(20)
    assert counts.derive() == 9
    return counts


def values(messages):
    return sorted(messages.values())


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"source": {"transform": "tests.support.counts:tenfold"}}, f"with `transform: {BY_USER}`, .*counts:tenfold`"),
        ({"source": {"group_by": ["side", "userid"]}}, "with `group_by: userid`, .*`group_by: side, userid`"),
        ({"key": ["userid", "side"]}, "with `key: userid`, .*`key: userid, side`"),
        (
            {"key_format": None, "mode": "append", "source": {"group_by": []}},
            "with `group_by: userid`, `key_format: avro`, `key: userid`, .*no `group_by`, no `key_format`, no `key`",
        ),
    ],
    ids=["transform", "group_by", "key", "key_format"],
)
def test_derive_with_edited_settings_is_refused_until_restored(counts, edit, message, tmp_path, monkeypatch):
    before = counts.messages()
    counts.ingest(10)
    counts.edit(**edit)

    with pytest.raises(IncompatibleSettings, match=f"were made {message}. Nothing was produced"):
        counts.derive()

    for command in (["plan", counts.counts.name], ["check", counts.counts.name]):
        result = counts.run(tmp_path, monkeypatch, *command)
        assert result.exit_code == 1 and re.search(f"were made {message}", result.output), command
    if "transform" not in edit.get("source", {}):
        with pytest.raises(IncompatibleSettings, match="another `kafka_topic` and `table`"):
            set_derived_bookmark(counts.config, counts.counts.topic, counts.counts.systems, "current", "test")
    assert counts.messages() == before
    counts.edit()
    assert counts.derive() == 9
    assert values(counts.messages()) == sorted(counts.expected().values())


def test_derive_with_edited_key_into_another_topic_has_all_rows(counts):
    before, name = counts.messages(), f"{counts.counts.name}-by-side"
    counts.edit(
        source={"transform": "tests.support.counts:tenfold"},
        key=["side", "userid"],
        kafka_topic=name,
        table="by_side",
    )
    counts.counts.systems.kafka.ensure_topic(name, 1)

    assert counts.derive() == 9

    assert values(counts.messages(name)) == sorted(10 * count for count in counts.expected().values())
    assert counts.messages() == before
    [published] = ingest(counts.trades.namespace, counts.counts.topic, counts.counts.systems)
    assert published.counts.rows == 9


def test_bookmark_current_continues_with_another_transform(counts, tmp_path, monkeypatch):
    before = counts.messages()
    counts.ingest(1)
    counts.edit(source={"transform": "tests.support.counts:tenfold"})

    with pytest.raises(IncompatibleSettings, match=f"`lakehouse bookmark {counts.counts.name} --at current"):
        counts.derive()
    adopted = counts.run(
        tmp_path, monkeypatch, "bookmark", counts.counts.name, "--at", "current", "--reason", "tenfold from now on"
    )

    assert adopted.exit_code == 0 and "partition 0: continues at 20" in adopted.output
    assert counts.derive() == 1
    [changed] = {key: value for key, value in counts.messages().items() if value != before[key]}.values()
    assert changed == 10 * counts.expected()[trade(20)["userid"]]


def test_bookmark_earliest_derives_rows_of_deleted_records_again(counts):
    for deleted in admin().delete_records([TopicPartition(counts.trades.name, 0, 20)]).values():
        deleted.result()
    counts.edit(source={"transform": "tests.support.counts:tenfold"})

    set_derived_bookmark(counts.config, counts.counts.topic, counts.counts.systems, "earliest", "tenfold")

    assert counts.derive() == 9
    assert values(counts.messages()) == sorted(10 * count for count in counts.expected().values())


def test_bookmark_without_settings_is_refused_until_recorded(counts):
    name = derived_bookmark_name(counts.counts.topic).encode()
    *_, (partition, written) = [
        (m.partition, m.value)
        for m in consume(BOOKMARKS, len(admin().list_topics(BOOKMARKS).topics[BOOKMARKS].partitions))
        if m.key == name
    ]
    fields = {key: value for key, value in json.loads(written).items() if key != "settings"}
    producer = Producer({"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]})
    producer.produce(BOOKMARKS, key=name, value=json.dumps(fields | {"version": 3}), partition=partition)
    assert producer.flush(30) == 0
    counts.ingest(10)

    with pytest.raises(
        IncompatibleSettings, match="does not record the settings .* `lakehouse bookmark .* --at current"
    ):
        counts.derive()

    set_derived_bookmark(counts.config, counts.counts.topic, counts.counts.systems, "current", "test")
    assert counts.derive() == 9
    assert values(counts.messages()) == sorted(counts.expected().values())


def test_derive_from_another_topic_is_refused(counts, resources):
    other = Counts(resources)
    other.ingest(5)
    counts.edit(source={"from": other.trades.name})
    counts.trades, counts.sent = other.trades, 5

    with pytest.raises(UnclearState, match="messages of another table"):
        counts.derive()
