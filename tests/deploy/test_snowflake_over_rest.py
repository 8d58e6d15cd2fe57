"""A deployment's Snowflake integration with a REST catalog, and its tables."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lakehouse.core.errors import LakehouseError
from lakehouse.core.polling import Clock
from lakehouse.deploy.planner import apply, destroy, plan
from lakehouse.deploy.waiting import TimedOut
from resources.iceberg.rest_catalog import RestCatalog
from tests.support.clouds.rest.client import CLIENT_ID, SECRET
from tests.support.clouds.rest.server import WAREHOUSE, Polaris
from tests.support.clouds.snowflake.deployments import Deployed, quiet, service_session

pytestmark = pytest.mark.stack


@pytest.fixture
def over_rest(new: Callable[..., Deployed], polaris: Polaris) -> Deployed:
    """A deployment without resources, whose environment has a REST catalog with one of its tables."""
    deployed = new(rest_catalog=lambda: rest_catalog(polaris))
    table = deployed.lake.sql.load_table((deployed.lake.database, "stock_trades"))
    rest_catalog(polaris).publish(
        deployed.lake.database,
        "stock_trades",
        metadata_location=table.metadata_location,
        table_uuid=str(table.metadata.table_uuid),
        expected=None,
    )
    return deployed


def rest_catalog(polaris: Polaris, **settings: str) -> RestCatalog:
    defaults = {"uri": polaris.address, "warehouse": WAREHOUSE, "client_id": CLIENT_ID, "client_secret": SECRET}
    return RestCatalog(**(defaults | settings))


def differing(deployed: Deployed) -> dict[str, str]:
    return {change.resource.address: change.reason for change in plan(deployed.resources()) if change.action != "no-op"}


def integration(deployed: Deployed) -> dict[str, str]:
    rows = deployed.query(f"desc catalog integration {deployed.names.snowflake('REST')}")
    return {row["property"]: row["property_value"] for row in rows}


def test_create_and_delete_over_rest_without_reachable_catalog(over_rest: Deployed, polaris: Polaris):
    over_rest.rest_catalog = lambda: rest_catalog(polaris, client_secret="an-old-one")
    paused: list[float] = []
    over_rest.clock = Clock(now=lambda: sum(paused), sleep=paused.append)
    with pytest.raises(TimedOut, match="access to the REST catalog.*unauthorized_client"):
        apply(over_rest.resources(), quiet)
    over_rest.rest_catalog = lambda: rest_catalog(polaris)
    assert "is refused" in differing(over_rest)["snowflake/rest_verified"]
    apply(over_rest.resources(), quiet)
    assert differing(over_rest) == {}
    assert integration(over_rest)["CATALOG_SOURCE"] == "POLARIS"

    with service_session(over_rest) as session:
        for schema in (over_rest.schema, f"{over_rest.schema}_REST"):
            assert session.cursor().execute(f"select count(*) from {schema}.stock_trades").fetchall() == [(3,)]

    over_rest.rest_catalog = lambda: RestCatalog(uri="http://127.0.0.1:1", warehouse="w", credential="a:b")
    destroy(over_rest.resources(), quiet, delete_data=True)
    assert over_rest.state() == {}


def test_apply_integration_differences_are_repaired_or_refused(over_rest: Deployed, polaris: Polaris):
    apply(over_rest.resources(), quiet)
    name = over_rest.names.snowflake("REST")
    for integration in (name, over_rest.names.snowflake("GLUE")):
        over_rest.server.admin(f"alter catalog integration {integration} set refresh_interval_seconds = 3600")
    interval = "REFRESH_INTERVAL_SECONDS is '3600' instead of '30'"
    assert differing(over_rest) == {"snowflake/rest_integration": interval, "snowflake/integration": interval}
    apply(over_rest.resources(), quiet)
    assert differing(over_rest) == {}

    over_rest.rest_catalog = lambda: rest_catalog(polaris, uri=f"{polaris.address}/")
    uri = f"CATALOG_URI is '{polaris.address}' instead of '{polaris.address}/'"
    assert differing(over_rest) == {"snowflake/rest_integration": uri}
    with pytest.raises(LakehouseError, match="differs: CATALOG_URI .*left unchanged.*deploy delete"):
        apply(over_rest.resources(), quiet)
