"""A derived topic: orders of at least 100.00. To use it, add to `topics` in lakehouse.yaml:

large_orders:
  source: {type: derived, from: orders, transform: "transforms.large_orders:large_orders"}
"""

from pyspark.sql import DataFrame


def large_orders(orders: DataFrame) -> DataFrame:
    """Return the columns of the derived topic for new rows of the source's table."""
    return orders.where("cents >= 10000").select("order_id", "customer", "cents")
