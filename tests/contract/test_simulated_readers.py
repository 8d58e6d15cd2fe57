"""The REST catalog and Snowflake of tests/simulation behave as the servers do: each test runs the project's clients
against both."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
import requests
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from lakehouse.core.errors import CommitConflict, LakehouseError
from resources.aws.glue import Glue
from resources.iceberg.rest_catalog import RestCatalog
from resources.snowflake.snowflake import DoesNotExist, Snowflake
from tests.simulation.choices import Choices
from tests.simulation.systems.catalog import MemoryIcebergCatalog
from tests.simulation.systems.memory_files import empty_store
from tests.simulation.systems.readers import (
    MemoryGlueClient,
    MemoryRestServer,
    MemorySnowflakeServer,
    SimulatedGlue,
    SimulatedSnowflake,
    simulated_rest_catalog,
)
from tests.simulation.world import World, simulated_time
from tests.support.clouds.rest.client import CLIENT_ID, SECRET
from tests.support.clouds.rest.server import WAREHOUSE, Polaris

SCHEMA = Schema(NestedField(1, "n", LongType(), required=False))
ROWS = pa.table({"n": pa.array([1, 2], pa.int64())})


@dataclass
class Site:
    """The systems in memory, or the servers.

    Attributes:
        iceberg: The catalog of the tables.
        warehouse: The folder of the tables.
        glue: The client of Glue.
        snowflake: The client of Snowflake.
        polaris: The server with the REST protocol; None in memory.
        world: The world of the systems in memory; None for servers.
    """

    iceberg: Any
    warehouse: str
    glue: Glue
    snowflake: Snowflake
    polaris: Polaris | None = None
    world: World | None = None

    def wait(self) -> None:
        """Let time pass: notifications are ordered by milliseconds."""
        if self.world:
            self.world.advance(1)

    def rest(self, move: Any) -> RestCatalog:
        """Return a client of the REST catalog."""
        if self.polaris is None:
            return simulated_rest_catalog(move)
        self.polaris.kind = "EXTERNAL" if move == "notify" else "INTERNAL"
        login = {"client_id": CLIENT_ID, "client_secret": SECRET}
        return RestCatalog(uri=self.polaris.address, warehouse=WAREHOUSE, move=move, **login)


@pytest.fixture(params=["memory", "server"])
def site(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    if request.param == "server":
        resources, polaris = (request.getfixturevalue(name) for name in ("resources", "polaris"))
        catalog = resources.catalog
        yield Site(catalog.iceberg(), catalog.warehouse, resources.glue, resources.snowflake, polaris)
        return
    world = World(Choices(None))
    with empty_store(), simulated_time(world):
        iceberg, glue = MemoryIcebergCatalog(world), MemoryGlueClient(world, lambda *_: None)
        snowflake = MemorySnowflakeServer(world, iceberg, glue, lambda *_: None)
        monkeypatch.setattr(requests, "request", MemoryRestServer(world, iceberg, lambda *_: None).request)
        yield Site(iceberg, "memory://", SimulatedGlue.on(glue), SimulatedSnowflake.on(snowflake), world=world)


class Versions:
    """A table, with the metadata file of each of its states.

    Attributes:
        table: The newest state.
        locations: The metadata files, oldest first.
        snapshots: The snapshot of each.
    """

    def __init__(self, site: Site):
        self.namespace = f"n{uuid.uuid4().hex[:10]}"
        site.iceberg.create_namespace(self.namespace)
        self.table: Table = site.iceberg.create_table((self.namespace, "t"), SCHEMA)
        self.locations: list[str] = []
        self.snapshots: list[int | None] = []
        for _ in range(2):
            self.table.append(ROWS)
            self.locations.append(self.table.metadata_location)
            self.snapshots.append(self.table.metadata.current_snapshot_id)

    def register(self, glue: Glue, version: int) -> None:
        """Register one state in Glue."""
        glue.ensure_database(self.namespace, self.table.location())
        glue.register(
            self.namespace,
            "t",
            metadata_location=self.locations[version],
            table_uuid=str(self.table.metadata.table_uuid),
            schema=SCHEMA,
            location=self.table.location(),
            comment="",
            expected=glue.registration(self.namespace, "t"),
        )


@pytest.fixture
def versions(site: Site) -> Versions:
    return Versions(site)


@pytest.mark.parametrize("move", ["overwrite", "notify", "replace"])
def test_rest_catalog_moves_a_table_to_any_metadata_file(site: Site, versions: Versions, move: str) -> None:
    rest = site.rest(move)
    assert rest.registration(versions.namespace, "t") is None
    uuid_, registration = str(versions.table.metadata.table_uuid), None
    if move == "notify":
        # Notifications create no namespace.
        site.rest("overwrite").publish(
            versions.namespace, "other", metadata_location=versions.locations[0], table_uuid=uuid_, expected=None
        )
        rest = site.rest(move)
    # The server compares nothing, so a table also moves back.
    for version in (0, 1, 0):
        site.wait()
        location, snapshot_id = versions.locations[version], versions.snapshots[version]
        registration = rest.publish(
            versions.namespace, "t", metadata_location=location, table_uuid=uuid_, expected=registration
        )
        assert registration == rest.registration(versions.namespace, "t")
        assert (registration.metadata_location, registration.snapshot_id) == (location, snapshot_id)
        assert registration.table_uuid == uuid_


def test_rest_catalog_refuses_to_register_a_table_twice(site: Site, versions: Versions) -> None:
    rest, uuid_ = site.rest("overwrite"), str(versions.table.metadata.table_uuid)
    first, second = versions.locations
    rest.publish(versions.namespace, "t", metadata_location=first, table_uuid=uuid_, expected=None)
    with pytest.raises(CommitConflict):
        rest.publish(versions.namespace, "t", metadata_location=second, table_uuid=uuid_, expected=None)
    registration = rest.registration(versions.namespace, "t")
    assert registration is not None and registration.metadata_location == first


def test_rest_catalog_registers_table_that_another_writer_dropped(site: Site, versions: Versions) -> None:
    rest, uuid_ = site.rest("replace"), str(versions.table.metadata.table_uuid)
    first, second = versions.locations
    other = rest.publish(versions.namespace, "other", metadata_location=first, table_uuid=uuid_, expected=None)
    rest.publish(versions.namespace, "t", metadata_location=second, table_uuid=uuid_, expected=other)
    registration = rest.registration(versions.namespace, "t")
    assert registration is not None and registration.metadata_location == second


def test_snowflake_shows_what_glue_has_at_each_refresh(site: Site, versions: Versions) -> None:
    snowflake, name = site.snowflake, (versions.namespace, "t")
    snowflake.ensure_account_objects(site.warehouse)
    assert snowflake.metadata_location(*name) is None
    assert snowflake.table_state(*name) is None
    versions.register(site.glue, 0)
    snowflake.ensure_iceberg_table(*name, *name)
    snowflake.disable_auto_refresh(*name)
    assert snowflake.metadata_location(*name) == versions.locations[0]
    versions.register(site.glue, 1)
    snowflake.ensure_iceberg_table(*name, *name)
    assert snowflake.metadata_location(*name) == versions.locations[0]
    snowflake.refresh(*name)
    state = snowflake.table_state(*name)
    assert state is not None and (state.metadata_location, state.row_count) == (versions.locations[1], 4)


def test_snowflake_refuses_tables_that_glue_or_it_lacks(site: Site, versions: Versions) -> None:
    snowflake, name = site.snowflake, (versions.namespace, "t")
    snowflake.ensure_account_objects(site.warehouse)
    for refused in (snowflake.refresh, snowflake.disable_auto_refresh):
        with pytest.raises(DoesNotExist):
            refused(*name)
    site.glue.ensure_database(versions.namespace, versions.table.location())
    with pytest.raises(LakehouseError):
        snowflake.ensure_iceberg_table(*name, *name)
    assert snowflake.metadata_location(*name) is None
    versions.register(site.glue, 0)
    snowflake.ensure_iceberg_table(*name, *name)
    site.glue.client().delete_table(DatabaseName=versions.namespace, Name="t")
    with pytest.raises(LakehouseError):
        snowflake.refresh(*name)
    assert snowflake.metadata_location(*name) == versions.locations[0]
