"""stock_trades_with_totals: trades summed by timestamp, user, side and symbol."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def totals(trades: DataFrame) -> DataFrame:
    """Return the totals of each group of trades; amounts are in pennies.

    For a group of one trade this is the Flink statement `SELECT $rowtime, userid, side, symbol, quantity, price,
    quantity * price`.

    Args:
        trades: All rows of stock_trades of each group.

    Returns:
        One row per group: its key, trade_count, quantity (sum), price (volume-weighted, 4 decimals, half up),
            total_price (sum of price × quantity). Sums are 64-bit and fail on overflow (spark.sql.ansi.enabled).
    """
    quantity = F.sum(F.col("quantity").cast("long"))
    total_price = F.sum(F.col("price").cast("long") * F.col("quantity"))
    return trades.groupBy(F.col("kafka_timestamp").alias("trade_timestamp"), "userid", "side", "symbol").agg(
        F.count(F.lit(1)).alias("trade_count"),
        quantity.alias("quantity"),
        (total_price.cast("decimal(19,0)") / quantity.cast("decimal(19,0)")).cast("decimal(18,4)").alias("price"),
        total_price.alias("total_price"),
    )
