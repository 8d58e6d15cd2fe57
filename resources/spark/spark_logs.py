"""Suppression of pyspark's own log messages."""

import logging

QUERY_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""pyspark's loggers of failed queries (pyspark.errors.exceptions.base)."""


def silence_failed_queries() -> None:
    """Prevent pyspark from logging the texts of errors, which may quote values.

    The errors are raised as well, and their handlers decide which text to show.
    """
    from pyspark.logger import PySparkLogger
    from pyspark.sql.connect.logging import logger as client_logger

    for logger in (*map(PySparkLogger.getLogger, QUERY_LOGGERS), client_logger):
        # The client's logger is disabled by default, which Dagster undoes when it configures logging; a level persists.
        logger.setLevel(logging.CRITICAL + 1)
