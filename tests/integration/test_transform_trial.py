"""The trial of a transform in `lakehouse dry-run`: errors have the line of the transform, and nothing is produced."""

import sys

import pytest

from lakehouse.pipeline.derivation.trial import try_transform
from tests.support.topics import consume
from tests.support.totals import Totals

MODULE = "trial_of_transforms"
CODE = """from pyspark.sql import functions as F

def unknown_column(rows):
    return rows.select("nope")

def method(rows):
    return rows.wher("price > 0")

def lacks_columns(rows):
    return rows.select("symbol")
"""


@pytest.fixture(scope="module")
def totals(resources):
    totals = Totals(resources)
    totals.produce(range(10), 1_790_000_000_000)
    totals.trades.ingest()
    return totals


def test_transform_with_a_result_passes_its_trial(totals):
    result = try_transform(totals.config, totals.totals.topic, totals.totals.systems)
    assert result.passed and result.message == "its result for no rows has the columns of the messages"


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        ("unknown_column", f"/{MODULE}.py:3): [UNRESOLVED_COLUMN"),
        ("method", "raised PySparkAttributeError: [ATTRIBUTE_NOT_SUPPORTED] Attribute `wher` is not supported. at "),
        ("lacks_columns", "has no valid result"),
    ],
)
def test_transform_that_fails_has_its_line_and_produces_nothing(totals, tmp_path, monkeypatch, function, problem):
    monkeypatch.setattr(sys, "path", [*sys.path])
    sys.modules.pop(MODULE, None)
    (tmp_path / f"{MODULE}.py").write_text(CODE)
    topic = totals.totals.topic
    source = topic.source.model_copy(update={"transform": f"{MODULE}:{function}"})
    config = totals.config.model_copy(update={"root": tmp_path})
    result = try_transform(config, topic.model_copy(update={"source": source}), totals.totals.systems)
    assert not result.passed and problem in result.message, result.message
    assert consume(totals.totals.name, 3) == []
