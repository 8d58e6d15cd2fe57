"""Certificates and keys of Kafka's clients: PEM files or texts of the environment, in the forms of both clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from lakehouse.core.errors import ConfigError

EFFECT = "No connection was made"


@dataclass(frozen=True)
class Tls:
    """PEM texts; empty without them."""

    authorities: str
    certificates: str
    key: str = field(repr=False)
    """An unencrypted key (PKCS #8, the only form that Java reads)."""

    @staticmethod
    def of(settings: Mapping[str, str]) -> Tls:
        """Read the files of settings.

        Raises:
            ConfigError: A file or the key cannot be read.
        """
        key = pem_text(settings, "ssl.key")
        return Tls(
            pem_text(settings, "ssl.ca"),
            pem_text(settings, "ssl.certificate"),
            _unencrypted(key, settings.get("ssl.key.password", "")) if key else "",
        )

    def of_librdkafka(self) -> dict[str, str]:
        """Return the settings of librdkafka."""
        texts = {"ssl.ca.pem": self.authorities, "ssl.certificate.pem": self.certificates, "ssl.key.pem": self.key}
        return {name: text for name, text in texts.items() if text}

    def of_java(self) -> dict[str, str]:
        """Return the settings of Java's client (KIP-651). Executors need no files."""
        settings: dict[str, str] = {}
        if self.authorities:
            settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": self.authorities}
        if self.key:
            settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": self.certificates}
            settings |= {"ssl.keystore.key": self.key}
        return settings


def pem_text(settings: Mapping[str, str], name: str) -> str:
    """Return the text of the setting `<name>.pem`, or that of the file `<name>.location`; empty without both.

    Raises:
        ConfigError: The file cannot be read.
    """
    path = settings.get(f"{name}.location", "")
    try:
        return Path(path).read_text() if path else settings.get(f"{name}.pem", "")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigError(
            f"The file {path} of `{name}.location` cannot be read: {reason}", EFFECT, "Correct the path or its owner"
        ) from None


@lru_cache(maxsize=8)
def _unencrypted(key: str, password: str) -> str:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )

    try:
        loaded = load_pem_private_key(key.encode(), password.encode() if "ENCRYPTED" in key else None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # The error may quote the key.
        raise ConfigError(
            "The key of Kafka's clients (`ssl.key.location` or `ssl.key.pem`) cannot be read as PEM, or "
            "`ssl.key.password` is not its password",
            EFFECT,
            "Correct them",
        ) from None
    return loaded.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
