"""Authentication: of users by a key pair, and of the administrator by a password.

Source of the token's rules: Snowflake, Key-pair authentication, and SQL API, Authenticating to the server.
"""

import base64
import hmac
from dataclasses import dataclass, field
from typing import Any

import jwt
from cryptography.hazmat.primitives.serialization import load_der_public_key

from lakehouse.local.snowflake import ADMIN_USER
from lakehouse.local.snowflake.account import Account
from lakehouse.local.snowflake.execution.commands import KEY_OPTIONS

MAX_LIFE_SECONDS = 3600
"""Maximum lifetime of a token; those with a longer one are refused."""


@dataclass
class LoginRefused(Exception):
    """A refused login. `reason` is for the server's log only: Snowflake does not return it to the client."""

    code: str
    message: str
    reason: str = ""


@dataclass(frozen=True)
class Authenticator:
    """Checks credentials against an account."""

    account: Account
    admin_password: str = field(repr=False)

    def user(self, data: dict[str, Any]) -> str:
        """Authenticate a login request.

        Args:
            data: `data` of the request: LOGIN_NAME, AUTHENTICATOR, and TOKEN or PASSWORD.

        Returns:
            The user's name.

        Raises:
            LoginRefused: The credentials are wrong, or the user does not exist or is disabled.
        """
        if str(data.get("AUTHENTICATOR") or "SNOWFLAKE").upper() == "SNOWFLAKE_JWT":
            user = self._of_token(str(data.get("TOKEN") or ""))
        else:
            user = str(data.get("LOGIN_NAME") or "").upper()
            password = str(data.get("PASSWORD") or "")
            if user != ADMIN_USER or not hmac.compare_digest(password.encode(), self.admin_password.encode()):
                raise LoginRefused("390100", "Incorrect username or password was specified.", f"password of '{user}'")
        with self.account.lock:
            entity = self.account.find("USER", (user,))
            if entity is None or entity.options.get("DISABLED"):
                raise LoginRefused("390101", "User access disabled. Contact your local system administrator.", user)
        return user

    def role(self, user: str, requested: str | None) -> str:
        """Return the role of the session: the requested one, or the user's default, or PUBLIC.

        Raises:
            LoginRefused: The role does not exist or is not granted to the user.
        """
        with self.account.lock:
            entity = self.account.find("USER", (user,))
            role = (requested or (entity and entity.options.get("DEFAULT_ROLE")) or "PUBLIC").upper()
            if self.account.find("ROLE", (role,)) is None or not self.account.has_role(user, role):
                raise LoginRefused(
                    "390189",
                    f"Role '{role}' specified in the connect string does not exist or not authorized. Contact your "
                    "local system administrator, or attempt to login with another role, e.g. PUBLIC.",
                )
        return role

    def _of_token(self, token: str) -> str:
        try:
            return self._verified(token)
        except (jwt.InvalidTokenError, ValueError) as error:
            raise LoginRefused("390144", "JWT token is invalid.", f"{type(error).__name__}: {error}") from None

    def _verified(self, token: str) -> str:
        """Return the user in `iss` (account.user.fingerprint), after verifying the signature by the user's key with
        that fingerprint."""
        claims = jwt.decode(token, options={"verify_signature": False})
        subject, _, fingerprint = str(claims.get("iss")).rpartition(".")
        account, _, user = subject.partition(".")
        if claims.get("sub") != subject or account != self.account.name:
            raise ValueError("iss and sub do not name a user of this account")
        with self.account.lock:
            entity = self.account.find("USER", (user,))
            options = dict(entity.options) if entity else {}
        keys = [options[key] for key in KEY_OPTIONS if options.get(key) and options.get(f"{key}_FP") == fingerprint]
        if not keys:
            raise ValueError("no key of this user has the fingerprint")
        public_key: Any = load_der_public_key(base64.b64decode(keys[0]))
        claims = jwt.decode(token, public_key, algorithms=["RS256"], options={"require": ["exp", "iat", "iss", "sub"]})
        if claims["exp"] - claims["iat"] > MAX_LIFE_SECONDS:
            raise ValueError(f"the lifetime exceeds {MAX_LIFE_SECONDS} s")
        return user
