"""The sessions of logged-in clients: how long their tokens are good for, and how many there may be.

As in Snowflake, a session has two tokens. The session token goes with each request. When it has expired, the client
renews it with the master token, which makes new tokens for the same session.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field

from fakesnow.fakes import FakeSnowflakeConnection

MAX_SESSIONS = 500
"""Clients that end without a word leave sessions behind; above this number the one unused for longest is ended."""


@dataclass(frozen=True)
class Validity:
    """How long tokens are good for, in seconds. The defaults are Snowflake's."""

    token_seconds: float = 3600
    master_seconds: float = 14400


@dataclass
class Session:
    """A session's tokens, and when (by the clock of Sessions) they expire."""

    token: str = field(repr=False)
    master_token: str = field(repr=False)
    token_expires: float
    master_expires: float
    used: float


class Sessions:
    """All sessions. Their connections, by session token, are kept where fakesnow's handlers look for them."""

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
        """Begin a session."""
        with self._lock:
            now = self._clock()
            for session in [session for session in self._sessions.values() if session.master_expires <= now]:
                self._end(session)
            while len(self._sessions) >= self._limit:
                self._end(min(self._sessions.values(), key=lambda session: session.used))
            return self._begin(connection)

    def has_expired(self, token: str) -> bool:
        """Return whether a token is a session's and is no longer good for requests. Notes that it was used."""
        with self._lock:
            session, now = self._sessions.get(token), self._clock()
            if session is None:
                return False
            session.used = now
            return session.token_expires <= now

    def renew(self, master_token: str) -> Session | None:
        """Return new tokens for a session, or None when its master token is unknown or has expired."""
        with self._lock:
            wanted = master_token.encode()
            sessions = self._sessions.values()
            session = next((s for s in sessions if secrets.compare_digest(s.master_token.encode(), wanted)), None)
            if session is None or session.master_expires <= self._clock():
                return None
            connection = self._connections[session.token]
            self._end(session)
            return self._begin(connection)

    def close(self, token: str) -> None:
        """End a session, if there is one."""
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
