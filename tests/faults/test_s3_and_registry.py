"""Failures of S3 and the schema registry during a batch: no record is lost or becomes a dead letter."""

import json

import pytest

from lakehouse.core.errors import RequestRejected, UnclearState, Unreachable
from lakehouse.pipeline.batches.offsets import resume
from resources.iceberg.snapshots import last_batch
from tests.support.faults import oracle
from tests.support.faults.moments import LOGGED, attempt
from tests.support.faults.proxied import ProxiedStream, proxied
from tests.support.servers.proxy import REGISTRY_ERROR, S3_ERROR, S3_SLOW_DOWN, Fault
from tests.support.topics import TRADES, framed, register, trade


@pytest.fixture
def stream(resources):
    """Return a topic with 50 published records and 30 new ones, some with another subject's schema."""
    foreign = json.dumps({**json.loads(TRADES), "doc": "The same, registered elsewhere"})
    with proxied(ProxiedStream(resources, settings=LOGGED)) as stream:
        stream.produce_trades(range(50))
        stream.ingest()
        stream.produce_trades(range(50, 70))
        schema_id = register(f"elsewhere-{stream.name}", foreign)
        stream.produce([{"value": framed(schema_id, foreign, trade(n))} for n in range(70, 80)])
        yield stream


def test_failed_s3_requests_are_retried(stream):
    faults = [
        Fault("response", "PUT", times=2, status=503, body=S3_SLOW_DOWN),
        Fault("lost response", "PUT .*parquet", body=S3_ERROR),
        Fault("lost connection", "PUT .*avro"),
        Fault("cut", "GET .*metadata.json", times=2),
        Fault("truncate", "GET .*avro"),
        Fault("delay", "PUT", times=3, seconds=0.5),
    ]
    for fault in faults:
        stream.s3.inject(fault)

    attempt(stream)
    attempt(stream)

    assert [fault.kind for fault in faults if not fault.fired] == []
    oracle.judge(stream)


@pytest.mark.parametrize("matching", [pytest.param("PUT .*parquet", marks=pytest.mark.long), "PUT .*dead_letters"])
def test_refused_s3_writes_stop_run_and_change_nothing(stream, matching):
    stream.produce([{"value": b"bad"}])
    published = stream.rows()
    refusal = stream.s3.inject(Fault("response", matching, times=1_000, status=403))

    assert attempt(stream) is not None
    assert refusal.fired
    assert stream.rows() == published

    stream.s3.heal()
    stream.ingest()
    oracle.judge(stream)


@pytest.mark.parametrize(
    ("moment", "fault"),
    [
        ("schemas/ids", {"kind": "response", "status": 500}),
        ("", {"kind": "response", "status": 401}),
        pytest.param("schemas/ids", {"kind": "response", "status": 429}, marks=pytest.mark.long),
        pytest.param("", {"kind": "cut"}, marks=pytest.mark.long),
    ],
    ids=["500 in the middle", "401 at the start", "429 in the middle", "cut at the start"],
)
def test_unavailable_registry_makes_no_dead_letter(stream, moment, fault):
    published = stream.rows()
    injected = stream.registry.inject(Fault(matching=moment, times=1_000, body=REGISTRY_ERROR, **fault))

    with pytest.raises((Unreachable, RequestRejected), match="schema registry"):
        stream.ingest()

    assert injected.fired
    assert (stream.rows(), stream.dead_letters()) == (published, [])
    stream.registry.heal()
    stream.ingest()
    oracle.judge(stream)


def test_registry_restored_with_other_schemas_stops_run(stream):
    published = stream.rows()
    restored = json.dumps({**json.loads(TRADES), "doc": "The same id, another schema"})
    version = {"subject": f"{stream.name}-value", "version": 1, "id": stream.schema(), "schema": restored}
    stream.registry.inject(Fault("response", "GET .*versions/1", 1_000, 200, json.dumps(version).encode()))

    with pytest.raises(UnclearState, match=f"schema id {version['id']} is not .* `lakehouse resume`"):
        stream.ingest()
    assert stream.rows() == published

    end = ",".join(f"{p}:{o}" for p, o in sorted(last_batch(stream.table()).end.items()))
    resume(stream.systems, stream.namespace, stream.topic, end, "the registry is right")
    stream.ingest()
    oracle.judge(stream)
