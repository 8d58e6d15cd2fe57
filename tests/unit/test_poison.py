"""Failures of decoding, which only a record may cause that becomes a dead letter."""

from types import SimpleNamespace

import pytest
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.connect import AnalysisException, SparkConnectGrpcException, SparkException

from lakehouse.core.offsets.batch import Batch
from lakehouse.pipeline.batches.poison import largest_decodable_prefix
from spark.decoding.decode import is_decodable


def records_that_fail(error):
    """Return a DataFrame whose jobs end with an error."""

    def save():
        raise error

    writer = SimpleNamespace(save=save)
    writer.format = writer.mode = lambda _: writer
    return SimpleNamespace(write=writer)


@pytest.mark.parametrize("error", [SparkConnectGrpcException("Connection reset"), AnalysisException("No column")])
def test_failure_that_no_record_causes_is_no_poison(error):
    batch = Batch("cluster", "orders", "id", {0: 7}, {0: 8})

    with pytest.raises(PySparkException) as raised:
        largest_decodable_prefix(lambda _: is_decodable(records_that_fail(error)), batch)

    assert raised.value is error


def test_failure_of_tasks_is_poison():
    batch = Batch("cluster", "orders", "id", {0: 7}, {0: 8})
    failed = SparkException("Job aborted due to stage failure: Task 0 failed 4 times")

    assert largest_decodable_prefix(lambda _: is_decodable(records_that_fail(failed)), batch) == (batch, True)
