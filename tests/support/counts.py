"""Transforms of tests: counts of trades in groups."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def by_user(trades: DataFrame) -> DataFrame:
    """Return the number of trades of each user, and of one side of them."""
    return trades.groupBy("userid").agg(F.min("side").alias("side"), F.count(F.lit(1)).alias("trades"))


def tenfold(trades: DataFrame) -> DataFrame:
    """Return ten times the number of trades of each user."""
    return by_user(trades).withColumn("trades", F.col("trades") * 10)
