"""A broker that asks for a password, and a Spark that writes all down: who gets in, and who reads the password."""

import json
import os
import re
import threading
import urllib.request
from contextlib import suppress

import dagster as dg
import pytest
import strangers
from cluster_fixtures import free_ports
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from pyspark.errors import PySparkException
from support import TRADES, framed, trade

from lakehouse.config.loader import PROJECT, load
from lakehouse.config.topic import Topic
from lakehouse.core.errors import LakehouseError
from lakehouse.local import environment, ports, process, spark
from lakehouse.local import stack as local_stack
from lakehouse.local.home import Home
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.ingestion import ingest
from resources.build import build_resources
from resources.kafka import Kafka

ODD = "canary-7f3a \"'\\;$#{},=\\"
"""A password with everything that has a meaning in JAAS, in a properties file or in Spark."""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A stack with a password; os.environ leads to it."""
    home = Home(tmp_path_factory.mktemp("sasl") / "home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m")
        try:
            local_stack.up(home, ("kafka", "registry", "s3"), kafka_sasl=True)
            for name, value in environment.environment(home).items():
                patch.setenv(name, value)
            yield home
        finally:
            local_stack.down(home)


@pytest.fixture(scope="module")
def ui(home):
    """The address of the UI of a Spark that also writes an event log."""
    [port] = free_ports(1)
    settings = {
        "spark.ui.enabled": "true",
        "spark.ui.port": str(port),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": home.folder("events").as_uri(),
    }
    server = spark.server(environment.context(home, ports.recorded(home)), settings)
    running = process.start(server, home)
    process.wait_until_ready(server, running.leader, home, threading.Event())
    return f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def systems(home, ui):
    """The systems of the environment `local`, with a session of Spark apart from that of other tests."""
    with dg.build_resources(build_resources(load(PROJECT / "lakehouse.yaml"), "local")) as resolved:
        apart = resolved.spark.apart()
        yield Clients(resolved.kafka, resolved.schema_registry, apart, resolved.catalog)
        apart.close()


@pytest.fixture(scope="module")
def odd(systems):
    """The broker, entered as another user, whose password is odd."""
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    user = UserScramCredentialUpsertion("odd", credential, ODD.encode())
    admin = AdminClient(systems.kafka.client_config())
    admin.alter_user_scram_credentials([user])["odd"].result()
    return Kafka(
        bootstrap_servers=os.environ["KAFKA_BOOTSTRAP_SERVERS"],
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-512",
        api_key="odd",
        api_secret=ODD,
    )


def filled(systems, kafka, name):
    """A topic with ten trades."""
    topic = Topic.model_validate({"name": name, "key": "userid", "errors": "log"})
    kafka.ensure_topic(name, 1)
    schema_id = systems.schema_registry.register(f"{name}-value", TRADES)
    producer = kafka.producer()
    for number in range(10):
        Kafka.enqueue(producer, name, b"k", framed(schema_id, TRADES, trade(number)))
    assert producer.flush(30) == 0
    return topic


def ingested(systems, kafka, name):
    """The rows of a topic's table after one ingestion."""
    topic = filled(systems, kafka, name)
    list(ingest("sasl", topic, Clients(kafka, systems.schema_registry, systems.spark, systems.catalog)))
    return systems.catalog.load("sasl", topic.table).scan().to_arrow().num_rows


def test_nobody_enters_without_the_password(home):
    known = ports.recorded(home)
    assert not strangers.kafka(known["kafka"])
    assert not strangers.kafka_controller(known["kafka-controller"])
    address = {"bootstrap.servers": f"127.0.0.1:{known['kafka']}", "log_level": 0}
    guessed = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "lakehouse",
        "sasl.password": "guessed",
    }
    for settings in ({}, guessed):
        with pytest.raises(KafkaException):
            AdminClient(address | settings).list_topics(timeout=5)


def test_the_password_is_in_no_command_line(home):
    password = os.environ["KAFKA_SASL_PASSWORD"]
    assert len(password) > 20
    for running in process.running(home).values():
        assert password not in " ".join(running.leader.cmdline())


def test_a_stack_that_runs_keeps_asking(home):
    before = process.running(home)["kafka"].leader.pid
    local_stack.up(home, ("kafka",))
    assert process.running(home)["kafka"].leader.pid == before
    states = {state.name: state.state for state in local_stack.status(home)}
    assert states["kafka"] == "ready"


def test_trades_are_ingested_by_who_has_the_password(systems):
    assert ingested(systems, systems.kafka, "usual") == 10


def test_a_password_may_hold_any_character(systems, odd):
    assert ingested(systems, odd, "odd_password") == 10


def test_no_password_is_in_what_spark_writes_down(home, ui, systems, odd):
    session = systems.spark.session(systems.catalog.spark_settings())
    # Spark redacts no setting of a session in its events, so none may be a secret: the environment has the keys of S3.
    assert not [name for name in systems.catalog.spark_settings() if re.search("secret|password|token|key", name)]
    options = odd.spark_options() | {"subscribe": "odd_password"}
    texts = []
    assert session.read.format("kafka").options(**options).load().count() == 10
    texts.append(session.read.format("kafka").options(**options).load()._explain_string(extended=True))
    for wrong in (
        {"startingOffsets": "wrong"},
        {"kafka.sasl.jaas.config": options["kafka.sasl.jaas.config"].rstrip(";")},
        {"kafka.sasl.jaas.config": options["kafka.sasl.jaas.config"].replace("Scram", "None")},
    ):
        with pytest.raises(PySparkException) as failed:
            session.read.format("kafka").options(**options | wrong).load().collect()
        texts.append(str(failed.value))
    with suppress(LakehouseError):
        list(ingest("sasl", filled(systems, odd, "gone"), systems))

    pages, told = everything_under(ui), events(home)
    assert {"/connect/", "/environment/", "/SQL/"} <= set(pages) and any(path.startswith("/api/") for path in pages)
    assert "SparkListenerConnectOperationStarted" in told and "kafka.sasl.jaas.config" in told
    texts += [*pages.values(), told, home.log("spark").read_text(errors="replace")]
    secrets = ("canary-7f3a", os.environ["KAFKA_SASL_PASSWORD"], os.environ["AWS_SECRET_ACCESS_KEY"])
    for text in texts:
        for secret in secrets:
            found = text.find(secret)
            assert found < 0, text[max(0, found - 300) : found + 100]


def events(home):
    """The event log, as one text."""
    files = [path for path in home.folder("events").rglob("*") if path.is_file()]
    return "\n".join(path.read_text(errors="replace") for path in files)


def everything_under(ui):
    """Pages and REST resources of Spark's UI, by path, followed from link to link."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    found, waiting = {}, ["/connect/", "/environment/", "/SQL/", "/jobs/", "/stages/", "/executors/"]
    with opener.open(f"{ui}/api/v1/applications", timeout=10) as answer:
        [application] = json.load(answer)
    api = f"/api/v1/applications/{application['id']}"
    waiting += [
        f"{api}/{part}" for part in ("environment", "jobs", "stages", "sql?details=true&length=100", "allexecutors")
    ]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        with opener.open(ui + path, timeout=10) as answer:
            found[path] = answer.read().decode(errors="replace")
        links = re.findall(r'href="(/(?:connect|SQL|jobs|stages)/[^" ]*)"', found[path])
        waiting += [link.replace("&amp;", "&") for link in links if not re.search("kill|sort", link)]
    return found
