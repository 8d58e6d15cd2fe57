"""A broker that requires a password, and the absence of the password from everything that Spark writes."""

import json
import os
import re
import threading
import urllib.request
from contextlib import closing, suppress
from importlib.util import find_spec

import boto3
import dagster as dg
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from moto import mock_aws
from pyspark.errors import PySparkException

from lakehouse.config.loader import load
from lakehouse.config.model import Topic
from lakehouse.core.errors import LakehouseError, TransientError
from lakehouse.core.tables.naming import TableRef
from lakehouse.local import client_environment
from lakehouse.local import stack as local_stack
from lakehouse.local.home import Home
from lakehouse.local.processes import ports, process
from lakehouse.local.servers import spark_server
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.ingestion import ingest
from lakehouse.pipeline.row_files import COMPILED
from resources.build import build_resources
from resources.kafka.kafka import Kafka
from resources.spark.servers import Connect
from spark.engine import SparkEngines
from tests.support.processes.cluster import free_ports
from tests.support.servers import strangers
from tests.support.servers.certificates import Authority
from tests.support.servers.secure_kafka import secure_kafka
from tests.support.servers.token_server import TokenServer
from tests.support.topics import TRADES, framed, trade
from tools.repository import PROJECT

CLIENT_SECRET = "canary-9e1b"
"""Secret of a client of an OpenID Connect provider."""
SPECIAL_PASSWORD = "canary-7f3a \"'\\;$#{},=\\"
"""A password with every character that is special in JAAS, in a properties file or in Spark."""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Start a stack with a password, to which os.environ refers."""
    home = Home(tmp_path_factory.mktemp("sasl") / "home")
    with pytest.MonkeyPatch.context() as patch:
        try:
            local_stack.up(home, ("kafka", "registry", "s3"), kafka_sasl=True)
            for name, value in client_environment.environment(home).items():
                patch.setenv(name, value)
            yield home
        finally:
            local_stack.down(home)


@pytest.fixture(scope="module")
def ui(home):
    """Return the address of the UI of a Spark server that also writes an event log."""
    [port] = free_ports(1)
    settings = {
        "spark.ui.enabled": "true",
        "spark.ui.port": str(port),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": home.folder("events").as_uri(),
    }
    server = spark_server.server(client_environment.context(home, ports.recorded(home)), settings)
    running = process.start(server, home)
    process.wait_until_ready(server, running.leader, home, threading.Event())
    return f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def local(home, ui):
    """Return the resources of the environment `local`."""
    with dg.build_resources(build_resources(load(PROJECT / "lakehouse.yaml"), "local")) as resolved:
        yield resolved


@pytest.fixture(scope="module")
def server(local):
    """Return the Spark server, with a session that no other test uses."""
    installed = find_spec("lakehouse_native") is not None
    with closing(Connect(remote=local.spark.remote, native="require" if installed else "off")) as spark:
        yield spark


@pytest.fixture(scope="module")
def systems(local, server):
    """Return the systems of the environment `local`, with that session."""
    return Clients(local.kafka, local.schema_registry, SparkEngines(server), local.catalog)


@pytest.fixture(scope="module")
def special_user(systems):
    """Return the broker as a user whose password contains special characters."""
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    user = UserScramCredentialUpsertion("odd", credential, SPECIAL_PASSWORD.encode())
    admin = AdminClient(systems.kafka.client_config())
    admin.alter_user_scram_credentials([user])["odd"].result()
    return Kafka(
        bootstrap_servers=os.environ["KAFKA_BOOTSTRAP_SERVERS"],
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-512",
        api_key="odd",
        api_secret=SPECIAL_PASSWORD,
    )


def produce_trades(systems, kafka, name):
    """Produce ten trades to a topic, and return the topic."""
    topic = Topic.model_validate({"name": name, "key": "userid", "errors": "log"})
    kafka.ensure_topic(name, 1)
    schema_id = systems.schema_registry.register(f"{name}-value", TRADES)
    producer = kafka.producer()
    for number in range(10):
        Kafka.enqueue(producer, name, b"k", framed(schema_id, TRADES, trade(number)))
    assert producer.flush(30) == 0
    return topic


def count_ingested(systems, kafka, name):
    """Ingest a topic, with the compiled decoder if it is installed, and return the number of its table's rows."""
    topic = produce_trades(systems, kafka, name)
    clients = Clients(kafka, systems.schema_registry, systems.engines, systems.catalog)
    [published] = ingest("sasl", topic, clients)
    assert (published.decoder == COMPILED) == (find_spec("lakehouse_native") is not None)
    return systems.catalog.load(TableRef("sasl", topic.table)).scan().to_arrow().num_rows


def test_connect_without_password_is_refused(home):
    recorded = ports.recorded(home)
    assert not strangers.kafka(recorded["kafka"])
    assert not strangers.kafka_controller(recorded["kafka-controller"])
    address = {"bootstrap.servers": f"127.0.0.1:{recorded['kafka']}", "log_level": 0}
    guessed = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "lakehouse",
        "sasl.password": "guessed",
    }
    for settings in ({}, guessed):
        with pytest.raises(KafkaException):
            AdminClient(address | settings).list_topics(timeout=5)


def test_password_is_in_no_command_line(home):
    password = os.environ["KAFKA_SASL_PASSWORD"]
    assert len(password) > 20
    for running in process.running(home).values():
        assert password not in " ".join(running.leader.cmdline())


def test_up_again_keeps_broker_with_password(home):
    before = process.running(home)["kafka"].leader.pid
    local_stack.up(home, ("kafka",))
    assert process.running(home)["kafka"].leader.pid == before
    states = {state.name: state.state for state in local_stack.status(home)}
    assert states["kafka"] == "ready"


def test_ingest_with_special_characters_in_password_adds_rows(systems, special_user):
    assert count_ingested(systems, special_user, "odd_password") == 10


def test_client_logs_in_with_rotated_password(special_user, monkeypatch):
    """A client that lives longer than a password gets the one that its secret has now."""
    monkeypatch.setattr("resources.kafka.connection.LOGIN_SECONDS", 0.0)
    monkeypatch.setattr("resources.aws.secret_reader.MAX_AGE_SECONDS", 0.0)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    for variable in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_SECRETS_MANAGER"):
        monkeypatch.delenv(variable, raising=False)
    fields = {"bootstrap.servers": special_user.bootstrap_servers, "sasl.username": "odd"}
    former, current = (json.dumps(fields | {"sasl.password": password}) for password in ("former", SPECIAL_PASSWORD))
    with mock_aws(config={"core": {"service_whitelist": ["secretsmanager"]}}):
        secrets = boto3.client("secretsmanager", "eu-west-1")
        secrets.create_secret(Name="kafka", SecretString=former)
        kafka = Kafka(secret="kafka", security_protocol="SASL_PLAINTEXT", sasl_mechanism="SCRAM-SHA-512")
        with closing(kafka.consumer("rotated")) as consumer:
            with pytest.raises(TransientError, match="refused the login"):
                kafka.topics()
            with pytest.raises(KafkaException):
                consumer.list_topics(timeout=1)
            secrets.put_secret_value(SecretId="kafka", SecretString=current)
            kafka.renew_login(consumer)
            # After a refused login, the client waits up to 10 s before the next one.
            # The broker may create its internal topics between the two lists.
            assert consumer.list_topics(timeout=60).topics.keys() <= set(kafka.topics())


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    """Another broker, as a client with a certificate and as one with tokens, and lines of the certificate's key."""
    folder = tmp_path_factory.mktemp("others")
    authority, home = Authority(folder, "authority"), Home(folder / "home")
    with TokenServer({"client-1": CLIENT_SECRET}).listening() as provider:
        broker, listeners = secure_kafka(home, authority, provider.address)
        try:
            process.wait_until_ready(broker, process.start(broker, home).leader, home, threading.Event())
            issued = authority.issue("client")
            files = {
                "ssl.ca.location": str(authority.file),
                "ssl.certificate.location": str(issued.certificate),
                "ssl.key.location": str(issued.key),
            }
            certified = Kafka(bootstrap_servers=listeners["MTLS"], security_protocol="SSL", settings=files)
            login = {
                "sasl.oauthbearer.client.id": "client-1",
                "sasl.oauthbearer.client.secret": CLIENT_SECRET,
                "sasl.oauthbearer.token.endpoint.url": f"{provider.address}/token",
            }
            protocol = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
            with_tokens = Kafka(bootstrap_servers=listeners["OAUTH"], settings=login, **protocol)
            # The modulus is in the certificate as well, and precedes the private part (RFC 8017, appendix A.1.2).
            yield certified, with_tokens, issued.key.read_text().splitlines()[9:-1]
        finally:
            process.stop(home, broker.name)


def test_spark_output_contains_no_password(home, ui, server, systems, special_user, others):
    session = server.session(systems.catalog.spark_settings())
    # Spark does not redact settings of a session in its events: none is secret, and the environment has the keys of S3.
    assert not [name for name in systems.catalog.spark_settings() if re.search("secret|password|token|key", name)]
    options = special_user.spark_options() | {"subscribe": "odd_password"}
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
        list(ingest("sasl", produce_trades(systems, special_user, "gone"), systems))

    certified, with_tokens, key_lines = others
    key, jaas = "kafka.ssl.keystore.key", "kafka.sasl.jaas.config"
    other_key = re.sub("(?m)^(?!-).*", lambda line: line[0].replace("A", "B"), certified.spark_options()[key])
    no_module = with_tokens.spark_options()[jaas].replace("OAuthBearerLogin", "None")
    for name, kafka, wrong in (
        ("certified", certified, {key: other_key}),
        ("with_tokens", with_tokens, {jaas: no_module}),
    ):
        assert count_ingested(systems, kafka, name) == 10
        options = kafka.spark_options() | {"subscribe": name}
        texts.append(session.read.format("kafka").options(**options).load()._explain_string(extended=True))
        with pytest.raises(PySparkException) as failed:
            session.read.format("kafka").options(**options | wrong).load().collect()
        texts.append(str(failed.value))

    pages, event_log = crawl(ui), events(home)
    assert {"/connect/", "/environment/", "/SQL/"} <= set(pages) and any(path.startswith("/api/") for path in pages)
    assert "SparkListenerConnectOperationStarted" in event_log
    assert all(option in event_log for option in ("kafka.sasl.jaas.config", "kafka.ssl.keystore.key"))
    texts += [*pages.values(), event_log, home.log("spark").read_text(errors="replace")]
    # The parts of each line that are in both keys.
    parts = [max(line.split("A"), key=len) for line in key_lines]
    secrets = (
        "canary-7f3a",
        CLIENT_SECRET,
        os.environ["KAFKA_SASL_PASSWORD"],
        os.environ["AWS_SECRET_ACCESS_KEY"],
        *parts,
    )
    for text in texts:
        for secret in secrets:
            position = text.find(secret)
            assert position < 0, text[max(0, position - 300) : position + 100]


def events(home):
    """Return the event log as one text."""
    files = [path for path in home.folder("events").rglob("*") if path.is_file()]
    return "\n".join(path.read_text(errors="replace") for path in files)


def crawl(ui):
    """Return the pages and REST resources of Spark's UI by path, collected by following links."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    contents, waiting = {}, ["/connect/", "/environment/", "/SQL/", "/jobs/", "/stages/", "/executors/"]
    with opener.open(f"{ui}/api/v1/applications", timeout=60) as response:
        [application] = json.load(response)
    api = f"/api/v1/applications/{application['id']}"
    waiting += [
        f"{api}/{part}" for part in ("environment", "jobs", "stages", "sql?details=true&length=100", "allexecutors")
    ]
    while waiting:
        path = waiting.pop()
        if path in contents:
            continue
        with opener.open(ui + path, timeout=60) as response:
            contents[path] = response.read().decode(errors="replace")
        links = re.findall(r'href="(/(?:connect|SQL|jobs|stages)/[^" ]*)"', contents[path])
        waiting += [link.replace("&amp;", "&") for link in links if not re.search("kill|sort", link)]
    return contents
