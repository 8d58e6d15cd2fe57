"""An RSA key pair of a Snowflake service user, and how it is written in a secret."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, field
from datetime import UTC, datetime

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from resources.secrets_manager import SecretJson
from resources.snowflake_sql import KeySlot

BITS = 2048
"""What Snowflake asks for at least (Key-pair authentication)."""


@dataclass(frozen=True)
class KeyPair:
    """A key pair and what is needed to log in with it."""

    account: str
    user: str
    role: str
    slot: KeySlot
    """Where Snowflake has, or is to have, the public key. For people: the program compares fingerprints."""
    created_at: datetime
    private_key: rsa.RSAPrivateKey = field(repr=False)

    @classmethod
    def generate(cls, *, account: str, user: str, role: str, slot: KeySlot) -> KeyPair:
        """A new pair, made now."""
        key = rsa.generate_private_key(public_exponent=65537, key_size=BITS)
        return cls(account, user, role, slot, datetime.now(UTC), key)

    @classmethod
    def read(cls, secret: SecretJson) -> KeyPair:
        """What `written` wrote.

        Raises: ValueError when something is missing or is not what it should be; the message has no values.
        """
        values = secret.reveal()
        found: KeyPair | None
        try:
            key = serialization.load_pem_private_key(values["private_key"].encode(), password=None)
            if not isinstance(key, rsa.RSAPrivateKey):
                raise ValueError("another kind of key")
            found = cls(
                account=values["account"],
                user=values["user"],
                role=values["role"],
                slot=KeySlot(values["slot"]),
                created_at=datetime.fromisoformat(values["created_at"]),
                private_key=key,
            )
        except (KeyError, TypeError, ValueError):
            found = None
        if found is None or found.created_at.tzinfo is None:
            raise ValueError("not account, user, role, private_key (PEM of an RSA key), created_at and slot")
        return found

    def written(self) -> SecretJson:
        """The pair as JSON: the private key as unencrypted PEM, the time with its zone."""
        pem = self.private_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return SecretJson(
            {
                "account": self.account,
                "user": self.user,
                "role": self.role,
                "private_key": pem.decode(),
                "created_at": self.created_at.isoformat(),
                "slot": str(self.slot),
            }
        )

    @property
    def der(self) -> bytes:
        """The private key as the Snowflake connector takes it."""
        return self.private_key.private_bytes(
            serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    @property
    def public_key(self) -> str:
        """The base64 body of the public key's PEM, as RSA_PUBLIC_KEY takes it."""
        return base64.b64encode(self._public_der).decode()

    @property
    def fingerprint(self) -> str:
        """As DESC USER shows it: `SHA256:` and the base64 of the hash of the public key's DER form."""
        return "SHA256:" + base64.b64encode(hashlib.sha256(self._public_der).digest()).decode()

    @property
    def _public_der(self) -> bytes:
        return self.private_key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
