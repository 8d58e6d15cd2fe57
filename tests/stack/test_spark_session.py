"""What every session of Spark has."""

import time
from dataclasses import replace

import pytest
from hostile import HOSTILE
from support import CHEAP, Stream, with_checks

from lakehouse.core.errors import ClockSkew
from lakehouse.core.sql import SPARK
from lakehouse.pipeline.replay import redrive
from resources.kafka import Kafka

pytestmark = pytest.mark.stack
CANARY = "canary-7f3a"


def test_a_password_in_the_options_of_the_kafka_source_is_in_no_plan(resources):
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
    [(plan,)] = session.sql("EXPLAIN EXTENDED SELECT {line} AS said", line=line).collect()
    assert 'username="KEY"' in plan and CANARY not in plan


def test_spark_reads_back_quoted_names_and_texts(resources):
    columns = ", ".join(f"{SPARK.literal(text)} AS {SPARK.identifier(text)}" for text in HOSTILE)
    frame = resources.spark.session({}).sql(f"SELECT {columns}")
    assert frame.columns == HOSTILE
    assert list(frame.select(*map(SPARK.identifier, HOSTILE)).first()) == HOSTILE


@pytest.mark.parametrize(("seconds", "said"), [(90, "ahead of Spark's"), (-90, "behind Spark's")])
def test_a_session_with_a_clock_that_is_not_this_machines_is_refused(resources, monkeypatch, seconds, said):
    spark, now = resources.spark.apart(), time.time_ns
    with monkeypatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: now() + seconds * 1_000_000_000)
        with pytest.raises(ClockSkew, match=said):
            spark.session({})

    assert spark.session({}).range(1).count() == 1
    spark.close()


@pytest.mark.parametrize("other_ends", [False, True])
def test_redrive_uses_its_own_session_beside_another(resources, other_ends):
    stream = Stream(resources, partitions=1, settings={"checks": CHEAP})
    stream.produce_trades(range(40, 60))
    stream.ingest()
    letters = stream.dead_letters()
    resources.spark.close()
    other, own = resources.spark.apart(), resources.spark.apart()
    other.session({})
    own.session({})
    if other_ends:
        other.close()

    done = redrive(stream.namespace, with_checks(stream.topic, {}), replace(stream.systems, spark=own))

    own.close()
    other.close()
    assert done.tried == done.landed == len(letters) > 0
