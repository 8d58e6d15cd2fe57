"""Null values and conditions over them: every record has one outcome, whatever its topic's mode, format and types."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest

from lakehouse.config.model import Topic
from lakehouse.core.offsets.batch import Counts
from lakehouse.formats import registered
from lakehouse.formats.schema import RegisteredSchema
from lakehouse.pipeline.ingestion import ingest
from lakehouse.pipeline.schemas.decoding import resolve_schemas
from spark.decoding.decode import decode
from spark.decoding.decoded import record
from spark.engine import with_codecs
from tests.contract.test_formats import EXAMPLES
from tests.support.fuzz.decoding import RECORDS, Versions
from tests.support.topics import Stream, framed, registry

MODES = ("append", "dedup", "upsert")


@pytest.fixture(scope="module")
def sent(resources):
    """Return a topic with an order, and then a null value with its key and a refund, and the function that ingests it.

    The function returns the counts of the batch with the null value, for a table of orders.
    """
    stream = Stream(resources, partitions=1)
    registry().set_compatibility(subject_name=f"{stream.name}-value", level="NONE")
    schemas = {
        name: json.dumps({"type": "record", "name": f"shop.{name}", "fields": [{"name": "id", "type": "string"}]})
        for name in ("Order", "Refund")
    }
    order, refund = ({"key": b"k1", "value": framed(stream.schema(s), s, {"id": "k1"})} for s in schemas.values())
    stream.produce([order, {"key": b"k1", "value": None}, refund])
    kafka_topic = stream.name

    def ingested(mode: str) -> Counts:
        settings = {"name": mode, "kafka_topic": kafka_topic, "record": "shop.Order", "key": "id", "mode": mode}
        stream.topic = Topic.model_validate(settings | {"errors": "log", "max_records_per_batch": 1})
        first, *others = ingest(stream.namespace, stream.topic, stream.systems)
        assert first.counts == Counts(consumed=1, rows=1)
        return sum((published.counts for published in others), Counts())

    return stream, ingested


@pytest.mark.parametrize("mode", MODES)
def test_null_value_in_topic_of_several_types_has_outcome_of_its_mode(sent, mode):
    stream, ingested = sent
    counts = ingested(mode)
    letters = [(letter["kafka_offset"], letter["error_reason"]) for letter in stream.dead_letters()]
    if mode == "upsert":
        assert counts == Counts(consumed=2, tombstones=1, filtered=1)
        assert (stream.rows(), letters) == ([], [])
    else:
        assert counts == Counts(consumed=2, dead_letters=1, filtered=1)
        assert [row["id"] for row in stream.rows()] == ["k1"]
        assert letters == [(1, "null_value")]


@pytest.mark.parametrize("format_", registered())
def test_decisions_about_records_are_never_null(resources, format_):
    session = resources.spark.session({})
    versions = Versions([])
    if format_ in EXAMPLES:
        schema = EXAMPLES[format_].schema({"a": "int"})
        versions = Versions([RegisteredSchema(1, schema.schema_str, schema.schema_type)])
    for mode in MODES:
        keyed = {"key": "k", "key_format": "string"} if mode == "upsert" else {}
        topic = Topic.model_validate({"name": "t", "value_format": format_, "mode": mode, **keyed})
        schemas = resolve_schemas(versions, topic)
        for reads_header_ids, several_types in itertools.product((False, True), repeat=2):
            decoding = replace(schemas, reads_header_ids=reads_header_ids).decoding()
            changes = {"has_other_types": True, "other_type_ids": frozenset((2,))} if several_types else {}
            frame = decode(session.createDataFrame([], RECORDS), replace(with_codecs(decoding), **changes))
            decisions = frame.select(record("filtered").alias("filtered"), record("tombstone").alias("tombstone"))
            assert not [field.name for field in decisions.schema if field.nullable]
