"""Topics whose entry declares another format than their producer writes: each message names the right one."""

import json

import pytest

from lakehouse.core.errors import BadRecords
from lakehouse.pipeline.batches.dry_run import dry_run
from tests.support.topics import TRADES, Stream, framed, trade


@pytest.mark.parametrize("written", ["avro", "json"])
def test_mistaken_format_is_named_by_dry_run_and_ingestion(resources, written):
    declared = {"avro": "json", "json": "avro"}[written]
    stream = Stream(resources, partitions=1, settings={"key": [], "value_format": declared, "errors": "suspend"})
    id_ = stream.schema()
    value, reason = {
        "avro": (
            framed(id_, TRADES, trade(1)),
            f"it begins with the frame of schema id {id_}, which the registry has as AVRO: write 'value_format: avro'",
        ),
        "json": (json.dumps(trade(1)).encode(), "it is JSON text: write 'value_format: json'"),
    }[written]
    stream.produce([{"value": value} for _ in range(10)])

    [decodes, *_] = dry_run(stream.namespace, stream.topic, stream.systems, 10).findings
    assert decodes.message.startswith("10 of 10 records cannot be decoded (partition 0 offset 0, ")
    assert reason in decodes.message and not decodes.passed
    with pytest.raises(BadRecords, match=reason):
        stream.ingest()
