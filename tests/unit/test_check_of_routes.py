"""`lakehouse check` of topics that a route matches: the checks of the route's assets, restricted to these topics."""

import dagster as dg
import pytest

from assets.freshness_checks import ONLY
from lakehouse import definitions
from lakehouse.cli.check_runner import run_asset_checks
from lakehouse.config.loader import Config
from lakehouse.config.topic import Route, Topic

CONFIG = Config(
    namespace="n",
    topics={"users": Topic(name="users")},
    routes={"shop": Route.model_validate({"name": "shop", "pattern": r"shop\..*"})},
    environments={},
)
KAFKA = ["shop.a", "shop.b", "users"]


@dg.asset_check(asset=["iceberg", "shop"])
def fresh(context: dg.AssetCheckExecutionContext):
    """Pass for each topic, and name those of the route."""
    assert not {"shop", "shop.a", "shop.b"}.isdisjoint(context.run.tags[ONLY].split(","))
    return dg.AssetCheckResult(
        passed=True, description=", ".join(context.instance.get_dynamic_partitions("topics_shop"))
    )


@dg.asset_check(asset=["iceberg", "users"])
def ledger():
    return dg.AssetCheckResult(passed=True)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["shop.b"], {"iceberg/shop": "shop.b"}),
        (["shop.a", "users"], {"iceberg/shop": "shop.a", "iceberg/users": ""}),
        (["shop"], {"iceberg/shop": "shop.a, shop.b"}),
        (["shop", "shop.b"], {"iceberg/shop": "shop.a, shop.b"}),
        (["users"], {"iceberg/users": ""}),
    ],
)
def test_check_of_routed_topic_runs_the_checks_of_its_route(monkeypatch, names, expected):
    specs = [dg.AssetSpec(["iceberg", name]) for name in ("shop", "users")]
    monkeypatch.setattr(definitions, "defs", lambda: dg.Definitions(assets=specs, asset_checks=[fresh, ledger]))
    outcomes = list(run_asset_checks(CONFIG, names, KAFKA))
    assert {one.asset: one.message for one in outcomes} == expected
    assert {one.verdict for one in outcomes} == {"passed"}
