"""flagged_stock_trades: each trade with what is unusual about it."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def flagged(trades: DataFrame) -> DataFrame:
    """Trades with an anomaly flag; the first that matches wins, and a value that is null matches nothing.

    Parameters: rows of stock_trades, each by itself.
    Returns: the same rows with anomaly_flag: NEGATIVE_PRICE (price < 0), LARGE_TRADE (quantity > 4000), UNUSUAL_PRICE
    (price > 900, in pennies), else NORMAL.
    """
    flag = (
        F.when(F.col("price") < 0, "NEGATIVE_PRICE")
        .when(F.col("quantity") > 4000, "LARGE_TRADE")
        .when(F.col("price") > 900, "UNUSUAL_PRICE")
        .otherwise("NORMAL")
    )
    return trades.withColumn("anomaly_flag", flag)
