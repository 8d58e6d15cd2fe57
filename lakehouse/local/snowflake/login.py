"""Logins, and the sessions that they open: their tokens, expiry and maximum number.

Users log in by a key pair, and the administrator by a password. Source of the token's rules: Snowflake, Key-pair
authentication, and SQL API, Authenticating to the server. As in Snowflake, a session has two tokens. The session token
is sent with each request. When it has expired, the client renews it with the master token, and receives new tokens for
the same session.
"""

import base64
import hmac
import secrets
import threading
import time
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

import jwt
from cryptography.hazmat.primitives.serialization import load_der_public_key
from fakesnow.fakes import FakeSnowflakeConnection

from lakehouse.local.snowflake import ADMIN_USER
from lakehouse.local.snowflake.account import Account
from lakehouse.local.snowflake.commands import KEY_OPTIONS

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


MAX_SESSIONS = 500
"""Maximum number of sessions, since clients may end without closing theirs. The least recently used one is ended."""


@dataclass(frozen=True)
class Validity:
    """Lifetimes of the tokens in seconds. The defaults are Snowflake's."""

    token_seconds: float = 3600
    master_seconds: float = 14400


@dataclass
class SessionTokens:
    """A session's tokens, with their expiry and last use by the clock of `Sessions`."""

    token: str = field(repr=False)
    master_token: str = field(repr=False)
    token_expires: float
    master_expires: float
    used: float


class Sessions:
    """All sessions. fakesnow's handlers look up connections by session token, so they stay in its dictionary."""

    def __init__(
        self,
        connections: MutableMapping[str, FakeSnowflakeConnection],
        validity: Validity | None = None,
        limit: int = MAX_SESSIONS,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.validity = validity or Validity()
        self._connections, self._limit, self._clock = connections, limit, clock
        self._sessions: dict[str, SessionTokens] = {}
        self._lock = threading.Lock()

    def open(self, connection: FakeSnowflakeConnection) -> SessionTokens:
        """Open a session; expired ones, and the least recently used one above the limit, are ended."""
        with self._lock:
            now = self._clock()
            for session in [session for session in self._sessions.values() if session.master_expires <= now]:
                self._end(session)
            while len(self._sessions) >= self._limit:
                self._end(min(self._sessions.values(), key=lambda session: session.used))
            return self._begin(connection)

    def has_expired(self, token: str) -> bool:
        """Return whether a session's token has expired; False for an unknown one. Updates the session's last use."""
        with self._lock:
            session, now = self._sessions.get(token), self._clock()
            if session is None:
                return False
            session.used = now
            return session.token_expires <= now

    def renew(self, master_token: str) -> SessionTokens | None:
        """Return new tokens for a session, or None when its master token is unknown or has expired."""
        with self._lock:
            requested = master_token.encode()
            sessions = self._sessions.values()
            session = next((s for s in sessions if secrets.compare_digest(s.master_token.encode(), requested)), None)
            if session is None or session.master_expires <= self._clock():
                return None
            connection = self._connections[session.token]
            self._end(session)
            return self._begin(connection)

    def close(self, token: str) -> None:
        """End the session of a token, if it exists."""
        with self._lock:
            if session := self._sessions.get(token):
                self._end(session)

    def _begin(self, connection: FakeSnowflakeConnection) -> SessionTokens:
        now = self._clock()
        session = SessionTokens(
            secrets.token_urlsafe(32),
            secrets.token_urlsafe(32),
            now + self.validity.token_seconds,
            now + self.validity.master_seconds,
            now,
        )
        self._sessions[session.token] = session
        self._connections[session.token] = connection
        return session

    def _end(self, session: SessionTokens) -> None:
        del self._sessions[session.token]
        self._connections.pop(session.token, None)
