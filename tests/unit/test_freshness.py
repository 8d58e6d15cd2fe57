"""Freshness of pipeline stages."""

import pytest

from lakehouse.core.offsets.lag import Lag
from lakehouse.readers.freshness import StageLag, first_stale_stage, summary

GONE = "is not in the table's history: expired, rolled back, or never published"


@pytest.mark.parametrize(
    ("behind", "failure", "fresh", "description"),
    [
        (Lag(0, 0), "", True, "topic → Iceberg: up to date"),
        (Lag(7, 60), "", True, "topic → Iceberg: 7 records behind, for 60 s"),
        (Lag(7, 61), "", False, "topic → Iceberg: 7 records behind, for 61 s (limit: 60 s)"),
        (Lag(2, 61, "snapshot"), "", False, "topic → Iceberg: 2 snapshots behind, for 61 s (limit: 60 s)"),
        (None, "", False, f"topic → Iceberg: snapshot 5 {GONE}"),
        (None, "Kafka does not answer", False, "topic → Iceberg: unknown: Kafka does not answer"),
    ],
)
def test_stage_lag_is_fresh_only_within_known_limit(behind, failure, fresh, description):
    stage_lag = StageLag("trades", "iceberg", 60, behind, 5, failure)
    assert (stage_lag.is_fresh, stage_lag.description) == (fresh, description)


def test_first_stale_stage_is_first_behind():
    fresh, late = Lag(0, 0), Lag(1, 100)
    chain = [StageLag("t", "snowflake", 60, late), StageLag("t", "glue", 60, late), StageLag("t", "iceberg", 60, fresh)]
    assert first_stale_stage(chain).stage == "glue"
    assert first_stale_stage(chain[2:]) is None


def test_summary_names_stale_topics_of_route():
    lags = [StageLag(name, "iceberg", 60, Lag(1, seconds)) for name, seconds in (("a", 1), ("b", 100), ("c", 2))]
    assert summary(lags) == f"1 of 3 topics are stale: b: {lags[1].description}"
    assert summary(lags[::2]) == "all 2 topics are fresh"
    assert summary(lags[:1]) == lags[0].description
