"""The REST catalog in memory of tests/simulation refuses what Iceberg's server refuses: each test runs against both."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import BadRequestError, CommitFailedException, RESTError
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.table import Table
from pyiceberg.table.update import RemovePropertiesUpdate, SetPropertiesUpdate
from pyiceberg.types import LongType, NestedField

from lakehouse.core.errors import ClockSkew, CommitConflict
from lakehouse.core.tables.naming import TableRef
from resources.iceberg.catalog import Catalog
from tests.simulation.choices import Choices
from tests.simulation.systems.catalog import SimulatedCatalog
from tests.simulation.systems.memory_files import empty_store
from tests.simulation.systems.rest import MemoryRestCatalog
from tests.simulation.world import World, simulated_time
from tests.support.clouds.rest.lake import catalog_at
from tests.support.clouds.rest.server import Polaris

SCHEMA_OF_ROWS = IcebergSchema(NestedField(1, "n", LongType(), required=False))
ROWS = pa.table({"n": pa.array([1], pa.int64())})
MINUTES = 120
"""Seconds by which the clock of a writer differs, which is more than the server tolerates."""


@pytest.fixture(params=("memory", "server"))
def catalog(request: Any) -> Iterator[Catalog]:
    if request.param == "memory":
        world = World(Choices(None))
        with empty_store(), simulated_time(world):
            iceberg = MemoryRestCatalog(world)
            yield SimulatedCatalog.on(iceberg, type="rest")
        return
    with Polaris(*request.getfixturevalue("rest_server")) as server:
        yield catalog_at(server)


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """A table with a row, which is also on the branch `staged`."""
    namespace = f"n{uuid.uuid4().hex[:10]}"
    catalog.ensure_namespace(namespace)
    table = catalog.iceberg().create_table((namespace, "t"), SCHEMA_OF_ROWS)
    table.append(ROWS)
    table.manage_snapshots().create_branch(table.metadata.current_snapshot_id, "staged").commit()
    return table


def again(catalog: Catalog, table: Table) -> Table:
    return catalog.iceberg().load_table(table.name())


def refusal(call: Callable[[], object]) -> Exception:
    """Return the error with which the server refuses a call."""
    with pytest.raises((RESTError, CommitFailedException)) as raised:
        call()
    return raised.value


@pytest.fixture
def shift_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Let this machine's clock differ when a snapshot is written."""

    def shift(seconds: int) -> None:
        clock = SimpleNamespace(time=lambda: time.time() + seconds)
        monkeypatch.setattr("pyiceberg.table.snapshots.time", clock)

    return shift


@pytest.mark.parametrize("seconds", (-MINUTES, MINUTES))
def test_time_of_a_snapshot_on_main_is_refused(catalog, table, shift_clock, seconds):
    shift_clock(seconds)
    error = refusal(lambda: again(catalog, table).append(ROWS))
    assert isinstance(error, BadRequestError)
    assert isinstance(catalog.backend.to_error(error, catalog), ClockSkew)


@pytest.mark.parametrize("seconds", (-MINUTES, MINUTES))
def test_time_of_a_snapshot_on_a_branch_is_accepted(catalog, table, shift_clock, seconds):
    shift_clock(seconds)
    again(catalog, table).append(ROWS, branch="staged")
    metadata = again(catalog, table).metadata
    written = metadata.snapshot_by_id(metadata.refs["staged"].snapshot_id)
    assert abs(written.timestamp_ms - metadata.last_updated_ms) > (MINUTES - 60) * 1000


def test_commit_to_a_dropped_table_is_a_conflict(catalog, table):
    catalog.iceberg().drop_table(table.name())
    change = (SetPropertiesUpdate(updates={"a": "b"}),)
    error = refusal(lambda: catalog.iceberg().commit_table(table, (), change))
    assert type(error) is RESTError
    assert isinstance(catalog.backend.to_error(error, catalog), CommitConflict)


def test_removal_of_an_absent_property_is_accepted(catalog, table):
    removal = (RemovePropertiesUpdate(removals=["absent"]),)
    catalog.iceberg().commit_table(table, (), removal)


def test_file_of_a_dropped_table_has_no_credentials(catalog, table):
    vending = catalog.model_copy(update={"access_delegation": "vended-credentials"})
    catalog.iceberg().drop_table(table.name())
    assert vending.table_at(table.metadata_location, TableRef(*table.name())) is None


def test_overtaken_snapshot_is_a_conflict(catalog, table):
    transaction = again(catalog, table).transaction()
    transaction.append(ROWS)
    again(catalog, table).append(ROWS, branch="staged")
    requests = transaction._requirements, transaction._updates
    error = refusal(lambda: catalog.iceberg().commit_table(table, *requests))
    assert isinstance(error, CommitFailedException)
    assert "older than last sequence number" in str(error)
    refused_before = BadRequestError(f"ValidationException: {error}")
    assert isinstance(catalog.backend.to_error(refused_before, catalog), CommitConflict)
