"""Logins by SASL: the settings of both clients for a user, or for a client of an OpenID Connect provider.

Both clients get tokens by client credentials (RFC 6749, section 4.4) and renew them before they expire (librdkafka,
sasl.oauthbearer.method=oidc; Kafka, KIP-768).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from resources.http_json import ClientCredentials
from resources.kafka.jaas import jaas_config, oauth_jaas_config
from resources.kafka.settings import OAUTH, OAUTHBEARER
from resources.kafka.tls import pem_text

PREFIX = "sasl.oauthbearer."
TASK_SECONDS = 240
"""Tokens for the tasks of the compiled decoder are valid for as long as a task takes, if the provider lets them."""
HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"


@dataclass(frozen=True)
class Sasl:
    """A login."""

    mechanism: str
    user: str
    password: str = field(repr=False)
    settings: Mapping[str, str] = field(repr=False)
    """Settings of the clients, of which OAUTHBEARER has its own."""

    def of_librdkafka(self) -> dict[str, str]:
        """Return the settings of librdkafka."""
        if self.mechanism != OAUTHBEARER:
            login = {"sasl.username": self.user, "sasl.password": self.password}
            return {"sasl.mechanism": self.mechanism, **login}
        login = {name: value for name, value in self.settings.items() if name in OAUTH and name.startswith(PREFIX)}
        authorities = {"https.ca.pem": text} if (text := pem_text(self.settings, "https.ca")) else {}
        return {"sasl.mechanism": self.mechanism, f"{PREFIX}method": "oidc", **login, **authorities}

    def of_java(self) -> dict[str, str]:
        """Return the settings of Java's client. The secret is in `sasl.jaas.config` only."""
        if self.mechanism != OAUTHBEARER:
            login = jaas_config(self.mechanism, self.user, self.password)
            return {"sasl.mechanism": self.mechanism, "sasl.jaas.config": login}
        options = {"clientId": self.settings[f"{PREFIX}client.id"]}
        options["clientSecret"] = self.settings[f"{PREFIX}client.secret"]
        if scope := self.settings.get(f"{PREFIX}scope"):
            options["scope"] = scope
        options |= {f"extension_{name}": value for name, value in self._extensions()}
        if authorities := pem_text(self.settings, "https.ca"):
            options |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authorities}
        return {
            "sasl.mechanism": self.mechanism,
            "sasl.login.callback.handler.class": HANDLER,
            f"{PREFIX}token.endpoint.url": self.settings[f"{PREFIX}token.endpoint.url"],
            "sasl.jaas.config": oauth_jaas_config(options),
        }

    def of_native(self) -> dict[str, Any]:
        """Return the login of the compiled decoder (native/src/connection.rs), with a token if it logs in with one.

        Raises:
            LakehouseError: The provider issues no token.
        """
        if self.mechanism != OAUTHBEARER:
            return {"mechanism": self.mechanism, "user": self.user, "password": self.password}
        names = ("token.endpoint.url", "client.id", "client.secret", "scope")
        provider = (self.settings.get(f"{PREFIX}{name}", "") for name in names)
        token = _tokens(*provider, pem_text(self.settings, "https.ca")).token()
        return {"mechanism": self.mechanism, "token": token, "extensions": list(self._extensions())}

    def _extensions(self) -> Iterator[tuple[str, str]]:
        extensions = self.settings.get(f"{PREFIX}extensions", "")
        for name, _, value in (pair.partition("=") for pair in extensions.split(",") if pair):
            yield name.strip(), value.strip()


@lru_cache(maxsize=8)
def _tokens(address: str, client_id: str, client_secret: str, scope: str, authorities: str) -> ClientCredentials:
    return ClientCredentials(
        "The provider of Kafka's tokens",
        address,
        client_id,
        client_secret,
        scope,
        f"{PREFIX}token.endpoint.url",
        authorities,
        is_in_header=True,
        margin_seconds=TASK_SECONDS,
    )
