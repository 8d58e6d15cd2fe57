"""RSA keys for a schedule: generated once per process, since the generation of one takes longer than a schedule."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from functools import cache

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

BITS = 1024
"""Half of what Snowflake accepts, which the simulated one does not check."""
load_pem_private_key = cache(serialization.load_pem_private_key)
"""The function of the library, which takes 20 ms: it verifies that the factors are primes."""
_GENERATE = rsa.generate_private_key


@cache
def key(number: int) -> rsa.RSAPrivateKey:
    """Return the key of a number, which is another one in each process."""
    return _GENERATE(public_exponent=65537, key_size=BITS)


def generator(count: Callable[[], int]) -> Callable[..., rsa.RSAPrivateKey]:
    """Return a function that generates keys.

    Args:
        count: Returns the number of the next key.
    """

    def generate_private_key(public_exponent: int, key_size: int) -> rsa.RSAPrivateKey:
        return key(count())

    return generate_private_key


def fingerprint_of_public(body: str) -> str:
    """Return the fingerprint of a public key, the base64 of its DER, as DESC USER shows it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(base64.b64decode(body)).digest()).decode()


@cache
def fingerprint_of_private(key: rsa.RSAPrivateKey) -> str:
    """Return the fingerprint of the public key of a private key."""
    public = key.public_key()
    der = public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return fingerprint_of_public(base64.b64encode(der).decode())
