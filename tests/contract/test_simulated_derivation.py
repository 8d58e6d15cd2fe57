"""Derivation in memory of tests/simulation behaves as Spark does: each test runs the same programs with both."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Protocol

import fastavro
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse.config.model import Config, Topic
from lakehouse.core.errors import TransientError, UnclearState
from lakehouse.pipeline.batches.offsets import resume
from lakehouse.pipeline.bookmarks import set_derived_bookmark
from lakehouse.pipeline.derivation.derivation import derive
from lakehouse.pipeline.ingestion import ingest
from lakehouse.pipeline.redrive import redrive
from tests.contract.sites import MemorySite, Sent, ServerSite, Site
from tests.simulation.choices import Choices
from tests.simulation.schedules.derivation import TARGET, DerivationSchedule, derived_topic
from tests.support.topics import Stream, consume, recreate, registry

Message = tuple[str, list[int]]
"""The key of some rows of the source, and their amounts."""


class Derivation(Site, Protocol):
    """A topic with one partition, its table, and a topic that is derived from the table."""

    derived: Topic
    config: Config

    def recreate_derived(self) -> None: ...
    def messages(self) -> list[Message]: ...


class MemoryDerivation(MemorySite):
    """The world of one schedule of the simulation, in which nothing fails."""

    schedule: DerivationSchedule

    def __init__(self, stack: ExitStack, *, is_grouped: bool) -> None:
        super().__init__(stack, DerivationSchedule(Choices(None)))
        self.derived = self.schedule.derived = derived_topic(is_grouped=is_grouped)
        self.config = self.schedule.config
        self.schedule.kafka.create(TARGET, 1)

    def recreate_derived(self) -> None:
        self.schedule.kafka.create(TARGET, 1)

    def messages(self) -> list[Message]:
        records = self.schedule.kafka.every_record
        produced = (
            (key.decode(), [records[place].value for place in places]) for key, places in self.schedule.produced()
        )
        return [(key, sorted(amount for amount in amounts if amount is not None)) for key, amounts in produced]


def amounts_of_rows(rows: DataFrame) -> DataFrame:
    """Return the amount of each row as a list."""
    return rows.select("id", F.array("amount").alias("amounts"))


def amounts_of_groups(rows: DataFrame) -> DataFrame:
    """Return the amounts of all rows with an id."""
    return rows.groupBy("id").agg(F.sort_array(F.collect_list("amount")).alias("amounts"))


class ServerDerivation(ServerSite):
    """A topic and table of the stack, and a topic that is derived from the table."""

    def __init__(self, resources: Any, *, is_grouped: bool) -> None:
        super().__init__(resources, "append")
        source = {"type": "derived", "from": self.topic.name, "transform": f"{__name__}:amounts_of_rows"}
        settings: dict[str, Any] = {"key": [], "max_records_per_batch": 4, "source": source}
        if is_grouped:
            source |= {"transform": f"{__name__}:amounts_of_groups", "group_by": ["id"]}
            settings |= {"mode": "upsert", "key": ["id"], "key_format": "avro"}
        self._target = Stream(resources, partitions=1, settings=settings)
        self.derived = self._target.topic
        topics = {self.topic.name: self.topic, self.derived.name: self.derived}
        self.config = Config(namespace=self.namespace, topics=topics, environments={})

    def recreate_derived(self) -> None:
        recreate(self._target)

    def messages(self) -> list[Message]:
        return [_decoded(message.value or b"") for message in consume(self.derived.topic, 1)]


def _decoded(value: bytes) -> Message:
    schema = json.loads(registry().get_schema(int.from_bytes(value[1:5])).schema_str)
    row = fastavro.schemaless_reader(io.BytesIO(value[5:]), fastavro.parse_schema(schema))
    return row["id"], row["amounts"]


@pytest.fixture(params=("memory", "server"))
def make_derivation(request: Any) -> Iterator[Any]:
    if request.param == "server":
        resources = request.getfixturevalue("resources")
        yield lambda *, is_grouped=False: ServerDerivation(resources, is_grouped=is_grouped)
        return
    with ExitStack() as stack:
        yield lambda *, is_grouped=False: MemoryDerivation(stack, is_grouped=is_grouped)


def run(site: Derivation) -> int:
    """Ingest and derive, and return the number of messages."""
    list(ingest(site.namespace, site.topic, site.clients))
    return derive(site.config, site.derived, site.clients).messages


def transactions(site: Derivation) -> int:
    """Return the number of transactions in the derived topic, each of which ends with a marker."""
    [watermarks] = site.clients.kafka.offsets([site.derived.topic])[site.derived.topic].values()
    return watermarks.end - len(site.messages())


def test_derive_produces_one_message_of_each_new_row(make_derivation: Any) -> None:
    site = make_derivation()
    site.produce(*(Sent(key, amount) for amount, key in enumerate("abbca")))
    assert (run(site), run(site)) == (5, 0)
    site.produce(Sent("b", 5), Sent("c", None))
    assert run(site) == 1
    assert site.messages() == [("a", [0]), ("b", [1]), ("b", [2]), ("c", [3]), ("a", [4]), ("b", [5])]


def test_derive_produces_groups_with_a_new_row_with_all_their_rows(make_derivation: Any) -> None:
    site = make_derivation(is_grouped=True)
    site.produce(*(Sent(key, amount) for amount, key in enumerate("abb")))
    assert (run(site), run(site)) == (2, 0)
    site.produce(Sent("b", 3), Sent("c", 4))
    assert run(site) == 2
    assert sorted(site.messages()) == [("a", [0]), ("b", [1, 2]), ("b", [1, 2, 3]), ("c", [4])]


@pytest.mark.parametrize("is_grouped", (False, True), ids=("rows", "groups"))
def test_derive_produces_redriven_rows(make_derivation: Any, is_grouped: bool) -> None:
    site = make_derivation(is_grouped=is_grouped)
    late = range(2, 7)
    site.produce(Sent("a", 1), *(Sent("a", amount, is_late=True) for amount in late), Sent("b", 7))
    list(ingest(site.namespace, site.topic, site.clients))
    site.register_late()
    assert run(site) == 2
    before = transactions(site)
    redrive(site.namespace, site.topic, site.clients)
    expected = [("a", [1, *late])] if is_grouped else [("a", [amount]) for amount in late]
    assert (run(site), run(site)) == (len(expected), 0)
    assert site.messages()[2:] == expected
    # A transaction has at most four of the single rows.
    assert transactions(site) - before == (1 if is_grouped else 2)


@pytest.mark.parametrize("is_grouped", (False, True), ids=("rows", "groups"))
def test_derive_after_rollback_waits_for_the_same_rows(make_derivation: Any, is_grouped: bool) -> None:
    site = make_derivation(is_grouped=is_grouped)
    site.produce(Sent("a", 1))
    run(site)
    site.produce(Sent("b", 2), Sent("c", 3))
    run(site)
    site.roll_back()
    assert derive(site.config, site.derived, site.clients).messages == 0
    run(site)
    assert site.rows() == [("a", 1), ("b", 2), ("c", 3)]
    assert {(key, *amounts) for key, amounts in site.messages()} == {("a", 1), ("b", 2), ("c", 3)}
    if not is_grouped:
        assert len(site.messages()) == 3


def test_derive_of_a_group_with_skipped_rows_omits_them(make_derivation: Any) -> None:
    site = make_derivation(is_grouped=True)
    site.produce(Sent("a", 1))
    run(site)
    site.produce(Sent("a", 2))
    run(site)
    site.roll_back()
    resume(site.clients, site.namespace, site.topic, "latest", "the batch was wrong")
    site.produce(Sent("b", 3))
    run(site)
    assert dict(site.messages()) == {"a": [1], "b": [3]}


def test_derive_into_a_recreated_topic_begins_anew(make_derivation: Any) -> None:
    site = make_derivation()
    site.produce(Sent("a", 1), Sent("b", 2))
    run(site)
    site.recreate_derived()
    assert run(site) == 2
    assert site.messages() == [("a", [1]), ("b", [2])]


class Recreating:
    """A schema registry before whose first registration a topic is recreated."""

    def __init__(self, registry: Any, recreate_topic: Callable[[], None]) -> None:
        self._registry, self._recreate = registry, [recreate_topic]

    def register(self, subject: str, schema: str) -> int:
        while self._recreate:
            self._recreate.pop()()
        registered: int = self._registry.register(subject, schema)
        return registered


@pytest.mark.parametrize("is_grouped", (False, True), ids=("rows", "groups"))
def test_derive_into_a_topic_recreated_meanwhile_is_aborted(make_derivation: Any, is_grouped: bool) -> None:
    site = make_derivation(is_grouped=is_grouped)
    site.produce(Sent("a", 1), Sent("b", 2))
    run(site)
    site.produce(Sent("c", 3))
    list(ingest(site.namespace, site.topic, site.clients))
    clients = replace(site.clients, schema_registry=Recreating(site.clients.schema_registry, site.recreate_derived))
    with pytest.raises(TransientError, match="created again, while .* none of its messages is visible"):
        derive(site.config, site.derived, clients)
    assert site.messages() == []
    assert run(site) == 3
    assert sorted(site.messages()) == [("a", [1]), ("b", [2]), ("c", [3])]


def test_derive_from_a_recreated_source_needs_a_position(make_derivation: Any) -> None:
    site = make_derivation()
    site.produce(Sent("a", 1), Sent("b", 2))
    run(site)
    site.recreate()
    site.produce(Sent("c", 3))
    with pytest.raises(UnclearState, match="Run `lakehouse resume .*` first"):
        set_derived_bookmark(site.config, site.derived, site.clients, "latest", "derived before")
    resume(site.clients, site.namespace, site.topic, "earliest", "the topic was recreated")
    with pytest.raises(UnclearState, match="was recreated, and its table has rows of both.*lakehouse bookmark"):
        run(site)
    assert len(site.messages()) == 2
    with pytest.raises(UnclearState, match="--at 0:2"):
        set_derived_bookmark(site.config, site.derived, site.clients, "earliest", "all rows are new")
    set_derived_bookmark(site.config, site.derived, site.clients, "0:2", "as the error names")
    site.produce(Sent("d", 4), Sent("e", 5))
    assert (run(site), run(site)) == (1, 0)
    assert site.messages() == [("a", [1]), ("b", [2]), ("e", [5])]


def test_derive_from_a_position_omits_the_rows_before_it(make_derivation: Any) -> None:
    site = make_derivation()
    site.produce(*(Sent("a", amount) for amount in range(3)))
    list(ingest(site.namespace, site.topic, site.clients))
    set_derived_bookmark(site.config, site.derived, site.clients, "0:2", "the first rows are known")
    assert (run(site), run(site)) == (1, 0)
    site.produce(Sent("b", 3))
    run(site)
    assert site.messages() == [("a", [2]), ("b", [3])]
