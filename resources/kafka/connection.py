"""The connection to a Kafka cluster: its settings, login, and clients of confluent-kafka."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import dagster as dg
from pydantic import Field, PrivateAttr

from lakehouse.core.errors import ConfigError, LakehouseError, translate
from resources.aws.secret_reader import read_secret_fields
from resources.forms import Form, one_of
from resources.kafka import msk
from resources.kafka.errors import LOGIN_SECONDS, TIMEOUT_SECONDS, to_error
from resources.kafka.msk import MSK_IAM
from resources.kafka.sasl import Sasl
from resources.kafka.settings import (
    CONNECTION,
    FETCH,
    MECHANISMS,
    OAUTHBEARER,
    SETTINGS,
    TLS_PROTOCOLS,
    java_settings,
    setting_faults,
)
from resources.kafka.tls import Tls
from resources.masked_field import masked_field, secret_field

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer
    from confluent_kafka.admin import AdminClient

_LOG = logging.getLogger("lakehouse.librdkafka")
# librdkafka writes the text of each exception to stderr as well.
_LOG.setLevel(logging.CRITICAL)


Client = TypeVar("Client")


class KafkaConnection(dg.ConfigurableResource):
    """The settings of a Kafka cluster, and its clients."""

    ONE_OF: ClassVar = ("bootstrap_servers", "secret")
    """Settings of which one is required."""
    FORMS: ClassVar = {
        "bootstrap_servers": Form(
            r"\s*[^\s,@]+:\d+\s*(,\s*[^\s,@]+:\d+\s*)*", "addresses as host:port, with commas between", "broker:9092"
        ),
        "security_protocol": one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        "sasl_mechanism": one_of(*MECHANISMS),
    }
    CLIENT_SETTINGS: ClassVar = SETTINGS
    FAULTS: ClassVar = staticmethod(setting_faults)
    """Yields the faults of settings that depend on each other, each with its location."""

    bootstrap_servers: str = Field("", description="Addresses of brokers as `host:port`, separated by commas.")
    security_protocol: str = Field("PLAINTEXT", description="PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.")
    sasl_mechanism: str | None = Field(
        None, description="PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or AWS_MSK_IAM."
    )
    api_key: str | None = Field(None, description="Id of an API key of the cluster, or a SASL user.")
    api_secret: str | None = secret_field(None, "The key's secret, or the user's password.")
    settings: dict[str, str] = masked_field(
        {}, "Settings of the clients by librdkafka's names, such as `ssl.ca.location`. Spark gets the same."
    )

    secret: str = Field(
        "",
        description="A secret in AWS Secrets Manager with bootstrap.servers, sasl.username and sasl.password. "
        "It may have secrets of `settings` as well.",
    )

    role_arn: str = Field(
        default="",
        description="IAM role to assume to read secrets of AWS Secrets Manager, and to log in by AWS_MSK_IAM.",
    )

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

    def _settings(self) -> dict[str, str]:
        """Return the settings of the clients, with those in the secret.

        Raises:
            ConfigError: They contradict each other. Those of variables and of the secret are known only now.
        """
        of_secret = self._secret() if self.secret else {}
        settings = {name: value for name, value in of_secret.items() if name in SETTINGS.known}
        settings |= {name: value for name, value in self.settings.items() if value}
        keys = ("security_protocol", "sasl_mechanism", "api_key", "api_secret")
        fields = {key: getattr(self, key) for key in keys} | {"settings": settings}
        faults = [(("settings", name), fault) for name, fault in SETTINGS.value_faults(settings)]
        for location, fault in (*faults, *setting_faults(fields)):
            raise ConfigError(f"lakehouse.yaml: kafka.{'.'.join(location)}: {fault}")
        return settings

    def _sasl(self, mechanism: str, settings: Mapping[str, str]) -> Sasl:
        user, password = ("", "") if mechanism == OAUTHBEARER else self._credentials()
        return Sasl(mechanism, user, password, settings)

    def client_config(self) -> dict[str, Any]:
        """Return the connection settings of all clients (librdkafka, Configuration properties)."""
        settings = self._settings()
        config: dict[str, Any] = {
            "bootstrap.servers": self.servers,
            "security.protocol": self.security_protocol,
            "socket.timeout.ms": TIMEOUT_SECONDS * 1000,
            **{name: value for name, value in settings.items() if name in CONNECTION},
            **Tls.of(settings).of_librdkafka(),
        }
        if self.sasl_mechanism == MSK_IAM:
            config |= msk.librdkafka_settings(self.servers, self.role_arn)
        elif self.sasl_mechanism:
            config |= self._sasl(self.sasl_mechanism, settings).of_librdkafka()
        return config

    def spark_options(self) -> dict[str, str]:
        """Return the connection settings of Spark's Kafka source (Spark, Kafka Integration Guide: security)."""
        settings = self._settings()
        options = {
            "bootstrap.servers": self.servers,
            "security.protocol": self.security_protocol,
            **java_settings(settings),
            **Tls.of(settings).of_java(),
        }
        if self.sasl_mechanism == MSK_IAM:
            options |= msk.java_settings(self.servers, self.role_arn)
        elif self.sasl_mechanism:
            options |= self._sasl(self.sasl_mechanism, settings).of_java()
        return {f"kafka.{name}": value for name, value in options.items()}

    def native_login(self) -> str:
        """Return the login of the compiled decoder as JSON text (native/src/connection.rs). It has secrets.

        Raises:
            LakehouseError: A secret cannot be read, or the provider issues no token.
        """
        settings, login = self._settings(), {}
        if self.security_protocol in TLS_PROTOCOLS:
            login["tls"] = asdict(Tls.of(settings))
        if self.sasl_mechanism == MSK_IAM:
            token, _ = msk.signer(self.servers, self.role_arn)()
            login["sasl"] = {"mechanism": OAUTHBEARER, "token": token, "extensions": []}
        elif self.sasl_mechanism:
            login["sasl"] = self._sasl(self.sasl_mechanism, settings).of_native()
        return json.dumps(login)

    def consumer(
        self, group: str, isolation: str = "read_committed", settings: Mapping[str, str | int] | None = None
    ) -> Consumer:
        """Return a consumer for a group, which commits no offsets, with further settings of librdkafka."""
        from confluent_kafka import Consumer

        fetch = {name: value for name, value in self._settings().items() if name in FETCH}
        defaults = {"group.id": group, "enable.auto.commit": "false", "auto.offset.reset": "error"}
        defaults |= {"isolation.level": isolation, "enable.partition.eof": "true"}
        # Brokers wait half a second by default before they respond at the end of a partition, which ends most reads.
        defaults["fetch.wait.max.ms"] = "10"
        config = {**self.client_config(), **fetch, **defaults, **(settings or {})}
        return _created(lambda: Consumer(config, logger=_LOG))

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
        return _created(lambda: Producer({**self.client_config(), **settings, **named}, logger=_LOG))

    def _admin(self) -> AdminClient:
        """Return the only admin client: a client that is deleted loses its pending responses."""
        if self._client is None:
            from confluent_kafka.admin import AdminClient

            config: dict[str, Any] = {**self.client_config(), "error_cb": self._note}
            self._client = _created(lambda: AdminClient(config, logger=_LOG))
            self._renewed_at = time.monotonic()
        elif time.monotonic() - self._renewed_at > LOGIN_SECONDS:
            self._renewed_at = time.monotonic()
            self.renew_login(self._client)
        return self._client

    def renew_login(self, client: AdminClient | Consumer) -> None:
        """Give a client the login that the secret has now, if it can be read: a rotation deletes the earlier key."""
        if self.secret and self.sasl_mechanism and self.sasl_mechanism not in (OAUTHBEARER, MSK_IAM):
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


def _created(create: Callable[[], Client]) -> Client:
    """Return a new client.

    Raises:
        ConfigError: librdkafka refuses its settings.
    """
    from confluent_kafka import KafkaException

    try:
        return create()
    except KafkaException as error:
        problem = f"Kafka's client refuses the settings in lakehouse.yaml: {error.args[0].str().strip()}"
        raise ConfigError(
            problem, "No connection was made", "Correct `settings` of `kafka` in the environment"
        ) from None
