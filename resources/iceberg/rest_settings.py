"""Validation of the settings of a catalog that only some types of catalog have."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

import dagster as dg

from lakehouse.config.environment import EnvRef
from lakehouse.core.text import did_you_mean

REST_KEYS = ("credential", "token", "oauth2_server_uri", "scope", "sigv4", "prefix", "headers", "access_delegation")
"""Keys of `catalog` for `type: rest`."""

NONE, VENDED = "none", "vended-credentials"
"""The values of `access_delegation`."""

SECRET_HEADERS = ("authorization", "proxy-authorization", "cookie")
OWN_HEADERS = ("x-iceberg-access-delegation", "content-type", "user-agent", "x-client-version", "idempotency-key")
"""Headers that the clients set themselves."""

SIGNED = "remote-signing"
"""Delegation by a catalog that signs each request to S3: s3fs requires an earlier botocore than the one that is
locked, and without it pyiceberg ignores the signer (pyiceberg, FsspecFileIO)."""

_ROLES = ("role_arn", "maintenance_role_arn", "reader_role_arn")
_SIGNING_NAME = re.compile(r"[a-z0-9-]+", re.ASCII)
_HEADER = re.compile(r"[\w!#$%&'*+.^`|~-]+", re.ASCII)


def headers_of(text: str) -> dict[str, str]:
    """Return the headers in a text such as `x-project-id=a1, x-tier=gold`."""
    pairs = (pair.partition("=") for pair in text.split(",") if pair.strip())
    return {name.strip(): value.strip() for name, _, value in pairs}


def catalog_faults(settings: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield the faults of a catalog's settings, each with its key.

    Args:
        settings: The declared settings by key. The value of a reference to a variable is unknown.
    """
    type_, declared = settings.get("type"), [key for key in REST_KEYS if settings.get(key) not in (None, "", NONE)]
    if _is_reference(type_):
        return
    if type_ != "rest":
        for key in declared:
            yield key, f"only a catalog of `type: rest` has this key, and the type is {type_}. Remove it"
        if type_ == "sql" and not settings.get("uri"):
            yield "uri", "missing. Write the database as a URL, such as {env: NAME} for postgresql://lake@database/lake"
        return
    uri, credential = settings.get("uri"), settings.get("credential")
    if not uri:
        yield "uri", "missing. Write the address of Iceberg's REST protocol, such as https://host/api/catalog"
    for key in ("uri", "oauth2_server_uri"):
        if (value := settings.get(key)) and not _is_reference(value) and not _is_address(str(value)):
            yield key, "not an address as https://host/path, without a login. Correct it"
    if credential and settings.get("token"):
        yield "token", "`credential` gets tokens itself. Remove one of them"
    for key in ("oauth2_server_uri", "scope"):
        if settings.get(key) and not credential:
            yield key, "it has no effect without `credential`. Add that, or remove this key"
    if credential and not _is_reference(credential) and not all(str(credential).partition(":")):
        yield "credential", "the client has no id or no secret. Write `id:secret` into the variable"
    if settings.get("sigv4"):
        yield from _signing_faults(settings)
    delegation = settings.get("access_delegation") or NONE
    if delegation == SIGNED:
        reason = "pyiceberg needs s3fs for it, which requires an earlier botocore than lakehouse"
        yield "access_delegation", f"{reason}. Write {VENDED} or {NONE}"
    elif not _is_reference(delegation) and delegation not in (NONE, VENDED):
        hint = did_you_mean(str(delegation), (NONE, VENDED))
        yield "access_delegation", f"unknown value '{delegation}'.{hint} Known values: {NONE}, {VENDED}"
    if delegation == VENDED:
        for key in _ROLES:
            if settings.get(key):
                yield key, f"with `access_delegation: {VENDED}`, the catalog issues the credentials. Remove it"
    if not _is_reference(settings.get("headers")):
        yield from (("headers", fault) for fault in _header_faults(str(settings.get("headers") or "")))


def _signing_faults(settings: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for key in ("credential", "token"):
        if settings.get(key):
            yield key, "`sigv4` signs requests in place of a login. Remove one of them"
    for key in _ROLES:
        if settings.get(key):
            # Iceberg's signer in Spark assumes no role (org.apache.iceberg.aws.AwsProperties, restCredentialsProvider).
            yield key, "Spark signs requests with the credentials of its environment, and not as a role. Remove it"
    if not settings.get("region"):
        yield "sigv4", "requests are signed for a region. Add `region`"
    name = settings["sigv4"]
    if not _is_reference(name) and not _SIGNING_NAME.fullmatch(str(name)):
        yield "sigv4", "not the signing name of a service. Write glue, s3tables or execute-api"


def _header_faults(text: str) -> Iterator[str]:
    for name, value in headers_of(text).items():
        if not _HEADER.fullmatch(name) or not value or not value.isprintable():
            yield f"'{name}' is no header with a value. Write NAME=VALUE, separated by commas"
        elif name.lower() in SECRET_HEADERS:
            yield f"'{name}' is a login, which would be in Spark's settings. Use `credential` or `token`"
        elif name.lower() in OWN_HEADERS:
            yield f"the clients set '{name}' themselves. Remove it"


def _is_reference(value: object) -> bool:
    return isinstance(value, EnvRef | dg.EnvVar)


def _is_address(value: str) -> bool:
    url = urlsplit(value)
    return url.scheme in ("http", "https") and bool(url.hostname) and "@" not in url.netloc
