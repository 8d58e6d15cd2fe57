"""Logins by SASL: the settings of both clients for a user, or for a client of an OpenID Connect provider.

Both clients get tokens by client credentials (RFC 6749, section 4.4) and renew them before they expire (librdkafka,
sasl.oauthbearer.method=oidc; Kafka, KIP-768).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from resources.kafka.jaas import jaas_config, oauth_jaas_config
from resources.kafka.settings import OAUTH, OAUTHBEARER
from resources.kafka.tls import pem_text

PREFIX = "sasl.oauthbearer."
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
        extensions = self.settings.get(f"{PREFIX}extensions", "")
        for name, _, value in (pair.partition("=") for pair in extensions.split(",") if pair):
            options[f"extension_{name.strip()}"] = value.strip()
        if authorities := pem_text(self.settings, "https.ca"):
            options |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authorities}
        return {
            "sasl.mechanism": self.mechanism,
            "sasl.login.callback.handler.class": HANDLER,
            f"{PREFIX}token.endpoint.url": self.settings[f"{PREFIX}token.endpoint.url"],
            "sasl.jaas.config": oauth_jaas_config(options),
        }
