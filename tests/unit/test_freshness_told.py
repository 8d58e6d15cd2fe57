"""When the sensor `freshness` tells a verdict."""

import dagster as dg

from assets.freshness_sensor import _Cursor, _news
from lakehouse import config as configuration
from lakehouse.freshness import CHECK, Hop
from lakehouse.lag import Lag

ENTRY = configuration.load().topics["users"]
FRESH = [Hop("users", "glue", ENTRY.max_lag_seconds, Lag(0, 0))]


@dg.asset(key=["glue", "users"], check_specs=[dg.AssetCheckSpec(CHECK, asset=["glue", "users"])])
def users():
    raise dg.Failure("the table before it was not made")


def test_a_verdict_that_a_failed_run_hides_is_told_again():
    cursor = _Cursor()
    with dg.DagsterInstance.ephemeral() as instance:

        def told() -> list[bool]:
            news = list(_news(cursor, ENTRY, ["glue"], FRESH, instance))
            for one in news:
                instance.report_runless_asset_event(one)
            return [one.passed for one in news]

        assert (told(), told()) == ([True], [])
        assert not dg.materialize([users], instance=instance, raise_on_error=False).success
        assert (told(), told()) == ([True], [])
