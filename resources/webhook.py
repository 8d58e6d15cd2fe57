"""Where alerts go: a webhook that takes Slack's messages, as Slack, Mattermost, Rocket.Chat and Discord do."""

from __future__ import annotations

import dagster as dg
from pydantic import Field

from lakehouse.errors import Unreachable

TIMEOUT_SECONDS = 10
ATTEMPTS = 3


class Webhook(dg.ConfigurableResource):
    """An incoming webhook. Whoever knows its URL can post, so the URL is a secret."""

    url: str = Field("", json_schema_extra={"dagster__is_secret": True})
    """Empty: nobody is told."""

    def send(self, text: str) -> None:
        """Post a message (Slack, Sending messages using incoming webhooks); nothing where there is no URL.

        Busy and failing servers are asked again, which may show a message twice and loses none.

        Parameters: `text` in Slack's mrkdwn; parts that are not ours as `escaped` gives them.
        Raises: Unreachable.
        """
        import requests
        from requests.adapters import HTTPAdapter
        from urllib3.util import Retry

        if not self.url:
            return
        retry = Retry(
            ATTEMPTS, backoff_factor=0.5, status_forcelist=(429, 500, 502, 503, 504), allowed_methods=["POST"]
        )
        with requests.Session() as session:
            for scheme in ("https://", "http://"):
                session.mount(scheme, HTTPAdapter(max_retries=retry))
            try:
                answer = session.post(self.url, json={"text": text}, timeout=TIMEOUT_SECONDS)
                said = None if answer.ok else f"status {answer.status_code}"
            except requests.RequestException as error:
                # What requests says has the URL in it.
                said = type(error).__name__
        if said:
            raise Unreachable("The alert webhook", "its URL", "the URL and the receiving server", said) from None


def escaped(text: str) -> str:
    """Text of others in a message (Slack, Formatting text: escaping)."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
