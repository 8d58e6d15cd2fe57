"""OAuth 2.0 client credentials (RFC 6749, section 4.4): bearer tokens, each asked for when the one before ends."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

import requests

from lakehouse.core.errors import LakehouseError, Unreachable, without_credentials

TIMEOUT_SECONDS = 10
MARGIN_SECONDS = 30
"""A token is renewed so long before its end, or at half of its life where that is shorter."""


@dataclass
class ClientCredentials:
    """The tokens of one client, kept in memory only.

    Parameters: the system's name for messages, the address of the token endpoint, and the client.
    """

    system: str
    token_uri: str = field(repr=False)
    client_id: str
    client_secret: str = field(repr=False)
    scope: str
    _token: str = field(default="", repr=False)
    _renew_at: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def token(self, refused: str = "") -> str:
        """A token that is valid for a while.

        Parameters: a token that the system has refused since, so that another is asked for.
        Raises: LakehouseError when the client is refused; Unreachable.
        """
        with self._lock:
            if not self._token or self._token == refused or time.monotonic() >= self._renew_at:
                self._ask()
            return self._token

    def _ask(self) -> None:
        check = "oauth2_server_uri and the network"
        form = {"grant_type": "client_credentials", "scope": self.scope}
        form |= {"client_id": self.client_id, "client_secret": self.client_secret}
        try:
            answer = requests.post(self.token_uri, data=form, timeout=TIMEOUT_SECONDS, allow_redirects=False)
        except requests.RequestException as error:
            raise Unreachable(self.system, self.token_uri, check, type(error).__name__) from error
        if answer.status_code >= 500:
            raise Unreachable(self.system, self.token_uri, check, f"status {answer.status_code}")
        try:
            given = answer.json()
            # expires_in may be left out (RFC 6749, section 5.1): then the system says when the token has ended.
            self._token, seconds = given["access_token"], float(given.get("expires_in", 3600))
        except (requests.JSONDecodeError, TypeError, KeyError, AttributeError):
            raise LakehouseError(
                f"{self.system} gave client '{self.client_id}' no token at {without_credentials(self.token_uri)} "
                f"(status {answer.status_code}, {_error_of(answer)}). Nothing was changed. Check the client's id, "
                f"secret and scope '{self.scope}' in lakehouse.yaml and the variables it names"
            ) from None
        self._renew_at = time.monotonic() + max(seconds - MARGIN_SECONDS, seconds / 2)


def _error_of(answer: requests.Response) -> str:
    """What RFC 6749, section 5.2, calls `error`; the rest of the answer might repeat what was sent."""
    try:
        error = answer.json().get("error", "no reason given")
    except (requests.JSONDecodeError, AttributeError):
        return "no reason given"
    return error.get("type", "no reason given") if isinstance(error, dict) else str(error)
