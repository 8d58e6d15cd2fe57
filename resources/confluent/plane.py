"""One plane of Confluent Cloud: an address, a key for it, and calls that are repeated only where that is safe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import requests
from tenacity import RetryCallState
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

from lakehouse.core.errors import OutcomeUnknownError, UnclearState, Unreachable, without_credentials
from lakehouse.core.polling import REAL, Clock, doubling, retry
from resources.confluent.errors import Complaint, ConfluentError, Gone, Limited, complaint, refusal

CONNECT_SECONDS, READ_SECONDS = 10, 60
DEADLINE_SECONDS = 120
"""For one call with all its repetitions. Confluent's windows of rate limits are of a minute."""

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1, 30
"""Between repetitions where the plane names no pause, doubling: as Confluent's own Terraform provider does."""

TOO_MANY = 429
BROKEN = (500, 502, 503, 504)
PAGE_SIZE = 100
"""The most that any plane gives at once."""


@dataclass(frozen=True)
class Key:
    """An API key: what HTTP Basic calls user and password."""

    id: str
    secret: str = field(repr=False)


class _Unanswered(Exception):
    """An attempt that got no answer, or one that asks for patience."""

    def __init__(self, problem: str, retry_after: str = ""):
        super().__init__(problem)
        self.problem, self.retry_after = problem, retry_after


def _pause(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    asked = error.retry_after if isinstance(error, _Unanswered) else ""
    return max(1, int(asked)) if asked.isdigit() else doubling(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)(state)


@dataclass(frozen=True)
class Plane:
    """Where one API answers, and the key it knows. `name` is for messages; `clock` is the time by which pauses go."""

    name: str
    url: str
    key: Key
    deadline_seconds: float = DEADLINE_SECONDS
    clock: Clock = REAL

    def call(self, method: str, path: str, query: Mapping[str, Any] | None = None, body: Any = None) -> Any:
        """Send one request; repeat it while the plane is busy, broken or not to be reached.

        A POST is repeated only if the plane cannot have acted on it: no API of Confluent's takes an idempotency key.

        Parameters: `path` below the plane's address; values of None are left out of `query`; `body` is sent as JSON.
        Returns: the JSON of the answer, or None if it has no body.
        Raises: Gone, Refused, Conflict, Rejected, Limited; OutcomeUnknownError when a change may have been made or not;
        Unreachable when a question got no answer in time.
        """
        return self._call(method, path, query, body)

    def _call(
        self, method: str, path: str, query: Mapping[str, Any] | None, body: Any = None, listing: bool = False
    ) -> Any:
        named = f"{self.name}: {method} {without_credentials(self.url).rstrip('/')}{path}"
        may_have_acted = False

        def attempt() -> Any:
            nonlocal may_have_acted
            try:
                answer = self._send(method, path, query, body)
            except (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError) as error:
                may_have_acted |= not _never_arrived(error)
                raise _Unanswered(type(error).__name__) from error
            except requests.RequestException as error:
                raise self._unreachable(type(error).__name__) from error
            if answer.status_code < 300:
                return self._json(named, answer)
            said = self._said(answer)
            if answer.status_code != TOO_MANY and answer.status_code not in BROKEN:
                raise refusal(named, method, path, self.key.id, answer.status_code, said, listing)
            may_have_acted |= answer.status_code != TOO_MANY
            raise _Unanswered(f"{answer.status_code} {said}".strip(), answer.headers.get("Retry-After", ""))

        def is_safe_to_repeat(error: BaseException) -> bool:
            return isinstance(error, _Unanswered) and not (may_have_acted and method == "POST")

        try:
            return retry(
                attempt,
                when=is_safe_to_repeat,
                pause=_pause,
                deadline_seconds=self.deadline_seconds,
                clock=self.clock,
            )
        except _Unanswered as error:
            raise self._given_up(named, method, error.problem, may_have_acted) from error

    def items(self, path: str, query: Mapping[str, Any] | None = None) -> Iterator[dict[str, Any]]:
        """All items of a list, page after page.

        Raises: as `call`; a 403 is Refused, not Gone: a list that may not be read is not an empty one.
        """
        query = {**(query or {}), "page_size": PAGE_SIZE}
        while True:
            page = self.listed(path, query)
            yield from page.get("data") or ()
            following = (page.get("metadata") or {}).get("next")
            if not following:
                return
            # Only the token is taken: the key goes to no address but the plane's own.
            query = {**query, "page_token": parse_qs(urlsplit(following).query)["page_token"][0]}

    def listed(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        """One list that is not in pages, as the plane gives it.

        Raises: as `items`.
        """
        return self._call("GET", path, query, listing=True)

    def find(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        """One thing by its path, or None when it is gone.

        Raises: as `call`, but for Gone.
        """
        try:
            return self.call("GET", path, query)
        except Gone:
            return None

    def delete(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        """Delete one thing; that it is gone already is well.

        Raises: as `call`, but for Gone.
        """
        try:
            return self.call("DELETE", path, query)
        except Gone:
            return None

    def _send(self, method: str, path: str, query: Mapping[str, Any] | None, body: Any) -> requests.Response:
        return requests.request(
            method,
            self.url.rstrip("/") + path,
            params={name: value for name, value in (query or {}).items() if value is not None},
            json=body,
            auth=(self.key.id, self.key.secret),
            timeout=(CONNECT_SECONDS, READ_SECONDS),
            allow_redirects=False,
        )

    def _json(self, named: str, answer: requests.Response) -> Any:
        if not answer.content:
            return None
        try:
            return answer.json()
        except requests.exceptions.JSONDecodeError as error:
            raise ConfluentError(
                f"{named} answered {answer.status_code} with something that is not JSON ({self._said(answer)}). Check"
                f" the address, and whether a proxy answers in its place; look up what it changed, if any"
            ) from error

    def _said(self, answer: requests.Response) -> Complaint:
        # A plane, or a proxy before it, may quote the request.
        text = answer.text.replace(self.key.secret, "…") if self.key.secret else answer.text
        return complaint(answer.headers.get("Content-Type", ""), text)

    def _given_up(self, named: str, method: str, problem: str, may_have_acted: bool) -> Exception:
        if may_have_acted and method != "GET":
            return OutcomeUnknownError(
                f"{named} got no clear answer ({problem})",
                "It may have been carried out or not",
                "Run the command again: it looks up what there is first",
            )
        if problem.startswith(str(TOO_MANY)):
            return Limited(
                f"{named} was refused for {self.deadline_seconds:.0f} seconds because of too many calls ({problem})."
                f" Nothing was changed by it. Run it again later"
            )
        return self._unreachable(problem)

    def _unreachable(self, problem: str) -> Unreachable:
        return Unreachable(
            self.name, self.url, "the address and the network, or https://status.confluent.cloud", problem
        )


def the_one(what: str, found: list[Any]) -> Any:
    """The only one of its name, or None.

    Raises: UnclearState when there are several: Confluent does not promise that names are unique.
    """
    if len(found) > 1:
        ids = ", ".join(str(each.id) for each in found)
        raise UnclearState(
            f"Confluent Cloud has {len(found)} of {what}: {ids}. None was touched. Delete or rename all but one"
        )
    return found[0] if found else None


def _never_arrived(error: requests.RequestException) -> bool:
    reason = getattr(error.args[0], "reason", None) if error.args else None
    return isinstance(reason, NewConnectionError | ConnectTimeoutError)
