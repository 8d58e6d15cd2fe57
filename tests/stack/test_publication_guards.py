"""Guards that every publication passes: batches, replays, redriven letters, dead letters and recorded decisions."""

import json
from contextlib import nullcontext

import pytest
from moments import once_before
from support import CHEAP, TRADES, Stream, framed, recreate, registry, trade, with_checks

from lakehouse.core.errors import CommitConflict, UnclearState
from lakehouse.pipeline.audit import AuditFailed
from lakehouse.pipeline.ingestion import ingest
from lakehouse.pipeline.position import resume
from lakehouse.pipeline.rehearsal import rehearse
from lakehouse.pipeline.replay import redrive, replay
from resources.schema_registry import SchemaRegistry
from spark import dead_letters, write

FIELDS = [field | ({"type": "string"} if field["name"] == "quantity" else {}) for field in json.loads(TRADES)["fields"]]
QUANTITY_AS_TEXT = json.dumps(json.loads(TRADES) | {"fields": FIELDS})


def filled(resources, **settings):
    stream = Stream(resources, partitions=1, settings=settings)
    stream.produce_trades(range(10))
    stream.ingest()
    return stream


def register_quantity_as_text(stream):
    registry().set_compatibility(subject_name=f"{stream.name}-value", level="NONE")
    return stream.schema(QUANTITY_AS_TEXT)


def keyed(stream, quantity):
    value = framed(stream.schema(), TRADES, trade(0, userid="a", quantity=quantity))
    stream.produce([{"key": b"a", "value": value}])


def test_decision_without_its_position_is_not_published(resources, monkeypatch):
    stream = filled(resources)
    before = stream.table().current_snapshot()
    monkeypatch.setattr(write, "with_properties", lambda *_: nullcontext())

    with pytest.raises(AuditFailed, match="does not say that it holds"):
        resume(stream.systems, stream.namespace, stream.topic, "0:10", "as it is")

    assert stream.table().current_snapshot() == before


def test_decision_for_a_topic_that_is_recreated_meanwhile_is_not_published(resources, monkeypatch):
    stream = filled(resources)
    before = stream.table().current_snapshot()
    once_before(monkeypatch, write, "nothing", lambda: recreate(stream))

    with pytest.raises(UnclearState, match="deleted or recreated"):
        resume(stream.systems, stream.namespace, stream.topic, "0:10", "as it is")

    assert stream.table().current_snapshot() == before


def test_decision_about_a_position_that_a_batch_moved_meanwhile_is_not_published(resources, monkeypatch):
    stream = filled(resources)
    stream.produce_trades(range(10, 20))
    once_before(monkeypatch, SchemaRegistry, "versions", stream.ingest)

    with pytest.raises(CommitConflict):
        resume(stream.systems, stream.namespace, stream.topic, "0:15", "leave some out")

    stream.ingest()
    assert stream.rows() == stream.expected_rows()


def test_configured_start_does_not_move_the_position_of_a_batch_that_was_first(resources, monkeypatch):
    stream = Stream(resources, partitions=1, settings={"start": "latest"})
    stream.produce_trades(range(10))

    def whole_run():
        stream.ingest()
        stream.produce_trades(range(10, 15))
        stream.ingest()

    once_before(monkeypatch, SchemaRegistry, "versions", whole_run)
    stream.ingest()
    stream.ingest()

    assert [row["kafka_offset"] for row in stream.rows()] == list(range(10, 15))


def test_new_table_continues_after_a_batch_that_was_published_meanwhile(resources, monkeypatch):
    stream = filled(resources, on_incompatible="new_table")
    stream.produce_trades(range(10, 13))
    schema_id = register_quantity_as_text(stream)
    keeping = stream.topic.model_copy(update={"on_incompatible": "dead_letter"})
    once_before(
        monkeypatch, SchemaRegistry, "versions", lambda: list(ingest(stream.namespace, keeping, stream.systems))
    )
    stream.ingest()
    stream.produce([{"value": framed(schema_id, QUANTITY_AS_TEXT, trade(13, quantity="n13"))}])
    stream.ingest()

    assert [row["kafka_offset"] for row in stream.rows()] == list(range(13))
    beside = stream.table(f"{stream.topic.table}__v2").scan().to_arrow()
    assert beside["kafka_offset"].to_pylist() == [13]
    assert stream.table(f"{stream.topic.table}__v2__dead_letters") is None


def test_replay_does_not_replace_a_newer_row_that_was_published_meanwhile(resources, monkeypatch):
    stream = Stream(resources, partitions=1, settings={"mode": "upsert"})
    keyed(stream, 1)
    stream.ingest()
    keyed(stream, 2)
    once_before(monkeypatch, SchemaRegistry, "versions", stream.ingest)

    with pytest.raises(CommitConflict):
        replay(stream.namespace, stream.topic, stream.systems, "earliest")

    assert [row["quantity"] for row in stream.rows()] == [2]


def test_redriven_letters_of_a_topic_that_is_recreated_meanwhile_are_not_published(resources, monkeypatch):
    stream = Stream(resources, partitions=1)
    plain, stream.topic = stream.topic, with_checks(stream.topic, CHEAP)
    stream.produce_trades(range(40, 60))
    stream.ingest()
    before, stream.topic = stream.rows(), plain
    assert len(stream.dead_letters()) + len(before) == 20 and len(before) < 20
    once_before(monkeypatch, write, "upsert", lambda: recreate(stream))

    with pytest.raises(UnclearState, match="deleted or recreated"):
        redrive(stream.namespace, stream.topic, stream.systems)

    assert stream.rows() == before


def test_dead_letters_beside_those_of_another_writer_are_not_published(resources, monkeypatch):
    stream = filled(resources)
    stream.produce([{"value": b"bad 1"}])
    stream.ingest()
    stream.produce([{"value": b"bad 2"}])
    append = dead_letters.append

    def joined(letters, target):
        append(letters, target)
        table = stream.table(target.table)
        table.append(table.scan().to_arrow(), branch=target.branch)

    monkeypatch.setattr(dead_letters, "append", joined)
    with pytest.raises(AuditFailed, match="2 commits belong to this batch, expected 1"):
        stream.ingest()

    monkeypatch.undo()
    stream.ingest()
    assert [letter["value"] for letter in stream.dead_letters()] == [b"bad 1", b"bad 2"]


def test_dry_run_reads_by_the_schema_that_ingestion_would_read_by(resources):
    stream = filled(resources, on_incompatible="dead_letter")
    schema_id = register_quantity_as_text(stream)
    stream.produce([{"value": framed(schema_id, QUANTITY_AS_TEXT, trade(10, quantity="n10"))}])

    done = rehearse(stream.namespace, stream.topic, stream.systems, 5)

    assert (done.counts.rows, done.counts.dead_letters) == (4, 1)
