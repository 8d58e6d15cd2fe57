"""The curves of the Grafana dashboard for a stream, drawn from its metrics, which are scraped every five seconds.

    lakehouse up --only kafka --only registry --only s3 --only aws --only spark --only snowflake
    python benchmarks/dashboard.py --rate 2000 --topics 2 --minutes 3

The stream starts after half of the records, so that it first catches up. The scrapes are written to
`benchmarks/results/dashboard.json`, with a curve as SVG for each panel.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import requests
from latency import prepared, produce, streaming
from peers import plots
from prometheus_client.parser import text_string_to_metric_families

from lakehouse.cli.systems import open_clients
from lakehouse.config import loader

ADDRESS = "127.0.0.1:9464"
SCRAPE_SECONDS = 5
WINDOW = 6
"""Number of scrapes over which a rate is computed, half a minute."""

PANELS = {
    "records": ("Records per second", "lakehouse_records_total"),
    "backlog": ("Records that are not in their table", "lakehouse_backlog_records"),
    "phases": ("Seconds of work per second, all phases", "lakehouse_batch_phase_seconds_total"),
}
"""The title and the metric of each panel. Those of counters show rates."""


def main() -> None:
    """Stream, scrape and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=2_000, help="records per second, of all topics together")
    parser.add_argument("--topics", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    namespace, seconds = f"dashboard_{time.time_ns()}", arguments.minutes * 60
    topics = [f"{namespace}_{n}" for n in range(arguments.topics)]
    with open_clients(loader.load()) as systems, tempfile.TemporaryDirectory() as folder:
        pool = prepared(systems, topics)
        work = threading.Thread(target=produce, args=(systems, topics, pool, arguments.rate, seconds))
        work.start()
        time.sleep(seconds / 2)
        with streaming(Path(folder), namespace, topics, "--metrics", ADDRESS):
            scrapes = scraped(seconds)
        work.join()
    arguments.results.mkdir(exist_ok=True)
    (arguments.results / "dashboard.json").write_text(json.dumps(scrapes, indent=1) + "\n")
    for name, (title, metric) in PANELS.items():
        xs, ys = series(scrapes, metric)
        curve = plots.curve(title, "seconds", xs, ys)
        (arguments.results / f"dashboard_{name}.svg").write_text(curve)


def scraped(seconds: float) -> list[dict[str, float]]:
    """Scrape the stream for some seconds, and return the sum of each panel's metric, with the time of each scrape."""
    began, scrapes = time.monotonic(), []
    while time.monotonic() - began < seconds:
        time.sleep(SCRAPE_SECONDS)
        try:
            text = requests.get(f"http://{ADDRESS}/metrics", timeout=SCRAPE_SECONDS).text
        except requests.ConnectionError:
            continue  # the stream does not listen yet
        sums: Counter[str] = Counter()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                sums[sample.name] += sample.value
        passed = round(time.monotonic() - began, 1)
        scrapes.append({"seconds": passed, **{metric: sums[metric] for _, metric in PANELS.values()}})
        print(scrapes[-1], flush=True)
    assert scrapes, f"the stream did not listen at {ADDRESS} within {seconds:.0f} s"
    return scrapes


def series(scrapes: list[dict[str, float]], metric: str) -> tuple[list[float], list[float]]:
    """Return the times and values of a metric: of a counter, its rate over WINDOW scrapes as Prometheus computes it."""
    if not metric.endswith("_total"):
        return [scrape["seconds"] for scrape in scrapes], [scrape[metric] for scrape in scrapes]
    pairs = [*zip(scrapes, scrapes[WINDOW:], strict=False)]
    rates = [(last[metric] - first[metric]) / (last["seconds"] - first["seconds"]) for first, last in pairs]
    return [last["seconds"] for _, last in pairs], rates


if __name__ == "__main__":
    main()
