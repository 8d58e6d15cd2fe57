"""Checks before every publication: batches, replays, redriven letters, dead letters and recorded decisions."""

from dataclasses import replace
from typing import ClassVar

import pytest

from lakehouse.core.errors import CommitConflict
from lakehouse.pipeline.batches.dry_run import dry_run
from lakehouse.pipeline.batches.offsets import resume
from lakehouse.pipeline.commits.audit import AuditFailed
from lakehouse.pipeline.commits.footers import added_files
from lakehouse.pipeline.ingestion import Published, ingest
from lakehouse.pipeline.redrive import redrive
from tests.support.topics import CHEAP, TRADES, Stream, framed, registry, trade, with_checks, with_types

QUANTITY_AS_TEXT = with_types(TRADES, quantity="string")


def create_stream(resources, **settings):
    stream = Stream(resources, partitions=1, settings=settings)
    stream.produce_trades(range(10))
    stream.ingest()
    return stream


def register_quantity_as_text(stream):
    registry().set_compatibility(subject_name=f"{stream.name}-value", level="NONE")
    return stream.schema(QUANTITY_AS_TEXT)


def test_resume_without_position_is_not_published(resources):
    stream = create_stream(resources)
    before = stream.table().current_snapshot()
    stream.interceptors["write"] = lambda write, decided, target: write(decided, replace(target, properties={}))

    with pytest.raises(AuditFailed, match="no snapshot has exactly the properties of this batch"):
        resume(stream.systems, stream.namespace, stream.topic, "0:10", "as it is")

    assert stream.table().current_snapshot() == before


def test_new_table_continues_after_concurrent_batch(resources):
    stream = create_stream(resources, on_incompatible="new_table")
    stream.produce_trades(range(10, 13))
    schema_id = register_quantity_as_text(stream)
    dead_letter_topic = stream.topic.model_copy(update={"on_incompatible": "dead_letter"})
    systems = stream.systems

    class Registry:
        """A registry that answers after another process has ingested."""

        ingested: ClassVar[list[Published]] = []

        def versions(self, subject):
            if not self.ingested:
                self.ingested += ingest(stream.namespace, dead_letter_topic, systems)
            return systems.schema_registry.versions(subject)

        def __getattr__(self, name):
            return getattr(systems.schema_registry, name)

    list(ingest(stream.namespace, stream.topic, replace(systems, schema_registry=Registry())))
    assert Registry.ingested
    stream.produce([{"value": framed(schema_id, QUANTITY_AS_TEXT, trade(13, quantity="n13"))}])
    stream.ingest()

    assert [row["kafka_offset"] for row in stream.rows()] == list(range(13))
    successor = stream.table(f"{stream.topic.table}__v2").scan().to_arrow()
    assert successor["kafka_offset"].to_pylist() == [13]
    assert stream.dead_letters() == []


def test_redrive_marks_with_missing_file_are_not_published(resources):
    stream = Stream(resources, partitions=1)
    unchecked, stream.topic = stream.topic, with_checks(stream.topic, CHEAP)
    stream.produce_trades(range(40, 60))
    stream.ingest()
    stream.topic = unchecked

    def mark_and_delete_files(mark, attempt, target, topic_id):
        mark(attempt, target, topic_id)
        table = stream.table(target.ref.name)
        snapshot = table.snapshot_by_name(target.branch)
        for file in added_files(table, snapshot):
            table.io.delete(file.file_path)

    stream.interceptors["letters.mark"] = mark_and_delete_files
    with pytest.raises(AuditFailed, match="missing or incomplete"):
        redrive(stream.namespace, stream.topic, stream.systems)

    assert {letter["attempts"] for letter in stream.dead_letters()} == {1}


@pytest.mark.parametrize(
    ("library", "error", "message"),
    [
        ("Spark", AuditFailed, "2 commits belong to this batch, expected 1"),
        ("pyiceberg", CommitConflict, "another program committed to it"),
    ],
)
def test_ingest_letters_of_other_writer_are_not_published(resources, library, error, message):
    stream = create_stream(resources)
    # Tasks of the compiled decoder leave schemas that are not known.
    bad = [b"\0\x7f\xff\xff\xff bad %d" % n for n in range(2)]
    stream.produce([{"value": bad[0]}])
    stream.ingest()
    stream.produce([{"value": bad[1]}])
    spark = resources.spark.session(resources.catalog.spark_settings())

    def put_twice(put, letters, target):
        put(letters, target)
        if library == "Spark":
            spark.table(target.ref.spark_path()).writeTo(target.ref.spark_path(target.branch)).append()
        else:
            table = stream.table(target.ref.name)
            table.append(table.scan().to_arrow(), branch=target.branch)

    stream.interceptors["letters.put"] = put_twice
    with pytest.raises(error, match=message):
        stream.ingest()

    del stream.interceptors["letters.put"]
    stream.ingest()
    assert [letter["value"] for letter in stream.dead_letters()] == bad


def test_dry_run_reads_with_schema_of_ingestion(resources):
    stream = create_stream(resources, on_incompatible="dead_letter")
    schema_id = register_quantity_as_text(stream)
    stream.produce([{"value": framed(schema_id, QUANTITY_AS_TEXT, trade(10, quantity="n10"))}])

    result = dry_run(stream.namespace, stream.topic, stream.systems, 5)

    assert (result.counts.rows, result.counts.dead_letters) == (4, 1)
