"""An RSA key pair of a Snowflake service user, and its layout in a secret.

The secret also has the fields of the Terraform kickstarter (docs/cloud.md), for programs that read those. They have two
slots for keys. Both contain the key in use, so a program logs in with either, also after a rotation.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, field
from datetime import UTC, datetime

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from resources.aws.secrets_manager import SecretJson
from resources.snowflake.session import private_key
from resources.snowflake.sql import KeySlot

BITS = 2048
"""The least that Snowflake accepts (Key-pair authentication)."""


@dataclass(frozen=True)
class KeyPair:
    """A key pair, and what else a login needs."""

    account: str
    user: str
    role: str
    slot: KeySlot
    """The slot of the public key in Snowflake. For people: the program compares fingerprints."""
    created_at: datetime
    private_key: rsa.RSAPrivateKey = field(repr=False)

    @classmethod
    def generate(cls, *, account: str, user: str, role: str, slot: KeySlot) -> KeyPair:
        """Generate a pair."""
        key = rsa.generate_private_key(public_exponent=65537, key_size=BITS)
        return cls(account, user, role, slot, datetime.now(UTC), key)

    @classmethod
    def read(cls, secret: SecretJson) -> KeyPair:
        """Read what `written` returned.

        Raises:
            ValueError: Something is missing or malformed; the message quotes no values.
        """
        values = secret.reveal()
        pair: KeyPair | None
        try:
            key = private_key(values["private_key"].encode())
            if not isinstance(key, rsa.RSAPrivateKey):
                raise ValueError("another kind of key")
            pair = cls(
                account=values["account"],
                user=values["user"],
                role=values["role"],
                slot=KeySlot(values["slot"]),
                created_at=datetime.fromisoformat(values["created_at"]),
                private_key=key,
            )
        except (KeyError, TypeError, ValueError):
            pair = None
        if pair is None or pair.created_at.tzinfo is None:
            raise ValueError("not account, user, role, private_key (PEM of an RSA key), created_at and slot")
        return pair

    def written(self, secret: str) -> SecretJson:
        """Return the pair as JSON: the private key as unencrypted PEM, the time with its zone.

        Args:
            secret: The name of the secret, which the kickstarter's layout repeats.
        """
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
                **self._kickstarter_fields(secret, pem),
            }
        )

    def _kickstarter_fields(self, secret: str, private_pem: bytes) -> dict[str, str]:
        public_pem = self.private_key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        fields = {
            "snowflake_account_identifier": self.account,
            "snowflake_service_user": self.user,
            "secrets_path": secret,
        }
        for slot in (1, 2):
            fields |= {
                f"rsa_public_key_{slot}_pem": public_pem.decode(),
                f"snowflake_rsa_public_key_{slot}_pem": self.public_key,
                f"snowflake_rsa_private_key_{slot}_pem": base64.b64encode(private_pem).decode(),
            }
        return fields

    @property
    def public_key(self) -> str:
        """The base64 body of the public key's PEM, as RSA_PUBLIC_KEY takes it."""
        return base64.b64encode(self._public_der).decode()

    @property
    def fingerprint(self) -> str:
        """The fingerprint as DESC USER shows it: `SHA256:` and the base64 of the hash of the public key's DER form."""
        return "SHA256:" + base64.b64encode(hashlib.sha256(self._public_der).digest()).decode()

    @property
    def _public_der(self) -> bytes:
        return self.private_key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
