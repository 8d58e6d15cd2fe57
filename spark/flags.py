"""flagged_stock_trades: trades with an anomaly flag."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def flagged(trades: DataFrame) -> DataFrame:
    """Return trades with the column anomaly_flag.

    The first rule that matches applies, and null values match none: NEGATIVE_PRICE (price < 0), LARGE_TRADE (quantity >
    4000), UNUSUAL_PRICE (price > 900, in pennies), else NORMAL.

    Args:
        trades: Rows of stock_trades; each is flagged independently.
    """
    flag = (
        F.when(F.col("price") < 0, "NEGATIVE_PRICE")
        .when(F.col("quantity") > 4000, "LARGE_TRADE")
        .when(F.col("price") > 900, "UNUSUAL_PRICE")
        .otherwise("NORMAL")
    )
    return trades.withColumn("anomaly_flag", flag)
