"""A Kafka broker with a listener for each way to log in."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from lakehouse.local import jars
from lakehouse.local.home import Home
from lakehouse.local.java import class_path, java
from lakehouse.local.processes.description import Server
from tests.support.processes.cluster import free_ports
from tests.support.servers.certificates import Authority
from tests.support.servers.token_server import AUDIENCE

LISTENERS = {
    "PLAINTEXT": "PLAINTEXT",
    "CONTROLLER": "PLAINTEXT",
    "MTLS": "SSL",
    "PASSWORD": "SASL_SSL",
    "OAUTH": "SASL_PLAINTEXT",
}
"""Protocols by listener."""
USERS = {"reader": "its-password"}
"""Passwords of users of the listener PASSWORD, with SASL's mechanism PLAIN."""


def secure_kafka(home: Home, authority: Authority, issuer: str) -> tuple[Server, dict[str, str]]:
    """Return the description of a broker, and the addresses of its listeners.

    Args:
        home: State folder of the broker.
        authority: Issues the broker's certificate, and those of its clients at MTLS.
        issuer: Address of the OpenID Connect provider whose tokens OAUTH accepts, until they expire.
    """
    folder = home.folder("secure-kafka")
    ports = dict(zip(LISTENERS, free_ports(len(LISTENERS)), strict=True))
    addresses = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
    libs = class_path(jars.paths("kafka"))
    properties = folder / "server.properties"
    properties.write_text(
        "".join(f"{name}={value}\n" for name, value in _properties(folder, addresses, authority, issuer).items())
    )
    data = folder / "data"
    data.mkdir()
    cluster, directory = (base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode() for _ in range(2))
    (data / "meta.properties").write_text(f"version=1\ncluster.id={cluster}\nnode.id=1\ndirectory.id={directory}\n")

    def ready() -> bool:
        try:
            client = AdminClient({"bootstrap.servers": addresses["PLAINTEXT"], "log_level": 0})
            return bool(client.list_topics(timeout=2).brokers)
        except KafkaException:
            return False

    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={issuer}/jwks"
    server = Server(
        name="secure-kafka",
        command=java("-Dlog4j2.level=INFO", allowed, "-cp", libs, "kafka.Kafka", str(properties), heap="384m"),
        folder=folder,
        address=addresses["PLAINTEXT"],
        ready=ready,
        env={},
        ports=ports,
    )
    return server, addresses


def _properties(folder: Path, addresses: Mapping[str, str], authority: Authority, issuer: str) -> dict[str, str]:
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule"
    bearer = "org.apache.kafka.common.security.oauthbearer"
    users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    oauth = "listener.name.oauth.oauthbearer.sasl"
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{addresses['CONTROLLER']}",
        "listeners": ",".join(f"{name}://{address}" for name, address in addresses.items()),
        "advertised.listeners": ",".join(f"{n}://{a}" for n, a in addresses.items() if n != "CONTROLLER"),
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in LISTENERS.items()),
        "log.dirs": str(folder / "data"),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        "log.cleaner.dedupe.buffer.size": "4194304",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.issue("broker").keystore),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.file),
        "listener.name.mtls.ssl.client.auth": "required",
        "listener.name.password.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.password.plain.sasl.jaas.config": f"{plain} required {users};",
        "listener.name.oauth.sasl.enabled.mechanisms": "OAUTHBEARER",
        # A connection ends when its token expires, unless the client has sent another one (KIP-368).
        "listener.name.oauth.connections.max.reauth.ms": "3600000",
        f"{oauth}.jaas.config": f"{bearer}.OAuthBearerLoginModule required ;",
        f"{oauth}.server.callback.handler.class": f"{bearer}.OAuthBearerValidatorCallbackHandler",
        f"{oauth}.oauthbearer.jwks.endpoint.url": f"{issuer}/jwks",
        f"{oauth}.oauthbearer.expected.issuer": issuer,
        f"{oauth}.oauthbearer.expected.audience": AUDIENCE,
        f"{oauth}.oauthbearer.clock.skew.seconds": "0",
    }
