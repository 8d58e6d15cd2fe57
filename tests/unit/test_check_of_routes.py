"""`lakehouse check` of topics that a route matches: the checks of the route's assets, restricted to these topics."""

import dagster as dg
import pytest

from assets.factories import CheckDefinition, asset_checks
from assets.freshness import ONLY
from lakehouse.cli.check_runner import run_asset_checks
from lakehouse.config.model import Config, Route, Topic
from lakehouse.core.errors import LakehouseError

CONFIG = Config(
    namespace="n",
    topics={"users": Topic(name="users")},
    routes={"shop": Route.model_validate({"name": "shop", "pattern": r"shop\..*"})},
    environments={},
)
KAFKA = ["shop.a", "shop.b", "users"]


@dg.asset_check(asset=["shop", "iceberg"])
def fresh(context: dg.AssetCheckExecutionContext):
    """Pass for each topic, and name those of the route."""
    assert not {"shop", "shop.a", "shop.b"}.isdisjoint(context.run.tags[ONLY].split(","))
    return dg.AssetCheckResult(
        passed=True, description=", ".join(context.instance.get_dynamic_partitions("topics_shop"))
    )


def breaks(context):
    raise KeyError("a row")


def refuses(context):
    raise LakehouseError("Glue has no table n.users")


@dg.asset_check(asset=["users", "iceberg"])
def ledger():
    return dg.AssetCheckResult(passed=True)


@dg.asset_check(asset=["confluent", "kafka_cluster"])
def provisioned():
    return dg.AssetCheckResult(passed=True)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["shop.b"], {"shop/iceberg": "shop.b"}),
        (["shop.a", "users"], {"shop/iceberg": "shop.a", "users/iceberg": ""}),
        (["shop"], {"shop/iceberg": "shop.a, shop.b"}),
        (["shop", "shop.b"], {"shop/iceberg": "shop.a, shop.b"}),
        (["users"], {"users/iceberg": ""}),
        (["users", "shop"], {"users/iceberg": "", "shop/iceberg": "shop.a, shop.b", "confluent/kafka_cluster": ""}),
    ],
)
def test_check_of_routed_topic_runs_the_checks_of_its_route(names, expected):
    specs = [dg.AssetSpec(key) for key in (["shop", "iceberg"], ["users", "iceberg"], ["confluent", "kafka_cluster"])]
    checks = [fresh, ledger, provisioned]
    definitions = dg.Definitions(assets=specs, asset_checks=checks)
    outcomes = list(run_asset_checks(definitions, CONFIG, names, KAFKA))
    assert {one.asset: one.message for one in outcomes} == expected
    assert {one.verdict for one in outcomes} == {"passed"}


def test_checks_that_raise_have_reasons_of_their_own():
    runs = {"first": breaks, "second": refuses}
    checks = [CheckDefinition(name, "", frozenset(), run) for name, run in runs.items()]
    definition = asset_checks(CONFIG.topics["users"], "iceberg", checks)
    assets = [dg.AssetSpec(["users", "iceberg"])]
    definitions = dg.Definitions(assets=assets, asset_checks=[definition])
    outcomes = list(run_asset_checks(definitions, CONFIG, ["users"], KAFKA))
    assert {one.check: (one.verdict, one.message) for one in outcomes} == {
        "first": ("error", "KeyError (unexpected: see the log)"),
        "second": ("error", "Glue has no table n.users"),
    }
