"""The systems in memory of tests/simulation behave as the servers do: each test runs against both."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from typing import Any

import boto3
import pyarrow as pa
import pytest
from botocore.exceptions import ClientError
from pyiceberg.catalog import Catalog as IcebergCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.table.update import AssertRefSnapshotId, SetPropertiesUpdate
from pyiceberg.types import LongType, NestedField

from tests.simulation.choices import Choices
from tests.simulation.systems.catalog import MemoryIcebergCatalog
from tests.simulation.systems.memory_files import empty_store
from tests.simulation.systems.readers import MemoryGlueClient
from tests.simulation.systems.registry import SCHEMA, MemoryRegistry
from tests.simulation.world import World
from tests.support.faults.proxied import refuse_stale
from tests.support.servers.proxy import Proxy
from tests.support.topics import register

SITES = ("memory", "server")
SCHEMA_OF_ROWS = IcebergSchema(NestedField(1, "n", LongType(), required=False))
ROWS = pa.table({"n": pa.array([1], pa.int64())})


def world() -> World:
    """Return a world in which nothing fails."""
    return World(Choices(None))


# Glue


@pytest.fixture(params=SITES)
def glue(request: Any) -> Iterator[Any]:
    if request.param == "memory":
        yield MemoryGlueClient(world(), lambda *_: None)
        return
    request.getfixturevalue("stack")
    with Proxy(os.environ["AWS_ENDPOINT_URL"], guard=refuse_stale) as proxy:
        yield boto3.client("glue", endpoint_url=proxy.address)


@pytest.fixture
def database(glue: Any) -> str:
    name = f"d{uuid.uuid4().hex[:10]}"
    glue.create_database(DatabaseInput={"Name": name})
    return name


def entry(location: str) -> dict[str, Any]:
    return {"Name": "t", "Parameters": {"table_type": "ICEBERG", "metadata_location": location}}


def code_of(call: Any, **arguments: Any) -> str:
    """Return the code of the error with which Glue refuses a call."""
    with pytest.raises(ClientError) as refusal:
        call(**arguments)
    return refusal.value.response["Error"]["Code"]


def test_glue_refuses_existing_and_missing_objects(glue: Any, database: str) -> None:
    table = {"DatabaseName": database, "Name": "t"}
    assert code_of(glue.create_database, DatabaseInput={"Name": database}) == "AlreadyExistsException"
    assert code_of(glue.get_table, **table) == "EntityNotFoundException"
    assert code_of(glue.delete_table, **table) == "EntityNotFoundException"
    assert code_of(glue.create_table, DatabaseName="none", TableInput=entry("a")) == "EntityNotFoundException"
    glue.create_table(DatabaseName=database, TableInput=entry("a"))
    assert code_of(glue.create_table, DatabaseName=database, TableInput=entry("b")) == "AlreadyExistsException"
    with pytest.raises(glue.exceptions.AlreadyExistsException):
        glue.create_database(DatabaseInput={"Name": database})
    glue.delete_table(**table)
    with pytest.raises(glue.exceptions.EntityNotFoundException):
        glue.get_table(**table)


def test_glue_update_of_a_stale_version_is_refused(glue: Any, database: str) -> None:
    def current() -> tuple[str, str]:
        table = glue.get_table(DatabaseName=database, Name="t")["Table"]
        return table["VersionId"], table["Parameters"]["metadata_location"]

    glue.create_table(DatabaseName=database, TableInput=entry("a"))
    first, _ = current()
    glue.update_table(DatabaseName=database, TableInput=entry("b"), VersionId=first, SkipArchive=True)
    second, location = current()
    assert location == "b" and second != first
    stale = {"DatabaseName": database, "TableInput": entry("c"), "VersionId": first}
    assert code_of(glue.update_table, **stale) == "ConcurrentModificationException"
    assert current() == (second, "b")
    glue.update_table(DatabaseName=database, TableInput=entry("d"))
    assert current()[1] == "d"


# The schema registry


@pytest.fixture(params=SITES)
def registry(request: Any) -> tuple[Any, str, int]:
    """The client, a topic, and the id of the topic's only schema."""
    if request.param == "memory":
        return MemoryRegistry(world(), "orders"), "orders", 1
    resources, topic = request.getfixturevalue("resources"), f"orders-{uuid.uuid4().hex[:8]}"
    id_ = register(f"{topic}-value", SCHEMA)
    return resources.schema_registry, topic, id_


def test_registry_returns_versions_subjects_and_schemas_by_id(registry: tuple[Any, str, int]) -> None:
    client, topic, id_ = registry
    [version] = client.versions(f"{topic}-value")
    assert version.id == id_
    assert f"{topic}-value" in client.subjects(id_)
    schema = client.by_id(id_)
    assert schema == version
    assert json.loads(schema.text) == json.loads(SCHEMA)
    assert client.by_id(1_000_000) is None


# The Iceberg catalog


@pytest.fixture(params=SITES)
def iceberg(request: Any) -> Iterator[IcebergCatalog]:
    if request.param == "memory":
        with empty_store():
            yield MemoryIcebergCatalog(world())
    else:
        yield request.getfixturevalue("resources").catalog.iceberg()


@pytest.fixture
def namespace() -> str:
    return f"n{uuid.uuid4().hex[:10]}"


def test_catalog_refuses_existing_and_missing_objects(iceberg: IcebergCatalog, namespace: str) -> None:
    name = namespace, "t"
    with pytest.raises(NoSuchNamespaceError):
        iceberg.create_table(name, SCHEMA_OF_ROWS)
    iceberg.create_namespace(namespace)
    with pytest.raises(NamespaceAlreadyExistsError):
        iceberg.create_namespace(namespace)
    with pytest.raises(NoSuchTableError):
        iceberg.load_table(name)
    iceberg.create_table(name, SCHEMA_OF_ROWS)
    with pytest.raises(TableAlreadyExistsError):
        iceberg.create_table(name, SCHEMA_OF_ROWS)


def test_catalog_commit_to_a_moved_reference_is_refused(iceberg: IcebergCatalog, namespace: str) -> None:
    iceberg.create_namespace(namespace)
    table = iceberg.create_table((namespace, "t"), SCHEMA_OF_ROWS)
    table.append(ROWS)
    first = table.metadata.current_snapshot_id
    stale = iceberg.load_table((namespace, "t"))
    table.append(ROWS)
    change = (SetPropertiesUpdate(updates={"a": "b"}),)
    with pytest.raises(CommitFailedException):
        iceberg.commit_table(stale, (AssertRefSnapshotId(ref="main", snapshot_id=first),), change)
    newest = iceberg.load_table((namespace, "t"))
    assert newest.metadata_location == table.metadata_location
    assert "a" not in newest.properties
    current = AssertRefSnapshotId(ref="main", snapshot_id=newest.metadata.current_snapshot_id)
    iceberg.commit_table(newest, (current,), change)
    assert iceberg.load_table((namespace, "t")).properties["a"] == "b"


def test_catalog_keeps_branches_and_tags(iceberg: IcebergCatalog, namespace: str) -> None:
    iceberg.create_namespace(namespace)
    table = iceberg.create_table((namespace, "t"), SCHEMA_OF_ROWS)
    table.append(ROWS)
    first = table.metadata.current_snapshot_id
    table.manage_snapshots().create_branch(first, "staged").create_tag(first, "kept").commit()
    table.append(ROWS, branch="staged")
    refs = iceberg.load_table((namespace, "t")).metadata.refs
    assert refs["main"].snapshot_id == refs["kept"].snapshot_id == first != refs["staged"].snapshot_id
    table.manage_snapshots().remove_branch("staged").remove_tag("kept").commit()
    assert set(iceberg.load_table((namespace, "t")).metadata.refs) == {"main"}
