"""Certificates and keys of Kafka's clients: PEM files, keystores or texts of the environment, in the forms of both
clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from lakehouse.core.errors import ConfigError

EFFECT = "No connection was made"
KEYSTORE, KEYSTORE_PASSWORD = "ssl.keystore.location", "ssl.keystore.password"  # noqa: S105 (names)


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
        authorities = pem_text(settings, "ssl.ca")
        if path := settings.get(KEYSTORE, ""):
            password = settings.get(KEYSTORE_PASSWORD, "")
            return Tls(authorities, *_of_keystore(path, _content(path, KEYSTORE), password))
        key = pem_text(settings, "ssl.key")
        return Tls(
            authorities,
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
    if not path:
        return settings.get(f"{name}.pem", "")
    try:
        return _content(path, f"{name}.location").decode()
    except UnicodeDecodeError:
        raise _unreadable(path, f"{name}.location", "it is no text") from None


def _content(path: str, setting: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise _unreadable(path, setting, error.strerror or "") from None


def _unreadable(path: str, setting: str, reason: str) -> ConfigError:
    problem = f"The file {path} of `{setting}` cannot be read: {reason}"
    return ConfigError(problem, EFFECT, "Correct the path or its owner")


@lru_cache(maxsize=8)
def _of_keystore(path: str, content: bytes, password: str) -> tuple[str, str]:
    """Return the certificates in a keystore (PKCS #12), and its key, as PEM texts."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    try:
        store = load_pkcs12(content, password.encode() or None)
    except ValueError:
        raise ConfigError(
            f"The file {path} is no keystore of type PKCS #12, or `{KEYSTORE_PASSWORD}` is not its password",
            EFFECT,
            f"Correct them; `keytool -importkeystore -srckeystore {path} -destkeystore FILE.p12 -deststoretype PKCS12` "
            "converts a keystore of type JKS",
        ) from None
    if store.key is None or store.cert is None:
        problem = f"The keystore {path} has no key with its certificate"
        raise ConfigError(problem, EFFECT, f"Correct `{KEYSTORE}`")
    # Java requires that each certificate is followed by that of its issuer. The order in a keystore is arbitrary.
    chain = [store.cert.certificate]
    others = {other.certificate.subject: other.certificate for other in store.additional_certs}
    while issuer := others.pop(chain[-1].issuer, None):
        chain.append(issuer)
    certificates = "".join(certificate.public_bytes(Encoding.PEM).decode() for certificate in chain)
    return certificates, store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


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
