"""JSON over HTTP: requests, and bearer tokens by OAuth 2.0 client credentials (RFC 6749, section 4.4)."""

import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from requests.auth import HTTPBasicAuth
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError
from urllib3.util import Retry

from lakehouse.core.errors import LakehouseError, Unreachable, redact_credentials

TIMEOUT_SECONDS = 10
MARGIN_SECONDS = 30


class NoResponse(Exception):
    """A request got no response. The message is the type of the client's error, whose text may quote the request."""

    def __init__(self, error: requests.RequestException):
        super().__init__(type(error).__name__)
        reason = getattr(error.args[0], "reason", None) if error.args else None
        self.reason = type(reason or error).__name__
        """The type of the error of the connection, if there is one, otherwise of the client's error."""
        lost = requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError
        self.may_pass = isinstance(error, lost)
        """Whether the same request may get a response later."""
        self.was_sent = self.may_pass and not isinstance(reason, NewConnectionError | ConnectTimeoutError)
        """Whether the server may have executed it."""


def send(method: str, url: str, retries: Retry | None = None, **request: Any) -> requests.Response:
    """Send one request, with the arguments of `requests.request`, and repeat it only by `retries`.

    Raises:
        NoResponse: There is no response.
    """
    try:
        if retries is None:
            return requests.request(method, url, **request)  # noqa: S113  each caller has its own time-out
        with requests.Session() as session:
            for scheme in ("http://", "https://"):
                session.mount(scheme, HTTPAdapter(max_retries=retries))
            return session.request(method, url, **request)
    except requests.RequestException as error:
        raise NoResponse(error) from error


def content(response: requests.Response) -> Any:
    """Return the JSON of a response; None if it has no body.

    Raises:
        JSONDecodeError: The body is something else.
    """
    return response.json() if response.content else None


@dataclass
class ClientCredentials:
    """The tokens of one client, kept in memory only."""

    system: str
    """Name of the system, for messages."""
    token_uri: str = field(repr=False)
    """Address of the token endpoint."""
    client_id: str
    """The client's id."""
    client_secret: str = field(repr=False)
    """The client's secret."""
    scope: str
    """Requested scope; none if empty."""
    address_key: str = "oauth2_server_uri"
    """The key of `token_uri` in lakehouse.yaml, for messages."""
    authorities: str = ""
    """PEM text of the authorities that issue the endpoint's certificate; those of the system if empty."""
    is_in_header: bool = False
    """Whether id and secret are sent in a header (RFC 6749, section 2.3.1), as Kafka's clients do, not in the form."""
    margin_seconds: float = MARGIN_SECONDS
    """A token is renewed this long before it expires, or at half of its lifetime if that is shorter."""
    _token: str = field(default="", repr=False)
    _renew_at: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def token(self, refused: str = "") -> str:
        """Return a token, renewed if it expires soon.

        Args:
            refused: A token that the system has refused, which is renewed as well.
        """
        with self._lock:
            if not self._token or self._token == refused or time.monotonic() >= self._renew_at:
                self._renew()
            return self._token

    def _renew(self) -> None:
        check = f"{self.address_key} and the network"
        form = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
        request: dict[str, Any] = {"timeout": TIMEOUT_SECONDS, "allow_redirects": False}
        if self.is_in_header:
            request["auth"] = HTTPBasicAuth(self.client_id, self.client_secret)
        else:
            form |= {"client_id": self.client_id, "client_secret": self.client_secret}
        try:
            with _file_of(self.authorities) as path:
                response = send("POST", self.token_uri, data=form, verify=path or True, **request)
        except NoResponse as error:
            raise Unreachable(self.system, self.token_uri, check, error) from error
        if response.status_code == HTTPStatus.TOO_MANY_REQUESTS or response.status_code >= 500:
            raise Unreachable(self.system, self.token_uri, check, f"status {response.status_code}")
        try:
            body = response.json()
            # expires_in is optional (RFC 6749, section 5.1): without it, the system reports that a token has expired.
            self._token, seconds = body["access_token"], float(body.get("expires_in", 3600))
        except (requests.JSONDecodeError, TypeError, KeyError, AttributeError):
            raise LakehouseError(
                f"{self.system} issued no token to client '{self.client_id}' at {redact_credentials(self.token_uri)} "
                f"(status {response.status_code}, {_error_of(response)}). The call changed nothing. Check the client's "
                f"id, secret and scope '{self.scope}' in lakehouse.yaml and the variables it names"
            ) from None
        self._renew_at = time.monotonic() + max(seconds - self.margin_seconds, seconds / 2)


@contextmanager
def _file_of(text: str) -> Iterator[str]:
    """Yield the path of a file with a text, the only form in which requests takes authorities; empty without text."""
    if not text:
        yield ""
        return
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(text)
        file.flush()
        yield file.name


def _error_of(response: requests.Response) -> str:
    """Return `error` of RFC 6749, section 5.2; other parts of the response might repeat the request."""
    try:
        error = response.json().get("error", "no reason given")
    except (requests.JSONDecodeError, AttributeError):
        return "no reason given"
    return error.get("type", "no reason given") if isinstance(error, dict) else str(error)
