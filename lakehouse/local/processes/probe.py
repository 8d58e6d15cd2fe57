"""Readiness probes of servers. Timeouts are short, because callers repeat them."""

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Without the proxies in the user's environment.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


TIMEOUT_SECONDS = 2


def responds(url: str) -> bool:
    """Return whether an HTTP server responds with a status below 500."""
    try:
        _opener.open(url, timeout=TIMEOUT_SECONDS).close()
    except urllib.error.HTTPError as error:
        return error.code < 500
    except OSError:
        return False
    return True


def accepts(path: Path) -> bool:
    """Return whether a process listens on a Unix socket."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(TIMEOUT_SECONDS)
        try:
            client.connect(str(path))
        except OSError:
            return False
    return True


def request_json(url: str, body: Any, method: str = "POST", headers: Mapping[str, str] | None = None) -> Any:
    """Send a JSON request and return the JSON of the response.

    Raises:
        OSError: There is no response, or its status is an error (urllib.error.HTTPError).
    """
    headers = {"Content-Type": "application/json", **(headers or {})}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers, method=method)  # noqa: S310 (own servers)
    with _opener.open(request, timeout=5) as response:
        return json.load(response)
