"""Readers in memory: Glue with version ids, a REST catalog, and Snowflake. The project's clients of them are real.

Each is replaced where its client library sends a request: boto3's client, `requests.request`, and the connection of
Snowflake's connector.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, TypeVar
from urllib.parse import unquote

import requests
from botocore.exceptions import ClientError, ConnectTimeoutError
from snowflake.connector.errors import OperationalError, ProgrammingError

from resources.aws.glue import Glue
from resources.iceberg.rest_catalog import RestCatalog
from resources.snowflake.snowflake import Snowflake, SnowflakeLogin
from tests.simulation.systems.catalog import MemoryIcebergCatalog, address_of, system_at
from tests.simulation.world import World

T = TypeVar("T")
Shown = Callable[[str, str, str | None], None]
"""Called with the name of a reader, a table, and the metadata file that the reader shows from now on."""


class AlreadyExists(ClientError):
    """The object exists."""


class EntityNotFound(ClientError):
    """The object does not exist."""


class MemoryGlueClient:
    """The methods of boto3's client of Glue that the project and pyiceberg use (AWS Glue API: Catalog)."""

    exceptions = SimpleNamespace(AlreadyExistsException=AlreadyExists, EntityNotFoundException=EntityNotFound)

    def __init__(self, world: World, on_shown: Shown):
        self._world, self._on_shown, self.address = world, on_shown, address_of(self)
        self._databases: dict[str, dict[str, dict[str, Any]]] = {}
        self._versions = 0

    def create_database(self, *, DatabaseInput: Mapping[str, Any], CatalogId: str = "") -> dict[str, Any]:  # noqa: N803
        """Create a database."""

        def create() -> dict[str, Any]:
            if DatabaseInput["Name"] in self._databases:
                raise AlreadyExists(*_refusal("AlreadyExistsException", "CreateDatabase"))
            self._databases[DatabaseInput["Name"]] = {}
            return {}

        return self._call("create_database", create)

    def get_database(self, *, Name: str, CatalogId: str = "") -> dict[str, Any]:  # noqa: N803
        """Return a database."""

        def database() -> dict[str, Any]:
            if Name not in self._databases:
                raise EntityNotFound(*_refusal("EntityNotFoundException", "GetDatabase"))
            return {"Database": {"Name": Name}}

        return self._call("get_database", database)

    def get_table(self, *, DatabaseName: str, Name: str, CatalogId: str = "") -> dict[str, Any]:  # noqa: N803
        """Return a table with its version."""
        return self._call("get_table", lambda: {"Table": dict(self._table(DatabaseName, Name))})

    def create_table(self, *, DatabaseName: str, TableInput: Mapping[str, Any], CatalogId: str = "") -> dict[str, Any]:  # noqa: N803
        """Create a table."""

        def create() -> dict[str, Any]:
            if DatabaseName not in self._databases:
                raise EntityNotFound(*_refusal("EntityNotFoundException", "CreateTable"))
            if TableInput["Name"] in self._databases[DatabaseName]:
                raise AlreadyExists(*_refusal("AlreadyExistsException", "CreateTable"))
            self._keep(DatabaseName, TableInput)
            return {}

        return self._call("create_table", create)

    def update_table(
        self,
        *,
        DatabaseName: str,  # noqa: N803
        TableInput: Mapping[str, Any],  # noqa: N803
        VersionId: str | None = None,  # noqa: N803
        CatalogId: str = "",  # noqa: N803
        SkipArchive: bool = False,  # noqa: N803
    ) -> dict[str, Any]:
        """Update a table, unless its version is not the expected one."""

        def update() -> dict[str, Any]:
            current = self._table(DatabaseName, TableInput["Name"])
            if VersionId is not None and VersionId != current["VersionId"]:
                raise ClientError(*_refusal("ConcurrentModificationException", "UpdateTable"))
            self._keep(DatabaseName, TableInput)
            return {}

        return self._call("update_table", update)

    def delete_table(self, *, DatabaseName: str, Name: str, CatalogId: str = "") -> dict[str, Any]:  # noqa: N803
        """Delete a table."""

        def delete() -> dict[str, Any]:
            self._table(DatabaseName, Name)
            del self._databases[DatabaseName][Name]
            return {}

        return self._call("delete_table", delete)

    def location(self, database: str, table: str) -> str | None:
        """Return the metadata file of a table without a fault."""
        entry = self._databases.get(database, {}).get(table)
        return entry["Parameters"]["metadata_location"] if entry else None

    def _table(self, database: str, name: str) -> dict[str, Any]:
        if name not in self._databases.get(database, {}):
            raise EntityNotFound(*_refusal("EntityNotFoundException", "GetTable"))
        return self._databases[database][name]

    def _keep(self, database: str, table: Mapping[str, Any]) -> None:
        self._versions += 1
        self._databases[database][table["Name"]] = {**table, "VersionId": str(self._versions)}
        self._world.judge(self._on_shown, "glue", table["Name"], table.get("Parameters", {}).get("metadata_location"))

    def _call(self, operation: str, effect: Callable[[], T]) -> T:
        lost = lambda _: ConnectTimeoutError(endpoint_url="https://glue.memory")  # noqa: E731
        return self._world.call(f"glue.{operation}", effect, lost)


def _refusal(code: str, operation: str) -> tuple[Any, str]:
    return {"Error": {"Code": code, "Message": "refused"}}, operation


class SimulatedGlue(Glue):
    """The production client on the one in memory."""

    @classmethod
    def on(cls, client: MemoryGlueClient) -> SimulatedGlue:
        """Return the production client on one of boto3."""
        return _glue().model_copy(update={"catalog_id": client.address})

    def client(self) -> Any:
        """Return the client in memory."""
        return system_at(self.catalog_id)


# Dagster validates a resource for longer than most of its calls take here, so there is one template of each.
@cache
def _glue() -> SimulatedGlue:
    return SimulatedGlue(region="memory", catalog_id="1")


class MemoryRestServer:
    """A catalog with Iceberg's REST protocol, which moves a table as resources/iceberg/rest_catalog.py describes."""

    def __init__(self, world: World, iceberg: MemoryIcebergCatalog, on_shown: Shown):
        self._world, self._iceberg, self._on_shown = world, iceberg, on_shown
        self._namespaces: set[str] = set()
        self._tables: dict[tuple[str, str], str] = {}
        self._notified: dict[tuple[str, str], int] = {}

    def request(self, method: str, url: str, *, json: Any = None, **_: Any) -> Any:
        """Respond to a request, as `requests.request` does."""
        path = url.partition("/v1/")[2]
        kind = re.sub(r".*/tables/[^/]+$", "table", path).rpartition("/")[2]
        respond = lambda: self._respond(method, unquote(path), json or {})  # noqa: E731
        status, body = self._world.call(f"rest.{method} {kind}", respond, requests.ConnectionError)
        return SimpleNamespace(
            status_code=status, ok=status < 400, content=body is not None, reason=str(status), json=lambda: body
        )

    def location(self, namespace: str, table: str) -> str | None:
        """Return the metadata file of a table without a fault."""
        return self._tables.get((namespace, table))

    def _respond(self, method: str, path: str, body: Mapping[str, Any]) -> tuple[int, Any]:
        match path.split("/"):
            case ["config"]:
                return 200, {"overrides": {}}
            case ["namespaces"]:
                (namespace,) = body["namespace"]
                if namespace in self._namespaces:
                    return _refused(409)
                self._namespaces.add(namespace)
                return 200, {"namespace": [namespace]}
            case ["namespaces", namespace, "register"]:
                name, overwrites = (namespace, body["name"]), body.get("overwrite", False)
                if namespace not in self._namespaces:
                    return _refused(404)
                if name in self._tables and not overwrites:
                    return _refused(409)
                self._show(name, body["metadata-location"])
                return self._loaded(name)
            case ["namespaces", namespace, "tables", table, "notifications"]:
                payload, name = body["payload"], (namespace, table)
                if payload["timestamp"] <= self._notified.get(name, 0):
                    return _refused(409)
                self._notified[name] = payload["timestamp"]
                self._show(name, payload["metadata-location"])
                return 204, None
            case ["namespaces", namespace, "tables", table]:
                name = namespace, table
                if name not in self._tables:
                    return _refused(404)
                if method == "DELETE":
                    self._show(name, None)
                    return 204, None
                return self._loaded(name)
        return _refused(400)

    def _loaded(self, name: tuple[str, str]) -> tuple[int, Any]:
        location = self._tables[name]
        metadata = self._iceberg.metadata_at(location)
        fields = {"table-uuid": str(metadata.table_uuid), "current-snapshot-id": metadata.current_snapshot_id}
        return 200, {"metadata-location": location, "metadata": fields}

    def _show(self, name: tuple[str, str], location: str | None) -> None:
        if location is None:
            del self._tables[name]
        else:
            self._tables[name] = location
        self._world.judge(self._on_shown, "rest", name[1], location)


def _refused(status: int) -> tuple[int, Any]:
    return status, {"error": {"message": "refused", "type": "Error", "code": status}}


def simulated_rest_catalog(move: Any) -> RestCatalog:
    """Return the production client, whose requests MemoryRestServer handles while it replaces `requests.request`."""
    settings: dict[str, Any] = {"uri": "https://rest.memory", "warehouse": "lake", "move": move}
    return RestCatalog(**settings)


NAMED = r'"([^"]*)"'
TABLE = rf"{NAMED}\.{NAMED}\.{NAMED}"
MISSING = 2003
"""Snowflake's error number for an object that does not exist."""


class MemorySnowflakeServer:
    """The statements of resources/snowflake/sql.py that create, refresh and describe a table over Glue."""

    def __init__(self, world: World, iceberg: MemoryIcebergCatalog, glue: MemoryGlueClient, on_shown: Shown):
        self._world, self._iceberg, self._glue, self._on_shown = world, iceberg, glue, on_shown
        self.address = address_of(self)
        self._objects: set[tuple[str, str]] = set()
        self._sources: dict[tuple[str, ...], tuple[str, str]] = {}
        self._locations: dict[tuple[str, ...], str] = {}
        self._statements: Sequence[tuple[str, str, Callable[..., Sequence[tuple[Any, ...]]]]] = (
            ("show", r"SHOW ([A-Z ]+)S LIKE '([^']*)'.*", self._show),
            ("create", rf"CREATE (EXTERNAL VOLUME|CATALOG INTEGRATION) IF NOT EXISTS {NAMED} .*", self._create),
            ("create", rf"CREATE (SCHEMA) IF NOT EXISTS {NAMED}\.{NAMED}.*", self._create),
            (
                "create table",
                rf"CREATE ICEBERG TABLE IF NOT EXISTS {TABLE} .*"
                r"CATALOG_TABLE_NAME = '(.*?)' CATALOG_NAMESPACE = '(.*?)'.*",
                self._create_table,
            ),
            ("alter", rf"ALTER ICEBERG TABLE {TABLE} SET AUTO_REFRESH = FALSE", self._require),
            ("refresh", rf"ALTER ICEBERG TABLE {TABLE} REFRESH", self._refresh),
            ("information", rf"SELECT SYSTEM\$GET_ICEBERG_TABLE_INFORMATION\('{TABLE}'\)", self._information),
            ("count", rf"SELECT COUNT\(\*\) FROM {TABLE}", self._count),
        )

    def execute(self, statement: str) -> Sequence[tuple[Any, ...]]:
        """Run a statement, and return its rows.

        Raises:
            ProgrammingError: Snowflake refuses the statement.
        """
        for operation, pattern, effect in self._statements:
            if match := re.fullmatch(pattern, statement):
                lost = lambda cause: OperationalError(msg=cause)  # noqa: E731
                return self._world.call(f"snowflake.{operation}", partial(effect, *match.groups()), lost)
        raise ProgrammingError(msg=f"unknown statement {statement}", errno=1003)

    def location(self, *name: str) -> str | None:
        """Return the metadata file of a table without a fault."""
        return self._locations.get(name)

    def _show(self, kind: str, name: str) -> Sequence[tuple[Any, ...]]:
        return [(name,)] if (kind, name) in self._objects else []

    def _create(self, kind: str, *name: str) -> Sequence[tuple[Any, ...]]:
        self._objects.add((kind, name[-1]))
        return []

    def _create_table(self, *values: str) -> Sequence[tuple[Any, ...]]:
        name, (table, namespace) = values[:3], values[3:]
        if name not in self._sources:
            if self._glue.location(namespace, table) is None:
                raise ProgrammingError(msg="the table does not exist in the catalog", errno=MISSING)
            self._sources[name] = namespace, table
            self._refresh(*name)
        return []

    def _refresh(self, *name: str) -> Sequence[tuple[Any, ...]]:
        self._require(*name)
        location = self._glue.location(*self._sources[name])
        if location is None:
            raise ProgrammingError(msg="the table does not exist in the catalog", errno=MISSING)
        self._locations[name] = location
        self._world.judge(self._on_shown, "snowflake", self._sources[name][1], location)
        return []

    def _information(self, *name: str) -> Sequence[tuple[Any, ...]]:
        self._require(*name)
        return [(json.dumps({"metadataLocation": self._locations[name]}),)]

    def _count(self, *name: str) -> Sequence[tuple[Any, ...]]:
        self._require(*name)
        metadata = self._iceberg.metadata_at(self._locations[name])
        snapshot = metadata.snapshot_by_id(metadata.current_snapshot_id or 0)
        return [(int(snapshot.summary.additional_properties["total-records"]) if snapshot and snapshot.summary else 0,)]

    def _require(self, *name: str) -> Sequence[tuple[Any, ...]]:
        if name not in self._sources:
            raise ProgrammingError(msg="the table does not exist or is not authorized", errno=MISSING)
        return []


class Cursor:
    """A cursor of Snowflake's connector."""

    description = (SimpleNamespace(name="name"),)

    def __init__(self, server: MemorySnowflakeServer):
        self._server = server
        self._rows: Sequence[tuple[Any, ...]] = []

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *_: object) -> None:
        """Close nothing."""

    def execute(self, statement: str, parameters: object = None) -> None:
        """Run a statement."""
        self._rows = self._server.execute(statement)

    def fetchall(self) -> Sequence[tuple[Any, ...]]:
        """Return the rows of the statement."""
        return self._rows


class SimulatedSnowflake(Snowflake):
    """The production client with connections to the server in memory."""

    @classmethod
    def on(cls, server: MemorySnowflakeServer) -> SimulatedSnowflake:
        """Return the production client with connections to a server."""
        return _snowflake().model_copy(update={"host": server.address})

    def login(self) -> SnowflakeLogin:
        """Return a user, whom messages name."""
        return SnowflakeLogin("memory", "user", "role", {}, "memory")

    @contextmanager
    def connect(self) -> Iterator[Any]:
        """Provide a session."""
        yield SimpleNamespace(cursor=lambda: Cursor(system_at(self.host)))


@cache
def _snowflake() -> SimulatedSnowflake:
    roles: dict[str, Any] = {"aws_role_arn": "arn:aws:iam::1:role/memory", "glue_catalog_id": "1", "region": "memory"}
    return SimulatedSnowflake(warehouse="WH", database="DB", host="memory", **roles)
