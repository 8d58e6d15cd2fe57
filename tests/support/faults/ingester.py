"""Repeated runs, as a schedule starts them, which print one line of JSON for each batch or error."""

from __future__ import annotations

import json
import time
from pathlib import Path

import dagster as dg

from lakehouse.config.loader import load
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.ingestion import ingest
from resources.build import build_resources

PAUSE_SECONDS = 0.2


def keep_ingesting(config_file: str, name: str) -> None:
    """Ingest until killed, with a new Spark session after a failed run."""
    config = load(Path(config_file))
    topic = config.topic(name)
    while True:
        with dg.build_resources(build_resources(config, "local")) as r:
            try:
                for published in ingest(config.namespace, topic, Clients.of(r)):
                    report(published=published.counts.consumed)
            except Exception as error:
                report(error=type(error).__name__, message=str(error)[:1000])
                r.spark.close()
        time.sleep(PAUSE_SECONDS)


def report(**fields: object) -> None:
    print(json.dumps(fields), flush=True)
