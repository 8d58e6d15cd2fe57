"""Key-pair login of the local Snowflake server, with tokens created without the connector."""

from __future__ import annotations

import base64
import hashlib
import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from lakehouse.local.snowflake.account import Entity
from lakehouse.local.snowflake.commands import fingerprint
from lakehouse.local.snowflake.login import Authenticator, LoginRefused
from tests.support.clouds.snowflake.strict_account import StrictAccount

KEY, OTHER = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))


def der(key: rsa.RSAPrivateKey) -> bytes:
    return key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def fingerprint_of(key: rsa.RSAPrivateKey) -> str:
    return "SHA256:" + base64.b64encode(hashlib.sha256(der(key)).digest()).decode()


def body(key: rsa.RSAPrivateKey) -> str:
    return base64.b64encode(der(key)).decode()


@pytest.fixture
def authenticator() -> Authenticator:
    account = StrictAccount("local")
    options = {"RSA_PUBLIC_KEY": body(KEY), "RSA_PUBLIC_KEY_FP": fingerprint(body(KEY)), "DEFAULT_ROLE": "LOADER"}
    account.add(Entity("USER", ("U",), owner="ACCOUNTADMIN", options=options))
    account.add(Entity("ROLE", ("LOADER",), owner="ACCOUNTADMIN"))
    account.add(Entity("ROLE", ("PARENT",), owner="ACCOUNTADMIN"))
    account.grant_role("PARENT", "USER", "U")
    account.grant_role("LOADER", "ROLE", "PARENT")
    return Authenticator(account, "secret")


def request(key: rsa.RSAPrivateKey = KEY, **changes: Any) -> dict[str, Any]:
    """Return a login whose token has other claims; `iat` and `exp` are in seconds after the call."""
    claims = {"iss": f"LOCAL.U.{fingerprint_of(KEY)}", "sub": "LOCAL.U", "iat": 0, "exp": 60} | changes
    claims = {name: value for name, value in claims.items() if value is not None}
    now = int(time.time())
    claims |= {name: now + claims[name] for name in ("iat", "exp") if name in claims}
    return {"AUTHENTICATOR": "SNOWFLAKE_JWT", "TOKEN": jwt.encode(claims, key, algorithm="RS256")}


def test_login_valid_token_is_accepted(authenticator: Authenticator):
    assert authenticator.user(request()) == "U"
    assert authenticator.user(request(exp=3590)) == "U"


@pytest.mark.parametrize(
    "changes",
    [
        {"key": OTHER},
        {"key": OTHER, "iss": f"LOCAL.U.{fingerprint_of(OTHER)}"},
        {"iat": -120, "exp": -60},
        {"iat": 600, "exp": 660},
        {"exp": 7200},
        {"exp": None},
        {"iat": None},
        {"sub": "LOCAL.ADMIN"},
        {"iss": f"ELSEWHERE.U.{fingerprint_of(KEY)}", "sub": "ELSEWHERE.U"},
        {"iss": f"LOCAL.NOBODY.{fingerprint_of(KEY)}", "sub": "LOCAL.NOBODY"},
        {"iss": "LOCAL.U", "sub": "LOCAL.U"},
    ],
    ids=lambda changes: ",".join(changes),
)
def test_login_invalid_token_is_refused(authenticator: Authenticator, changes: dict[str, Any]):
    with pytest.raises(LoginRefused) as raised:
        authenticator.user(request(**changes))
    assert (raised.value.code, raised.value.message) == ("390144", "JWT token is invalid.")


def test_login_malformed_or_unsigned_token_is_refused(authenticator: Authenticator):
    unsigned = jwt.encode({"iss": f"LOCAL.U.{fingerprint_of(KEY)}", "sub": "LOCAL.U"}, None, algorithm="none")
    for token in ("", "a.b.c", unsigned):
        with pytest.raises(LoginRefused):
            authenticator.user({"AUTHENTICATOR": "SNOWFLAKE_JWT", "TOKEN": token})


def test_login_password_is_accepted_for_administrator_only(authenticator: Authenticator):
    assert authenticator.user({"LOGIN_NAME": "admin", "PASSWORD": "secret"}) == "ADMIN"
    for user, password in (("admin", "no"), ("admin", None), ("u", ""), ("u", "secret")):
        with pytest.raises(LoginRefused, match="390100"):
            authenticator.user({"LOGIN_NAME": user, "PASSWORD": password})


def test_login_disabled_user_is_refused(authenticator: Authenticator):
    authenticator.account.find("USER", ("U",)).options["DISABLED"] = True
    with pytest.raises(LoginRefused, match="390101"):
        authenticator.user(request())


def test_role_must_be_granted(authenticator: Authenticator):
    assert authenticator.role("U", None) == "LOADER", "the default, granted through PARENT"
    assert authenticator.role("U", "parent") == "PARENT"
    assert authenticator.role("U", "public") == "PUBLIC"
    for role in ("ACCOUNTADMIN", "NOWHERE"):
        with pytest.raises(LoginRefused, match="390189"):
            authenticator.role("U", role)


def test_repr_contains_no_secret(authenticator: Authenticator):
    assert "secret" not in repr(authenticator)
