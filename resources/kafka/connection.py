"""The connection to a Kafka cluster: its settings, login, and clients of confluent-kafka."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any, ClassVar

import dagster as dg
from pydantic import Field, PrivateAttr

from lakehouse.core.errors import LakehouseError, translate
from resources.aws.secret_reader import read_secret_fields
from resources.forms import Form, one_of
from resources.kafka.errors import LOGIN_SECONDS, TIMEOUT_SECONDS, to_error
from resources.kafka.jaas import jaas_config
from resources.masked_field import secret_field

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer
    from confluent_kafka.admin import AdminClient

_LOG = logging.getLogger("lakehouse.librdkafka")
# librdkafka writes the text of each exception to stderr as well.
_LOG.setLevel(logging.CRITICAL)


class KafkaConnection(dg.ConfigurableResource):
    """The settings of a Kafka cluster, and its clients."""

    ONE_OF: ClassVar = ("bootstrap_servers", "secret")
    """Settings of which one is required."""
    FORMS: ClassVar = {
        "bootstrap_servers": Form(
            r"\s*[^\s,@]+:\d+\s*(,\s*[^\s,@]+:\d+\s*)*", "addresses as host:port, with commas between", "broker:9092"
        ),
        "security_protocol": one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        "sasl_mechanism": one_of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
    }

    bootstrap_servers: str = Field("", description="Addresses of brokers as `host:port`, separated by commas.")
    security_protocol: str = Field("PLAINTEXT", description="PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.")
    sasl_mechanism: str | None = Field(None, description="PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.")
    api_key: str | None = Field(None, description="Id of an API key of the cluster, or a SASL user.")
    api_secret: str | None = secret_field(None, "The key's secret, or the user's password.")

    secret: str = Field(
        "", description="A secret in AWS Secrets Manager with bootstrap.servers, sasl.username and sasl.password."
    )

    role_arn: str = Field(default="", description="IAM role to assume to read secrets of AWS Secrets Manager.")

    _client: AdminClient | None = PrivateAttr(default=None)
    _renewed_at: float = PrivateAttr(default=0.0)
    _reported: str = PrivateAttr(default="")

    @property
    def servers(self) -> str:
        """Addresses of the brokers."""
        return self._secret("bootstrap.servers")["bootstrap.servers"] if self.secret else self.bootstrap_servers

    def _secret(self, *fields: str) -> Mapping[str, str]:
        return read_secret_fields(self.secret, *fields, role_arn=self.role_arn)

    def _credentials(self) -> tuple[str, str]:
        if not self.secret:
            return self.api_key or "", self.api_secret or ""
        fields = self._secret("sasl.username", "sasl.password")
        return fields["sasl.username"], fields["sasl.password"]

    def client_config(self) -> dict[str, str | int]:
        """Return the connection settings of all clients (librdkafka, Configuration properties)."""
        config: dict[str, str | int] = {
            "bootstrap.servers": self.servers,
            "security.protocol": self.security_protocol,
            "socket.timeout.ms": TIMEOUT_SECONDS * 1000,
        }
        if self.sasl_mechanism:
            config |= {"sasl.mechanism": self.sasl_mechanism}
            config["sasl.username"], config["sasl.password"] = self._credentials()
        return config

    def spark_options(self) -> dict[str, str]:
        """Return the connection settings of Spark's Kafka source (Spark, Kafka Integration Guide: security)."""
        options = {
            "kafka.bootstrap.servers": self.servers,
            "kafka.security.protocol": self.security_protocol,
        }
        if self.sasl_mechanism:
            options["kafka.sasl.mechanism"] = self.sasl_mechanism
            options["kafka.sasl.jaas.config"] = jaas_config(self.sasl_mechanism, *self._credentials())
        return options

    def consumer(
        self, group: str, isolation: str = "read_committed", settings: Mapping[str, str | int] | None = None
    ) -> Consumer:
        """Return a consumer for a group, which commits no offsets, with further settings of librdkafka."""
        from confluent_kafka import Consumer

        defaults = {"group.id": group, "enable.auto.commit": "false", "auto.offset.reset": "error"}
        defaults |= {"isolation.level": isolation, "enable.partition.eof": "true"}
        # Brokers wait half a second by default before they respond at the end of a partition, which ends most reads.
        defaults["fetch.wait.max.ms"] = "10"
        return Consumer({**self.client_config(), **defaults, **(settings or {})}, logger=_LOG)

    def producer(self, **config: str | int) -> Producer:
        """Return an idempotent producer that partitions keys as Java producers do.

        Args:
            config: Further settings of librdkafka, with `_` for `.`, such as `transactional_id`.
        """
        from confluent_kafka import Producer

        settings = {
            "enable.idempotence": "true",
            "partitioner": "murmur2_random",
            "compression.type": "zstd",
            "linger.ms": 20,
        }
        named = {name.replace("_", "."): value for name, value in config.items()}
        return Producer({**self.client_config(), **settings, **named}, logger=_LOG)

    def _admin(self) -> AdminClient:
        """Return the only admin client: a client that is deleted loses its pending responses."""
        if self._client is None:
            from confluent_kafka.admin import AdminClient

            config: dict[str, Any] = {**self.client_config(), "error_cb": self._note}
            self._client, self._renewed_at = AdminClient(config, logger=_LOG), time.monotonic()
        elif time.monotonic() - self._renewed_at > LOGIN_SECONDS:
            self._renewed_at = time.monotonic()
            self.renew_login(self._client)
        return self._client

    def renew_login(self, client: AdminClient | Consumer) -> None:
        """Give a client the login that the secret has now, if it can be read: a rotation deletes the earlier key."""
        if self.secret and self.sasl_mechanism:
            with suppress(LakehouseError):
                client.set_sasl_credentials(*self._credentials())

    def translate_errors(self) -> AbstractContextManager[None]:
        """Raise Unreachable if no broker responds, and LakehouseError for a refused request."""
        from confluent_kafka import KafkaException

        def translated(error: KafkaException) -> LakehouseError | None:
            if self._client is not None:
                self._reported = ""
                self._client.poll(0)  # it calls `_note`
            return to_error(error, self.servers, self.security_protocol, self._reported)

        return translate({KafkaException: translated}, awaited="Kafka")

    def _note(self, error: KafkaError) -> None:
        """Store the text of an error of the admin client's connections. The last one says only that all are down."""
        from confluent_kafka import KafkaError

        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._reported = error.str()
