"""The schema registry, through Confluent's client. A registry that does not answer is never "not found"."""

from __future__ import annotations

import math
import time
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar

import dagster as dg
from pydantic import Field, PrivateAttr

from lakehouse.core.errors import LakehouseError, SchemaError, Unreachable, translate
from lakehouse.formats.budget import MAX_DEPTH, MAX_REFERENCES, require_characters
from lakehouse.formats.schema import RegisteredSchema, SchemaType
from resources.hidden import hidden
from resources.secret import values

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

TIMEOUT_SECONDS = 10
NOT_FOUND_SECONDS = 60
"""How long "not found" is remembered: the id may be registered at any time."""
MOST_NOT_FOUND = 1_000
"""So many answers of "not found" are remembered, the newest."""
NOT_FOUND = 404
URL, USER_INFO = "schema.registry.url", "schema.registry.basic.auth.user.info"


class SchemaRegistry(dg.ConfigurableResource):
    """A Confluent-compatible schema registry."""

    EITHER: ClassVar = ("url", "secret")
    """Settings of which one has to be given."""

    url: str = hidden("")
    api_key: str | None = None
    api_secret: str | None = hidden(None)

    secret: str = Field(
        "",
        description="A secret in AWS Secrets Manager with schema.registry.url and "
        "schema.registry.basic.auth.user.info.",
    )

    _client: tuple[dict[str, object], SchemaRegistryClient] | None = PrivateAttr(default=None)
    _not_found: dict[int, float] = PrivateAttr(default_factory=dict)

    @property
    def address(self) -> str:
        """Where it answers.

        Raises: ConfigError; Unreachable.
        """
        return values(self.secret, URL)[URL] if self.secret else self.url

    def client(self) -> SchemaRegistryClient:
        """Confluent's client, with time-outs set: a registry may hang. Its connection is kept and none of its answers:
        they are what the registry says now.
        """
        from confluent_kafka.schema_registry import SchemaRegistryClient

        config: dict[str, object] = {"url": self.address, "timeout": TIMEOUT_SECONDS, "max.retries": 2}
        if self.secret:
            config["basic.auth.user.info"] = values(self.secret, USER_INFO)[USER_INFO]
        elif self.api_key:
            config["basic.auth.user.info"] = f"{self.api_key}:{self.api_secret}"
        if self._client is None or self._client[0] != config:
            self._client = config, SchemaRegistryClient(config)
        client = self._client[1]
        client.clear_caches()
        return client

    def register(self, subject: str, schema: str, type_: SchemaType = "AVRO") -> int:
        """Register a schema under a subject, or find it there; returns its id.

        Raises: LakehouseError when the subject's compatibility rule refuses it; Unreachable.
        """
        from confluent_kafka.schema_registry import Schema, SchemaRegistryError

        with self._explained():
            try:
                return self.client().register_schema(subject, Schema(schema, type_))
            except SchemaRegistryError as error:
                if error.http_status_code in (409, 422):
                    raise LakehouseError(
                        f"The schema registry refused the schema for subject '{subject}': {error.error_message}. "
                        f"Nothing was changed. Make the schema compatible with the registered one"
                    ) from error
                raise

    def versions(self, subject: str) -> list[RegisteredSchema]:
        """List every schema that is registered under a subject, oldest first, so that the last is the newest.

        All come from one listing of the subject: a version that is registered meanwhile is in all of it or in none.

        Returns:
            The schemas; none when the subject does not exist.

        Raises:
            SchemaError: A schema refers to more than is read, or to itself.
            Unreachable: The registry does not answer.
        """
        from confluent_kafka.schema_registry import SchemaRegistryError

        with self._explained():
            client = self.client()
            try:
                numbers = sorted(client.get_versions(subject))
            except SchemaRegistryError as error:
                if error.http_status_code == NOT_FOUND:
                    return []
                raise
            by_id: dict[int, RegisteredSchema] = {}
            for number in numbers:
                found = client.get_version(subject, number)
                assert found.schema_id is not None, "a registered schema has an id"
                # The same schema under two numbers has one id, and its place is that of the higher number.
                by_id.pop(found.schema_id, None)
                by_id[found.schema_id] = self._resolved(found.schema_id, found.schema)
            return list(by_id.values())

    def by_id(self, id_: int, deadline: float = math.inf) -> RegisteredSchema | None:
        """Fetch the schema of an id under any subject, and all that it refers to.

        Args:
            id_: the schema id.
            deadline: until when requests may begin, as `time.monotonic` counts.

        Returns:
            The schema, or None when the registry says that there is none.

        Raises:
            SchemaError: The schema refers to more than is read, or to itself.
            Unreachable: The registry does not answer, or not before the deadline.
        """
        from confluent_kafka.schema_registry import SchemaRegistryError

        with self._explained():
            try:
                self._require_time(deadline)
                return self._resolved(id_, self.client().get_schema(id_), deadline)
            except SchemaRegistryError as error:
                if error.http_status_code != NOT_FOUND:
                    raise
                self._not_found.pop(id_, None)
                self._not_found[id_] = time.monotonic()
                for oldest in list(self._not_found)[:-MOST_NOT_FOUND]:
                    del self._not_found[oldest]
                return None

    def subjects(self, id_: int) -> frozenset[str]:
        """List the subjects that have, or had before it was deleted, the schema of an id.

        Raises:
            Unreachable: The registry does not answer.
        """
        from confluent_kafka.schema_registry import SchemaRegistryError

        with self._explained():
            try:
                return frozenset(self.client().get_subjects_by_schema_id(id_, deleted=True))
            except SchemaRegistryError as error:
                if error.http_status_code != NOT_FOUND:
                    raise
                return frozenset()

    def not_found(self) -> frozenset[int]:
        """The ids that the registry had no schema of when it was asked, less than NOT_FOUND_SECONDS ago."""
        since = time.monotonic() - NOT_FOUND_SECONDS
        return frozenset(id_ for id_, asked in self._not_found.items() if asked > since)

    def _resolved(self, id_: int, schema: Schema, deadline: float = math.inf) -> RegisteredSchema:
        """The schema with what it refers to, fetched depth first.

        Raises: SchemaError; Unreachable.
        """
        texts: dict[str, str] = {}
        open_: list[str] = []
        type_: Any = schema.schema_type or "AVRO"
        characters = 0

        def collect(of: Schema) -> None:
            nonlocal characters
            characters += len(of.schema_str or "")
            require_characters(type_, characters)
            for reference in of.references or ():
                if reference.name in texts:
                    continue
                if reference.name in open_:
                    raise SchemaError(f"Schema {id_} refers to itself by way of '{reference.name}'. Correct it")
                if len(texts) + len(open_) == MAX_REFERENCES or len(open_) == MAX_DEPTH:
                    raise SchemaError(
                        f"Schema {id_} refers to more than {MAX_REFERENCES} schemas, or through more than {MAX_DEPTH} "
                        f"to the last of them. Combine some of them"
                    )
                self._require_time(deadline)
                name, subject, version = reference.name, reference.subject, reference.version
                assert name and subject and version is not None, "the registry names a reference completely"
                referred = self.client().get_version(subject, version).schema
                open_.append(name)
                collect(referred)
                open_.pop()
                texts[name] = referred.schema_str or ""

        collect(schema)
        return RegisteredSchema(id_, schema.schema_str or "", type_, tuple(texts.items()))

    def _require_time(self, deadline: float) -> None:
        if time.monotonic() > deadline:
            check = "its load and rate limits"
            raise Unreachable("The schema registry", self.address, check, "it answers too slowly")

    def _explained(self) -> AbstractContextManager[None]:
        from confluent_kafka.schema_registry import SchemaRegistryError
        from httpx2 import HTTPError

        def unreachable(error: Exception) -> Unreachable:
            check = "that the registry is up (`lakehouse status`), its URL, and the API key"
            return Unreachable("The schema registry", self.address, check, error)

        return translate(dict.fromkeys((SchemaRegistryError, HTTPError), unreachable))
