"""A client of the schema registry. A registry that does not respond is never reported as "not found"."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import dagster as dg
from pydantic import Field, PrivateAttr

from lakehouse.core.errors import (
    ConfigError,
    LakehouseError,
    RequestRejected,
    SchemaError,
    Unreachable,
    redact_credentials,
    translate,
)
from lakehouse.formats.budget import MAX_DEPTH, MAX_REFERENCES, require_characters
from lakehouse.formats.schema import RegisteredSchema, SchemaType
from resources.aws.secret_reader import read_secret_fields
from resources.forms import url as url_form
from resources.http_json import ClientCredentials
from resources.masked_field import masked_field, secret_field
from resources.registry_settings import BEARER, REQUIRED, SETTINGS, setting_faults, tls_context, tls_error

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

TIMEOUT_SECONDS = 10
NOT_FOUND_SECONDS = 60
"""Lifetime of a "not found" response in memory: the id may be registered at any time."""
MAX_NOT_FOUND = 1_000
"""Maximum number of "not found" responses in memory; the oldest are dropped."""
NOT_FOUND, SCHEMA_NOT_FOUND = 404, 40403
"""Status of a response, and the code of its error if the registry knows the path (Schema Registry API, errors)."""
UNREGISTERED = (40401, 40402, SCHEMA_NOT_FOUND)
"""Codes of the errors for a subject, a version and a schema that the registry does not have."""
DEFAULT_CONTEXT = "."
Found = TypeVar("Found")
SYSTEM = "The schema registry"
URL, USER_INFO = "schema.registry.url", "schema.registry.basic.auth.user.info"


class SchemaRegistry(dg.ConfigurableResource):
    """A Confluent-compatible schema registry."""

    ONE_OF: ClassVar = ("url", "secret")
    """Settings of which one is required."""
    FORMS: ClassVar = {"url": url_form("http://registry:8081")}
    CLIENT_SETTINGS: ClassVar = SETTINGS
    FAULTS: ClassVar = staticmethod(setting_faults)
    """Yields the faults of settings that depend on each other, each with its location."""

    url: str = masked_field("", "Address of the registry.")
    api_key: str | None = Field(None, description="Id of an API key of the registry, or a user.")
    api_secret: str | None = secret_field(None, "The key's secret, or the user's password.")
    settings: dict[str, str] = masked_field(
        {}, "Settings of the client by the names of Confluent's client for Python, such as `ssl.ca.location`."
    )

    secret: str = Field(
        "",
        description="A secret in AWS Secrets Manager with schema.registry.url and "
        "schema.registry.basic.auth.user.info.",
    )

    role_arn: str = Field(default="", description="IAM role to assume to read secrets of AWS Secrets Manager.")

    _client: tuple[dict[str, object], SchemaRegistryClient] | None = PrivateAttr(default=None)
    _tokens: ClientCredentials | None = PrivateAttr(default=None)
    _not_found: dict[int, float] = PrivateAttr(default_factory=dict)

    @property
    def address(self) -> str:
        """The registry's URL."""
        return read_secret_fields(self.secret, URL, role_arn=self.role_arn)[URL] if self.secret else self.url

    def client(self) -> SchemaRegistryClient:
        """Return Confluent's client, with time-outs and without cached responses.

        The connection is reused. Cached responses are cleared because they may be outdated.
        """
        from confluent_kafka.schema_registry import SchemaRegistryClient

        config = self._settings()
        if self._client is None or self._client[0] != config:
            tls_context(config)
            self._client = config, SchemaRegistryClient(config)
        client = self._client[1]
        client.clear_caches()
        return client

    def _settings(self) -> dict[str, object]:
        config: dict[str, object] = {"url": self.address, "timeout": TIMEOUT_SECONDS, "max.retries": 2}
        settings = self._client_settings()
        config |= {name: value for name, value in settings.items() if name not in BEARER}
        if any(name in BEARER for name in settings):
            config |= {"bearer.auth.credentials.source": "CUSTOM", "bearer.auth.custom.provider.config": settings}
            config["bearer.auth.custom.provider.function"] = self._bearer_fields
        if self.secret:
            fields = read_secret_fields(self.secret, USER_INFO, role_arn=self.role_arn)
            config["basic.auth.user.info"] = fields[USER_INFO]
        elif self.api_key:
            config["basic.auth.user.info"] = f"{self.api_key}:{self.api_secret}"
        return config

    def _client_settings(self) -> dict[str, str]:
        """Return the settings of the client.

        Raises:
            ConfigError: They contradict each other. Those of variables are known only now.
        """
        settings = {name: value for name, value in self.settings.items() if value}
        fields = {"url": self.address, "api_key": self.api_key, "secret": self.secret, "settings": settings}
        faults = [(("settings", name), fault) for name, fault in SETTINGS.value_faults(settings)]
        for location, fault in (*faults, *setting_faults(fields)):
            raise ConfigError(f"lakehouse.yaml: schema_registry.{'.'.join(location)}: {fault}")
        return settings

    def _token_headers(self) -> dict[str, str]:
        """Return the headers of a request with a token, as Confluent's client sends them; none without."""
        settings = self._client_settings()
        if not any(name in BEARER for name in settings):
            return {}
        fields = self._bearer_fields(settings)
        headers = {"Authorization": f"Bearer {fields['bearer.auth.token']}"}
        headers["target-sr-cluster"] = fields["bearer.auth.logical.cluster"]
        if pool := fields.get("bearer.auth.identity.pool.id"):
            headers["Confluent-Identity-Pool-Id"] = pool
        return headers

    def _bearer_fields(self, settings: dict[str, str]) -> dict[str, str]:
        """Return the fields of a request with a token (Confluent's client for Python, its custom source of tokens)."""
        id_, secret, address = (settings[name] for name in REQUIRED)
        scope = settings.get("bearer.auth.scope", "")
        if self._tokens is None:
            self._tokens = ClientCredentials(SYSTEM, address, id_, secret, scope, "bearer.auth.issuer.endpoint.url")
        fields = {"bearer.auth.token": self._tokens.token()}
        fields["bearer.auth.logical.cluster"] = settings.get("bearer.auth.logical.cluster", "")
        if pool := settings.get("bearer.auth.identity.pool.id"):
            fields["bearer.auth.identity.pool.id"] = pool
        return fields

    def register(self, subject: str, schema: str, type_: SchemaType = "AVRO") -> int:
        """Register a schema under a subject, if it is not registered there, and return its id."""
        from confluent_kafka.schema_registry import Schema, SchemaRegistryError

        with self._translate_errors():
            try:
                return self.client().register_schema(subject, Schema(schema, type_))
            except SchemaRegistryError as error:
                if error.http_status_code in (409, 422):
                    raise LakehouseError(
                        f"The schema registry refused the schema for subject '{subject}': {error.error_message}. "
                        f"It was not registered. Make the schema compatible with the registered one"
                    ) from error
                raise

    def versions(self, subject: str) -> list[RegisteredSchema]:
        """Return all schemas registered under a subject, oldest first.

        All come from one listing of the subject, so a concurrently registered version is either complete or absent.

        Returns:
            The schemas; empty if the subject does not exist.

        Raises:
            SchemaError: A schema has too many references, or refers to itself.
        """
        with self._translate_errors():
            client = self.client()
            by_id: dict[int, RegisteredSchema] = {}
            for number in sorted(_if_registered(lambda: client.get_versions(subject)) or ()):
                version = client.get_version(subject, number)
                assert version.schema_id is not None, "a registered schema has an id"
                # A schema with two version numbers has one id, and the position of the higher number.
                by_id.pop(version.schema_id, None)
                schema = self._with_references(version.schema_id, version.schema)
                by_id[version.schema_id] = replace(schema, guid=version.guid or "")
            return list(by_id.values())

    def by_id(self, id_: int, deadline: float = math.inf) -> RegisteredSchema | None:
        """Return the schema with an id, under any subject, and all schemas it refers to.

        Args:
            id_: The schema id.
            deadline: Time after which no request may start, as of `time.monotonic`.

        Returns:
            The schema, or None if the registry has none.

        Raises:
            SchemaError: The schema has too many references, or refers to itself.
        """
        with self._translate_errors():
            self._require_time(deadline)
            schema = _if_registered(lambda: self._with_references(id_, self.client().get_schema(id_), deadline))
        if schema is None:
            self._not_found.pop(id_, None)
            self._not_found[id_] = time.monotonic()
            for oldest in list(self._not_found)[:-MAX_NOT_FOUND]:
                del self._not_found[oldest]
        return schema

    def id_of(self, guid: str, deadline: float = math.inf) -> int | None:
        """Return the id of the schema with a GUID; None if the registry has none.

        Confluent's client returns the schema of a GUID without its id.

        Args:
            guid: The GUID.
            deadline: Time after which no request may start, as of `time.monotonic`.

        Raises:
            SchemaError: The registry does not look up GUIDs.
        """
        import httpx2

        with self._translate_errors():
            self._require_time(deadline)
            settings = self._settings()
            user, _, password = str(settings.get("basic.auth.user.info", "")).partition(":")
            response = httpx2.get(
                f"{self.address.rstrip('/')}/schemas/guids/{guid}/ids",
                auth=(user, password) if user else None,
                headers=self._token_headers(),
                verify=tls_context(settings) or True,
                timeout=TIMEOUT_SECONDS,
            )
            if response.status_code == NOT_FOUND and _error_code(response.text) == SCHEMA_NOT_FOUND:
                return None
            if response.status_code == NOT_FOUND:
                raise SchemaError(
                    f"the schema registry at {self.address} does not look up GUIDs (GET /schemas/guids). Use one that "
                    f"does (Confluent Platform 8.1, Confluent Cloud), or let serializers write the prefix"
                )
            response.raise_for_status()
            ids = {entry["context"]: entry["id"] for entry in response.json()}
        return ids.get(DEFAULT_CONTEXT, next(iter(ids.values()), None))

    def subjects(self, id_: int) -> frozenset[str]:
        """Return the subjects that have the schema with an id, or had it before it was deleted."""
        with self._translate_errors():
            return frozenset(_if_registered(lambda: self.client().get_subjects_by_schema_id(id_, deleted=True)) or ())

    def not_found(self) -> frozenset[int]:
        """Return the ids that had no schema when they were last looked up, less than NOT_FOUND_SECONDS ago."""
        since = time.monotonic() - NOT_FOUND_SECONDS
        return frozenset(id_ for id_, looked_up in self._not_found.items() if looked_up > since)

    def _with_references(self, id_: int, schema: Schema, deadline: float = math.inf) -> RegisteredSchema:
        """Return the schema with all schemas it refers to, fetched depth first."""
        texts: dict[str, str] = {}
        open_: list[str] = []
        type_: Any = schema.schema_type or "AVRO"
        characters = 0

        def collect(referring: Schema) -> None:
            nonlocal characters
            characters += len(referring.schema_str or "")
            require_characters(type_, characters)
            for reference in referring.references or ():
                if reference.name in texts:
                    continue
                if reference.name in open_:
                    raise SchemaError(f"Schema {id_} refers to itself through '{reference.name}'. Correct it")
                if len(texts) + len(open_) == MAX_REFERENCES or len(open_) == MAX_DEPTH:
                    raise SchemaError(
                        f"Schema {id_} refers to more than {MAX_REFERENCES} schemas, or through more than {MAX_DEPTH} "
                        f"to the last of them. Combine some of them"
                    )
                self._require_time(deadline)
                name, subject, version = reference.name, reference.subject, reference.version
                assert name and subject and version is not None, "a reference has a name, a subject and a version"
                referenced = self.client().get_version(subject, version).schema
                open_.append(name)
                collect(referenced)
                open_.pop()
                texts[name] = referenced.schema_str or ""

        collect(schema)
        return RegisteredSchema(id_, schema.schema_str or "", type_, tuple(texts.items()))

    def _require_time(self, deadline: float) -> None:
        if time.monotonic() > deadline:
            check = "its load and rate limits"
            raise Unreachable(SYSTEM, self.address, check, "it responds too slowly")

    def _translate_errors(self) -> AbstractContextManager[None]:
        from confluent_kafka.schema_registry import SchemaRegistryError
        from httpx2 import HTTPError

        def unreachable(error: Exception) -> LakehouseError:
            if refusal := tls_error(SYSTEM, self.address, str(error)):
                return refusal
            check = "that the registry is up (`lakehouse status`), its URL, and the API key"
            return Unreachable(SYSTEM, self.address, check, error)

        def responded(error: SchemaRegistryError) -> LakehouseError:
            if error.http_status_code in (401, 403):
                refusal = f"the login (HTTP {error.http_status_code}): {error.error_message}"
                return RequestRejected(SYSTEM, self.address, refusal, "the API key and its permissions")
            if error.http_status_code == NOT_FOUND and error.error_code not in UNREGISTERED:
                return self._no_registry(f"HTTP 404 without one of its error codes: {error.error_message}")
            return unreachable(error)

        errors = {SchemaRegistryError: responded, HTTPError: unreachable}
        errors |= {json.JSONDecodeError: lambda error: self._no_registry(f"no JSON: {error}")}
        return translate(errors, awaited="the schema registry")

    def _no_registry(self, response: str) -> LakehouseError:
        return LakehouseError(
            f"{redact_credentials(self.address)} is not the address of a schema registry: it answers with {response}",
            "Nothing was changed",
            "Correct `schema_registry.url` of the environment, with the path of its API if it has one",
        )


def _error_code(text: str) -> int | None:
    try:
        body = json.loads(text)
    except ValueError:
        return None
    return body.get("error_code") if isinstance(body, dict) else None


def _if_registered(request: Callable[[], Found]) -> Found | None:
    """Return the result of a request, or None if the registry does not have the object."""
    from confluent_kafka.schema_registry import SchemaRegistryError

    try:
        return request()
    except SchemaRegistryError as error:
        if error.http_status_code != NOT_FOUND or error.error_code not in UNREGISTERED:
            raise
        return None
