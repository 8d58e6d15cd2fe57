"""What pyspark writes to standard error by itself."""

from __future__ import annotations

import logging

OF_QUERIES = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""pyspark's loggers of failed queries (pyspark.errors.exceptions.base)."""


def silence_failed_queries() -> None:
    """Keep pyspark from logging the text of each error, which may quote values.

    The error is raised as well, and whoever catches it decides whether its text is shown.
    """
    from pyspark.logger import PySparkLogger
    from pyspark.sql.connect.logging import logger as of_the_client

    for logger in (*map(PySparkLogger.getLogger, OF_QUERIES), of_the_client):
        # The client's is disabled, which Dagster undoes when it configures logging. A level stays.
        logger.setLevel(logging.CRITICAL + 1)
