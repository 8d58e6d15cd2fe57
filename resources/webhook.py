"""Alerts and heartbeats by HTTP. Their URLs are the only credentials and therefore never shown."""

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import urlsplit

import dagster as dg
from pydantic import Field
from urllib3.exceptions import HTTPError
from urllib3.util import Retry, Timeout

from lakehouse.core.errors import Unreachable
from resources import http_json
from resources.masked_field import secret_field

TIMEOUT_SECONDS = 10
RETRIES = 2
RETRY_AFTER_MAX_SECONDS = 5
"""Upper limit of Retry-After: with the time-outs of three attempts, a request ends before Dagster ends the tick, after
60 s. The next tick retries anyway."""

SECTION_CHARACTERS = 3000
"""Slack's maximum for the text of a section (https://docs.slack.dev/reference/block-kit/blocks/section-block)."""


class Webhook(dg.ConfigurableResource):
    """Slack's incoming webhook, or one with the same JSON (Mattermost, Rocket.Chat). Without a URL, alerts are off.

    https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks
    """

    url: str = secret_field("", "Address of the webhook.")
    ui_url: str = Field("", description="Address of Dagster's UI as readers reach it; messages link to it.")
    heartbeat_url: str = secret_field(
        "", "Requested once a minute while monitoring works, as healthchecks.io expects; empty for none."
    )

    def send(self, headline: str, lines: Sequence[str] = (), path: str = "") -> None:
        """Post one message, possibly twice: it is sent again if only the response is lost.

        Args:
            headline: First line, as plain text.
            lines: Further lines, as plain text.
            path: Page of Dagster's UI to link to, such as `/runs`.
        """
        if self.url and (error := _request("POST", self.url, self._message(headline, lines, path))):
            # Raised outside of the handler of the client's error, which quotes the URL: Dagster stores causes.
            check = "the URL in `alerts` of lakehouse.yaml (LAKEHOUSE_ALERT_WEBHOOK), and the network"
            raise Unreachable("The alert webhook", _host(self.url), check, error)

    def beat(self) -> None:
        """Send one heartbeat."""
        if self.heartbeat_url and (error := _request("GET", self.heartbeat_url)):
            check = "`alerts.heartbeat_url` of lakehouse.yaml (LAKEHOUSE_HEARTBEAT_URL), and the network"
            raise Unreachable("The heartbeat URL", _host(self.heartbeat_url), check, error)

    def _message(self, headline: str, lines: Sequence[str], path: str) -> dict[str, Any]:
        """Return the JSON of a message, as blocks and as text for notifications and clients without blocks."""
        body = "\n".join([f"*{escaped(headline)}*", *map(escaped, lines)])
        if len(body) > SECTION_CHARACTERS:
            body = body[: SECTION_CHARACTERS - 1] + "…"
        link = f"<{escaped(self.ui_url.rstrip('/') + path)}|Open in Dagster>" if self.ui_url and path else ""
        texts = [text for text in (body, link) if text]
        blocks = [{"type": "section", "text": {"type": "mrkdwn", "text": text}} for text in texts]
        return {"text": "\n".join(texts), "blocks": blocks}


def _request(method: str, url: str, message: dict[str, Any] | None = None) -> str | None:
    """Request a secret URL and return None, or a description of the error that cannot contain the URL."""
    retries = Retry(
        RETRIES,
        allowed_methods=[method],
        status_forcelist=[429, 500, 502, 503, 504],
        backoff_factor=0.5,
        retry_after_max=RETRY_AFTER_MAX_SECONDS,
        raise_on_status=False,
    )
    # The types of requests do not declare urllib3's time-outs, which it accepts.
    timeout: Any = Timeout(total=TIMEOUT_SECONDS)
    try:
        with _unlogged(url):
            response = http_json.send(method, url, retries, json=message, timeout=timeout, allow_redirects=False)
    except http_json.NoResponse as error:
        return error.reason
    except (HTTPError, ValueError) as error:
        return type(error).__name__
    if response.ok and not response.is_redirect:
        return None
    # Slack responds with a code, such as no_service; any longer text may repeat the request.
    code = response.text if re.fullmatch("[a-z_]{1,40}", response.text) else ""
    return f"HTTP {response.status_code} {code}".strip()


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or "its URL"
    except ValueError:
        return "its URL"


def escaped(text: str) -> str:
    """Return a text in which nothing is a link or a mention.

    https://docs.slack.dev/messaging/formatting-message-text (Escaping text)
    """
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


@contextmanager
def _unlogged(url: str) -> Iterator[None]:
    """Prevent urllib3 from logging the path of the URL, which it does with each retry, as a warning."""
    secret = re.sub("^[a-z]+://[^/]*/?", "", url, flags=re.IGNORECASE)

    def harmless(record: logging.LogRecord) -> bool:
        return not secret or secret not in record.getMessage()

    with ExitStack() as stack:
        for name in ("urllib3.connectionpool", "urllib3.util.retry"):
            logger = logging.getLogger(name)
            logger.addFilter(harmless)
            stack.callback(logger.removeFilter, harmless)
        yield
