"""What pyspark writes to standard error by itself."""

from __future__ import annotations

import logging

QUERY_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""pyspark's loggers of failed queries (pyspark.errors.exceptions.base)."""


def silence_failed_queries() -> None:
    """Keep pyspark from logging the text of each error, which may quote values: it is raised as well, and not always
    shown."""
    from pyspark.logger import PySparkLogger

    for name in QUERY_LOGGERS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
