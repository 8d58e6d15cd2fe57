"""A topic whose table continues in a new one after a change of a column's type."""

import pytest

from lakehouse.core.errors import BadRecords, LakehouseError, UnclearState
from lakehouse.core.tables import naming
from lakehouse.pipeline.batches.offsets import resume
from lakehouse.pipeline.clients import engine_client
from lakehouse.pipeline.commits.audit import AuditFailed
from lakehouse.pipeline.dead_letters.dead_letter_queries import pending_dead_letters
from lakehouse.pipeline.dead_letters.dead_letter_topic import publish_dead_letters
from lakehouse.pipeline.ledger.reconciliation import reconcile
from lakehouse.pipeline.maintenance import maintain
from lakehouse.pipeline.redrive import Redriven, redrive
from tests.support.topics import CHEAP, TRADES, Stream, consume, framed, registry, trade, with_checks, with_types

NUMBERS = with_types(TRADES, account="long")


class Continued(Stream):
    """A topic of trades whose next trades have numbers as accounts."""

    def __post_init__(self):
        super().__post_init__()
        self.schema_id = self.schema()
        registry().set_compatibility(subject_name=f"{self.name}-value", level="NONE")

    def produce_numbers(self, numbers):
        self.produce_with_types(numbers, {"account": "long"}, account=1)

    def set(self, **changes):
        self.topic = self.topic.model_copy(update=changes)

    def offsets(self, version=""):
        return sorted(self.table(self.topic.table + version).scan().to_arrow()["kafka_offset"].to_pylist())

    def redrive(self):
        return redrive(self.namespace, self.topic, self.systems)

    def waiting(self):
        """Return the offsets of the dead letters that are not rows."""
        return [letter["kafka_offset"] for letter in self.dead_letters() if letter["redriven_timestamp"] is None]


def continued(resources, **settings):
    """Return a topic with five rows, three dead letters that fit the next table, and one that fits none."""
    stream = Continued(resources, partitions=1, settings={"on_incompatible": "dead_letter"} | settings)
    stream.produce([{"value": framed(stream.schema_id, TRADES, trade(n))} for n in range(5)])
    stream.ingest()
    stream.produce_numbers(range(5, 8))
    stream.produce([{"value": b"bad"}])
    stream.ingest()
    return stream


def test_redrive_after_roll_over_adds_letters_of_closed_table(resources):
    stream = continued(resources)
    assert (stream.offsets(), stream.waiting()) == ([0, 1, 2, 3, 4], [5, 6, 7, 8])
    stream.set(on_incompatible="new_table", dead_letter_topic=f"{stream.name}-dead")
    stream.produce_numbers([9])
    stream.ingest()
    # The topic of dead letters receives those of the closed table, too.
    assert publish_dead_letters(stream.namespace, stream.topic, stream.systems) == 4
    values = [message.value for message in consume(stream.topic.dead_letter_topic, stream.topic.partitions)]
    assert sorted(values) == sorted(message.value for message in stream.messages() if message.offset in (5, 6, 7, 8))

    assert stream.redrive() == Redriven(4, 3)

    assert stream.offsets() == [0, 1, 2, 3, 4]
    assert (stream.offsets("__v2"), stream.waiting()) == ([5, 6, 7, 9], [8])
    pending = pending_dead_letters(resources.catalog, stream.namespace, stream.topic, 10)
    assert [(letter.partition, letter.offset) for letter in pending.newest] == [(0, 8)]
    report = reconcile(stream.namespace, stream.topic, stream.systems, whole_log=True)
    assert report.is_consistent, report.findings


def test_redrive_before_next_batch_rolls_over_uses_open_table(resources):
    stream = Continued(resources, partitions=1, settings={"on_incompatible": "new_table"})
    unchecked = stream.topic
    stream.topic = with_checks(unchecked, CHEAP)
    stream.produce([{"value": framed(stream.schema_id, TRADES, trade(n))} for n in range(40, 60)])
    stream.ingest()
    quarantined = stream.waiting()
    stream.schema(NUMBERS)
    stream.topic = unchecked

    assert stream.redrive() == Redriven(len(quarantined), len(quarantined)) != Redriven(0, 0)
    assert (stream.offsets(), stream.waiting()) == ([*range(20)], [])


def test_redrive_after_roll_over_of_upsert_table_leaves_older_letters(resources):
    """A row of the closed table may be newer, and cannot be compared with the rows of the next one."""
    stream = continued(resources, mode="upsert")
    stream.set(on_incompatible="new_table")
    stream.produce_numbers([9])
    stream.ingest()

    assert stream.redrive() == Redriven(0, 0)
    assert (stream.offsets("__v2"), stream.waiting()) == ([9], [5, 6, 7, 8])


def test_ingest_after_drop_of_either_table(resources):
    stream = Continued(resources, partitions=1, settings={"on_incompatible": "new_table"})
    stream.produce([{"value": framed(stream.schema_id, TRADES, trade(n))} for n in range(5)])
    stream.ingest()
    stream.produce_numbers(range(5, 8))
    stream.ingest()
    assert (stream.offsets(), stream.offsets("__v2")) == ([0, 1, 2, 3, 4], [5, 6, 7])

    first = stream.topic.table
    resources.catalog.iceberg().drop_table((stream.namespace, f"{first}__v2"))
    stream.ingest()
    assert (stream.offsets(), stream.offsets("__v2")) == ([0, 1, 2, 3, 4], [5, 6, 7])

    resources.catalog.iceberg().drop_table((stream.namespace, first))
    stream.produce_numbers([8])

    with pytest.raises(UnclearState, match=f"{first} does not exist, but .*{first}__v2, which continues it, does"):
        stream.ingest()
    assert (stream.table(first), stream.offsets("__v2")) == (None, [5, 6, 7])

    # The remedies that the error names: ingestion continues in the newer table, or begins again.
    stream.set(table_name=f"{first}__v2")
    stream.ingest()
    assert stream.offsets() == [5, 6, 7, 8]
    stream.set(table_name="")
    resources.catalog.iceberg().drop_table((stream.namespace, f"{first}__v2"))
    stream.ingest()
    # The new table is created for the newest schema, which the first records do not fit.
    assert (stream.offsets(), stream.waiting()) == ([5, 6, 7, 8], [0, 1, 2, 3, 4])


def test_resume_in_new_table_without_batch_does_not_go_back(resources):
    stream = Continued(resources, partitions=1, settings={"on_incompatible": "new_table", "errors": "suspend"})
    stream.produce([{"value": framed(stream.schema_id, TRADES, trade(n))} for n in range(5)])
    stream.ingest()
    stream.schema(NUMBERS)
    stream.produce([{"value": b"bad"}])
    with pytest.raises(BadRecords):
        stream.ingest()

    with pytest.raises(LakehouseError, match="was ingested up to offset 5.*Nothing was changed"):
        resume(stream.systems, stream.namespace, stream.topic, "earliest", "test")
    resume(stream.systems, stream.namespace, stream.topic, "latest", "the bad record is skipped")
    stream.produce_numbers([6])
    stream.ingest()

    assert (stream.offsets(), stream.offsets("__v2")) == ([0, 1, 2, 3, 4], [6])


def test_table_without_batch_rolls_over(resources):
    blocking = {"side_known": {"type": "accepted_values", "column": "side", "values": ["BUY", "SELL"]}}
    stream = Continued(resources, partitions=1, settings={"on_incompatible": "new_table", "checks": blocking})
    stream.produce([{"value": framed(stream.schema_id, TRADES, trade(0, side="HOLD"))}])
    with pytest.raises(AuditFailed):
        stream.ingest()
    stream.produce_numbers([1])
    stream.ingest()

    assert stream.rows() == []
    assert (stream.offsets("__v2"), stream.waiting()) == ([1], [0])


def test_resume_before_next_batch_rolls_over_records_position(resources):
    stream = Continued(resources, partitions=1, settings={"on_incompatible": "new_table"})
    stream.produce([{"value": framed(stream.schema_id, TRADES, trade(n))} for n in range(5)])
    stream.ingest()
    stream.produce_numbers([5, 6])

    resume(stream.systems, stream.namespace, stream.topic, "0:6", "test")
    stream.ingest()

    assert (stream.offsets(), stream.offsets("__v2")) == ([0, 1, 2, 3, 4], [6])


def test_maintain_drops_branches_of_closed_table(resources):
    stream = Continued(resources, partitions=1, settings={"on_incompatible": "new_table"})
    stream.produce([{"value": framed(stream.schema_id, TRADES, trade(0))}])
    stream.ingest()
    stream.produce_numbers([1])
    stream.ingest()
    closed, killed = stream.table(), naming.dry_run_name(0)
    closed.manage_snapshots().create_branch(closed.metadata.current_snapshot_id, killed).commit()

    list(maintain(stream.namespace, stream.topic, resources.catalog, engine_client(resources.spark)))

    assert killed in closed.metadata.refs
    assert killed not in stream.table().metadata.refs
