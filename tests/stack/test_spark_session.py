"""What every session of Spark has."""

import pytest

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
