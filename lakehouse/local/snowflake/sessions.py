"""The sessions of logged-in clients: their tokens, expiry and maximum number.

As in Snowflake, a session has two tokens. The session token is sent with each request. When it has expired, the client
renews it with the master token, and receives new tokens for the same session.
"""

import secrets
import threading
import time
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field

from fakesnow.fakes import FakeSnowflakeConnection

MAX_SESSIONS = 500
"""Maximum number of sessions, since clients may end without closing theirs. The least recently used one is ended."""


@dataclass(frozen=True)
class Validity:
    """Lifetimes of the tokens in seconds. The defaults are Snowflake's."""

    token_seconds: float = 3600
    master_seconds: float = 14400


@dataclass
class Session:
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
        self._sessions: dict[str, Session] = {}
        self._lock = threading.Lock()

    def open(self, connection: FakeSnowflakeConnection) -> Session:
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

    def renew(self, master_token: str) -> Session | None:
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

    def _begin(self, connection: FakeSnowflakeConnection) -> Session:
        now = self._clock()
        session = Session(
            secrets.token_urlsafe(32),
            secrets.token_urlsafe(32),
            now + self.validity.token_seconds,
            now + self.validity.master_seconds,
            now,
        )
        self._sessions[session.token] = session
        self._connections[session.token] = connection
        return session

    def _end(self, session: Session) -> None:
        del self._sessions[session.token]
        self._connections.pop(session.token, None)
