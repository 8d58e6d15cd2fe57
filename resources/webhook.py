"""Where alerts go, and where a heartbeat says that somebody is there to send them. The URL of an incoming webhook, as
Slack has them, and that of a heartbeat are their only credentials, so nothing ever shows them."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import urlsplit

import dagster as dg
from pydantic import Field

from lakehouse.core.errors import Unreachable
from resources.hidden import hidden

TIMEOUT_SECONDS = 10
RETRIES = 2
RETRY_AFTER_MAX_SECONDS = 5
"""The most that Retry-After is obeyed: with the time-outs of three attempts, a send ends before Dagster ends the tick,
after 60 s. The next tick tries again anyway."""

SECTION_CHARACTERS = 3000
"""The most that Slack takes as the text of a section (https://docs.slack.dev/reference/block-kit/blocks/section-block)."""


class Webhook(dg.ConfigurableResource):
    """Slack's incoming webhook, or one that takes the same JSON (Mattermost, Rocket.Chat). Without a URL it is off.

    https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks
    """

    url: str = hidden("")
    ui_url: str = Field("", description="Address of Dagster's UI as readers reach it; messages link to it.")
    heartbeat_url: str = Field(
        "",
        repr=False,
        description="Called once a minute while monitoring works, as healthchecks.io has them. Without it, nothing is.",
        json_schema_extra={"dagster__is_secret": True},
    )

    def send(self, headline: str, lines: Sequence[str] = (), path: str = "") -> None:
        """Post one message. It may arrive twice: when only the answer is lost, it is sent again.

        Parameters: plain texts, which are escaped here; `path` is the page of Dagster's UI to link to, such as `/runs`.
        Raises: Unreachable, without the URL, when it was not taken after a few attempts.
        """
        if self.url and (fault := _fault("POST", self.url, self._message(headline, lines, path))):
            # Not raised where the client's error is handled: its text holds the URL, and Dagster stores causes, too.
            check = "the URL in `alerts` of lakehouse.yaml (LAKEHOUSE_ALERT_WEBHOOK), and the network"
            raise Unreachable("The alert webhook", _host(self.url), check, fault)

    def beat(self) -> None:
        """Tell whoever waits for a heartbeat that monitoring works.

        Raises: Unreachable, without the URL, when it was not taken after a few attempts.
        """
        if self.heartbeat_url and (fault := _fault("GET", self.heartbeat_url)):
            check = "`alerts.heartbeat_url` of lakehouse.yaml (LAKEHOUSE_HEARTBEAT_URL), and the network"
            raise Unreachable("The heartbeat URL", _host(self.heartbeat_url), check, fault)

    def _message(self, headline: str, lines: Sequence[str], path: str) -> dict[str, Any]:
        """The JSON of a message: once as blocks, and as text for notifications and for those who know no blocks."""
        body = "\n".join([f"*{escaped(headline)}*", *map(escaped, lines)])
        if len(body) > SECTION_CHARACTERS:
            body = body[: SECTION_CHARACTERS - 1] + "…"
        link = f"<{escaped(self.ui_url.rstrip('/') + path)}|Open in Dagster>" if self.ui_url and path else ""
        texts = [text for text in (body, link) if text]
        blocks = [{"type": "section", "text": {"type": "mrkdwn", "text": text}} for text in texts]
        return {"text": "\n".join(texts), "blocks": blocks}


def _fault(method: str, url: str, message: dict[str, Any] | None = None) -> str | None:
    """Call a secret URL; what went wrong, in words that cannot hold it, or None."""
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3.exceptions import HTTPError
    from urllib3.util import Retry, Timeout

    retries = Retry(
        RETRIES,
        allowed_methods=[method],
        status_forcelist=[429, 500, 502, 503, 504],
        backoff_factor=0.5,
        retry_after_max=RETRY_AFTER_MAX_SECONDS,
        raise_on_status=False,
    )
    try:
        with requests.Session() as session, _unlogged(url):
            for scheme in ("http://", "https://"):
                session.mount(scheme, HTTPAdapter(max_retries=retries))
            # The types of requests do not know that it passes urllib3's timeouts on.
            timeout: Any = Timeout(total=TIMEOUT_SECONDS)
            answer = session.request(method, url, json=message, timeout=timeout, allow_redirects=False)
    except (requests.RequestException, HTTPError, ValueError) as error:
        return type(getattr(error.args[0], "reason", error) if error.args else error).__name__
    if answer.ok and not answer.is_redirect:
        return None
    # Slack answers with a code, such as no_service; anything longer may repeat the request.
    code = answer.text if re.fullmatch("[a-z_]{1,40}", answer.text) else ""
    return f"HTTP {answer.status_code} {code}".strip()


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or "its URL"
    except ValueError:
        return "its URL"


def escaped(text: str) -> str:
    """A text in which nothing is a link or a mention.

    https://docs.slack.dev/messaging/formatting-message-text (Escaping text)
    """
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


@contextmanager
def _unlogged(url: str) -> Iterator[None]:
    """Keep urllib3 from logging the path of the URL: it does with each retry, as a warning."""
    secret = re.sub("^[a-z]+://[^/]*/?", "", url, flags=re.IGNORECASE)

    def harmless(record: logging.LogRecord) -> bool:
        return not secret or secret not in record.getMessage()

    with ExitStack() as stack:
        for name in ("urllib3.connectionpool", "urllib3.util.retry"):
            logger = logging.getLogger(name)
            logger.addFilter(harmless)
            stack.callback(logger.removeFilter, harmless)
        yield
