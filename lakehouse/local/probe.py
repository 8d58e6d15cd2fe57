"""How a server is asked whether it serves. Short time-outs: the caller asks again."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Never by way of a proxy that the user's environment names.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def answers(url: str, seconds: float = 2) -> bool:
    """Whether an HTTP server answers at all; a refusal (4xx) is an answer, a failure (5xx) is not."""
    try:
        _opener.open(url, timeout=seconds).close()
    except urllib.error.HTTPError as error:
        return error.code < 500
    except OSError:
        return False
    return True


def accepts(path: Path, seconds: float = 2) -> bool:
    """Whether somebody listens on a Unix socket."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(seconds)
        try:
            client.connect(str(path))
        except OSError:
            return False
    return True


def request_json(
    url: str, body: Any, method: str = "POST", seconds: float = 5, headers: Mapping[str, str] | None = None
) -> Any:
    """Send JSON and return the JSON of the answer.

    Raises: OSError when there is none, or a refusal (urllib.error.HTTPError).
    """
    headers = {"Content-Type": "application/json", **(headers or {})}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers, method=method)  # noqa: S310 (own servers)
    with _opener.open(request, timeout=seconds) as answer:
        return json.load(answer)
