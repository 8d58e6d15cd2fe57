"""A server of OpenLineage events, such as Marquez, DataHub or OpenMetadata."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import dagster as dg
import requests

from lakehouse.core.errors import RequestRejected, Unreachable, redact_credentials
from resources.forms import url as url_form
from resources.masked_field import masked_field, secret_field

if TYPE_CHECKING:
    from openlineage.client.event_v2 import RunEvent

TIMEOUT_SECONDS = 5
RETRY = {"total": 2, "read": 2, "connect": 2}
"""With the time-outs of three attempts, a request ends before Dagster ends the tick, after 60 s."""

REJECTIONS = (413, 422)
"""HTTP statuses that are about the content of an event (RFC 9110): too large, or invalid."""


class OpenLineage(dg.ConfigurableResource):
    """A server of lineage events; without a URL, none are sent. The variables are those of OpenLineage's clients."""

    FORMS: ClassVar = {"url": url_form("http://marquez:5000")}

    url: str = masked_field("", "Address of the server.")
    api_key: str | None = secret_field(None, "API key, which is sent as a bearer token.")

    def emit(self, event: RunEvent) -> None:
        """Send one event (https://openlineage.io/apidocs/openapi)."""
        from openlineage.client.transport.http import HttpConfig, HttpTransport

        auth = {"auth": {"type": "api_key", "apiKey": self.api_key}} if self.api_key else {}
        settings = HttpConfig.from_dict({"url": self.url, "timeout": TIMEOUT_SECONDS, "retry": RETRY, **auth})
        try:
            HttpTransport(settings).emit(event)
        except (requests.RequestException, ValueError) as error:  # ValueError: the client rejects the URL
            check = "`open_lineage` in lakehouse.yaml (OPENLINEAGE_URL, OPENLINEAGE_API_KEY), and the network"
            # No cause is attached: the client quotes the whole URL, and Dagster stores causes.
            status = error.response.status_code if isinstance(error, requests.HTTPError) else None
            if status in REJECTIONS:
                where = redact_credentials(self.url)
                raise RequestRejected("The OpenLineage server", where, f"an event (HTTP {status})", "its log") from None
            raise Unreachable("The OpenLineage server", self.url, check, error) from None
