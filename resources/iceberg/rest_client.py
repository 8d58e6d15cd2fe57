"""pyiceberg's client of Iceberg REST catalogs, with time-outs and with this project's logins."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.rest.auth import AuthManager, AuthManagerAdapter
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table
from requests import Session

from resources.http_json import ClientCredentials
from resources.iceberg.rest_settings import VENDED

TIMEOUT_SECONDS = 30
DELEGATION_HEADER = "X-Iceberg-Access-Delegation"
EXPIRY = "s3.session-token-expires-at-ms"
"""Property of a table with the time at which its credentials expire (Apache Iceberg, S3FileIOProperties)."""
RENEWAL_SECONDS = 300
"""Credentials are renewed this long before they expire, or at half of their lifetime if that is shorter."""
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


class VendedFiles(PyArrowFileIO):
    """The files of one table, with credentials that the catalog issued for it."""

    def __init__(self, properties: dict[str, str], renewed: Callable[[], dict[str, str]]):
        """
        Args:
            properties: The properties of the files with the credentials.
            renewed: Returns them with new credentials.
        """
        super().__init__(properties)
        self._renewed = renewed
        self._renew_at = self._next_renewal()

    def new_input(self, location: str) -> Any:
        self.renew()
        return super().new_input(location)

    def new_output(self, location: str) -> Any:
        self.renew()
        return super().new_output(location)

    def delete(self, location: Any) -> None:
        self.renew()
        super().delete(location)

    def renew(self) -> float:
        """Renew the credentials if they end soon, and return the seconds until they end."""
        if time.time() > self._renew_at:
            self.properties = self._renewed()
            self.fs_by_scheme = lru_cache(self._initialize_fs)
            self._renew_at = self._next_renewal()
        return self._expiry - time.time()

    @property
    def _expiry(self) -> float:
        return float(self.properties.get(EXPIRY) or "inf") / 1000

    def _next_renewal(self) -> float:
        expiry, now = self._expiry, time.time()
        return max(expiry - RENEWAL_SECONDS, (now + expiry) / 2)


class LakeRestCatalog(LimitedRestCatalog):
    """The catalog of the tables. Its properties, which pyiceberg copies to the clients of files, contain no login."""

    def __init__(self, name: str, **properties: Any):
        self._login: Login = properties.pop(LOGIN)
        super().__init__(name, **properties)

    def _create_session(self) -> Session:
        session = super()._create_session()
        self._auth_manager = self._login
        session.auth = AuthManagerAdapter(self._login)
        if not self._vends:
            # By default, pyiceberg requests credentials for files.
            session.headers.pop(DELEGATION_HEADER, None)
        return session

    @property
    def _vends(self) -> bool:
        return self.properties.get(f"header.{DELEGATION_HEADER}") == VENDED

    def _response_to_table(self, identifier_tuple: tuple[str, ...], table_response: Any) -> Table:
        table = super()._response_to_table(identifier_tuple, table_response)
        if self._vends:
            table.io = VendedFiles(table.io.properties, lambda: self.load_table(identifier_tuple).io.properties)
        return table

    def _refresh_token(self) -> None:
        # pyiceberg calls this after status 401 and 419, and repeats the request once.
        self._login.renew()
