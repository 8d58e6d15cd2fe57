"""The client of one API of Confluent Cloud: an address with a key, calls with safe retries, and their errors."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

import requests

from lakehouse.core.errors import LakehouseError, OutcomeUnknownError, TransientError, Unreachable, redact_credentials
from lakehouse.core.polling import SYSTEM_CLOCK, Clock, doubling, retry
from resources.http_json import NoResponse, content, send

CONNECT_SECONDS, READ_SECONDS = 10, 60
DEADLINE_SECONDS = 120
"""Time limit of a call with all its retries. Confluent's rate limits apply to windows of a minute."""

FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 1, 30
"""Bounds of the exponential backoff if the API sends no Retry-After, as in Confluent's Terraform provider."""

BROKEN = (500, 502, 503, 504)
PAGE_SIZE = 100
"""Maximum page size of all APIs."""

TYPES: Mapping[str, type] = MappingProxyType({"str": str, "int": int, "Mapping": Mapping})
"""The types of a parsed object's fields that are verified, by the beginning of their annotation."""

R = TypeVar("R")
Parse = Callable[[Any], R]
"""Derives an object from the JSON of a response. It may fail with any error if the JSON has an unknown form."""


@dataclass(frozen=True)
class Key:
    """An API key, whose id and secret are the user and the password of HTTP Basic authentication."""

    id: str
    secret: str = field(repr=False)


class _NoUsableResponse(Exception):
    """An attempt without a response, or with a response that allows a retry."""

    def __init__(self, problem: str, retry_after: str = ""):
        super().__init__(problem)
        self.problem, self.retry_after = problem, retry_after


def _requested_pause(error: BaseException) -> int | None:
    retry_after = error.retry_after if isinstance(error, _NoUsableResponse) else ""
    return max(1, int(retry_after)) if re.fullmatch("[0-9]{1,9}", retry_after) else None


@dataclass(frozen=True)
class ApiClient:
    """The address of one API and its key."""

    name: str
    """The name in messages."""
    url: str
    """The address."""
    key: Key
    """The key."""
    deadline_seconds: float = DEADLINE_SECONDS
    """Time limit of a call with all its retries."""
    clock: Clock = SYSTEM_CLOCK
    """Measures the time, and pauses between retries."""

    def call(self, method: str, path: str, query: Mapping[str, Any] | None = None, body: Any = None) -> Any:
        """Send one request, with retries while the API is busy, failing or unreachable.

        A POST is retried only if the API cannot have executed it, because Confluent's APIs accept no idempotency key.

        Args:
            method: The HTTP method.
            path: The path below the API's address.
            query: Parameters of the query; those that are None are omitted.
            body: Sent as JSON.

        Returns:
            The JSON of the response; None if it has no body.

        Raises:
            NotFound: The object does not exist or is not visible to the key.
            Forbidden: The API does not accept the key, or its owner lacks a role.
            Conflict: The object exists already or is in use.
        """
        return self._call(method, path, query, body)

    def send(
        self, method: str, path: str, parse: Parse[R], query: Mapping[str, Any] | None = None, body: Any = None
    ) -> R:
        """Send one request as `call` does, and return the object in its response."""
        return self._parsed(method, path, parse, self.call(method, path, query, body))

    def _call(
        self, method: str, path: str, query: Mapping[str, Any] | None, body: Any = None, listing: bool = False
    ) -> Any:
        call = self._described(method, path)
        may_have_acted = False

        def attempt() -> Any:
            nonlocal may_have_acted
            try:
                response = self._send(method, path, query, body)
            except NoResponse as error:
                if not error.may_pass:
                    raise self._unreachable(str(error)) from error
                may_have_acted |= error.was_sent
                raise _NoUsableResponse(str(error)) from error
            if response.status_code < 300:
                return self._json(call, response, body)
            text = self._error_message(response, body)
            if response.status_code != HTTPStatus.TOO_MANY_REQUESTS and response.status_code not in BROKEN:
                raise refusal(call, method, path, self.key.id, response.status_code, text, listing)
            may_have_acted |= response.status_code != HTTPStatus.TOO_MANY_REQUESTS
            raise _NoUsableResponse(f"{response.status_code} {text}".strip(), response.headers.get("Retry-After", ""))

        def is_safe_to_repeat(error: BaseException) -> bool:
            return isinstance(error, _NoUsableResponse) and not (may_have_acted and method == "POST")

        try:
            return retry(
                attempt,
                when=is_safe_to_repeat,
                pause=doubling(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS, _requested_pause),
                deadline_seconds=self.deadline_seconds,
                clock=self.clock,
            )
        except _NoUsableResponse as error:
            raise self._exhausted(call, method, error.problem, may_have_acted) from error

    def items(self, path: str, parse: Parse[R], query: Mapping[str, Any] | None = None) -> Iterator[R]:
        """Yield the objects of all pages of a list.

        Raises:
            Forbidden: The key may not read the list (403, which `call` raises as NotFound).
        """
        query, tokens = {**(query or {}), "page_size": PAGE_SIZE}, list[str]()
        while True:
            page = self._call("GET", path, query, listing=True)
            try:
                items, next_url = page["data"] or [], (page.get("metadata") or {}).get("next")
                is_list = isinstance(items, list)
            except (TypeError, KeyError, AttributeError):
                is_list = False
            if not is_list:
                # A missing list is not an empty one: what it does not contain would be created again.
                raise self._unusable(path, "is no list")
            for item in items:
                yield self._parsed("GET", path, parse, item)
            if not next_url:
                return
            # The URL itself is not used: the key must not be sent to another address.
            [token, *_] = parse_qs(urlsplit(str(next_url)).query).get("page_token", [""])
            if not token or token in tokens:
                raise self._unusable(path, "has no address of its next page, or that of an earlier one")
            tokens.append(token)
            query = {**query, "page_token": token}

    def listed(self, path: str, parse: Parse[R], query: Mapping[str, Any] | None = None) -> R:
        """Return the content of a list without pages."""
        return self._parsed("GET", path, parse, self._call("GET", path, query, listing=True))

    def find(self, path: str, parse: Parse[R], query: Mapping[str, Any] | None = None) -> R | None:
        """Return the object at a path; None if it does not exist."""
        try:
            return self.send("GET", path, parse, query)
        except NotFound:
            return None

    def delete(
        self, path: str, query: Mapping[str, Any] | None = None, *, may_exist: Callable[[], bool] = lambda: True
    ) -> Any:
        """Delete the object at a path; do nothing if it does not exist.

        Args:
            path: The path below the API's address.
            query: Parameters of the query.
            may_exist: Looks the object up in its list, after a 403: Confluent returns it for the deletion of an object
                that does not exist and to a caller without the right.

        Raises:
            Forbidden: The key may not delete the object, which may exist.
        """
        try:
            return self.call("DELETE", path, query)
        except NotFound:
            return None
        except Forbidden:
            if may_exist():
                raise
            return None

    def _parsed(self, method: str, path: str, parse: Parse[R], response: Any) -> R:
        """Parse a response."""
        try:
            parsed = parse(response)
            for one in parsed if isinstance(parsed, list) else [parsed]:
                _verify_types(one)
        except KeyError as error:
            problem = f"lacks the field {error}"
        except (AttributeError, TypeError) as error:
            problem = f"has an unknown form ({error})"
        except ValueError as error:
            problem = f"has an unknown form ({type(error).__name__})"
        else:
            return parsed
        raise self._unusable(path, problem, method)

    def _unusable(self, path: str, problem: str, method: str = "GET") -> ConfluentError:
        effect = "The call changed nothing" if method == "GET" else "The call may have been executed"
        return ConfluentError(
            f"{self._described(method, path)} returned a response that {problem}. {effect}. Check the "
            f"address, and whether a proxy responds instead of the API"
        )

    def _described(self, method: str, path: str) -> str:
        return f"{self.name}: {method} {redact_credentials(self.url).rstrip('/')}{path}"

    def _send(self, method: str, path: str, query: Mapping[str, Any] | None, body: Any) -> requests.Response:
        return send(
            method,
            self.url.rstrip("/") + path,
            params={name: value for name, value in (query or {}).items() if value is not None},
            json=body,
            auth=(self.key.id, self.key.secret),
            timeout=(CONNECT_SECONDS, READ_SECONDS),
            allow_redirects=False,
        )

    def _json(self, call: str, response: requests.Response, body: Any) -> Any:
        try:
            return content(response)
        except requests.exceptions.JSONDecodeError as error:
            raise ConfluentError(
                f"{call} returned status {response.status_code}, but the body is not JSON "
                f"({self._error_message(response, body)}). The call may have been executed. Check the address, "
                f"and whether a proxy responds instead of the API"
            ) from error

    def _error_message(self, response: requests.Response, body: Any) -> ErrorMessage:
        # The API, or a proxy in front of it, may quote the request with its secrets.
        text = response.text
        for secret in filter(None, (self.key.secret, *_secrets_of(body))):
            text = text.replace(secret, "…")
        return error_message(response.headers.get("Content-Type", ""), text)

    def _exhausted(self, call: str, method: str, problem: str, may_have_acted: bool) -> Exception:
        if may_have_acted and method != "GET":
            return OutcomeUnknownError(
                f"{call} got no usable response ({problem})",
                "It may have been executed or not",
                "Run the command again: it reads the current state first",
            )
        if problem.startswith(str(HTTPStatus.TOO_MANY_REQUESTS.value)):
            return RateLimited(
                f"{call} was refused for {self.deadline_seconds:.0f} seconds because of too many calls ({problem}). "
                f"The call changed nothing. Run the command again later"
            )
        return self._unreachable(problem)

    def _unreachable(self, problem: str) -> Unreachable:
        return Unreachable(
            self.name, self.url, "the address and the network, or https://status.confluent.cloud", problem
        )


def objects(listed: Any) -> list[Any]:
    """Return the objects of a list without pages.

    Raises:
        TypeError: It is no list. A missing list is not an empty one.
    """
    if not isinstance(listed, list):
        raise TypeError("it is no list")
    return listed


def _verify_types(parsed: Any) -> None:
    """Verify the fields of a parsed object."""
    for declared in fields(parsed) if is_dataclass(parsed) else ():
        # A type is text in a module that postpones the evaluation of annotations.
        kind = TYPES.get(getattr(declared.type, "__name__", str(declared.type)).partition("[")[0])
        if kind and not isinstance(getattr(parsed, declared.name), kind):
            raise TypeError(f"{declared.name} is no {kind.__name__}")


def _secrets_of(body: Any) -> Iterator[str]:
    """Yield the values of a request's fields with the name of a secret, such as `client_secret`."""
    if isinstance(body, Mapping):
        for name, value in body.items():
            if isinstance(value, str) and "secret" in name:
                yield value
            yield from _secrets_of(value)


TEXT_LIMIT = 300
"""Maximum number of characters that a message quotes of a response other than JSON."""

TOPIC_ERROR = "40002"
"""Kafka's code, with status 400, for a topic that exists or is being deleted. Other APIs return 409."""

ROLES = (
    ("/tableflow/v1/catalog-integrations", "ResourceOwner or Assigner on the provider integration"),
    (
        "/tableflow/",
        "CloudClusterAdmin on the Kafka cluster, and ResourceOwner or Assigner on the provider integration",
    ),
    ("/iam/v2/role-bindings", "OrganizationAdmin, or an administrator's role on the resource of the binding"),
    ("/iam/", "OrganizationAdmin or AccountAdmin on the organization"),
    ("/org/", "OrganizationAdmin on the organization"),
    ("/sql/", "FlinkDeveloper on the environment, and Assigner on the statement's principal"),
    ("/fcpm/", "FlinkAdmin or EnvironmentAdmin on the environment"),
    ("/kafka/", "CloudClusterAdmin on the Kafka cluster"),
    ("/connect/", "CloudClusterAdmin on the Kafka cluster"),
    ("/subjects", "DeveloperRead on the subjects"),
    ("/", "EnvironmentAdmin on the environment"),
)
"""Role that allows a call, by prefix of its path, longest prefix first."""


class ConfluentError(LakehouseError):
    """Confluent Cloud refused a call or sent an unusable response."""


class NotFound(ConfluentError):
    """The object does not exist: 404, or 403 to a GET, which Confluent returns for deleted objects."""


class Forbidden(ConfluentError):
    """The API does not accept the key, or its owner lacks a role."""


class Conflict(ConfluentError):
    """An object of that name exists, or the object is still in use."""


class InvalidRequest(ConfluentError):
    """The API does not accept the request."""


class RateLimited(ConfluentError, TransientError):
    """The rate limit still applied at the deadline."""


@dataclass(frozen=True)
class ErrorMessage:
    """The error in a response: the API's code and its message."""

    code: str
    detail: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.code, self.detail) if part)


def error_message(content_type: str, text: str) -> ErrorMessage:
    """Parse a response in any of the APIs' four error formats.

    Args:
        content_type: The response's Content-Type.
        text: The response's body. A body that does not have its declared type is read as text.
    """
    if "json" in content_type:
        try:
            document = json.loads(text)
        except ValueError:
            document = None
        if isinstance(document, dict):
            return _error_in_json(document)
    title = re.search(r"<title>(.*?)</title>", text, re.DOTALL | re.IGNORECASE)
    plain = title.group(1) if title else re.sub(r"<[^>]*>", " ", text)
    return ErrorMessage("", " ".join(plain.split())[:TEXT_LIMIT])


def _error_in_json(document: dict[str, Any]) -> ErrorMessage:
    listed = document.get("errors")
    if errors := [error for error in listed if isinstance(error, dict)] if isinstance(listed, list) else []:
        details = "; ".join(str(error.get("detail") or error.get("title") or "") for error in errors)
        return ErrorMessage(str(errors[0].get("code") or ""), details)
    inner = document["error"] if isinstance(document.get("error"), dict) else document
    code = inner.get("error_code") or inner.get("code") or ""
    return ErrorMessage(str(code), str(inner.get("message") or ""))


def refusal(
    call: str, method: str, path: str, key: str, status: int, text: ErrorMessage, listing: bool
) -> ConfluentError:
    """Return the error of a response that refuses a call.

    Args:
        call: API, method and address, for messages.
        method: The HTTP method.
        path: The path below the API's address.
        key: The id of the key.
        status: The HTTP status.
        text: The error in the response.
        listing: Whether the call reads a list, for which 403 does not mean that an object was deleted.
    """
    response = f"{status} {text}".strip()
    effect = "" if method == "GET" else "The call changed nothing"
    if status == 401 or "invalid api key" in str(text).lower():
        return Forbidden(
            f"{call} does not accept the key {key} ({response})",
            effect,
            "Check that it is a key of this API and was not deleted; a new key is accepted after some minutes",
        )
    if status == 404 or (status == 403 and method == "GET" and not listing):
        return NotFound(f"{call} found no object that is visible to the key {key} ({response})", effect)
    if status == 403:
        role = next(role for prefix, role in ROLES if path.startswith(prefix))
        return Forbidden(
            f"{call} refused the key {key} ({response})",
            effect,
            f"Grant the key's owner the role {role}, unless the object of the call was deleted",
        )
    if status == 409 or (text.code == TOPIC_ERROR and re.search("already exists|marked for deletion", text.detail)):
        return Conflict(
            f"{call} conflicts with an existing object ({response})",
            effect,
            "Look up the object that has the name or uses this one",
        )
    if status in (400, 402, 422):
        remedy = "Correct the setting in lakehouse.yaml and run the command again"
        return InvalidRequest(f"{call} did not accept the request ({response})", effect, remedy)
    return ConfluentError(
        f"{call} got an unexpected response ({response})",
        remedy="Check its effect in the Cloud Console",
    )


LONGEST = 300
"""Maximum number of characters in a message."""

_FRAME = re.compile(r"\s*(at\s|\.\.\.\s\d+\s(more|common frames))")
"""A frame of a Java stack trace."""

_SECRET = re.compile(
    r"""(?i)([\w.-]*(?:password|passwd|secret|token|credentials?|api[._-]?key|user[._-]?info)\w*["']?\s*[=:]\s*)"""
    r"""("[^"]*"|'[^']*'|[^\s,;&)}\]]+)"""
)
"""A setting with the name of a secret, and its value."""

_AUTHORIZATION = re.compile(r"(?i)\b(basic|bearer)\s+[\w.~+/=-]{8,}")
"""The credentials of an HTTP header."""


def shortened(trace: str) -> str:
    """Return the messages of a stack trace in one line, without frames and without values of secret settings."""
    messages = " ".join(line.strip() for line in trace.splitlines() if line.strip() and not _FRAME.match(line))
    text = _SECRET.sub(r"\1…", _AUTHORIZATION.sub(r"\1 …", redact_credentials(messages)))
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
