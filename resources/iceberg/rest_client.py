"""pyiceberg's client of Iceberg REST catalogs, with time-outs and with this project's logins."""

from __future__ import annotations

from functools import partial
from typing import Any

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.rest.auth import AuthManager, AuthManagerAdapter
from requests import Session

from resources.http_json import ClientCredentials

TIMEOUT_SECONDS = 30
LOGIN = "lakehouse.login"
"""Property of `LakeRestCatalog` with its `Login`."""


class LimitedRestCatalog(RestCatalog):
    """pyiceberg's client, whose requests would wait for a response without a limit."""

    def _create_session(self) -> Session:
        session = super()._create_session()
        session.request = partial(session.request, timeout=TIMEOUT_SECONDS)  # type: ignore[method-assign]  # this client's own session
        return session


class Login(AuthManager):
    """The login of a client: tokens that a credential is exchanged for, a fixed token, or none."""

    def __init__(self, client: ClientCredentials | None = None, token: str = ""):
        """
        Args:
            client: Gets tokens by OAuth client credentials, and renews them.
            token: A fixed token, without such a client.
        """
        self._client, self._token = client, token

    def auth_header(self) -> str | None:
        if self._client:
            self._token = self._client.token()
        return f"Bearer {self._token}" if self._token else None

    def renew(self) -> None:
        """Replace the token, which the server has refused before its expiry."""
        if self._client:
            self._token = self._client.token(refused=self._token)


class LakeRestCatalog(LimitedRestCatalog):
    """The catalog of the tables. Its properties, which pyiceberg copies to the clients of files, contain no login."""

    def __init__(self, name: str, **properties: Any):
        self._login: Login = properties.pop(LOGIN)
        super().__init__(name, **properties)

    def _create_session(self) -> Session:
        session = super()._create_session()
        self._auth_manager = self._login
        session.auth = AuthManagerAdapter(self._login)
        # By default, pyiceberg requests credentials for files.
        del session.headers["X-Iceberg-Access-Delegation"]
        return session

    def _refresh_token(self) -> None:
        # pyiceberg calls this after status 401 and 419, and repeats the request once.
        self._login.renew()
