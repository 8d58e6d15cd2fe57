"""Ingest one batch for each line on standard input: the process of a build that benchmarks/ingest.py compares.

The builds differ, and run this file with their own libraries: it imports few names, which all of them have.
A request is JSON with a case, a namespace and the settings of a topic, which the first request of a case begins to
ingest. The response has the seconds of the batch and its counts.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import dagster as dg

from lakehouse.config.loader import load
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.ingestion import ingest
from resources.build import build_resources

CHECKOUT = Path(ingest.__code__.co_filename).parents[2]


def main() -> None:
    """Respond to requests until standard input ends."""
    # Libraries print to standard output.
    responses = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    batches = {}
    config = load(CHECKOUT / "lakehouse.yaml")
    # Builds have the class in different modules.
    topic_class = type(next(iter(config.topics.values())))
    with dg.build_resources(build_resources(config, "local")) as resources:
        clients = Clients.of(resources)
        for line in sys.stdin:
            response: dict[str, object] = {"folder": str(CHECKOUT)}
            if request := json.loads(line):
                case = request["case"]
                if case not in batches:
                    batches[case] = ingest(request["namespace"], topic_class(**request["topic"]), clients)
                began = time.monotonic()
                published = next(batches[case])
                response = {"seconds": time.monotonic() - began, "counts": vars(published.counts)}
            print(json.dumps(response), file=responses, flush=True)
        clients.close()


if __name__ == "__main__":
    main()
