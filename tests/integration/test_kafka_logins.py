"""Logins at a broker with certificates, as an environment of lakehouse.yaml declares them for both of its clients."""

from __future__ import annotations

import json
import re
import ssl
import subprocess
import threading
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import dagster as dg
import pytest
import yaml
from click.testing import CliRunner
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from lakehouse.cli.main import main
from lakehouse.config.loader import load
from lakehouse.config.model import Config, Topic
from lakehouse.core.errors import TransientError
from lakehouse.core.tables.naming import TableRef
from lakehouse.local import jars
from lakehouse.local.home import Home
from lakehouse.local.java import class_path, java
from lakehouse.local.processes import process
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.ingestion import ingest
from lakehouse.pipeline.row_files import COMPILED
from lakehouse.streaming.stream import Stream
from lakehouse.streaming.stream_events import Event, TopicBackedOff
from resources.build import build_resources
from resources.kafka.kafka import Kafka
from resources.kafka.settings import CONNECTION, FETCH
from resources.spark.servers import Connect
from spark.engine import SparkEngines
from tests.support.servers.certificates import Authority
from tests.support.servers.proxy import Proxy
from tests.support.servers.secure_kafka import USERS, secure_kafka
from tests.support.servers.token_server import TokenServer, new_key
from tests.support.topics import TRADES, framed, trade

NAMESPACE = "logins"
SECRET = "canary-oauth"
CLIENTS = ("Kafka login", "Registry login", "Driver login", "Executor login")
"""Subjects of `lakehouse doctor` about logins."""
RENEWALS = 4
"""Tokens that each client gets during the test of a stream."""
HAS_COMPILED = find_spec("lakehouse_native") is not None
SECONDS = 300
"""The longest that it may take on a busy machine."""
VALUES = {"client.dns.lookup": "use_all_dns_ips", "metadata.recovery.strategy": "rebootstrap"}
"""Values of settings that are no numbers."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("logins")


@pytest.fixture(scope="module")
def authority(folder):
    """An authority that the broker trusts for its clients, and that issued the broker's certificate."""
    return Authority(folder, "authority")


@pytest.fixture(scope="module")
def provider():
    """The provider whose tokens the broker accepts."""
    with TokenServer({"client-1": SECRET}).listening() as server:
        yield server


@pytest.fixture(scope="module")
def listeners(folder, authority, provider):
    """The addresses of a broker's listeners."""
    home = Home(folder / "home")
    server, addresses = secure_kafka(home, authority, provider.address)
    try:
        process.wait_until_ready(server, process.start(server, home).leader, home, threading.Event())
        yield addresses
    finally:
        process.stop(home, server.name)


def kafka_of(folder: Path, **settings: object) -> Kafka:
    """Return the resource of an environment with these settings of Kafka, with its variables read."""
    others = {
        "schema_registry": {"url": "http://127.0.0.1:1"},
        "spark": {"remote": "sc://127.0.0.1:1"},
        "catalog": {"type": "sql", "uri": "sqlite:///c.db", "warehouse": "s3://w/x"},
    }
    file = folder / "lakehouse.yaml"
    content = {"namespace": NAMESPACE, "topics": {}, "environments": {"here": {"kafka": settings, **others}}}
    file.write_text(yaml.safe_dump(content))
    with dg.build_resources({"kafka": build_resources(load(file), "here")["kafka"]}) as resolved:
        return resolved.kafka


def certified(folder: Path, listeners, authority: Authority, certificate) -> Kafka:
    """Return the broker for a client with a certificate, and with this authority for the broker's."""
    settings = {
        "ssl.ca.location": str(authority.file),
        "ssl.certificate.location": str(certificate.certificate),
        "ssl.key.location": str(certificate.key),
    }
    return kafka_of(folder, bootstrap_servers=listeners["MTLS"], security_protocol="SSL", settings=settings)


class Trades:
    """A topic that is filled without a login, and its table.

    Attributes:
        topic: The topic, with one partition.
        clients: The systems of its ingestion.
        compiling: These with the compiled decoder, which must read each batch.
    """

    def __init__(self, name: str, listeners, kafka: Kafka, resources):
        address = {"bootstrap.servers": listeners["PLAINTEXT"]}
        admin = AdminClient(address)
        admin.create_topics([NewTopic(name, 1, 1)])[name].result()
        self.topic = Topic.model_validate({"name": name, "key": "userid"})
        engines = SparkEngines(resources.spark)
        self.clients = Clients(kafka, resources.schema_registry, engines, resources.catalog)
        compiled = SparkEngines(Connect(remote=resources.spark.remote, native="require"))
        self.compiling = replace(self.clients, engines=compiled)
        self._producer, self._schema_id = Producer(address), resources.schema_registry.register(f"{name}-value", TRADES)

    def produce(self) -> None:
        """Produce ten trades."""
        for number in range(10):
            self._producer.produce(self.topic.name, framed(self._schema_id, TRADES, trade(number)))
        assert self._producer.flush(30) == 0

    def rows(self) -> int:
        """Return the number of rows in the table."""
        if not self.clients.catalog.iceberg().table_exists((NAMESPACE, self.topic.table)):
            return 0
        return self.clients.catalog.load(TableRef(NAMESPACE, self.topic.table)).scan().to_arrow().num_rows


def ingested_rows(name: str, listeners, kafka: Kafka, resources) -> int:
    """Produce ten trades, ingest them with a login, and return the number of rows. So does the compiled decoder."""
    trades = Trades(name, listeners, kafka, resources)
    trades.produce()
    list(ingest(NAMESPACE, trades.topic, trades.clients))
    rows = trades.rows()
    if HAS_COMPILED:
        trades.produce()
        [published] = ingest(NAMESPACE, trades.topic, trades.compiling)
        assert published.decoder == COMPILED
        assert trades.rows() == rows + 10
    return rows


def test_client_with_certificate_of_intermediate_authority_ingests(folder, listeners, authority, resources):
    intermediate = Authority(folder, "intermediate", authority)
    kafka = certified(folder, listeners, authority, intermediate.issue("client"))
    assert ingested_rows("certified", listeners, kafka, resources) == 10


def test_key_with_password_in_variables_ingests(folder, listeners, authority, resources, monkeypatch):
    issued = authority.issue("encrypted", password="the key's password")
    monkeypatch.setenv("KEY", issued.key.read_text())
    monkeypatch.setenv("KEY_PASSWORD", "the key's password")
    settings = {
        "ssl.ca.location": str(authority.file),
        "ssl.certificate.location": str(issued.certificate),
        "ssl.key.pem": {"env": "KEY"},
        "ssl.key.password": {"env": "KEY_PASSWORD"},
        "client.id": "lakehouse-tests",
        "connections.max.idle.ms": 60_000,
        "socket.receive.buffer.bytes": 65_536,
        "max.partition.fetch.bytes": 2_000_000,
    }
    kafka = kafka_of(folder, bootstrap_servers=listeners["MTLS"], security_protocol="SSL", settings=settings)
    assert ingested_rows("encrypted", listeners, kafka, resources) == 10


def test_keystore_with_intermediate_authorities_ingests(folder, listeners, authority, resources, monkeypatch):
    innermost = Authority(folder, "innermost", Authority(folder, "outer", authority))
    monkeypatch.setenv("KEYSTORE_PASSWORD", "the keystore's password")
    settings = {
        "ssl.ca.location": str(authority.file),
        "ssl.keystore.location": str(innermost.issue("stored").pkcs12("the keystore's password")),
        "ssl.keystore.password": {"env": "KEYSTORE_PASSWORD"},
    }
    kafka = kafka_of(folder, bootstrap_servers=listeners["MTLS"], security_protocol="SSL", settings=settings)
    assert ingested_rows("stored", listeners, kafka, resources) == 10


def test_untrusted_certificate_of_broker_is_named(folder, listeners, authority):
    kafka = certified(folder, listeners, Authority(folder, "other"), authority.issue("trusting-another"))
    with pytest.raises(TransientError) as raised:
        kafka.topics()
    problem = f"Kafka at {listeners['MTLS']} has a certificate that is not trusted"
    assert raised.value.problem.startswith(problem) and "ssl.ca.location" in raised.value.remedy


def test_refused_certificate_of_client_is_named(folder, listeners, authority):
    kafka = certified(folder, listeners, authority, Authority(folder, "unknown").issue("stranger"))
    with pytest.raises(TransientError) as raised:
        kafka.topics()
    problem = f"Kafka at {listeners['MTLS']} refused the client's certificate"
    assert raised.value.problem.startswith(problem) and "ssl.certificate.location" in raised.value.remedy


def test_password_over_tls_ingests_and_a_wrong_one_is_named(folder, listeners, authority, resources, monkeypatch):
    [(user, password)] = USERS.items()
    monkeypatch.setenv("PASSWORD", password)
    login = {
        "bootstrap_servers": listeners["PASSWORD"],
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "api_key": user,
        "api_secret": {"env": "PASSWORD"},
        "settings": {"ssl.ca.location": str(authority.file)},
    }
    assert ingested_rows("password", listeners, kafka_of(folder, **login), resources) == 10
    monkeypatch.setenv("PASSWORD", "canary-wrong")
    with pytest.raises(TransientError, match="refused the login") as raised:
        kafka_of(folder, **login).topics()
    assert "canary-wrong" not in str(raised.value)


def token_login(listeners, provider, **settings: object) -> dict[str, object]:
    """Return the settings of Kafka for a client that logs in with tokens, whose secret is in CLIENT_SECRET."""
    settings = {
        "sasl.oauthbearer.client.id": "client-1",
        "sasl.oauthbearer.client.secret": {"env": "CLIENT_SECRET"},
        "sasl.oauthbearer.token.endpoint.url": f"{provider.address}/token",
        **settings,
    }
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER", "settings": settings}
    return {"bootstrap_servers": listeners["OAUTH"], **login}


def with_tokens(folder: Path, listeners, provider, monkeypatch, **settings: object) -> Kafka:
    """Return the broker for a client that logs in with tokens."""
    monkeypatch.setenv("CLIENT_SECRET", SECRET)
    return kafka_of(folder, **token_login(listeners, provider, **settings))


def test_tokens_are_renewed_while_a_stream_ingests(folder, listeners, provider, resources, monkeypatch):
    """The broker ends connections whose token has expired."""
    provider.lifetime = 8
    provider.issued.clear()
    kafka = with_tokens(folder, listeners, provider, monkeypatch, **{"sasl.oauthbearer.scope": "records"})
    trades = Trades("renewed", listeners, kafka, resources)
    config = Config(namespace=NAMESPACE, topics={trades.topic.name: trades.topic}, environments={})
    stream = Stream(config, [trades.topic], trades.clients)
    events: list[Event] = []
    thread = threading.Thread(target=lambda: events.extend(stream.run()))
    thread.start()
    try:
        deadline, produced = time.monotonic() + SECONDS, 0
        # Java's client for HTTP has a User-Agent, and that of librdkafka has none.
        while min(sum(map(bool, provider.issued)), sum(not agent for agent in provider.issued)) < RENEWALS:
            trades.produce()
            produced += 10
            while trades.rows() < produced:
                assert time.monotonic() < deadline and thread.is_alive(), events
                time.sleep(0.1)
    finally:
        stream.stop()
        thread.join(SECONDS)
    assert trades.rows() == produced
    assert not [event for event in events if isinstance(event, TopicBackedOff)]


def test_provider_with_certificate_is_verified(folder, listeners, provider, authority, resources, monkeypatch):
    provider.lifetime = 3600
    certificate, context = authority.issue("provider"), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.certificate, certificate.key)
    with Proxy(f"{provider.address}/token", tls=context) as proxy:
        address = {"sasl.oauthbearer.token.endpoint.url": proxy.address}
        trusting = {"https.ca.location": str(authority.file), "sasl.oauthbearer.extensions": "a=b,c=d"}
        kafka = with_tokens(folder, listeners, provider, monkeypatch, **address, **trusting)
        assert ingested_rows("provider_with_tls", listeners, kafka, resources) == 10
        kafka = with_tokens(folder, listeners, provider, monkeypatch, **address)
        with pytest.raises(TransientError, match="its provider issued none: .*trust"):
            kafka.topics()


def test_refused_token_is_named(folder, listeners, provider, monkeypatch):
    monkeypatch.setattr(provider, "key", new_key())
    with pytest.raises(TransientError, match="refused the login: .*invalid_token") as raised:
        with_tokens(folder, listeners, provider, monkeypatch).topics()
    assert "issuer, audience and scope" in raised.value.remedy


def test_wrong_secret_of_client_is_named(folder, listeners, provider, monkeypatch):
    monkeypatch.setenv("WRONG", "canary-wrong")
    wrong = {"sasl.oauthbearer.client.secret": {"env": "WRONG"}}
    kafka = with_tokens(folder, listeners, provider, monkeypatch, **wrong)
    with pytest.raises(TransientError) as raised:
        kafka.topics()
    problem = f"Kafka at {listeners['OAUTH']} needs a token, and its provider issued none: "
    assert raised.value.problem.startswith(problem) and "invalid_client" in raised.value.problem
    assert "canary-wrong" not in str(raised.value)


def test_translated_settings_are_known_to_java(folder, authority):
    issued = authority.issue("translated")
    files = {"ssl.ca.location": str(authority.file), "ssl.certificate.location": str(issued.certificate)}
    settings = dict.fromkeys(CONNECTION | FETCH, "1") | VALUES | files | {"ssl.key.location": str(issued.key)}
    kafka = Kafka(bootstrap_servers="b:1", security_protocol="SSL", settings=settings)
    libraries = class_path([*jars.paths("spark"), Path(find_spec("pyspark").origin).parent / "jars/*"])
    command = java("-cp", libraries, "org.apache.kafka.clients.consumer.ConsumerConfig", heap="128m")
    page = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    known = {f"kafka.{name}" for name in re.findall(r'id="([a-z.]+)"', page)}
    assert len(known) > 90 and kafka.spark_options().keys() <= known


def logins_of_doctor(folder: Path, monkeypatch, resources, kafka: dict[str, object]) -> dict[str, tuple[bool, str]]:
    """Return what `lakehouse doctor --env` reports about logins, by subject: whether it succeeded, and the text."""
    catalog = {name: getattr(resources.catalog, name) for name in ("type", "uri", "warehouse", "s3_endpoint", "region")}
    systems = {
        "kafka": kafka,
        "schema_registry": {"url": resources.schema_registry.url},
        "spark": {"remote": {"env": "SPARK_REMOTE"}},
        "catalog": catalog,
    }
    file = folder / "lakehouse.yaml"
    topics = {"absent": {}, "examined": {}}
    content = {"namespace": NAMESPACE, "topics": topics, "environments": {"here": systems}}
    file.write_text(yaml.safe_dump(content))
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(file))
    monkeypatch.setenv("LAKEHOUSE_ENV", "here")
    output = CliRunner().invoke(main, ["doctor", "--env", "here", "--json"]).stdout
    return {entry["subject"]: (entry["ok"], entry["observation"]) for entry in json.loads(output)}


def test_doctor_logs_in_with_each_client(folder, listeners, provider, resources, monkeypatch):
    monkeypatch.setenv("CLIENT_SECRET", SECRET)
    Trades("examined", listeners, with_tokens(folder, listeners, provider, monkeypatch), resources).produce()
    login = token_login(listeners, provider)
    reports = logins_of_doctor(folder, monkeypatch, resources, login)
    logins = [reports[subject] for subject in CLIENTS]
    assert all(ok for ok, _ in logins), logins
    assert reports["Executor login"][1] == "Spark's executors logged in, and read topic 'examined'"

    monkeypatch.setenv("CLIENT_SECRET", "canary-wrong")
    reports = logins_of_doctor(folder, monkeypatch, resources, login)
    assert [subject for subject in CLIENTS if not reports[subject][0]] == [
        "Kafka login",
        "Driver login",
        "Executor login",
    ]
    assert "its provider issued none" in reports["Kafka login"][1]
    assert "canary-wrong" not in str(reports)


def test_doctor_names_the_client_that_cannot_log_in(folder, listeners, provider, resources, monkeypatch):
    """The provider refuses only the client of Java, which Spark uses."""
    monkeypatch.setenv("CLIENT_SECRET", SECRET)
    monkeypatch.setattr(provider, "refused", "Java")
    # Java's clients with the same settings share their tokens.
    login = token_login(listeners, provider, **{"sasl.oauthbearer.scope": "other"})
    reports = logins_of_doctor(folder, monkeypatch, resources, login)
    assert [subject for subject in CLIENTS if not reports[subject][0]] == ["Driver login", "Executor login"]
    assert "401" in reports["Driver login"][1]
