"""The credentials of the embedded stack: random, generated once per state folder, and readable by the user only."""

from __future__ import annotations

import base64
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from lakehouse.local.home import Home, write_atomically


@dataclass(frozen=True)
class Credentials:
    """The credentials of one state folder."""

    aws_access_key_id: str
    aws_secret_access_key: str = field(repr=False)
    spark_token: str = field(repr=False)
    kafka_password: str = field(repr=False)
    ui_token: str = field(repr=False)
    """Token for Dagster's UI and API."""
    snowflake_private_key_path: Path
    snowflake_public_key: str
    """Base64 of the public key's DER form, for Snowflake's RSA_PUBLIC_KEY."""

    @classmethod
    def of(cls, home: Home) -> Credentials:
        """Return the credentials of a state folder, and generate missing ones."""
        folder = home.folder("secrets")
        key_path = folder / "snowflake_rsa_key.p8"
        return cls(
            aws_access_key_id="lakehouse",
            aws_secret_access_key=_token(folder / "aws_secret_access_key"),
            spark_token=_token(folder / "spark_token"),
            kafka_password=_token(folder / "kafka_password"),
            ui_token=_token(folder / "ui_token"),
            snowflake_private_key_path=key_path,
            snowflake_public_key=_public_key(key_path),
        )


def _token(path: Path) -> str:
    if not path.exists() or not path.read_text():
        write_atomically(path, secrets.token_urlsafe(30))
    return path.read_text()


def _public_key(path: Path) -> str:
    if not path.exists():
        new = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        encoding, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        write_atomically(path, new.private_bytes(encoding, pkcs8, serialization.NoEncryption()))
    key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    der = key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(der).decode()
