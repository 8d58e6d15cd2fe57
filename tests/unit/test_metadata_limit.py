"""Tables whose metadata file is large, or nears the limit of the catalog, in the simulation's world and time."""

from contextlib import ExitStack

import pytest

from lakehouse.core.errors import TransientError
from lakehouse.core.offsets.batch import Counts
from lakehouse.pipeline import maintenance
from lakehouse.pipeline.ingestion import ingest
from lakehouse.pipeline.metadata_limit import keep_within_limit
from tests.contract.sites import MemorySite, Sent
from tests.simulation.choices import Choices
from tests.simulation.schedules.schedule import Schedule

BATCHES = 30


@pytest.fixture
def site(monkeypatch):
    """A topic with 30 published batches, whose metadata is large, and an hour later."""
    with ExitStack() as stack:
        site = MemorySite(stack, Schedule(Choices(None), modes=("append",)))
        for number in range(BATCHES):
            site.produce(Sent(f"{number:02}", number))
            list(ingest(site.namespace, site.topic, site.clients))
            site.schedule.world.advance(10)
        monkeypatch.setattr(maintenance, "LARGE_METADATA", maintenance.metadata_bytes(table_of(site)) // 2)
        yield site


def pass_time(site):
    """Let the time pass for which readers may need a snapshot."""
    site.schedule.world.advance(site.topic.min_snapshot_age.total_seconds() + 1)


def table_of(site):
    return site.clients.catalog.load(site.topic.table_in(site.namespace))


def keep_within(site, limit):
    ref, table = site.topic.table_in(site.namespace), table_of(site)
    return keep_within_limit(site.topic, ref, table, site.clients, limit)


def rows():
    return [(f"{number:02}", number) for number in range(BATCHES)]


def test_maintenance_of_large_metadata_expires_by_number(site):
    large, clients = maintenance.metadata_bytes(table_of(site)), site.clients
    list(maintenance.maintain(site.namespace, site.topic, clients.catalog, clients.engines))
    assert len(table_of(site).metadata.snapshots) > BATCHES  # a reader may show each of them

    pass_time(site)
    [maintained] = maintenance.maintain(site.namespace, site.topic, clients.catalog, clients.engines)

    assert "by number, because the metadata file had" in " ".join(maintained.actions)
    assert maintained.after.metadata_bytes < large and maintained.after.snapshots == maintenance.MIN_PUBLICATIONS
    assert site.rows() == rows()


def test_batch_near_the_limit_waits_until_snapshots_can_expire(site):
    size = maintenance.metadata_bytes(table_of(site))
    assert not keep_within(site, None) and not keep_within(site, 2 * size)
    with pytest.raises(TransientError, match="has 0.0 MB, and .* refuses tables.*No batch was begun.*max_lag_seconds"):
        keep_within(site, size)

    pass_time(site)

    assert keep_within(site, size) and not keep_within(site, size)
    assert len(table_of(site).metadata.snapshots) == maintenance.MIN_PUBLICATIONS
    site.produce(Sent("30", 30))
    [published] = ingest(site.namespace, site.topic, site.clients)
    assert published.counts == Counts(consumed=1, rows=1)
    assert site.rows() == [*rows(), ("30", 30)]


def test_snapshots_of_a_service_that_maintains_the_table_stay(site):
    site.topic = site.topic.model_copy(update={"maintenance": "external"})
    pass_time(site)
    snapshots = table_of(site).metadata.snapshots
    with pytest.raises(TransientError, match="No batch was begun"):
        keep_within(site, maintenance.metadata_bytes(table_of(site)))
    assert table_of(site).metadata.snapshots == snapshots
