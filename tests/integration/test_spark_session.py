"""Sessions of Spark: redaction of secrets, quoting, the clock check and isolation."""

import gc
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import grpc
import pytest

from lakehouse.core.errors import ClockSkew, Unreachable
from lakehouse.core.sql import SPARK
from lakehouse.pipeline.redrive import redrive
from resources.kafka.kafka import Kafka
from resources.spark.servers import Connect
from spark.engine import SparkEngines
from tests.support.hostile import HOSTILE
from tests.support.topics import CHEAP, Stream, with_checks

pytestmark = pytest.mark.stack
CANARY = "canary-7f3a"


def test_explain_contains_no_kafka_password(resources):
    kafka = Kafka(
        bootstrap_servers="127.0.0.1:1",
        security_protocol="SASL_SSL",
        sasl_mechanism="PLAIN",
        api_key="KEY",
        api_secret=CANARY,
    )
    line = kafka.spark_options()["kafka.sasl.jaas.config"]
    assert CANARY in line
    session = resources.spark.session({})
    [(plan,)] = session.sql("EXPLAIN EXTENDED SELECT {line} AS jaas", line=line).collect()
    assert 'username="KEY"' in plan and CANARY not in plan


def test_quoted_names_and_literals_are_read_back(resources):
    columns = ", ".join(f"{SPARK.literal(text)} AS {SPARK.identifier(text)}" for text in HOSTILE)
    frame = resources.spark.session({}).sql(f"SELECT {columns}")
    assert frame.columns == HOSTILE
    assert list(frame.select(*map(SPARK.identifier, HOSTILE)).first()) == HOSTILE


def test_session_of_another_server_is_not_reused(resources):
    resources.spark.session({})
    other = grpc.server(ThreadPoolExecutor(1))
    port = other.add_insecure_port("127.0.0.1:0")
    other.start()
    with pytest.raises(Unreachable, match=f"127.0.0.1:{port}"):
        Connect(remote=f"sc://127.0.0.1:{port}").session({})
    other.stop(grace=None).wait()
    assert resources.spark.session({}).range(1).count() == 1


@pytest.mark.parametrize(("seconds", "message"), [(90, "ahead of Spark's"), (-90, "behind Spark's")])
def test_session_with_clock_skew_is_refused(resources, monkeypatch, seconds, message):
    spark, now = resources.spark.with_own_session(), time.time_ns
    with monkeypatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: now() + seconds * 1_000_000_000)
        with pytest.raises(ClockSkew, match=message):
            spark.session({})

    assert spark.session({}).range(1).count() == 1
    spark.close()


def test_collected_session_is_not_closed_by_the_collector(resources):
    """Garbage may be collected by a thread that holds the lock of a channel, which closing needs."""
    resources.spark.session({})
    spark = resources.spark.with_own_session()
    session = spark.session({})
    collected, client = weakref.ref(session), session.client
    resources.spark.session({})
    del spark, session
    gc.collect()

    assert collected() is None
    assert not client.is_closed
    client.close()


@pytest.mark.parametrize("other_closes", [False, True])
def test_redrive_uses_own_session_next_to_another(resources, other_closes):
    stream = Stream(resources, partitions=1, settings={"checks": CHEAP})
    stream.produce_trades(range(40, 60))
    stream.ingest()
    letters = stream.dead_letters()
    resources.spark.close()
    other_spark, own_spark = resources.spark.with_own_session(), resources.spark.with_own_session()
    other_spark.session({})
    own_spark.session({})
    if other_closes:
        other_spark.close()

    systems = replace(stream.systems, engines=SparkEngines(own_spark))
    result = redrive(stream.namespace, with_checks(stream.topic, {}), systems)

    own_spark.close()
    other_spark.close()
    assert result.attempted == result.recovered == len(letters) > 0
